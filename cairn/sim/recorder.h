// Recorder: collects what the engines of a replay do, and makes the report.
//
// Keeps a few numbers for each finished request, and how often each gap between tokens occurred: memory grows with
// requests and distinct gaps, not with tokens.
//
// Thread safety: not thread-safe.
// Ownership:  must outlive the engines that record in it.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "cairn/base/clock.h"
#include "cairn/sim/report.h"
#include "cairn/sim/sim_table.h"
#include "cairn/sim/time_series.h"

namespace cairn::sim {

// One pass of one engine, or several equal ones.
struct PassFigures {
  TimePoint begin{0};
  TimePoint end{0};
  std::uint64_t passes = 1;
  std::uint64_t blocks_in_use = 0;    // before tokens were generated
  std::uint64_t blocks_resident = 0;  // in use or inactive
  std::uint64_t waiting = 0;          // requests
  std::uint64_t prompt_tokens = 0;    // computed
  std::uint64_t tokens = 0;           // generated
  PerTier<std::uint64_t> below = {};  // blocks in the tiers below
};

// What a request found when it was admitted, in tokens.
struct AdmissionFigures {
  std::uint64_t cached = 0;            // on the device, those that were loaded for it included
  PerTier<std::uint64_t> loaded = {};  // from each tier below
  std::uint64_t rejected = 0;          // that tiers below had, and that were faster to compute
};

class Recorder {
 public:
  void pass(const PassFigures& pass);
  void admission(const AdmissionFigures& admission);
  // A request waited that long for its load.
  void load_landed(Duration waited) { load_waits_.push_back(waited); }
  void preemption() { ++counts_.preemptions; }
  void livelock() { ++counts_.livelocks; }
  void first_token(const RequestFigures& request);
  // `count` requests each generated a token `gap` after the one before.
  void gap(Duration gap, std::uint64_t count) {
    gaps_.insert(static_cast<std::uint64_t>(gap.count()), {0, true}).first->count += count;
  }
  // Requests are numbered in order of arrival, from 0.
  void finished(std::uint64_t number, const RequestFigures& request);
  void arrived() { ++counts_.arrived; }
  void refused() { ++counts_.refused; }

  [[nodiscard]] std::uint64_t num_finished() const { return counts_.completed; }

  // The report so far. The caller adds the figures of the cache (evictions, events).
  [[nodiscard]] Report report() const;

 private:
  struct GapCount {
    std::uint64_t count = 0;
    bool used = false;
    [[nodiscard]] bool vacant() const { return !used; }
  };

  [[nodiscard]] Latencies latencies() const;

  ReplayCounts counts_;
  std::vector<RequestFigures> requests_;  // by number; those not finished have no output tokens
  internal::SimTable<std::uint64_t, GapCount> gaps_;
  TimeSeries series_;
  PerTier<std::uint64_t> loaded_tokens_{};
  std::vector<Duration> load_waits_;
  TimePoint last_token_{0};
  Duration busy_{0};
  std::uint64_t peak_blocks_ = 0;
  std::uint64_t peak_waiting_ = 0;
};

}  // namespace cairn::sim
