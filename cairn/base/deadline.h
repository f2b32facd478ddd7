// Arithmetic with durations and deadlines that callers give, without overflow: a duration that is too long means forever.
//
// A deadline saturates at kLatestTime, 146 years after the start of the clock: it never comes, and adding a timeout or two to
// it does not overflow.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "cairn/base/clock.h"

namespace cairn {

inline constexpr Duration kLongestDuration = Duration(std::int64_t{1} << 61);  // 73 years
inline constexpr TimePoint kLatestTime = TimePoint(std::int64_t{1} << 62);

// `given`, but at most kLongestDuration.
[[nodiscard]] constexpr Duration limited(Duration given) { return std::min(given, kLongestDuration); }

[[nodiscard]] constexpr Duration limited_ms(std::uint64_t milliseconds) {
  constexpr auto kMost =
      static_cast<std::uint64_t>(std::chrono::floor<std::chrono::milliseconds>(kLongestDuration).count());
  return milliseconds > kMost ? kLongestDuration
                              : Duration(std::chrono::milliseconds(static_cast<std::int64_t>(milliseconds)));
}

[[nodiscard]] constexpr Duration limited_ns(std::uint64_t nanoseconds) {
  return Duration(
      static_cast<Duration::rep>(std::min(nanoseconds, static_cast<std::uint64_t>(kLongestDuration.count()))));
}

// The end of a wait of `longest` that begins now; at most kLatestTime. A negative duration ends at once.
[[nodiscard]] constexpr TimePoint deadline_after(TimePoint now, Duration longest) {
  return longest <= Duration::zero()             ? now
         : now >= kLatestTime - limited(longest) ? kLatestTime
                                                 : now + limited(longest);
}

// The time from now to the deadline, for waits: at least zero, at most kLongestDuration.
[[nodiscard]] constexpr Duration time_until(TimePoint deadline, TimePoint now) {
  return deadline <= now ? Duration::zero() : limited(std::min(deadline, kLatestTime) - now);
}

}  // namespace cairn
