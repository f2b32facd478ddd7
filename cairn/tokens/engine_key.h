// Keys from hashes that an engine or a router made: they are taken as they are, never made again from tokens.
//
// Does:     the sequence hash of such a key is the engine's 64-bit hash XOR the namespace's id. So the same hash under
//           another tenant or model is another key, and the hash that the engine's events carry can be read back.
// Threads:  pure functions.
// Fails:    a position that is not the one after the parent's, or beyond what a key can hold.
#pragma once

#include <cstdint>
#include <optional>

#include "cairn/base/result.h"
#include "cairn/tokens/block_key.h"
#include "cairn/tokens/namespace.h"

namespace cairn {

// `engine_hash` names the block at `position` and all before it; without a parent that position is 0.
[[nodiscard]] Result<BlockKey> adopt_hash(NamespaceId ns, const std::optional<BlockKey>& parent,
                                          std::uint64_t engine_hash, std::uint64_t position);
// What adopt_hash was given.
[[nodiscard]] constexpr std::uint64_t engine_hash_of(NamespaceId ns, const BlockKey& key) {
  return value_of(key.sequence_hash()) ^ value_of(ns);
}

}  // namespace cairn
