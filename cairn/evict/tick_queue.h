// TickQueue: blocks in the order of the ticks they were given, one queue for each eviction class.
//
// A block with the newest tick, which is the usual case, is appended to a list. A block with an older tick goes into a
// pairing heap beside the list. The next block is the older of the two fronts.
//
// Thread safety: none; the lock of the pool guards it.
// Complexity: O(1) to append, and to erase from the list; O(log n) amortised for older ticks. 20 bytes a block,
// allocated at
//             creation.
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

  // A block keeps its tick, in the queue or not, until another is set; 0 if none was set.
  [[nodiscard]] std::uint64_t tick(BlockId block_id) const { return tick_of(nodes_[index_of(block_id)]); }
  // Requires: not in the queue.
  void set_tick(BlockId block_id, std::uint64_t tick) {
    CAIRN_DCHECK(!contains(block_id), "the tick of a queued block does not change");
    Node& node = nodes_[index_of(block_id)];
    node.tick_low = static_cast<std::uint32_t>(tick);
    node.tick_high = static_cast<std::uint32_t>(tick >> 32);
  }

  // Adds the block to the queue of its class, by its tick. Requires: not in the queue.
  void push(BlockId block_id);
  // Gives each block the next tick and adds it. Requires: none is in the queue.
  void push_newest(std::span<const BlockId> block_ids);
  // Requires: in the queue.
  void erase(BlockId block_id) { take_out(index_of(block_id) + 1); }
  void erase(std::span<const BlockId> block_ids);
  // Takes blocks until `out` is full or none is left, and returns how many: each time the first block without a veto,
  // of the lowest class in the range that has one.
  [[nodiscard]] std::size_t pop(ClassRange classes, const Veto& veto, std::span<BlockId> out);

  // The block that pop() would take first; kNoBlock if there is none.
  [[nodiscard]] BlockId front(ClassRange classes, const Veto& veto);

  // The newest block of a class; kNoBlock if there is none, or it has a veto.
  [[nodiscard]] BlockId back(std::uint32_t eviction_class, const Veto& veto) const {
    const Link last = lanes_[eviction_class].tail;  // the heap holds older blocks only
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
  // A block id plus one, so that a zeroed node is in no queue.
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
