// Experts: ways to choose a victim among blocks that are kept by how often they were used, in each part the block that
// was released longest ago first. All experts share this order, so following another expert moves nothing.
//
//     kLru      the block that was released longest ago
//     kArc      the oldest block used once if there are more of those than a target, else the oldest of the others; the
//               target follows which evicted keys return
//     kS3Fifo   the same with a target of a tenth of the pool
//     kLearned  the block of least value by what was learned (reuse_model.h)
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "cairn/evict/block_queue.h"
#include "cairn/evict/reuse_history.h"
#include "cairn/evict/reuse_model.h"

namespace cairn {

enum class Expert : std::uint8_t { kLru, kArc, kS3Fifo, kLearned };
inline constexpr std::array kExperts{Expert::kLru, Expert::kArc, Expert::kS3Fifo, Expert::kLearned};
[[nodiscard]] constexpr std::size_t index_of(Expert expert) { return static_cast<std::size_t>(expert); }

// A segment of the queue for each number of uses.
inline constexpr std::uint32_t kUseSegments = ReuseHistory::kMaxUses;
[[nodiscard]] constexpr BlockQueue::Segment segment_of_uses(std::uint32_t uses) { return uses - 1; }
[[nodiscard]] constexpr std::uint32_t uses_of_segment(BlockQueue::Segment segment) { return segment + 1; }

// What an expert decides by.
struct Situation {
  const ReuseModel& model;
  std::uint64_t now;   // in the ticks of the queue's places
  double once_target;  // blocks that were used once, for kArc and kS3Fifo
};

// The victim, still in the queue, of the lowest class in the range that has a block without a veto; kNoBlock if none
// has.
[[nodiscard]] BlockId choose_victim(Expert expert, const Situation& situation, BlockQueue& queue, ClassRange classes,
                                    const Veto& veto);

}  // namespace cairn
