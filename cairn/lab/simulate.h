// Runs a trace through a cache of a fixed number of blocks, one request after the other.
//
// Each request looks up its longest cached prefix, keeps what it found, gets room for the rest, and releases all its
// blocks at once, tail first, as with a pool: so heads are evicted last. A request that is larger than the cache keeps
// its first blocks. Requests do not overlap.
//
// Blocks that the first tier evicts go to the next tier if its admission filter admits them, and so on down. A block is
// looked up from the first tier on; a block found in a lower tier is copied up and stays there too.
//
// Thread safety: functions without side effects: any number may run over one trace at once.
// Errors: simulate() fails if a policy or a filter cannot be made.
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
  bool endings = false;  // tell the policies how requests ended
  // Blocks need no room while their request runs, as if they were computed elsewhere: they are kept afterwards if they
  // are worth more than what they would displace. Lower tiers refuse blocks that are not.
  bool bypass = false;
  std::span<const RequestHints> hints = {};  // one for each request, for the first tier; or empty
  std::vector<AdmissionOptions> tiers = {};  // below the first
};

// With a real policy.
[[nodiscard]] Result<HitCounts> simulate(const Trace& trace, const CacheSetup& setup);
// What OPT does with the blocks of a request that runs.
enum class OptInsertion : std::uint8_t {
  kMayBypass,   // it may drop them at once: the limit of a pool that may drop blocks as they are released
  kMustInsert,  // they stay until the next request, as with every policy: the limit of a policy
};
// With OPT, which knows the future: it keeps the blocks that are needed soonest, heads first among those of one request.
[[nodiscard]] HitCounts simulate_opt(const Trace& trace, std::uint32_t capacity,
                                     OptInsertion insertion = OptInsertion::kMayBypass);
// With a cache that never evicts.
[[nodiscard]] HitCounts simulate_infinite(const Trace& trace);

}  // namespace cairn::lab
