// BlockQueue: the evictable blocks of a policy that ranks them by a segment and, within it, by a tick.
//
// Does:     keeps a queue for each segment and class. A block's place (segment and tick) is given by the policy and stays
//           with it, in the queue or out of it, until the block is forgotten. Where the view asks for leaves first, only
//           blocks without an evictable block below them can be had; the others come in at their places as they become
//           leaves.
// Owner:    a policy. Threads: none.
// Costs:    those of TickQueue and, with leaves first, LineageForest: 22 or 38.5 bytes a block, taken once.
// Fails:    create() where segments and classes are more than can be told apart, or memory is short.
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

  // Whether the block has a place: it was given one since it was last forgotten.
  [[nodiscard]] bool is_known(BlockId block_id) const { return queue_.tick(block_id) != 0; }
  [[nodiscard]] std::uint64_t tick(BlockId block_id) const { return queue_.tick(block_id); }
  [[nodiscard]] Segment segment(BlockId block_id) const { return index_of(lanes_[index_of(block_id)]) / class_count_; }
  // Blocks with a place in the segment, evictable or not.
  [[nodiscard]] std::uint32_t count(Segment segment) const { return counts_[segment]; }

  // Gives a block its place. Requires: not held; the tick is not 0.
  void place(BlockId block_id, Segment segment, std::uint64_t tick);
  // The same for one that is held.
  void move(BlockId block_id, Segment segment, std::uint64_t tick);
  // Its class is another from now on, as EvictionPolicy::reclass() has it. Requires: held.
  void reclass(BlockId block_id, EvictionClass& of_block, EvictionClass to);
  // From now on it can be had. Requires: known, not held. `likely_parent` may hold its parent; kNoBlock is no guess.
  void insert(BlockId block_id, BlockId likely_parent);
  // Requires: held.
  void remove(BlockId block_id);
  // The block has no place any more. Requires: not held.
  void forget(BlockId block_id);

  // The first one of the segment, of the lowest class in the range that has one without a veto; kNoBlock where none has.
  [[nodiscard]] BlockId front(Segment segment, ClassRange classes, const Veto& veto);
  // The last one of the segment and class; kNoBlock where there is none, or it has a veto.
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
  // With leaves first: whether held blocks hang below this one.
  [[nodiscard]] bool holds_below(BlockId block_id) const { return forest_ && forest_->holds_below(block_id); }
  [[nodiscard]] std::uint32_t size() const { return size_; }
  [[nodiscard]] std::size_t bytes() const;
  void prefetch(BlockId block_id) const;

 private:
  BlockQueue(const PolicyView& view, std::uint32_t segments, PageArray<EvictionClass> lanes, TickQueue queue);

  void set_lane(BlockId block_id, Segment segment);

  std::uint32_t class_count_;
  Column<EvictionClass> classes_;
  PageArray<EvictionClass> lanes_;  // what the queue takes for classes: segment * class_count_ + class
  TickQueue queue_;                 // the evictable ones or, with a forest, the leaves among them
  std::optional<LineageForest> forest_;
  std::vector<std::uint32_t> counts_;  // by segment
  std::uint32_t size_ = 0;
};

}  // namespace cairn
