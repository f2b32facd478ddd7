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

// In place of the number of a request.
constexpr std::uint32_t kAbsent = ~std::uint32_t{0};  // the block is not in the cache
constexpr std::uint32_t kNever = kAbsent - 1;         // no request uses the block again

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

HitCounts simulate_opt(const Trace& trace, std::uint32_t capacity, OptInsertion insertion) {
  HitCounts counts;
  const bool must_insert = insertion == OptInsertion::kMustInsert;
  const std::vector<std::uint32_t> next = next_requests(trace);
  std::vector<std::uint32_t> kept_for(trace.unique_blocks(), kAbsent);
  std::priority_queue<Candidate> farthest;  // may hold outdated candidates
  std::uint32_t held = 0;
  const auto evict = [&] {
    for (; held > capacity && !farthest.empty(); farthest.pop()) {
      const Candidate& candidate = farthest.top();
      if (kept_for[candidate.block] == candidate.next) {
        kept_for[candidate.block] = kAbsent;
        --held;
        ++counts.evicted;
      }
    }
  };
  std::vector<Candidate> own;  // of the request that runs
  for (const Trace::Request& request : trace.requests()) {
    const std::span<const std::uint32_t> blocks = trace.blocks_of(request);
    std::uint32_t hits = 0;
    while (hits < blocks.size() && kept_for[blocks[hits]] != kAbsent) {
      ++hits;
    }
    counts.add(trace, request, hits);
    own.clear();
    for (std::uint32_t depth = 0; depth < blocks.size(); ++depth) {
      std::uint32_t& reason = kept_for[blocks[depth]];
      held -= reason != kAbsent ? 1 : 0;
      reason = next[request.first + depth];
      if (reason == kNever && !must_insert) {
        reason = kAbsent;  // a block that is never used again is not kept
        continue;
      }
      ++held;
      own.push_back({reason, depth, blocks[depth]});
    }
    if (must_insert) {
      evict();  // others first
    }
    for (const Candidate& candidate : own) {
      farthest.push(candidate);
    }
    evict();
  }
  return counts;
}

}  // namespace cairn::lab
