// simulate_opt() of simulate.h.
#include <cstddef>
#include <queue>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "cairn/lab/simulate.h"

namespace cairn::lab {

namespace {

constexpr std::uint32_t kNever = ~std::uint32_t{0};

// For each reference, the index of the next request that uses the same block.
std::vector<std::uint32_t> next_requests(const Trace& trace) {
  std::vector<std::uint32_t> next(trace.reference_count());
  std::vector<std::uint32_t> soonest(trace.unique_blocks(), kNever);
  const std::span<const Trace::Request> requests = trace.requests();
  for (std::size_t number = requests.size(); number > 0; --number) {
    const Trace::Request& request = requests[number - 1];
    const std::span<const std::uint32_t> blocks = trace.blocks_of(request);
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      next[request.first + i] = std::exchange(soonest[blocks[i]], static_cast<std::uint32_t>(number - 1));
    }
  }
  return next;
}

struct Candidate {
  std::uint32_t next;
  std::uint32_t depth;
  std::uint32_t block;
  friend bool operator<(const Candidate& a, const Candidate& b) {
    return std::tie(a.next, a.depth, a.block) < std::tie(b.next, b.depth, b.block);
  }
};

}  // namespace

HitCounts simulate_opt(const Trace& trace, std::uint32_t capacity) {
  HitCounts counts;
  const std::vector<std::uint32_t> next = next_requests(trace);
  std::vector<std::uint32_t> kept_for(trace.unique_blocks(), kNever);  // kNever: not in the cache
  std::priority_queue<Candidate> farthest;                             // may hold outdated candidates
  std::uint32_t held = 0;
  for (const Trace::Request& request : trace.requests()) {
    const std::span<const std::uint32_t> blocks = trace.blocks_of(request);
    std::uint32_t hits = 0;
    while (hits < blocks.size() && kept_for[blocks[hits]] != kNever) {
      ++hits;
    }
    counts.add(trace, request, hits);
    for (std::uint32_t depth = 0; depth < blocks.size(); ++depth) {
      std::uint32_t& reason = kept_for[blocks[depth]];
      held -= reason != kNever ? 1 : 0;
      reason = next[request.first + depth];
      if (reason != kNever) {  // a block that is never used again is not kept
        ++held;
        farthest.push({reason, depth, blocks[depth]});
      }
    }
    for (; held > capacity; farthest.pop()) {
      const Candidate& candidate = farthest.top();
      if (kept_for[candidate.block] == candidate.next) {
        kept_for[candidate.block] = kNever;
        --held;
        ++counts.evicted;
      }
    }
  }
  return counts;
}

}  // namespace cairn::lab
