// `cairn top`: the state of a running manager in a terminal, once a second.
#pragma once

#include <atomic>
#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

#include "cairn/base/result.h"
#include "cairn/cli/ctl.h"

namespace cairn::cli {

struct TopOptions {
  CtlTarget target = {};
  double seconds = 1;  // between two looks
  bool once = false;   // print one snapshot and end
  bool json = false;   // with `once`: the server's answers as they are
};

// What was read at one time.
struct TopSample {
  std::string status = {};  // JSON of /v1/status
  std::string times = {};   // JSON of /v1/times; may be empty
};

// What is shown on a screen of this size: never more lines, and no line longer in characters (the bars are not ASCII).
// Rates are those since `before`, if it has a status. An answer that cannot be read is one line that says so.
[[nodiscard]] std::vector<std::string> top_lines(const TopSample& now, const TopSample& before, std::size_t width,
                                                 std::size_t height);

// Runs until q, Ctrl-C or `stop`. Without a terminal, or with --once, prints one snapshot.
[[nodiscard]] Status run_top(const TopOptions& options, std::ostream& out, const std::atomic<bool>& stop);

}  // namespace cairn::cli
