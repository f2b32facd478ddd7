#include "cairn/evict/experts.h"

#include <algorithm>

namespace cairn {

namespace {

using Fronts = std::array<SlotId, kUseSegments>;

// The oldest of each segment, all of the lowest class that has any; the others kNoSlot. Returns that class.
std::uint32_t find_fronts(SlotQueue& queue, ClassRange classes, const Veto& veto, Fronts& fronts) {
  std::uint32_t lowest = classes.last;
  for (std::uint32_t i = 0; i < kUseSegments; ++i) {
    fronts[i] = queue.front(i, classes, veto);
    if (fronts[i] != kNoSlot) {
      lowest = std::min(lowest, queue.class_of(fronts[i]));
    }
  }
  for (SlotId& front : fronts) {
    if (front != kNoSlot && queue.class_of(front) > lowest) {
      front = kNoSlot;
    }
  }
  return lowest;
}

SlotId older(const SlotQueue& queue, SlotId a, SlotId b) {
  if (a == kNoSlot || b == kNoSlot) {
    return a == kNoSlot ? b : a;
  }
  return queue.tick(b) < queue.tick(a) ? b : a;
}

SlotId oldest_of(const SlotQueue& queue, const Fronts& fronts, std::uint32_t first) {
  SlotId oldest = kNoSlot;
  for (std::uint32_t i = first; i < kUseSegments; ++i) {
    oldest = older(queue, oldest, fronts[i]);
  }
  return oldest;
}

// Worth falls and rises with age, but rarely both ways twice: the ends of a segment are the ones to look at.
SlotId least_worth(const Situation& situation, const SlotQueue& queue, const Fronts& fronts, std::uint32_t of_class,
                   const Veto& veto) {
  SlotId least = kNoSlot;
  double least_worth = 0;
  for (std::uint32_t i = 0; i < kUseSegments; ++i) {
    if (fronts[i] == kNoSlot) {
      continue;
    }
    for (const SlotId slot : {fronts[i], queue.back(i, of_class, veto)}) {
      if (slot == kNoSlot) {
        continue;
      }
      const double worth = situation.model.worth(uses_of_segment(i), situation.now - queue.tick(slot));
      if (least == kNoSlot || worth < least_worth || (worth == least_worth && queue.tick(slot) < queue.tick(least))) {
        least = slot;
        least_worth = worth;
      }
    }
  }
  return least;
}

}  // namespace

SlotId choose_victim(Expert expert, const Situation& situation, SlotQueue& queue, ClassRange classes,
                     const Veto& veto) {
  Fronts fronts{};
  const std::uint32_t lowest = find_fronts(queue, classes, veto, fronts);
  if (expert == Expert::kLru) {
    return oldest_of(queue, fronts, 0);
  }
  if (expert == Expert::kLearned) {
    return least_worth(situation, queue, fronts, lowest, veto);
  }
  const SlotId once = fronts[segment_of_uses(1)];
  const SlotId again = oldest_of(queue, fronts, segment_of_uses(2));
  const bool once_first = queue.count(segment_of_uses(1)) > situation.once_target;
  return once == kNoSlot || (again != kNoSlot && !once_first) ? again : once;
}

}  // namespace cairn
