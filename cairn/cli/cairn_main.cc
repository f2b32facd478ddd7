// The `cairn` command.
#include <unistd.h>

#include <CLI/CLI.hpp>

#include <csignal>
#include <cstdio>
#include <exception>
#include <iostream>
#include <string>

#include "cairn/cli/commands.h"
#include "cairn/cli/text.h"

namespace cairn::cli {

namespace {

std::atomic<bool> stop_requested{false};
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler sets it");

}  // namespace

int finish(const std::string& command, const Status& status, int failure) {
  if (status) {
    return 0;
  }
  std::cerr << "cairn " << command << ": " << status.error().message << "\n";
  return failure;
}

bool log_is_a_terminal() { return isatty(STDERR_FILENO) == 1; }

const std::atomic<bool>& stop_on_interrupt() {
  struct sigaction action{};
  action.sa_handler = [](int) { stop_requested.store(true, std::memory_order_relaxed); };
  action.sa_flags = SA_RESETHAND | SA_RESTART;
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    sigaction(signal, &action, nullptr);
  }
  return stop_requested;
}

namespace {

int run(int argc, char** argv) {
  CLI::App app{"Cairn, a KV-cache block manager for LLM inference", "cairn"};
  app.set_version_flag("--version", CAIRN_VERSION);
  app.require_subcommand(1);
  app.footer(
      "Start here:\n"
      "  cairn demo                              prefix reuse in a small pool, in a second\n"
      "  cairn config > cairn.toml               a configuration file with every key explained\n"
      "  cairn stress                            real tiers on this machine, every byte verified\n"
      "  cairn replay                            what tiers would bring to simulated engines\n\n"
      "Every command has --help with examples, and --json for programs.");
  const std::string words = command_line(argc, argv);
  Chosen chosen;
  add_demo(app, chosen);
  add_ops(app, chosen);
  add_hitrate(app, words, chosen);
  add_replay(app, words, chosen);
  add_trace(app, chosen);
  add_config(app, chosen);
  add_disk(app, chosen);
  add_stress(app, chosen);
  add_events(app, chosen);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  return chosen();
}

}  // namespace
}  // namespace cairn::cli

int main(int argc, char** argv) {
  try {
    return cairn::cli::run(argc, argv);
  } catch (const std::exception& error) {  // thrown by the command-line library, or std::bad_alloc
    std::fprintf(stderr, "cairn: %s\n", error.what());
    return 1;
  }
}
