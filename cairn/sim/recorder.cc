#include "cairn/sim/recorder.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

namespace cairn::sim {
namespace {

double ms(Duration duration) { return static_cast<double>(duration.count()) / 1e6; }

// Ten bars per decade: 1, 1.3, 1.6, 2, 2.5, ...
std::vector<Bar> histogram_of(const std::vector<double>& values) {
  std::vector<Bar> bars;
  if (values.empty()) {
    return bars;
  }
  const auto decile = [](double value) {
    return value < 1 ? 0 : 1 + static_cast<int>(std::floor(10 * std::log10(value)));
  };
  const auto [least, most] = std::ranges::minmax(values);
  const int first = decile(least);
  for (int i = first; i <= decile(most); ++i) {
    bars.push_back({std::pow(10, i / 10.0), 0});
  }
  for (const double value : values) {
    ++bars[static_cast<std::size_t>(decile(value) - first)].count;
  }
  return bars;
}

SeriesPoint point_of(const TimeSpan& span, double begin_s, double width_s) {
  SeriesPoint point{.begin_s = begin_s,
                    .prompt_tokens_per_s = static_cast<double>(span.prompt_tokens) / width_s,
                    .output_tokens_per_s = static_cast<double>(span.output_tokens) / width_s};
  if (span.first_tokens > 0) {
    point.hit_ratio = static_cast<double>(span.reused_tokens) / static_cast<double>(span.input_tokens);
    point.ttft_ms = ms(span.ttft_sum) / static_cast<double>(span.first_tokens);
    point.ttft_max_ms = ms(span.ttft_max);
  }
  if (span.busy.count() > 0) {
    const auto busy = static_cast<double>(span.busy.count());
    point.blocks_in_use = span.blocks_in_use / busy;
    point.blocks_resident = span.blocks_resident / busy;
    point.waiting = span.waiting / busy;
    for (std::size_t tier = 0; tier < kMostTiersBelow; ++tier) {
      point.below[tier] = span.below[tier] / busy;
    }
  }
  return point;
}

}  // namespace

void Recorder::pass(const PassFigures& pass) {
  counts_.passes += pass.passes;
  counts_.computed_tokens += pass.prompt_tokens;
  peak_blocks_ = std::max(peak_blocks_, pass.blocks_in_use);
  peak_waiting_ = std::max(peak_waiting_, pass.waiting);
  busy_ += pass.tokens > 0 || pass.prompt_tokens > 0 ? pass.end - pass.begin : Duration(0);
  if (pass.tokens > 0) {
    last_token_ = std::max(last_token_, pass.end);
  }
  TimeSpan& span = series_.at(pass.begin);
  const auto time = static_cast<double>((pass.end - pass.begin).count());
  span.busy += pass.end - pass.begin;
  span.blocks_in_use += static_cast<double>(pass.blocks_in_use) * time;
  span.blocks_resident += static_cast<double>(pass.blocks_resident) * time;
  span.waiting += static_cast<double>(pass.waiting) * time;
  for (std::size_t tier = 0; tier < kMostTiersBelow; ++tier) {
    span.below[tier] += static_cast<double>(pass.below[tier]) * time;
  }
  span.prompt_tokens += pass.prompt_tokens;
  span.output_tokens += pass.tokens;
}

void Recorder::admission(const AdmissionFigures& admission) {
  ++counts_.admissions;
  counts_.saved_tokens += admission.cached;
  counts_.rejected_tokens += admission.rejected;
  // The last token is computed even if its block was loaded.
  std::uint64_t left = admission.cached;
  for (std::size_t tier = 0; tier < kMostTiersBelow; ++tier) {
    const std::uint64_t tokens = std::min(admission.loaded[tier], left);
    loaded_tokens_[tier] += tokens;
    left -= tokens;
  }
}

void Recorder::first_token(const RequestFigures& request) {
  TimeSpan& span = series_.at(request.first_token);
  const Duration ttft = request.first_token - request.arrival;
  ++span.first_tokens;
  span.input_tokens += request.input_tokens;
  span.reused_tokens += request.reused_tokens;
  span.ttft_sum += ttft;
  span.ttft_max = std::max(span.ttft_max, ttft);
}

void Recorder::finished(std::uint64_t number, const RequestFigures& request) {
  ++counts_.completed;
  counts_.input_tokens += request.input_tokens;
  counts_.output_tokens += request.output_tokens;
  counts_.reused_tokens += request.reused_tokens;
  counts_.first_reused_tokens += request.first_reused_tokens;
  if (number >= requests_.size()) {
    requests_.resize(number + 1);
  }
  requests_[number] = request;
}

Latencies Recorder::latencies() const {
  std::vector<double> ttft;
  std::vector<double> ttst;
  std::vector<double> tpot;
  std::vector<double> e2e;
  std::vector<double> queue;
  std::vector<double> loads;
  std::ranges::transform(load_waits_, std::back_inserter(loads), ms);
  for (const RequestFigures& request : requests_) {
    if (request.output_tokens == 0) {
      continue;
    }
    ttft.push_back(ms(request.first_token - request.arrival));
    e2e.push_back(ms(request.last_token - request.arrival));
    queue.push_back(ms(*request.admitted - request.arrival));
    if (request.output_tokens > 1) {
      ttst.push_back(ms(request.second_token - request.first_token));
      tpot.push_back(ms(request.last_token - request.first_token) / static_cast<double>(request.output_tokens - 1));
    }
  }
  std::vector<std::pair<double, std::uint64_t>> itl;
  std::vector<std::pair<double, std::uint64_t>> tokens_per_s;
  gaps_.for_each([&](std::uint64_t gap, const GapCount& gaps) {
    const double gap_ms = ms(Duration(static_cast<Duration::rep>(gap)));
    itl.emplace_back(gap_ms, gaps.count);
    if (gap > 0) {
      tokens_per_s.emplace_back(1000.0 / gap_ms, gaps.count);
    }
  });
  return {.ttft_ms = Distribution::of(std::move(ttft)),
          .ttst_ms = Distribution::of(std::move(ttst)),
          .tpot_ms = Distribution::of(std::move(tpot)),
          .itl_ms = Distribution::of_counted(std::move(itl)),
          .e2e_ms = Distribution::of(std::move(e2e)),
          .queue_ms = Distribution::of(std::move(queue)),
          .load_ms = Distribution::of(std::move(loads)),
          .tokens_per_s = Distribution::of_counted(std::move(tokens_per_s))};
}

Report Recorder::report() const {
  Report report;
  report.counts = counts_;
  report.loaded_tokens = loaded_tokens_;
  report.cache.peak_in_use = peak_blocks_;
  report.duration_ms = ms(last_token_);
  report.busy_s = ms(busy_) / 1000;
  report.latencies = latencies();
  report.peak_waiting = peak_waiting_;
  report.span_s = ms(series_.width()) / 1000;
  for (const TimeSpan& span : series_.spans()) {
    report.series.push_back(point_of(span, report.span_s * static_cast<double>(report.series.size()), report.span_s));
  }
  std::vector<double> ttft;
  for (const RequestFigures& request : requests_) {
    if (request.output_tokens > 0) {
      ttft.push_back(ms(request.first_token - request.arrival));
    }
  }
  report.ttft_histogram = histogram_of(ttft);
  report.requests = requests_;
  return report;
}

double Report::reused_ratio() const {
  return counts.input_tokens == 0
             ? 0
             : static_cast<double>(counts.reused_tokens) / static_cast<double>(counts.input_tokens);
}

double Report::loaded_ratio(CacheLevel tier) const {
  return counts.saved_tokens == 0 ? 0
                                  : reused_ratio() * static_cast<double>(loaded_tokens[below_index(tier)]) /
                                        static_cast<double>(counts.saved_tokens);
}

double Report::write_amplification(const TierCounts& tier) const {
  const double computed =
      static_cast<double>(counts.computed_tokens + counts.output_tokens) * static_cast<double>(kv_bytes);
  return computed == 0 ? 0 : static_cast<double>(tier.bytes_written) / computed;
}

double Report::busy_share() const {
  return duration_ms == 0 || workers == 0 ? 0 : busy_s * 1000 / duration_ms / workers;
}

double Report::first_reused_ratio() const {
  return counts.input_tokens == 0
             ? 0
             : static_cast<double>(counts.first_reused_tokens) / static_cast<double>(counts.input_tokens);
}

double Report::per_second(std::uint64_t count) const {
  return duration_ms == 0 ? 0 : static_cast<double>(count) / (duration_ms / 1000);
}

}  // namespace cairn::sim
