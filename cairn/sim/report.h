// Report: the figures of a replay. All times are virtual; latencies are exact, in milliseconds.
//
//   TTFT  from arrival to the first token        ITL    gaps between tokens, of all requests together
//   TTST  from the first token to the second     TPOT   (last - first) / (tokens - 1)
//   E2E   from arrival to the last token         queue  from arrival to the first admission
//   load  from the start of a load to its end
// Requests with one token have no TTST and TPOT. Only requests that were answered count.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cairn/base/clock.h"
#include "cairn/base/ids.h"

namespace cairn::sim {

// The tiers that can be below a worker's cache: G2 and G3.
inline constexpr std::size_t kMostTiersBelow = 2;
template <typename T>
using PerTier = std::array<T, kMostTiersBelow>;
// The index of a tier below in a PerTier.
[[nodiscard]] constexpr std::size_t below_index(CacheLevel level) {
  return index_of(level) - index_of(CacheLevel::kG2);
}

// Mean, extremes and percentiles of measured values; exact, however many there are.
//
// Percentile p is the value at rank round((n - 1) p / 100) of the sorted values; the median is p50. The standard
// deviation is that of the population. Without values everything is 0.
struct Distribution {
  std::uint64_t count = 0;
  double mean = 0;
  double min = 0;
  double max = 0;
  double median = 0;
  double p75 = 0;
  double p90 = 0;
  double p95 = 0;
  double p99 = 0;
  double std = 0;

  [[nodiscard]] static Distribution of(std::vector<double> values);
  // Each value comes with the number of its occurrences.
  [[nodiscard]] static Distribution of_counted(std::vector<std::pair<double, std::uint64_t>> values);
};

// The figures of one request.
struct RequestFigures {
  TimePoint arrival{0};
  std::optional<TimePoint> admitted = {};  // the first time
  TimePoint first_token{0};
  TimePoint second_token{0};
  TimePoint last_token{0};
  std::uint64_t input_tokens = 0;
  std::uint64_t output_tokens = 0;        // 0: not finished
  std::uint64_t reused_tokens = 0;        // found in the cache; the maximum over its admissions
  std::uint64_t first_reused_tokens = 0;  // found in the cache at the first admission
};

struct ReplayCounts {
  std::uint64_t arrived = 0;  // requests, refused ones included
  std::uint64_t completed = 0;
  std::uint64_t refused = 0;
  std::uint64_t input_tokens = 0;
  std::uint64_t output_tokens = 0;
  std::uint64_t reused_tokens = 0;
  std::uint64_t first_reused_tokens = 0;
  std::uint64_t computed_tokens = 0;  // of prompts, each time they were computed
  std::uint64_t saved_tokens = 0;     // of prompts, found at admissions
  std::uint64_t rejected_tokens = 0;  // of prompts, that tiers below had and that were faster to compute
  std::uint64_t admissions = 0;
  std::uint64_t preemptions = 0;
  std::uint64_t livelocks = 0;  // workers whose requests would have preempted each other forever
  std::uint64_t passes = 0;
};

// What the caches of all workers did.
struct CacheCounts {
  std::uint64_t capacity = 0;  // blocks per worker
  std::uint64_t peak_in_use = 0;
  std::uint64_t evicted = 0;
  std::uint64_t stored_blocks = 0;  // according to events
  std::uint64_t removed_blocks = 0;
  std::uint64_t events = 0;
};

// What one tier below the workers' caches did, all workers together.
struct TierCounts {
  CacheLevel level = CacheLevel::kG2;
  std::uint64_t capacity = 0;       // blocks per worker
  std::uint64_t copied = 0;         // blocks, into the tier from above
  std::uint64_t refused = 0;        // blocks that were not copied: filters, full queues, a tier that is out of use
  std::uint64_t evicted = 0;        // blocks
  std::uint64_t loaded = 0;         // blocks that loads brought from here to the device
  std::uint64_t bytes_written = 0;  // into the tier, from above and from below
  std::uint64_t bytes_read = 0;     // from the tier
  double seconds_down = 0;          // in which its links were sending, over all workers
  double seconds_up = 0;
  std::uint64_t failed = 0;     // blocks whose copies failed, were late or had wrong bytes
  std::uint64_t times_out = 0;  // how often the tier was taken out of use
};

struct Latencies {
  Distribution ttft_ms;
  Distribution ttst_ms;
  Distribution tpot_ms;
  Distribution itl_ms;
  Distribution e2e_ms;
  Distribution queue_ms;
  Distribution load_ms;       // of loads, not of requests
  Distribution tokens_per_s;  // per user: 1000 / gap, for every gap
};

// One bar of a histogram: values below `below` and not below the previous bar's.
struct Bar {
  double below = 0;
  std::uint64_t count = 0;
};

// One point of the plots over time.
struct SeriesPoint {
  double begin_s = 0;
  std::optional<double> hit_ratio = {};  // std::nullopt if no request got its first token
  std::optional<double> ttft_ms = {};
  std::optional<double> ttft_max_ms = {};
  double blocks_in_use = 0;  // per computing worker
  double blocks_resident = 0;
  double waiting = 0;
  PerTier<double> below = {};  // blocks in the tiers below
  double prompt_tokens_per_s = 0;
  double output_tokens_per_s = 0;
};

struct Report {
  bool complete = true;  // false if the run was stopped early
  ReplayCounts counts;
  std::vector<std::string> refusals;  // the first few, each with its reason
  CacheCounts cache;
  std::vector<TierCounts> tiers;              // below the workers' caches, the nearest first
  PerTier<std::uint64_t> loaded_tokens = {};  // prompt tokens loaded from each tier, at admissions
  std::uint64_t kv_bytes = 0;                 // of a token
  double duration_ms = 0;
  double busy_s = 0;  // in which workers computed, all together
  std::uint32_t workers = 0;
  Latencies latencies;
  std::uint64_t peak_waiting = 0;
  double span_s = 0;  // length of the interval of each point
  std::vector<SeriesPoint> series;
  std::vector<Bar> ttft_histogram;       // ms
  std::vector<Bar> eviction_histogram;   // blocks by ms since they were last used
  std::vector<RequestFigures> requests;  // by number; for comparisons

  // The fraction of all input tokens that were found in the cache; and at the first admission.
  [[nodiscard]] double reused_ratio() const;
  [[nodiscard]] double first_reused_ratio() const;
  // The part of reused_ratio() that came from a tier below.
  [[nodiscard]] double loaded_ratio(CacheLevel tier) const;
  // Bytes that were written to a tier for each byte of KV that the engines computed.
  [[nodiscard]] double write_amplification(const TierCounts& tier) const;
  // The share of the time in which workers computed.
  [[nodiscard]] double busy_share() const;
  // `count` per second of virtual time.
  [[nodiscard]] double per_second(std::uint64_t count) const;
};

}  // namespace cairn::sim
