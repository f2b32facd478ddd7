// HitCounts: the hits, misses and evictions of a trace in a cache.
#pragma once

#include <array>
#include <cstdint>
#include <iterator>
#include <vector>

#include "cairn/evict/admission.h"
#include "cairn/lab/block_trace.h"

namespace cairn::lab {

// The counts of a tier below the first.
struct LowerTierCounts {
  std::uint64_t hits = 0;     // blocks that were hit in this tier, and not above
  std::uint64_t written = 0;  // blocks
  std::array<std::uint64_t, std::size(kAllAdmissions)> verdicts = {};  // on blocks that the tier above evicted

  friend bool operator==(const LowerTierCounts&, const LowerTierCounts&) = default;
};

// A block is a hit if it and all blocks before it in its request are in the cache, in any tier: only then it need not
// be computed.
struct HitCounts {
  std::uint64_t requests = 0;
  std::uint64_t requests_hit = 0;  // requests with at least one hit
  std::uint64_t blocks = 0;
  std::uint64_t blocks_hit = 0;
  std::uint64_t tokens = 0;
  std::uint64_t tokens_hit = 0;
  std::uint64_t evicted = 0;  // blocks that the first tier evicted
  std::vector<LowerTierCounts> lower = {};

  // A request whose first `hits` blocks were in the cache.
  void add(const Trace& trace, const Trace::Request& request, std::uint32_t hits) {
    ++requests;
    requests_hit += hits > 0 ? 1 : 0;
    blocks += request.blocks;
    blocks_hit += hits;
    tokens += request.tokens;
    tokens_hit += trace.tokens_in(request, hits);
  }

  [[nodiscard]] double block_ratio() const { return ratio(blocks_hit, blocks); }
  [[nodiscard]] double byte_ratio() const { return ratio(tokens_hit, tokens); }  // all tokens have the same size
  [[nodiscard]] double request_ratio() const { return ratio(requests_hit, requests); }
  // Blocks written to lower tiers for each hit. Without lower tiers: blocks that a tier that admits all would have
  // written.
  [[nodiscard]] double written_per_hit() const {
    std::uint64_t written = lower.empty() ? evicted : 0;
    for (const LowerTierCounts& tier : lower) {
      written += tier.written;
    }
    return ratio(written, blocks_hit);
  }
  // The share of all blocks looked up that this lower tier served.
  [[nodiscard]] double lower_ratio(std::size_t tier) const { return ratio(lower[tier].hits, blocks); }

  friend bool operator==(const HitCounts&, const HitCounts&) = default;

 private:
  static double ratio(std::uint64_t part, std::uint64_t whole) {
    return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
  }
};

}  // namespace cairn::lab
