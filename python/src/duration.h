// Times as Python has them: seconds, as float.
#pragma once

#include <chrono>
#include <optional>

#include "cairn/base/clock.h"
#include "cairn/base/str_cat.h"
#include "python/src/binding.h"

namespace cairn::python {

[[nodiscard]] inline double seconds_of(Duration duration) { return std::chrono::duration<double>(duration).count(); }
[[nodiscard]] inline std::optional<double> seconds_of(const std::optional<Duration>& duration) {
  return duration ? std::optional(seconds_of(*duration)) : std::nullopt;
}

// Raises unless the time is 0 to 1e9 seconds, which is 30 years.
[[nodiscard]] inline Duration duration_of(double seconds) {
  if (!(seconds >= 0 && seconds <= 1e9)) {
    raise(ErrorCode::kInvalidArgument, str_cat("a time of ", seconds, " seconds; give 0 to 1e9"));
  }
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
}
[[nodiscard]] inline std::optional<Duration> duration_of(const std::optional<double>& seconds) {
  return seconds ? std::optional(duration_of(*seconds)) : std::nullopt;
}

}  // namespace cairn::python
