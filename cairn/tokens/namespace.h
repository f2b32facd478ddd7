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

#include "cairn/base/result.h"
#include "cairn/tokens/block_key.h"

namespace cairn {

enum class NamespaceId : std::uint64_t {};
[[nodiscard]] constexpr std::uint64_t value_of(NamespaceId id) { return static_cast<std::uint64_t>(id); }

// Who made the sequence hashes of the keys: hashes of one scheme mean nothing in another. Part of stored names: append
// only.
enum class KeyScheme : std::uint8_t { kNative = 0, kVllm = 1, kSglang = 2, kRouter = 3 };

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
    return value_of(qualified.ns) ^ std::hash<cairn::BlockKey>()(qualified.key);
  }
};
