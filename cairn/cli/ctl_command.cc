// The options of `cairn ctl` and `cairn top`.
#include <CLI/CLI.hpp>

#include <iostream>
#include <memory>

#include "cairn/cli/commands.h"
#include "cairn/cli/ctl.h"
#include "cairn/cli/top.h"

namespace cairn::cli {

void add_ctl(CLI::App& app, Chosen& chosen) {
  const auto options = std::make_shared<CtlOptions>();
  CLI::App* command = app.add_subcommand("ctl", "Asks or changes a running manager over its HTTP port");
  command->add_option("action", options->action, "What to do; see below")->required();
  command->add_option("words", options->words, "What it needs");
  command->add_option("--address", options->target.address,
                      "Where the manager listens; else CAIRN_HTTP_LISTEN, else 127.0.0.1:9470");
  command->add_option("--token-file", options->target.token_file,
                      "File with the token for changes; else CAIRN_HTTP_TOKEN_FILE or CAIRN_HTTP_TOKEN");
  command->add_option("--wait", options->wait_seconds, "Seconds that drain waits")->capture_default_str();
  command->add_flag("--json", options->json, "Print the server's answer as it is");
  command->footer(
      "Actions that read:    status, ready, incidents, times, prefixes [COUNT], events [AFTER], metrics\n"
      "Actions with a token: lookup [FILE]                    what would this prompt hit: [1, 2, 3], token ids as "
      "JSON\n"
      "                      reset all|device|host|disk       forgets what is stored\n"
      "                      invalidate WEIGHTS_GENERATION    the weights have changed\n"
      "                      pause FROM TO, resume FROM TO    copies between two tiers\n"
      "                      resize SIZE|BLOCKS               of the host tier\n"
      "                      drain                            waits until nothing is in flight\n"
      "                      log off|error|warning|info\n"
      "Exits with status 1 if the manager refuses or is not ready, 2 if the command line is wrong.\n\n"
      "Examples:\n"
      "  cairn ctl status\n"
      "  cairn ctl pause host disk --token-file /etc/cairn/token\n"
      "  echo '[1, 15, 922]' | cairn ctl lookup --json");
  command->callback([=, &chosen] {
    chosen = [=] {
      complete(options->target);
      const Status done = run_ctl(*options, std::cin, std::cout);
      return finish("ctl", done, !done && done.error().code == ErrorCode::kInvalidArgument ? 2 : 1);
    };
  });
}

void add_top(CLI::App& app, Chosen& chosen) {
  const auto options = std::make_shared<TopOptions>();
  CLI::App* command = app.add_subcommand("top", "Shows a running manager in the terminal, live");
  command->add_option("--address", options->target.address,
                      "Where the manager listens; else CAIRN_HTTP_LISTEN, else 127.0.0.1:9470");
  command->add_option("--seconds", options->seconds, "Time between two looks")
      ->check(CLI::Range(0.1, 3600.0))
      ->capture_default_str();
  command->add_flag("--once", options->once, "Print one snapshot and end, as without a terminal");
  command->add_flag("--json", options->json, "One snapshot as JSON");
  command->footer(
      "Tiers, hits, links and their speeds, the slowest operations, the latest incidents. q quits.\n\n"
      "Examples:\n"
      "  cairn top\n"
      "  cairn top --address 127.0.0.1:9471 --seconds 5\n"
      "  cairn top --once | mail -s cairn operators");
  command->callback([=, &chosen] {
    chosen = [=] {
      complete(options->target);
      options->once = options->once || options->json;
      return finish("top", run_top(*options, std::cout, stop_on_interrupt()));
    };
  });
}

}  // namespace cairn::cli
