// Times that callers give, without overflow: a duration that is too long for the clock is as good as forever.
//
// A deadline that saturates is kLatestTime, some 146 years after the clock's start: late enough never to come, and early enough
// that a timeout or two can be added to it.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "cairn/base/clock.h"

namespace cairn {

inline constexpr Duration kLongestDuration = Duration(std::int64_t{1} << 61);  // 73 years
inline constexpr TimePoint kLatestTime = TimePoint(std::int64_t{1} << 62);

// A duration that somebody gave, no longer than kLongestDuration.
[[nodiscard]] constexpr Duration limited(Duration given) { return std::min(given, kLongestDuration); }

[[nodiscard]] constexpr Duration limited_ms(std::uint64_t milliseconds) {
  constexpr auto kMost =
      static_cast<std::uint64_t>(std::chrono::floor<std::chrono::milliseconds>(kLongestDuration).count());
  return milliseconds > kMost ? kLongestDuration
                              : Duration(std::chrono::milliseconds(static_cast<std::int64_t>(milliseconds)));
}

// When a wait that begins now and lasts that long is over; at most kLatestTime. A duration below zero is over at once.
[[nodiscard]] constexpr TimePoint deadline_after(TimePoint now, Duration longest) {
  return longest <= Duration::zero()             ? now
         : now >= kLatestTime - limited(longest) ? kLatestTime
                                                 : now + limited(longest);
}

// How long that is from now, for waits: at least zero, at most kLongestDuration.
[[nodiscard]] constexpr Duration time_until(TimePoint deadline, TimePoint now) {
  return deadline <= now ? Duration::zero() : limited(std::min(deadline, kLatestTime) - now);
}

}  // namespace cairn
