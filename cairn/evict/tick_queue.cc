#include "cairn/evict/tick_queue.h"

#include <bit>
#include <utility>

#include "cairn/base/check.h"
#include "cairn/evict/lookahead.h"

namespace cairn {

Result<TickQueue> TickQueue::create(const PolicyView& view) {
  CAIRN_TRY_ASSIGN(PageArray<Node> nodes, PageArray<Node>::create(view.capacity));
  return TickQueue(view, std::move(nodes));
}

TickQueue::TickQueue(const PolicyView& view, PageArray<Node> nodes)
    : classes_(view.classes),
      nodes_(std::move(nodes)),
      lanes_(view.class_count),
      occupied_((view.class_count + 63) / 64) {}

void TickQueue::push(BlockId block_id) {
  CAIRN_DCHECK(!contains(block_id), "a block is queued once");
  const Link link = index_of(block_id) + 1;
  const std::uint32_t lane_number = lane_of(link);
  Lane& lane = lanes_[lane_number];
  mark_occupied(lane_number);
  ++size_;
  if (lane.tail != kNoLink && tick_at(lane.tail) > tick_at(link)) {
    heap_insert(lane, link);
    return;
  }
  Node& node = at(link);
  node.child = kInList;
  node.prev = lane.tail;
  node.next = kNoLink;
  (lane.tail != kNoLink ? at(lane.tail).next : lane.head) = link;
  lane.tail = link;
}

// Each node is written once: its neighbours are the blocks before and after it in the span.
void TickQueue::push_newest(std::span<const BlockId> block_ids) {
  for (std::size_t i = 0; i < block_ids.size() && i < kLookahead; ++i) {
    prefetch(block_ids[i]);
  }
  for (std::size_t i = 0; i < block_ids.size();) {
    const std::uint32_t lane_number = index_of(classes_[index_of(block_ids[i])]);
    Lane& lane = lanes_[lane_number];
    Link last = lane.tail;
    (last != kNoLink ? at(last).next : lane.head) = index_of(block_ids[i]) + 1;
    std::uint64_t tick = now_;
    bool more = true;
    while (more) {
      if (i + kLookahead < block_ids.size()) {
        prefetch(block_ids[i + kLookahead]);
      }
      CAIRN_DCHECK(!contains(block_ids[i]), "a block is queued once");
      const Link link = index_of(block_ids[i]) + 1;
      ++i;
      more = i < block_ids.size() && index_of(classes_[index_of(block_ids[i])]) == lane_number;
      ++tick;
      at(link) = {.tick_low = static_cast<std::uint32_t>(tick),
                  .tick_high = static_cast<std::uint32_t>(tick >> 32),
                  .prev = last,
                  .next = more ? index_of(block_ids[i]) + 1 : kNoLink,
                  .child = kInList};
      last = link;
    }
    lane.tail = last;
    now_ = tick;
    mark_occupied(lane_number);
  }
  size_ += static_cast<std::uint32_t>(block_ids.size());
}

// Blocks that were pushed together are often erased together, in reverse order: such a stretch is cut out as a whole.
void TickQueue::erase(std::span<const BlockId> block_ids) {
  for (std::size_t i = 0; i < block_ids.size() && i < kLookahead; ++i) {
    prefetch(block_ids[i]);
  }
  for (std::size_t i = 0; i < block_ids.size();) {
    const Link last = index_of(block_ids[i]) + 1;
    if (at(last).child != kInList) {
      take_out(last);
      ++i;
      continue;
    }
    const Link after = at(last).next;
    Link first = last;
    Link before = kNoLink;
    while (true) {
      if (i + kLookahead < block_ids.size()) {
        prefetch(block_ids[i + kLookahead]);
      }
      Node& node = at(first);
      before = node.prev;
      node.prev = node.next = node.child = kNoLink;
      ++i;
      if (before == kNoLink || i == block_ids.size() || index_of(block_ids[i]) + 1 != before) {
        break;
      }
      first = before;
      --size_;
    }
    --size_;
    const std::uint32_t lane_number = lane_of(last);
    Lane& lane = lanes_[lane_number];
    (before != kNoLink ? at(before).next : lane.head) = after;
    (after != kNoLink ? at(after).prev : lane.tail) = before;
    mark_if_empty(lane_number);
  }
}

// Visits the lanes that are not empty, the lowest first, until visit() returns true.
template <typename Visit>
void TickQueue::for_each_lane(ClassRange classes, Visit visit) {
  for (std::uint32_t word = classes.first / 64; word * 64 < classes.last && word < occupied_.size(); ++word) {
    std::uint64_t bits = occupied_[word];
    if (word * 64 < classes.first) {
      bits &= ~std::uint64_t{0} << (classes.first % 64);
    }
    for (; bits != 0; bits &= bits - 1) {
      const std::uint32_t lane = word * 64 + static_cast<std::uint32_t>(std::countr_zero(bits));
      if (lane >= classes.last || visit(lane)) {
        return;
      }
    }
  }
}

std::size_t TickQueue::pop(ClassRange classes, const Veto& veto, std::span<BlockId> out) {
  std::size_t popped = 0;
  for_each_lane(classes, [&](std::uint32_t lane) {
    popped += pop_from(lane, veto, out.subspan(popped));
    return popped == out.size();
  });
  return popped;
}

BlockId TickQueue::front(ClassRange classes, const Veto& veto) {
  BlockId found = kNoBlock;
  for_each_lane(classes, [&](std::uint32_t lane) {
    const Link first = first_permitted(lanes_[lane], veto);
    found = first == kNoLink ? kNoBlock : BlockId{first - 1};
    return first != kNoLink;
  });
  return found;
}

std::size_t TickQueue::pop_from(std::uint32_t lane_number, const Veto& veto, std::span<BlockId> out) {
  Lane& lane = lanes_[lane_number];
  if (!veto && lane.heap == kNoLink) {
    return pop_list(lane_number, out);
  }
  for (std::size_t popped = 0; popped < out.size(); ++popped) {
    const Link first = first_permitted(lane, veto);
    if (first == kNoLink) {
      return popped;
    }
    take_out(first);
    out[popped] = BlockId{first - 1};
  }
  return out.size();
}

// The front of a list without a heap beside it, cut off as a whole.
std::size_t TickQueue::pop_list(std::uint32_t lane_number, std::span<BlockId> out) {
  Lane& lane = lanes_[lane_number];
  std::size_t popped = 0;
  while (popped < out.size() && lane.head != kNoLink) {
    out[popped++] = BlockId{lane.head - 1};
    Node& node = at(lane.head);
    lane.head = node.next;
    node.prev = node.next = node.child = kNoLink;
  }
  (lane.head != kNoLink ? at(lane.head).prev : lane.tail) = kNoLink;
  size_ -= static_cast<std::uint32_t>(popped);
  mark_if_empty(lane_number);
  return popped;
}

TickQueue::Link TickQueue::first_permitted(Lane& lane, const Veto& veto) {
  Link in_list = lane.head;
  Link vetoed_heap_tops = kNoLink;  // taken off the heap to see what is under them; chained by next
  Link found = kNoLink;
  while (in_list != kNoLink || lane.heap != kNoLink) {
    const bool from_heap = in_list == kNoLink || (lane.heap != kNoLink && tick_at(lane.heap) < tick_at(in_list));
    const Link candidate = from_heap ? lane.heap : in_list;
    if (!veto || !veto(BlockId{candidate - 1})) {
      found = candidate;
      break;
    }
    if (from_heap) {
      heap_erase(lane, candidate);
      at(candidate).next = vetoed_heap_tops;
      vetoed_heap_tops = candidate;
    } else {
      in_list = at(in_list).next;
    }
  }
  while (vetoed_heap_tops != kNoLink) {
    const Link link = std::exchange(vetoed_heap_tops, at(vetoed_heap_tops).next);
    heap_insert(lane, link);
  }
  return found;
}

void TickQueue::take_out(Link link) {
  CAIRN_DCHECK(contains(BlockId{link - 1}), "only a queued block is taken out");
  const std::uint32_t lane_number = lane_of(link);
  Lane& lane = lanes_[lane_number];
  Node& node = at(link);
  if (node.child == kInList) {
    (node.prev != kNoLink ? at(node.prev).next : lane.head) = node.next;
    (node.next != kNoLink ? at(node.next).prev : lane.tail) = node.prev;
  } else {
    heap_erase(lane, link);
  }
  node.prev = node.next = node.child = kNoLink;
  --size_;
  mark_if_empty(lane_number);
}

void TickQueue::heap_insert(Lane& lane, Link link) {
  at(link).child = kNoLink;
  at(link).next = kNoLink;
  lane.heap = lane.heap == kNoLink ? link : meld(lane.heap, link);
  at(lane.heap).prev = kHeapRoot;
}

void TickQueue::heap_erase(Lane& lane, Link link) {
  const Node& node = at(link);
  const Link orphans = merge_siblings(node.child);
  if (link == lane.heap) {
    lane.heap = orphans;
  } else {
    Node& before = at(node.prev);
    (before.child == link ? before.child : before.next) = node.next;
    if (node.next != kNoLink) {
      at(node.next).prev = node.prev;
    }
    if (orphans != kNoLink) {
      lane.heap = meld(lane.heap, orphans);
    }
  }
  if (lane.heap != kNoLink) {
    at(lane.heap).prev = kHeapRoot;
    at(lane.heap).next = kNoLink;
  }
}

// The later of two roots becomes the first child of the earlier.
TickQueue::Link TickQueue::meld(Link a, Link b) {
  if (tick_at(b) < tick_at(a)) {
    std::swap(a, b);
  }
  Node& top = at(a);
  Node& below = at(b);
  below.prev = a;
  below.next = top.child;
  if (top.child != kNoLink) {
    at(top.child).prev = b;
  }
  top.child = b;
  top.next = kNoLink;
  return a;
}

// The two passes of a pairing heap: meld in pairs from left to right, then all of those from right to left.
TickQueue::Link TickQueue::merge_siblings(Link first) {
  Link pairs = kNoLink;
  while (first != kNoLink) {
    const Link a = first;
    const Link b = at(a).next;
    first = b == kNoLink ? kNoLink : at(b).next;
    const Link pair = b == kNoLink ? a : meld(a, b);
    at(pair).next = pairs;
    pairs = pair;
  }
  Link merged = kNoLink;
  while (pairs != kNoLink) {
    const Link next = at(pairs).next;
    at(pairs).next = kNoLink;
    merged = merged == kNoLink ? pairs : meld(merged, pairs);
    pairs = next;
  }
  return merged;
}

}  // namespace cairn
