#include "cairn/page/number.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <span>
#include <string_view>

namespace cairn::page {

namespace {

// Number and unit stay on one line.
constexpr const char* kSpace = "\u00A0";

struct Step {
  double factor;  // in the base unit
  const char* name;
};

constexpr std::array kTimes = {Step{1e-6, "ns"}, Step{1e-3, "µs"}, Step{1, "ms"},       Step{1e3, "s"},
                               Step{6e4, "min"}, Step{3.6e6, "h"}, Step{8.64e7, "days"}};
constexpr std::array kSizes = {Step{1, "B"},    Step{1e3, "kB"},  Step{1e6, "MB"},
                               Step{1e9, "GB"}, Step{1e12, "TB"}, Step{1e15, "PB"}};
constexpr std::array kCounts = {Step{1, ""}, Step{1e3, "\u00A0k"}, Step{1e6, "\u00A0M"}, Step{1e9, "\u00A0bn"}};

// The largest unit that the value has at least `least` of.
Step choose(std::span<const Step> steps, double value, double least) {
  Step chosen = steps.front();
  for (const Step& step : steps) {
    if (value >= least * step.factor) {
      chosen = step;
    }
  }
  return chosen;
}

std::string decimals(double value, int digits) {
  std::array<char, 400> text{};  // the largest double has 309 digits
  std::snprintf(text.data(), text.size(), "%.*f", digits, value);
  std::string out = text.data();
  return out.find_first_not_of("-0.") == std::string::npos ? out.substr(out[0] == '-' ? 1 : 0) : out;
}

// "1234567.5" with commas between thousands.
std::string grouped(std::string digits) {
  const std::size_t point = std::min(digits.find('.'), digits.size());
  const std::size_t first = digits[0] == '-' ? 1 : 0;
  for (std::size_t at = point; at > first + 3; at -= 3) {
    digits.insert(at - 3, 1, ',');
  }
  return digits;
}

// Three significant digits without trailing zeros: 0.0123, 1.23, 12.3, 123, 1,234.
std::string three_digits(double value) {
  const double size = std::abs(value);
  int after = 0;
  if (size > 0 && size < 100) {
    after = std::min(9, 2 - static_cast<int>(std::floor(std::log10(size))));
  }
  std::string text = decimals(value, after);
  if (text.find('.') != std::string::npos) {
    text.erase(text.find_last_not_of('0') + 1);
    if (text.back() == '.') {
      text.pop_back();
    }
  }
  return grouped(text);
}

std::string with_step(double base_value, std::span<const Step> steps) {
  const Step step = choose(steps, std::abs(base_value), 1);
  const std::string number = three_digits(base_value / step.factor);
  return number + kSpace + (number == "1" && std::string_view(step.name) == "days" ? "day" : step.name);
}

}  // namespace

std::string format(double value, Unit unit) {
  if (!std::isfinite(value)) {
    return "–";
  }
  switch (unit) {
    case Unit::kNumber:
      return value == std::floor(value) ? grouped(decimals(value, 0)) : three_digits(value);
    case Unit::kShare:
      return decimals(100 * value, 2) + kSpace + "%";
    case Unit::kPoints: {
      const std::string points = decimals(100 * value, 2);
      return (value > 0 && points != "0.00" ? "+" : "") + points + kSpace + "points";
    }
    case Unit::kMilliseconds:
      return value == 0 ? std::string("0") + kSpace + "ms" : with_step(value, kTimes);
    case Unit::kSeconds:
      return value == 0 ? std::string("0") + kSpace + "s" : with_step(1000 * value, kTimes);
    case Unit::kBytes:
      return with_step(value, kSizes);
  }
  return {};
}

std::string format_short(double value) {
  if (!std::isfinite(value)) {
    return "–";
  }
  const Step step = choose(kCounts, std::abs(value), 1);
  return three_digits(value / step.factor) + step.name;
}

AxisUnit axis_unit(double largest, Unit unit) {
  // Axes keep the smaller unit for longer: 90 s is easier to read than 1.5 min.
  constexpr double kEnough = 3;
  switch (unit) {
    case Unit::kNumber: {
      const Step step = choose(kCounts, largest, 10);
      return {.factor = step.factor, .name = "", .suffix = step.name};
    }
    case Unit::kShare:
      return {.factor = 0.01, .name = "", .suffix = "\u00A0%"};
    case Unit::kPoints:
      return {.factor = 0.01, .name = "points"};
    case Unit::kMilliseconds: {
      const Step step = choose(kTimes, largest, kEnough);
      return {.factor = step.factor, .name = step.name};
    }
    case Unit::kSeconds: {
      const Step step = choose(kTimes, 1000 * largest, kEnough);
      return {.factor = step.factor / 1000, .name = step.name};
    }
    case Unit::kBytes: {
      const Step step = choose(kSizes, largest, kEnough);
      return {.factor = step.factor, .name = step.name};
    }
  }
  return {};
}

std::string format_tick(double value, double step) {
  int digits = 0;
  // 2.5 needs one digit, 0.25 two: as many as make the step whole.
  for (double scaled = std::abs(step); digits < 9 && std::abs(scaled - std::round(scaled)) > 1e-6 * scaled;
       scaled *= 10) {
    ++digits;
  }
  return grouped(decimals(value, digits));
}

}  // namespace cairn::page
