// Namespace: what separates blocks whose tokens are the same. Two blocks may be served for one another only if all of
// it agrees.
//
// Does:     id() is a stable 64-bit name for all fields together, the first bytes of a SHA-256 over each of them with
//           its length in front, so that no text can pass for another field's or for a missing one. It is part of
//           every key that leaves the process.
// Threads:  plain values.
// Fails:    QualifiedKey::from_bytes() for anything that to_bytes() could not have written, kCorrupt.
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

// Who made the sequence hashes of the keys: hashes of one scheme mean nothing in another. Part of stored names: append
// only. 0 was `native` before it was keyed; no file of today has it.
enum class KeyScheme : std::uint8_t {
  kVllm = 1,    // vLLM's digests, adopted by a keyed hash (vllm_key.h)
  kSglang = 2,  // SGLang's digests, the same way (sglang_key.h)
  kRouter = 3,  // a router's 64-bit hashes as they are (engine_key.h): not protected against forgery
  kDynamo = 4,  // XXH3 of the tokens (hashes.h), for routers and simulations: not protected against forgery
  kNative = 5,  // a keyed hash of the tokens (key_hasher.h)
};
inline constexpr KeyScheme kAllSchemes[] = {KeyScheme::kNative, KeyScheme::kDynamo, KeyScheme::kVllm,
                                            KeyScheme::kSglang, KeyScheme::kRouter};
// "native", "dynamo", "vllm", "sglang", "router"; "unknown" for numbers that a damaged file may hold
[[nodiscard]] std::string_view to_string(KeyScheme scheme);
// Whether keys of the scheme are made with a secret.
[[nodiscard]] constexpr bool has_secret(KeyScheme scheme) {
  return scheme == KeyScheme::kNative || scheme == KeyScheme::kVllm || scheme == KeyScheme::kSglang;
}

struct Namespace {
  std::string tenant{};
  std::string model{};
  std::uint64_t weights_generation = 0;  // grows whenever the weights change under the same model name
  std::string layout{};                  // of a block's bytes: the order of layers, K and V, heads
  std::string element_type{};            // "bf16", "fp8_e4m3"
  std::string shard{};                   // which part of the model the bytes are of: "tp0/2", empty for all of it
  std::uint32_t block_size = 0;          // tokens per block
  KeyScheme scheme = KeyScheme::kNative;

  [[nodiscard]] NamespaceId id() const;
};

// A key as it leaves the process.
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
    // The namespace is not the attacker's to choose, and the key is mixed with a seed.
    return value_of(qualified.ns) ^ std::hash<cairn::BlockKey>()(qualified.key);
  }
};
