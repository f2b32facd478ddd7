// Keys from 64-bit sequence hashes that a router computed (scheme `router`). For digests of engines see vllm_key.h and
// sglang_key.h.
//
// The sequence hash of such a key is the router's hash XOR the id of the namespace: the same hash under another tenant or
// model is another key, and the router's hash can be read back. There is no secret: tokens whose router hashes collide have
// equal keys.
//
// Errors: a position that is not the one after the parent's, or that a key cannot hold.
#pragma once

#include <cstdint>
#include <optional>

#include "cairn/base/result.h"
#include "cairn/tokens/block_key.h"
#include "cairn/tokens/namespace.h"

namespace cairn {

// `router_hash` is of the block at `position` and all blocks before it; without a parent the position is 0.
[[nodiscard]] Result<BlockKey> adopt_hash(NamespaceId ns, const std::optional<BlockKey>& parent,
                                          std::uint64_t router_hash, std::uint64_t position);
// The router hash that was given to adopt_hash().
[[nodiscard]] constexpr std::uint64_t router_hash_of(NamespaceId ns, const BlockKey& key) {
  return value_of(key.sequence_hash()) ^ value_of(ns);
}

}  // namespace cairn
