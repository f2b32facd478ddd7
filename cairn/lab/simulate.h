// A trace through a cache of a fixed number of blocks, one request after the other.
//
// Does:     each request looks up its longest cached prefix, keeps what it found, gets room for the rest, and lets go of
//           all its blocks at once, tail first, as a pool does: so heads are evicted last. A request larger than the
//           cache keeps its first blocks. Requests do not overlap.
// Tiers:    what the first tier evicts goes to the next if its admission filter lets it, and so on down. A block is looked
//           for from the first tier on; what a lower one has is copied up and stays there too.
// Fails:    where a policy or a filter cannot be made.
// Threads:  pure: any number at once over one trace.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cairn/base/result.h"
#include "cairn/evict/admission.h"
#include "cairn/evict/eviction_policy.h"
#include "cairn/lab/block_trace.h"
#include "cairn/lab/hit_counts.h"
#include "cairn/lab/request_hints.h"

namespace cairn::lab {

struct CacheSetup {
  PolicyKind policy = PolicyKind::kLru;  // of all tiers
  std::uint32_t capacity = 0;            // blocks of the first tier
  bool leaves_first = false;
  std::span<const RequestHints> hints = {};  // one for each request, for the first tier; or none
  std::vector<AdmissionOptions> tiers = {};  // those below
};

// Under the real policy.
[[nodiscard]] Result<HitCounts> simulate(const Trace& trace, const CacheSetup& setup);
// Under the clairvoyant: what stays are the blocks that are asked for soonest, heads first among those of one request;
// a block that just came may be the first to go.
[[nodiscard]] HitCounts simulate_opt(const Trace& trace, std::uint32_t capacity);
// In a cache that never evicts.
[[nodiscard]] HitCounts simulate_infinite(const Trace& trace);

}  // namespace cairn::lab
