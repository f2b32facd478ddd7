// Helpers of the benchmarks that do not use a benchmark library: clocks, medians, and stop(), which ends the program.
//
// Errors: every failure ends the program, because there is nothing to report.
#pragma once

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>
#include <utility>
#include <vector>

#include "cairn/base/result.h"

namespace cairn::bench {

// "disk_bench: WHY"
[[noreturn]] inline void stop(const std::string& why) {
  std::fprintf(stderr, "%s: %s\n", program_invocation_short_name, why.c_str());
  std::exit(1);
}

template <typename T>
T must(Result<T> result) {
  if (!result) {
    stop(result.error().to_string());
  }
  return *std::move(result);
}
inline void must(const Status& status) {
  if (!status) {
    stop(status.error().to_string());
  }
}

[[nodiscard]] inline double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Processor time of the calling thread.
[[nodiscard]] inline double cpu_seconds_now() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9;
}

// 0 if there are no values.
[[nodiscard]] inline double median(std::vector<double> values) {
  if (values.empty()) {
    return 0;
  }
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

}  // namespace cairn::bench
