#include "cairn/page/scale.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "cairn/base/check.h"
#include "cairn/page/number.h"

namespace cairn::page {

namespace {

bool can_show(double value, const Axis& axis) {
  return std::isfinite(value) && (axis.scale == Axis::Scale::kLinear || value > 0);
}

struct LogTick {
  double at;
  bool main;  // also labelled if there is little space
};

// 1, 2 and 5 times powers of ten.
std::vector<LogTick> decimal_ticks(double from, double to) {
  std::vector<LogTick> ticks;
  for (double power = std::pow(10, std::floor(std::log10(from))); power <= to * (1 + 1e-9); power *= 10) {
    ticks.insert(ticks.end(), {{power, true}, {2 * power, false}, {5 * power, false}});
  }
  return ticks;
}

// In seconds: decimal up to the minute, then in what clocks count.
std::vector<LogTick> time_ticks(double from, double to) {
  constexpr double kMinute = 60;
  constexpr double kHour = 3600;
  constexpr double kDay = 86400;
  std::vector<LogTick> ticks;
  if (from < kMinute) {
    ticks = decimal_ticks(from, std::min(to, kMinute / 2));
    std::erase_if(ticks, [](const LogTick& tick) { return tick.at >= kMinute / 2; });
  }
  ticks.insert(ticks.end(), {{30, false},
                             {kMinute, true},
                             {2 * kMinute, false},
                             {5 * kMinute, false},
                             {10 * kMinute, true},
                             {30 * kMinute, false},
                             {kHour, true},
                             {3 * kHour, false},
                             {10 * kHour, true}});
  if (to >= kDay) {
    for (const LogTick& tick : decimal_ticks(1, to / kDay)) {
      ticks.push_back({tick.at * kDay, tick.main});
    }
  }
  return ticks;
}

}  // namespace

void Extent::add(double value, const Axis& axis) {
  if (!can_show(value, axis)) {
    return;
  }
  ends_ = ends_ ? std::pair(std::min(ends_->first, value), std::max(ends_->second, value)) : std::pair(value, value);
}

double round_step(double length, int count) {
  const double rough = length / count;
  const double power = std::pow(10, std::floor(std::log10(rough)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    // A little too many ticks are better than far too few.
    if (rough <= factor * power * 1.2) {
      return factor * power;
    }
  }
  return 10 * power;
}

Scale::Scale(const Axis& axis, const Extent& extent, double begin, double end, int count)
    : log_(axis.scale == Axis::Scale::kLog), begin_(begin), end_(end), label_(axis.label) {
  CAIRN_CHECK(!extent.empty(), "a scale of no values");
  if (log_) {
    settle_log(axis, extent);
  } else {
    settle_linear(axis, extent, count);
  }
  if (!axis.ticks.empty()) {
    ticks_ = axis.ticks;
  }
}

void Scale::settle_linear(const Axis& axis, const Extent& extent, int count) {
  from_ = axis.from.value_or(std::min(0.0, extent.least()));
  to_ = axis.to.value_or(std::max(0.0, extent.largest()));
  if (!(to_ > from_)) {
    to_ = from_ + (from_ == 0 ? 1 : std::abs(from_));
  }
  const AxisUnit unit = axis_unit(std::max(std::abs(from_), std::abs(to_)), axis.unit);
  if (!unit.name.empty()) {
    label_ += " (" + unit.name + ")";
  }
  const double step = round_step((to_ - from_) / unit.factor, count);
  // Ends that are not given move out to the next tick, so that there is a tick above the largest value.
  const double slack = 1e-9;
  double first = std::ceil(from_ / unit.factor / step - slack);
  double last = std::floor(to_ / unit.factor / step + slack);
  if (!axis.from && first * step * unit.factor > from_) {
    from_ = --first * step * unit.factor;
  }
  if (!axis.to && last * step * unit.factor < to_ * (1 - slack)) {
    to_ = ++last * step * unit.factor;
  }
  for (double i = first; i <= last; ++i) {
    ticks_.push_back({i * step * unit.factor, format_tick(i * step, step) + unit.suffix});
  }
}

void Scale::settle_log(const Axis& axis, const Extent& extent) {
  from_ = axis.from.value_or(extent.least());
  to_ = axis.to.value_or(extent.largest());
  if (!(to_ > from_)) {
    from_ /= 2;
    to_ *= 2;
  }
  const double in_seconds = axis.unit == Unit::kMilliseconds ? 1e-3 : 1;
  const bool time = axis.unit == Unit::kMilliseconds || axis.unit == Unit::kSeconds;
  const bool roomy = to_ / from_ < 1000;
  for (const LogTick& tick : time ? time_ticks(from_ * in_seconds, to_ * in_seconds) : decimal_ticks(from_, to_)) {
    const double value = time ? tick.at / in_seconds : tick.at;
    if ((tick.main || roomy) && value >= from_ * (1 - 1e-9) && value <= to_ * (1 + 1e-9)) {
      ticks_.push_back({value, format(value, axis.unit)});
    }
  }
}

std::optional<double> Scale::at(double value) const {
  if (!std::isfinite(value) || (log_ && value <= 0)) {
    return std::nullopt;
  }
  const double part = log_ ? std::log(value / from_) / std::log(to_ / from_) : (value - from_) / (to_ - from_);
  return begin_ + std::clamp(part, 0.0, 1.0) * (end_ - begin_);
}

}  // namespace cairn::page
