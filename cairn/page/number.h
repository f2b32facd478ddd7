// Formats numbers with units for people.
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

// A value by itself: "12,345", "0.0123", "19.58 %", "+1.2 points", "850 ms", "2.4 min", "1.5 GB"; "–" if it is not
// finite. The space before a unit is a no-break space.
[[nodiscard]] std::string format(double value, Unit unit);

// A number with three digits, for small spaces: "950", "12.3 k", "4.12 M".
[[nodiscard]] std::string format_short(double value);

// One unit for the values of a whole axis, chosen by the largest: 0 to 5,400 s reads as 0 to 90, in "min".
struct AxisUnit {
  double factor = 1;        // how many of the values' unit make one of the axis
  std::string name;         // for the label of the axis; may be empty
  std::string suffix = {};  // of each tick: " %", " k"
};
[[nodiscard]] AxisUnit axis_unit(double largest, Unit unit);

// The label of a tick, with as many digits as ticks that are `step` apart need.
[[nodiscard]] std::string format_tick(double value, double step);

}  // namespace cairn::page
