// BlockQueue: the evictable blocks of a policy that ranks them by a segment and, within it, by a tick.
//
// There is one queue for each segment and class. The policy gives a block its place (segment and tick). The block keeps
// it, in the queue or not, until it is forgotten. If the view asks for leaves first, only blocks without an evictable
// child can be taken; the others join at their places when they become leaves.
//
// Thread safety: none; the lock of the pool guards it.
// Errors: create() fails if there are too many segments and classes, or no memory.
// Complexity: as TickQueue and, with leaves first, LineageForest: 22 or 38.5 bytes a block, allocated at creation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "cairn/base/page_array.h"
#include "cairn/evict/eviction_policy.h"
#include "cairn/evict/lineage_forest.h"
#include "cairn/evict/tick_queue.h"

namespace cairn {

class BlockQueue {
 public:
  using Segment = std::uint32_t;

  [[nodiscard]] static Result<BlockQueue> create(const PolicyView& view, std::uint32_t segments);

  // Later than every tick before it.
  [[nodiscard]] std::uint64_t next_tick() { return queue_.next_tick(); }

  // Whether the block has a place.
  [[nodiscard]] bool is_known(BlockId block_id) const { return queue_.tick(block_id) != 0; }
  [[nodiscard]] std::uint64_t tick(BlockId block_id) const { return queue_.tick(block_id); }
  [[nodiscard]] Segment segment(BlockId block_id) const { return index_of(lanes_[index_of(block_id)]) / class_count_; }
  // Blocks with a place in the segment, evictable or not.
  [[nodiscard]] std::uint32_t count(Segment segment) const { return counts_[segment]; }

  // Gives a block its place. Requires: not in the queue; the tick is not 0.
  void place(BlockId block_id, Segment segment, std::uint64_t tick);
  // The same for a block in the queue.
  void move(BlockId block_id, Segment segment, std::uint64_t tick);
  // As EvictionPolicy::reclass(). Requires: in the queue.
  void reclass(BlockId block_id, EvictionClass& of_block, EvictionClass to);
  // The block becomes evictable. `likely_parent` is a guess at its parent, or kNoBlock. Requires: has a place, not in
  // the queue.
  void insert(BlockId block_id, BlockId likely_parent);
  // Requires: in the queue.
  void remove(BlockId block_id);
  // Takes the place of the block away. Requires: not in the queue.
  void forget(BlockId block_id);

  // The first block of the segment without a veto, of the lowest class in the range that has one; kNoBlock if there is
  // none.
  [[nodiscard]] BlockId front(Segment segment, ClassRange classes, const Veto& veto);
  // The last block of the segment and class; kNoBlock if there is none, or it has a veto.
  [[nodiscard]] BlockId back(Segment segment, std::uint32_t eviction_class, const Veto& veto) const {
    return queue_.back(segment * class_count_ + eviction_class, veto);
  }
  [[nodiscard]] std::uint32_t class_of(BlockId block_id) const {
    return index_of(lanes_[index_of(block_id)]) % class_count_;
  }

  [[nodiscard]] bool contains(BlockId block_id) const {
    return forest_ ? forest_->contains(block_id) : queue_.contains(block_id);
  }
  [[nodiscard]] bool leaves_first() const { return forest_.has_value(); }
  // With leaves first: whether a child of this block is in the queue.
  [[nodiscard]] bool holds_below(BlockId block_id) const { return forest_ && forest_->holds_below(block_id); }
  [[nodiscard]] std::uint32_t size() const { return size_; }
  [[nodiscard]] std::size_t bytes() const;
  void prefetch(BlockId block_id) const;

 private:
  BlockQueue(const PolicyView& view, std::uint32_t segments, PageArray<EvictionClass> lanes, TickQueue queue);

  void set_lane(BlockId block_id, Segment segment);

  std::uint32_t class_count_;
  Column<EvictionClass> classes_;
  PageArray<EvictionClass> lanes_;  // the classes of queue_: segment * class_count_ + class
  TickQueue queue_;                 // the evictable blocks or, with a forest, the leaves among them
  std::optional<LineageForest> forest_;
  std::vector<std::uint32_t> counts_;  // by segment
  std::uint32_t size_ = 0;
};

}  // namespace cairn
