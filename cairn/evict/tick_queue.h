// TickQueue: blocks in the order of the ticks they were given, one queue for each eviction class.
//
// Does:     what comes with the newest tick, as nearly everything does, is appended to a list; what comes back with an
//           older one goes into a pairing heap beside it. The next out is the older of the two fronts.
// Owner:    a policy. Threads: none.
// Costs:    append, and erase from the list: O(1). Old ticks: O(log n) amortised. 20 bytes a block, taken once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "cairn/base/check.h"
#include "cairn/base/page_array.h"
#include "cairn/evict/eviction_policy.h"

namespace cairn {

class TickQueue {
 public:
  [[nodiscard]] static Result<TickQueue> create(const PolicyView& view);

  // Later than every tick before it.
  [[nodiscard]] std::uint64_t next_tick() { return ++now_; }

  // A tick stays with its block, in the queue or out of it, until another is set; 0 where none was.
  [[nodiscard]] std::uint64_t tick(BlockId block_id) const { return tick_of(nodes_[index_of(block_id)]); }
  // Requires: not in the queue.
  void set_tick(BlockId block_id, std::uint64_t tick) {
    CAIRN_DCHECK(!contains(block_id), "the tick of a queued block does not change");
    Node& node = nodes_[index_of(block_id)];
    node.tick_low = static_cast<std::uint32_t>(tick);
    node.tick_high = static_cast<std::uint32_t>(tick >> 32);
  }

  // Into the queue of its class, at the place of its tick. Requires: not in the queue.
  void push(BlockId block_id);
  // Gives each the next tick and puts them in. Requires: none is in the queue.
  void push_newest(std::span<const BlockId> block_ids);
  // Requires: in the queue.
  void erase(BlockId block_id) { take_out(index_of(block_id) + 1); }
  void erase(std::span<const BlockId> block_ids);
  // Takes blocks until `out` is full or nothing is left, and returns how many: each time the first one without a veto of
  // the lowest class in the range that has one.
  [[nodiscard]] std::size_t pop(ClassRange classes, const Veto& veto, std::span<BlockId> out);

  // The one that pop() would take first, left where it is; kNoBlock where there is none.
  [[nodiscard]] BlockId front(ClassRange classes, const Veto& veto);

  // The newest one of a class; kNoBlock where there is none, or it has a veto.
  [[nodiscard]] BlockId back(std::uint32_t eviction_class, const Veto& veto) const {
    const Link last = lanes_[eviction_class].tail;  // older ones alone are in the heap
    return last == kNoLink || (veto && veto(BlockId{last - 1})) ? kNoBlock : BlockId{last - 1};
  }

  [[nodiscard]] bool contains(BlockId block_id) const {
    const Node& node = nodes_[index_of(block_id)];
    return node.child == kInList || node.prev != kNoLink;
  }
  [[nodiscard]] std::uint32_t size() const { return size_; }
  [[nodiscard]] std::size_t bytes() const { return nodes_.bytes() + lanes_.size() * sizeof(Lane); }
  void prefetch(BlockId block_id) const { __builtin_prefetch(&nodes_[index_of(block_id)], 1); }

 private:
  // A block number plus one, so that zeroed pages hold nodes that are nowhere.
  using Link = std::uint32_t;
  static constexpr Link kNoLink = 0;
  static constexpr Link kHeapRoot = 0xFFFFFFFE;  // as `prev`: the top of a heap
  static constexpr Link kInList = 0xFFFFFFFF;    // as `child`: in the list, not in the heap

  // In the list: prev and next in it. In the heap: first child, next sibling, and previous sibling or parent.
  struct Node {
    std::uint32_t tick_low;
    std::uint32_t tick_high;
    Link prev;
    Link next;
    Link child;
  };
  static_assert(sizeof(Node) == 20);

  struct Lane {
    Link head = kNoLink;
    Link tail = kNoLink;
    Link heap = kNoLink;
    [[nodiscard]] bool empty() const { return head == kNoLink && heap == kNoLink; }
  };

  explicit TickQueue(const PolicyView& view, PageArray<Node> nodes);

  static std::uint64_t tick_of(const Node& node) { return (std::uint64_t{node.tick_high} << 32) | node.tick_low; }
  Node& at(Link link) { return nodes_[link - 1]; }
  std::uint64_t tick_at(Link link) { return tick_of(at(link)); }
  std::uint32_t lane_of(Link link) const { return index_of(classes_[link - 1]); }
  void mark_occupied(std::uint32_t lane) { occupied_[lane / 64] |= std::uint64_t{1} << (lane % 64); }
  void mark_if_empty(std::uint32_t lane) {
    if (lanes_[lane].empty()) {
      occupied_[lane / 64] &= ~(std::uint64_t{1} << (lane % 64));
    }
  }

  template <typename Visit>
  void for_each_lane(ClassRange classes, Visit visit);
  [[nodiscard]] std::size_t pop_from(std::uint32_t lane, const Veto& veto, std::span<BlockId> out);
  [[nodiscard]] std::size_t pop_list(std::uint32_t lane, std::span<BlockId> out);
  [[nodiscard]] Link first_permitted(Lane& lane, const Veto& veto);
  void take_out(Link link);
  void heap_insert(Lane& lane, Link link);
  void heap_erase(Lane& lane, Link link);
  [[nodiscard]] Link meld(Link a, Link b);
  [[nodiscard]] Link merge_siblings(Link first);

  Column<EvictionClass> classes_;
  PageArray<Node> nodes_;
  std::vector<Lane> lanes_;
  std::vector<std::uint64_t> occupied_;  // one bit a lane
  std::uint64_t now_ = 0;
  std::uint32_t size_ = 0;
};

}  // namespace cairn
