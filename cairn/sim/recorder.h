// Recorder: collects what the engines of a replay do, and makes the report of it.
//
// Does:     keeps a few numbers for each finished request, and how often each gap between tokens occurred: memory in
//           proportion to requests and to different gaps, not to tokens.
// Owner:    outlives the engines that record in it.
// Threads:  one.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "cairn/base/clock.h"
#include "cairn/sim/flat_table.h"
#include "cairn/sim/report.h"
#include "cairn/sim/time_series.h"

namespace cairn::sim {

// One pass of one engine, or several that are alike.
struct PassFigures {
  TimePoint begin{0};
  TimePoint end{0};
  std::uint64_t passes = 1;
  std::uint64_t blocks_in_use = 0;    // before tokens came out
  std::uint64_t blocks_resident = 0;  // with those that nobody uses
  std::uint64_t waiting = 0;          // requests
  std::uint64_t prompt_tokens = 0;    // computed
  std::uint64_t tokens = 0;           // that came out
};

class Recorder {
 public:
  void pass(const PassFigures& pass);
  void admission(std::uint64_t cached_tokens) {
    ++counts_.admissions;
    counts_.saved_tokens += cached_tokens;
  }
  void preemption() { ++counts_.preemptions; }
  void livelock() { ++counts_.livelocks; }
  void first_token(const RequestFigures& request);
  // So many tokens that came this long after the one before, each of its own request.
  void gap(Duration gap, std::uint64_t count) {
    gaps_.insert(static_cast<std::uint64_t>(gap.count()), {0, true}).first->count += count;
  }
  // Requests are numbered by their arrival, from 0.
  void finished(std::uint64_t number, const RequestFigures& request);
  void arrived() { ++counts_.arrived; }
  void refused() { ++counts_.refused; }

  [[nodiscard]] std::uint64_t num_finished() const { return counts_.completed; }

  // What is known so far. What the cache says of itself (evictions, events) is for the caller to add.
  [[nodiscard]] Report report() const;

 private:
  struct GapCount {
    std::uint64_t count = 0;
    bool used = false;
    [[nodiscard]] bool vacant() const { return !used; }
  };

  [[nodiscard]] Latencies latencies() const;

  ReplayCounts counts_;
  std::vector<RequestFigures> requests_;  // by number; not all are finished
  internal::FlatTable<std::uint64_t, GapCount> gaps_;
  TimeSeries series_;
  TimePoint last_token_{0};
  std::uint64_t peak_blocks_ = 0;
  std::uint64_t peak_waiting_ = 0;
};

}  // namespace cairn::sim
