// A trace through a cache of a fixed number of blocks, one request after the other.
//
// Does:     each request looks up its longest cached prefix, keeps what it found, gets room for the rest, and lets go of
//           all its blocks at once, tail first, as a pool does: so heads are evicted last. A request larger than the
//           cache keeps its first blocks. Requests do not overlap.
// Fails:    where the policy cannot be made.
// Threads:  pure: any number at once over one trace.
#pragma once

#include <cstdint>

#include "cairn/base/result.h"
#include "cairn/evict/eviction_policy.h"
#include "cairn/lab/hit_counts.h"
#include "cairn/lab/trace.h"

namespace cairn::lab {

// Under the real policy.
[[nodiscard]] Result<HitCounts> simulate(const Trace& trace, PolicyKind policy, std::uint32_t capacity);
// Under the clairvoyant: what stays are the blocks that are asked for soonest, heads first among those of one request;
// a block that just came may be the first to go.
[[nodiscard]] HitCounts simulate_opt(const Trace& trace, std::uint32_t capacity);
// In a cache that never evicts.
[[nodiscard]] HitCounts simulate_infinite(const Trace& trace);

}  // namespace cairn::lab
