// Keys from 64-bit sequence hashes that a router made (scheme `router`): they are taken as they are, never made again
// from tokens. Digests of engines become keys by vllm_key.h and sglang_key.h.
//
// The sequence hash of such a key is the router's hash XOR the namespace's id: the same hash under another tenant or
// model is another key, and the router's hash can be read back. There is no secret: whoever can choose tokens so that the
// router's hashes collide has made equal keys.
//
// Thread safety: pure functions.
// Errors: a position that is not the one after the parent's, or beyond what a key can hold.
#pragma once

#include <cstdint>
#include <optional>

#include "cairn/base/result.h"
#include "cairn/tokens/block_key.h"
#include "cairn/tokens/namespace.h"

namespace cairn {

// `router_hash` names the block at `position` and all before it; without a parent that position is 0.
[[nodiscard]] Result<BlockKey> adopt_hash(NamespaceId ns, const std::optional<BlockKey>& parent,
                                          std::uint64_t router_hash, std::uint64_t position);
// What adopt_hash was given.
[[nodiscard]] constexpr std::uint64_t router_hash_of(NamespaceId ns, const BlockKey& key) {
  return value_of(key.sequence_hash()) ^ value_of(ns);
}

}  // namespace cairn
