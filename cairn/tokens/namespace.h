// Namespace: separates blocks that have the same tokens. A block may be used for a request only if all fields agree.
//
// id() is a stable 64-bit hash of all fields: the first bytes of a SHA-256 over each field with its length in front, so
// that different fields never hash alike. It is part of every key that leaves the process.
//
// Thread safety: plain values.
// Errors: QualifiedKey::from_bytes() returns kCorrupt for everything that to_bytes() could not have written.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "cairn/base/result.h"
#include "cairn/tokens/block_key.h"

namespace cairn {

enum class NamespaceId : std::uint64_t {};
[[nodiscard]] constexpr std::uint64_t value_of(NamespaceId id) { return static_cast<std::uint64_t>(id); }

// How the sequence hashes of keys are made; hashes of different schemes cannot be compared. Stored in files: only append.
// 0 was `native` before it was keyed, and must not be used again.
enum class KeyScheme : std::uint8_t {
  kVllm = 1,    // a keyed hash of vLLM's digests (vllm_key.h)
  kSglang = 2,  // a keyed hash of SGLang's digests (sglang_key.h)
  kRouter = 3,  // the 64-bit hashes of a router (engine_key.h): not protected against forgery
  kDynamo = 4,  // XXH3 of the tokens (hashes.h), for routers and simulations: not protected against forgery
  kNative = 5,  // a keyed hash of the tokens (key_hasher.h)
};
inline constexpr KeyScheme kAllSchemes[] = {KeyScheme::kNative, KeyScheme::kDynamo, KeyScheme::kVllm,
                                            KeyScheme::kSglang, KeyScheme::kRouter};
// "native", "dynamo", "vllm", "sglang", "router"; "unknown" for other numbers, from a damaged file
[[nodiscard]] std::string_view to_string(KeyScheme scheme);
// Whether keys of the scheme are made with a secret.
[[nodiscard]] constexpr bool has_secret(KeyScheme scheme) {
  return scheme == KeyScheme::kNative || scheme == KeyScheme::kVllm || scheme == KeyScheme::kSglang;
}

struct Namespace {
  std::string tenant{};
  std::string model{};
  std::uint64_t weights_generation = 0;  // incremented when the weights change under the same model name
  std::string layout{};                  // of a block's bytes: the order of layers, K and V, heads
  std::string element_type{};            // "bf16", "fp8_e4m3"
  std::string shard{};                   // the part of the model that the bytes belong to: "tp0/2", or empty
  std::uint32_t block_size = 0;          // tokens per block
  KeyScheme scheme = KeyScheme::kNative;

  [[nodiscard]] NamespaceId id() const;
};

// A key with its namespace, as it leaves the process.
struct QualifiedKey {
  static constexpr std::size_t kBytes = 24;

  NamespaceId ns{};
  BlockKey key;

  // The namespace, then the key, most significant byte first.
  [[nodiscard]] std::array<std::byte, kBytes> to_bytes() const;
  [[nodiscard]] static Result<QualifiedKey> from_bytes(std::span<const std::byte> bytes);

  friend bool operator==(const QualifiedKey&, const QualifiedKey&) = default;
  // By namespace, then as keys sort.
  friend auto operator<=>(const QualifiedKey&, const QualifiedKey&) = default;
};

}  // namespace cairn

template <>
struct std::hash<cairn::QualifiedKey> {
  std::size_t operator()(const cairn::QualifiedKey& qualified) const noexcept {
    // An attacker cannot choose the namespace, and the key is mixed with a seed.
    return value_of(qualified.ns) ^ std::hash<cairn::BlockKey>()(qualified.key);
  }
};
