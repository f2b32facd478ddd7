// `cairn replay`: replays a trace on simulated workers.
//
// Runs one replay, or several side by side on as many threads as there are cores. The report goes to `out` and depends only on
// the options and the trace; progress, invalid rows and the time it took go to `log`.
//
// Errors: invalid options, files that cannot be read or written, and with `strict` an invalid row.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <iosfwd>
#include <span>
#include <string>
#include <vector>

#include "cairn/base/clock.h"
#include "cairn/base/result.h"
#include "cairn/cli/replay_report.h"
#include "cairn/cli/replay_settings.h"

namespace cairn::cli {

enum class Scenarios : std::uint8_t {
  kNone,
  kAll,           // scenarios()
  kFirstAndLast,  // of those: without tiers and with all
};

struct ReplayCommand {
  std::vector<std::string> traces = {};  // several are mixed
  ReplaySources settings = {};
  std::string compare = {};                                        // "KEY=V1,V2,..."
  Scenarios scenarios = Scenarios::kNone;                          // with and without tiers, instead of `compare`
  std::string json = {};                                           // file; "-" for `out`, instead of the text report
  std::string html = {};                                           // file
  std::string words = {};                                          // the command line, shown on the page
  std::string events = {};                                         // file
  bool strict = false;                                             // an invalid row is an error
  std::function<void(std::span<const ReplayRun>)> introduce = {};  // called before the text report
  std::uint32_t threads = 0;                                       // for several runs; 0 for one per core
};

// Where a command writes to, and what it depends on.
struct ReplaySurroundings {
  std::ostream& out;
  std::ostream& log;
  const Clock& clock;
  const std::atomic<bool>& stop;   // set by another thread or a signal: stop and report
  bool log_is_a_terminal = false;  // progress is shown only on a terminal
};

enum class ReplayEnd : std::uint8_t { kComplete, kStopped };

[[nodiscard]] Result<ReplayEnd> run_replay_command(const ReplayCommand& command, const ReplaySurroundings& around);

}  // namespace cairn::cli
