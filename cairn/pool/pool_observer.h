// PoolObserver: is called when a pool registers, matches or removes blocks. ResidentSource: lists what a pool has.
//
// The event log and the registry of keys across tiers follow pools through these interfaces. An observer must return
// soon, may take only locks of a higher rank (docs/architecture.md), must not keep a span that it is given, and must not call a
// pool. If it calls the pool that called it, the process aborts with a message instead of hanging.
//
// Thread safety: called by the thread that changes the pool, under that pool's lock. Calls of one pool never overlap,
// and come in the order of the changes. Several pools may call at once.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cairn/base/ids.h"
#include "cairn/evict/block_past.h"
#include "cairn/tokens/block_key.h"
#include "cairn/tokens/hashes.h"

namespace cairn {

// A block that can be matched, and what routers need to know of it.
struct ResidentBlock {
  BlockKey key;
  // Of the block before it in its sequence; undefined at position 0. Only the bits that the key holds if the parent was
  // not given (BlockNames::parent) and not registered.
  SequenceHash parent{0};
  BlockHash tokens_hash{0};  // 0 if none was given

  friend bool operator==(const ResidentBlock&, const ResidentBlock&) = default;
};

// Everything that a pool knows of a block, for another pool to take over.
struct BlockFacts {
  ResidentBlock block;
  std::uint32_t priority = 0;
  // Retention::priority_duration and time_to_live; 0 if there is none.
  std::uint32_t priority_ms = 0;
  std::uint32_t time_to_live_ms = 0;
  std::uint64_t checksum = 0;  // of the block's bytes; 0 if there is none
  BlockPast past = {};         // how requests used it, if the policy of its pool knows

  // Of what is stored: the past is left out, because every use changes it.
  friend bool operator==(const BlockFacts& a, const BlockFacts& b) {
    return a.block == b.block && a.priority == b.priority && a.priority_ms == b.priority_ms &&
           a.time_to_live_ms == b.time_to_live_ms && a.checksum == b.checksum;
  }
};

class PoolObserver {
 public:
  virtual ~PoolObserver() = default;

  // These blocks can be matched from now on. `tokens` is empty, or holds all their token ids.
  virtual void on_registered(CacheLevel tier, std::span<const ResidentBlock> blocks, std::span<const Token> tokens) = 0;
  // These blocks can no longer be matched: they were evicted, reset or discarded, or expired, in this order.
  virtual void on_removed(CacheLevel tier, std::span<const BlockKey> keys) = 0;
  // The same for blocks that were evicted to make room. An observer that does not care why blocks leave overrides
  // on_removed() alone.
  virtual void on_evicted(CacheLevel tier, std::span<const BlockKey> keys) { on_removed(tier, keys); }
  // No block of the pool can be matched any more. Called only if one could before.
  virtual void on_cleared(CacheLevel tier) = 0;
  // A lookup found these blocks, and they are in use now.
  virtual void on_matched(CacheLevel tier, std::span<const BlockKey> keys) = 0;
  // A load copies these blocks to a tier above, which counts as a use of them here. Observers of the pool above hear of
  // the blocks there as well.
  virtual void on_loaded(CacheLevel /*tier*/, std::span<const BlockKey> /*keys*/) {}
};

// The blocks that are resident now, for a follower that starts late or lost events.
class ResidentSource {
 public:
  virtual ~ResidentSource() = default;

  [[nodiscard]] virtual CacheLevel tier() const = 0;
  [[nodiscard]] virtual std::uint32_t capacity() const = 0;
  // Looks at `count` blocks from `first` on and appends those that can be matched. Returns the block to continue with;
  // capacity() at the end. Each call locks once: blocks may change between calls.
  [[nodiscard]] virtual std::uint32_t list_resident(std::uint32_t first, std::uint32_t count,
                                                    std::vector<ResidentBlock>& out) const = 0;
};

}  // namespace cairn
