// Report: what a replay found, in figures. All times are virtual; all latencies are exact, in milliseconds.
//
// Names:    TTFT  from arrival to the first token        ITL   gaps between tokens, those of all requests together
//           TTST  from the first token to the second     TPOT  (last - first) / (tokens - 1)
//           E2E   from arrival to the last token         queue from arrival to the first admission
//           Requests with one token have no TTST and TPOT. Only requests that were answered are counted in figures.
// Threads:  a plain value.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cairn/base/clock.h"
#include "cairn/base/ids.h"
#include "cairn/sim/distribution.h"
#include "cairn/sim/time_series.h"

namespace cairn::sim {

// What is known of one request.
struct RequestFigures {
  TimePoint arrival{0};
  std::optional<TimePoint> admitted = {};  // the first time
  TimePoint first_token{0};
  TimePoint second_token{0};
  TimePoint last_token{0};
  std::uint64_t input_tokens = 0;
  std::uint64_t output_tokens = 0;        // 0: it was not answered to its end
  std::uint64_t reused_tokens = 0;        // found in the cache: the most over its admissions
  std::uint64_t first_reused_tokens = 0;  // and at the first
};

struct ReplayCounts {
  std::uint64_t arrived = 0;  // requests, refused ones included
  std::uint64_t completed = 0;
  std::uint64_t refused = 0;
  std::uint64_t input_tokens = 0;
  std::uint64_t output_tokens = 0;
  std::uint64_t reused_tokens = 0;
  std::uint64_t first_reused_tokens = 0;
  std::uint64_t computed_tokens = 0;  // of prompts, as often as they were computed
  std::uint64_t saved_tokens = 0;     // of prompts, found at admissions
  std::uint64_t admissions = 0;
  std::uint64_t preemptions = 0;
  std::uint64_t livelocks = 0;  // workers whose requests would have preempted each other for ever (engine.h)
  std::uint64_t passes = 0;
};

// What the caches of all workers did.
struct CacheCounts {
  std::uint64_t capacity = 0;  // blocks of one worker
  std::uint64_t peak_in_use = 0;
  std::uint64_t evicted = 0;
  std::uint64_t stored_blocks = 0;  // as events said
  std::uint64_t removed_blocks = 0;
  std::uint64_t events = 0;
};

// What one tier below the workers' caches did, all workers together.
struct TierCounts {
  CacheLevel level = CacheLevel::kG2;
  std::uint64_t capacity = 0;  // blocks of one worker
  std::uint64_t copied = 0;    // blocks, into the tier from above
  std::uint64_t skipped = 0;   // not copied, since they were there
  std::uint64_t dropped = 0;   // not copied, since there was no room that could be made
  std::uint64_t evicted = 0;
  std::uint64_t loaded = 0;  // from the tier to G1
  std::uint64_t bytes_down = 0;
  std::uint64_t bytes_up = 0;
  double seconds_down = 0;  // in which its wires were sending, of all workers
  double seconds_up = 0;
};

struct Latencies {
  Distribution ttft_ms;
  Distribution ttst_ms;
  Distribution tpot_ms;
  Distribution itl_ms;
  Distribution e2e_ms;
  Distribution queue_ms;
  Distribution tokens_per_s;  // of one user: 1000 / gap, for every gap
};

// Values below `below`, and not below that of the bar before.
struct Bar {
  double below = 0;
  std::uint64_t count = 0;
};

// One point of the plots over time.
struct SeriesPoint {
  double begin_s = 0;
  std::optional<double> hit_ratio = {};  // none where no request had its first token
  std::optional<double> ttft_ms = {};
  std::optional<double> ttft_max_ms = {};
  double blocks_in_use = 0;  // of a worker, while it computes
  double blocks_resident = 0;
  double waiting = 0;
  PerTier<double> below = {};  // blocks in the tiers below
  double prompt_tokens_per_s = 0;
  double output_tokens_per_s = 0;
};

struct Report {
  bool complete = true;  // false: it was stopped before the end
  ReplayCounts counts;
  std::vector<std::string> refusals;  // the first ones, each with the reason
  CacheCounts cache;
  std::vector<TierCounts> tiers;              // below the workers' caches, the nearest first
  PerTier<std::uint64_t> loaded_tokens = {};  // of prompts, from each of them
  double duration_ms = 0;
  Latencies latencies;
  std::uint64_t peak_waiting = 0;
  double span_s = 0;  // of each point
  std::vector<SeriesPoint> series;
  std::vector<Bar> ttft_histogram;       // ms
  std::vector<Bar> eviction_histogram;   // blocks by ms since they were last used
  std::vector<RequestFigures> requests;  // by number; for comparisons

  // Of all input tokens, those found in the cache.
  [[nodiscard]] double reused_ratio() const;
  [[nodiscard]] double first_reused_ratio() const;
  // The part of reused_ratio() that came from a tier below.
  [[nodiscard]] double loaded_ratio(std::size_t tier) const;
  // So many of these in a second of virtual time.
  [[nodiscard]] double per_second(std::uint64_t count) const;
};

}  // namespace cairn::sim
