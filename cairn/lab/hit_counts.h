// HitCounts: what a cache did with a trace.
#pragma once

#include <cstdint>

#include "cairn/lab/trace.h"

namespace cairn::lab {

// A block is hit when it and all blocks before it in its request are in the cache: nothing else saves computing it.
struct HitCounts {
  std::uint64_t requests = 0;
  std::uint64_t requests_hit = 0;  // those with at least one block hit
  std::uint64_t blocks = 0;
  std::uint64_t blocks_hit = 0;
  std::uint64_t tokens = 0;
  std::uint64_t tokens_hit = 0;
  std::uint64_t evicted = 0;  // blocks that a lower tier would be given on their eviction

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
  [[nodiscard]] double byte_ratio() const { return ratio(tokens_hit, tokens); }  // tokens are all of one size
  [[nodiscard]] double request_ratio() const { return ratio(requests_hit, requests); }
  [[nodiscard]] double written_per_hit() const { return ratio(evicted, blocks_hit); }

  friend bool operator==(const HitCounts&, const HitCounts&) = default;

 private:
  static double ratio(std::uint64_t part, std::uint64_t whole) {
    return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
  }
};

}  // namespace cairn::lab
