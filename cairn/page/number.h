// Numbers with units, as people read them.
#pragma once

#include <cstdint>
#include <string>

namespace cairn::page {

enum class Unit : std::uint8_t {
  kNumber,
  kShare,   // 0 to 1, read in percent
  kPoints,  // a difference of shares, read in percentage points with its sign
  kMilliseconds,
  kSeconds,
  kBytes,
};

// A value by itself: "12,345", "0.0123", "19.58 %", "+1.2 points", "850 ms", "2.4 min", "1.5 GB". Not finite: "–". The
// space before a unit is one where lines do not break.
[[nodiscard]] std::string format(double value, Unit unit);

// A number in three digits, for where there is little room: "950", "12.3 k", "4.12 M".
[[nodiscard]] std::string format_short(double value);

// One unit for the values of a whole axis, chosen by the largest: 0 to 5,400 s reads as 0 to 90, in "min".
struct AxisUnit {
  double factor = 1;        // of the axis' unit in the values' own
  std::string name;         // for the axis' label; "" when there is nothing to say
  std::string suffix = {};  // that each tick carries: " %", " k"
};
[[nodiscard]] AxisUnit axis_unit(double largest, Unit unit);

// A tick of an axis, in its unit, with as many digits as its neighbours `step` away need.
[[nodiscard]] std::string format_tick(double value, double step);

}  // namespace cairn::page
