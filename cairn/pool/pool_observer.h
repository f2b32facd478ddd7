// PoolObserver: is told what a pool did, after the fact and in the order in which it was done. ResidentSource: shows
// what it has.
//
// Does:     the seam between a pool and those who follow it: the event log, the registry of keys across tiers.
// Threads:  called by whichever thread acts, under that pool's lock: calls of one pool never overlap, and their order
// is
//           the order of the facts. Several pools may call at once.
// Obliges:  returns soon; takes only locks of a higher rank (base/mutex.h); never calls a pool; keeps no span it is
//           given. A call of the pool that tells it would wait for itself: it aborts with a message instead.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cairn/base/ids.h"
#include "cairn/tokens/block_key.h"
#include "cairn/tokens/hashes.h"

namespace cairn {

// A block that can be matched, and what routers want to know of it.
struct ResidentBlock {
  BlockKey key;
  // Of the block before it in its sequence; means nothing at position 0. Only the bits that the key holds where whoever
  // named the block did not say, and the parent was not there.
  SequenceHash parent{0};
  BlockHash tokens_hash{0};  // 0 where whoever named the block gave none

  friend bool operator==(const ResidentBlock&, const ResidentBlock&) = default;
};

// All that a pool knows of a block, for another pool to take over.
struct BlockFacts {
  ResidentBlock block;
  std::uint32_t priority = 0;
  std::uint64_t note = 0;  // of whoever filled it; 0: none was made

  friend bool operator==(const BlockFacts&, const BlockFacts&) = default;
};

class PoolObserver {
 public:
  virtual ~PoolObserver() = default;

  // These can be matched from now on; they could not before. `tokens` is empty, or holds all their token ids.
  virtual void on_registered(CacheLevel tier, std::span<const ResidentBlock> blocks, std::span<const Token> tokens) = 0;
  // These can no longer be matched: evicted, reset or expired, in this order.
  virtual void on_removed(CacheLevel tier, std::span<const BlockKey> keys) = 0;
  // The same of blocks that had to make room for others. An observer that does not care why they left overrides
  // on_removed() alone.
  virtual void on_evicted(CacheLevel tier, std::span<const BlockKey> keys) { on_removed(tier, keys); }
  // Nothing in the pool can be matched any more, where something could.
  virtual void on_cleared(CacheLevel tier) = 0;
  // These were found by a lookup that took them into use.
  virtual void on_matched(CacheLevel tier, std::span<const BlockKey> keys) = 0;
};

// What a follower that starts late, or has lost its place, reads to catch up: the blocks that are there now.
class ResidentSource {
 public:
  virtual ~ResidentSource() = default;

  [[nodiscard]] virtual CacheLevel tier() const = 0;
  [[nodiscard]] virtual std::uint32_t capacity() const = 0;
  // Appends the registered blocks among the blocks from `first` on, `blocks` of them at most, and returns the block to go
  // on with; capacity() at the end. One lock a call: a walk of many calls sees each block at its own moment.
  [[nodiscard]] virtual std::uint32_t list_resident(std::uint32_t first, std::uint32_t count,
                                                    std::vector<ResidentBlock>& out) const = 0;
};

}  // namespace cairn
