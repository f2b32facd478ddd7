// The commands of `cairn`, and what they share. The options and the --help of a command are in NAME_command.cc. Every command
// has --json and examples in its --help.
#pragma once

#include <atomic>
#include <functional>
#include <string>

#include "cairn/base/result.h"

namespace CLI {
class App;
}

namespace cairn::cli {

// Runs the chosen command and returns the exit status of the program.
using Chosen = std::function<int()>;

// Each adds one command to the app. If the command line has that command, parsing sets `chosen`. `words` is the command line.
void add_config(CLI::App& app, Chosen& chosen);
void add_demo(CLI::App& app, Chosen& chosen);
void add_disk(CLI::App& app, Chosen& chosen);
void add_events(CLI::App& app, Chosen& chosen);
void add_hitrate(CLI::App& app, const std::string& words, Chosen& chosen);
void add_ops(CLI::App& app, Chosen& chosen);
void add_replay(CLI::App& app, const std::string& words, Chosen& chosen);
void add_stress(CLI::App& app, Chosen& chosen);
void add_trace(CLI::App& app, Chosen& chosen);

// Prints the error, if any, to standard error. Returns 0 or `failure`, for use as exit status.
[[nodiscard]] int finish(const std::string& command, const Status& status, int failure = 1);
// Whether standard error is a terminal. Progress is shown only there, not in pipes and files.
[[nodiscard]] bool log_is_a_terminal();
// Catches Ctrl-C, SIGTERM and SIGHUP from now on: the first one sets the returned flag, so that a command can clean up; the
// second one ends the program.
[[nodiscard]] const std::atomic<bool>& stop_on_interrupt();

}  // namespace cairn::cli
