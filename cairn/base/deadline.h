// Times that callers give, without overflow: a duration that is too long for the clock is as good as forever.
//
// A deadline that saturates is kLatest, some 146 years after the clock's start: late enough never to come, and early enough
// that a timeout or two can be added to it.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "cairn/base/clock.h"

namespace cairn {

inline constexpr Duration kLongest = Duration(std::int64_t{1} << 61);  // 73 years
inline constexpr TimePoint kLatest = TimePoint(std::int64_t{1} << 62);

// A duration that somebody gave, no longer than kLongest.
[[nodiscard]] constexpr Duration limited(Duration given) { return std::min(given, kLongest); }

[[nodiscard]] constexpr Duration limited_ms(std::uint64_t milliseconds) {
  constexpr auto kMost = static_cast<std::uint64_t>(std::chrono::floor<std::chrono::milliseconds>(kLongest).count());
  return milliseconds > kMost ? kLongest : Duration(std::chrono::milliseconds(static_cast<std::int64_t>(milliseconds)));
}

// When a wait that begins now and lasts that long is over; at most kLatest. A duration below zero is over at once.
[[nodiscard]] constexpr TimePoint deadline_after(TimePoint now, Duration longest) {
  return longest <= Duration::zero() ? now : now >= kLatest - limited(longest) ? kLatest : now + limited(longest);
}

// How long that is from now, for waits: at least zero, at most kLongest.
[[nodiscard]] constexpr Duration time_until(TimePoint deadline, TimePoint now) {
  return deadline <= now ? Duration::zero() : limited(std::min(deadline, kLatest) - now);
}

}  // namespace cairn
