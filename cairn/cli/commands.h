// The commands of `cairn`, each with its options in a file of its own (NAME_command.cc), and what they share.
#pragma once

#include <atomic>
#include <functional>
#include <string>

#include "cairn/base/result.h"

namespace CLI {
class App;
}

namespace cairn::cli {

// Runs the command that was given, and is its exit status.
using Chosen = std::function<int()>;

// Each adds a command to the app; when it is the one that was given, parsing sets `chosen`. `words`: the command line.
void add_config(CLI::App& app, Chosen& chosen);
void add_demo(CLI::App& app, Chosen& chosen);
void add_disk(CLI::App& app, Chosen& chosen);
void add_hitrate(CLI::App& app, const std::string& words, Chosen& chosen);
void add_ops(CLI::App& app, Chosen& chosen);
void add_replay(CLI::App& app, const std::string& words, Chosen& chosen);
void add_stress(CLI::App& app, Chosen& chosen);
void add_trace(CLI::App& app, Chosen& chosen);

// Prints what went wrong, and makes the exit status of it.
[[nodiscard]] int finish(const std::string& command, const Status& status, int failure = 1);
// Whether standard error is a terminal: progress is written only to one, never to a pipe or a file.
[[nodiscard]] bool log_is_a_terminal();
// Set from now on by Ctrl-C, SIGTERM and SIGHUP, so that a command can clean up. The second signal ends the program.
[[nodiscard]] const std::atomic<bool>& stop_on_interrupt();

}  // namespace cairn::cli
