#include "cairn/evict/experts.h"

#include <algorithm>

namespace cairn {

namespace {

using Fronts = std::array<BlockId, kUseSegments>;

// Finds the oldest block of each segment, all of the lowest class that has any; kNoBlock for other segments. Returns
// that class.
std::uint32_t find_fronts(BlockQueue& queue, ClassRange classes, const Veto& veto, Fronts& fronts) {
  std::uint32_t lowest = classes.last;
  for (std::uint32_t i = 0; i < kUseSegments; ++i) {
    fronts[i] = queue.front(i, classes, veto);
    if (fronts[i] != kNoBlock) {
      lowest = std::min(lowest, queue.class_of(fronts[i]));
    }
  }
  for (BlockId& front : fronts) {
    if (front != kNoBlock && queue.class_of(front) > lowest) {
      front = kNoBlock;
    }
  }
  return lowest;
}

BlockId older(const BlockQueue& queue, BlockId a, BlockId b) {
  if (a == kNoBlock || b == kNoBlock) {
    return a == kNoBlock ? b : a;
  }
  return queue.tick(b) < queue.tick(a) ? b : a;
}

BlockId oldest_of(const BlockQueue& queue, const Fronts& fronts, std::uint32_t first) {
  BlockId oldest = kNoBlock;
  for (std::uint32_t i = first; i < kUseSegments; ++i) {
    oldest = older(queue, oldest, fronts[i]);
  }
  return oldest;
}

// Value falls or rises with age, and rarely changes direction twice: it is enough to look at the ends of each segment.
BlockId least_worth(const Situation& situation, const BlockQueue& queue, const Fronts& fronts, std::uint32_t of_class,
                    const Veto& veto) {
  BlockId least = kNoBlock;
  double least_worth = 0;
  for (std::uint32_t i = 0; i < kUseSegments; ++i) {
    if (fronts[i] == kNoBlock) {
      continue;
    }
    for (const BlockId block_id : {fronts[i], queue.back(i, of_class, veto)}) {
      if (block_id == kNoBlock) {
        continue;
      }
      const double worth = situation.model.worth(uses_of_segment(i), situation.now - queue.tick(block_id));
      if (least == kNoBlock || worth < least_worth ||
          (worth == least_worth && queue.tick(block_id) < queue.tick(least))) {
        least = block_id;
        least_worth = worth;
      }
    }
  }
  return least;
}

}  // namespace

BlockId choose_victim(Expert expert, const Situation& situation, BlockQueue& queue, ClassRange classes,
                      const Veto& veto) {
  Fronts fronts{};
  const std::uint32_t lowest = find_fronts(queue, classes, veto, fronts);
  if (expert == Expert::kLru) {
    return oldest_of(queue, fronts, 0);
  }
  if (expert == Expert::kLearned) {
    return least_worth(situation, queue, fronts, lowest, veto);
  }
  const BlockId once = fronts[segment_of_uses(1)];
  const BlockId again = oldest_of(queue, fronts, segment_of_uses(2));
  const bool once_first = queue.count(segment_of_uses(1)) > situation.once_target;
  return once == kNoBlock || (again != kNoBlock && !once_first) ? again : once;
}

}  // namespace cairn
