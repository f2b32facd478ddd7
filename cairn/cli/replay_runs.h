// `cairn replay`: what simulated workers would make of a trace.
//
// Does:     streams the trace through one replay, or through several side by side, on as many threads as there are
//           cores. The report goes to `out` and depends on nothing but options and trace; progress, what was wrong with
//           rows, and how long it took go to `log`.
// Fails:    options that make no sense, files that cannot be read or written; a bad row where rows are to be good.
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

struct ReplayCommand {
  std::string trace = {};
  ReplaySettings settings = {};
  std::string compare = {};                  // "KEY=V1,V2,..."
  std::vector<std::string> bandwidths = {};  // "EDGE=GBPS"
  std::vector<NamedSettings> variants = {};  // run side by side, in place of `compare`
  std::string json = {};                     // a file; "-" is `out`, in place of the report for people
  std::string html = {};                     // a file
  std::string words = {};                    // the command as it was given, for the page
  std::string events = {};                   // a file
  bool strict = false;                       // a bad row is an error
  std::function<void(std::span<const ReplayRun>)> conclude = {};  // has the last word, where the report is for people
  std::uint32_t threads = 0;                                      // for runs side by side; 0: one a core
};

// What a command is given from outside.
struct ReplaySurroundings {
  std::ostream& out;
  std::ostream& log;
  const Clock& clock;
  const std::atomic<bool>& stop;   // set by another thread or a signal: report what there is
  bool log_is_a_terminal = false;  // progress is shown only on one
};

enum class ReplayEnd : std::uint8_t { kComplete, kStopped };

[[nodiscard]] Result<ReplayEnd> run_replay_command(const ReplayCommand& command, const ReplaySurroundings& around);

}  // namespace cairn::cli
