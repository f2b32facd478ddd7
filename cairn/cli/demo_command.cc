// The options of `cairn demo`.
#include <CLI/CLI.hpp>

#include <iostream>
#include <memory>
#include <string>

#include "cairn/cli/commands.h"
#include "cairn/cli/demo.h"
#include "cairn/cli/text.h"

namespace cairn::cli {

void add_demo(CLI::App& app, Chosen& chosen) {
  const auto options = std::make_shared<DemoOptions>();
  const auto policy = std::make_shared<std::string>(to_string(options->policy));
  CLI::App* command = app.add_subcommand(
      "demo", "Sends a small workload of chats with shared prefixes through a real pool and shows what became of it");
  command->add_option("--chats", options->chats, "How many chats there are")->capture_default_str();
  command->add_option("--turns", options->turns, "Turns of each chat")->capture_default_str();
  command->add_option("--system-prompts", options->system_prompts, "Beginnings that chats share")
      ->capture_default_str();
  command->add_option("--in-flight", options->in_flight, "Requests that hold their blocks at the same time")
      ->capture_default_str();
  command->add_option("--blocks", options->blocks, "Capacity of the pool in blocks")->capture_default_str();
  command->add_option("--block-size", options->block_size, "Tokens in a block")->capture_default_str();
  command->add_option("--policy", *policy, "Which block goes first: " + policy_names())->capture_default_str();
  command->add_option("--seed", options->seed, "The same seed gives the same run")->capture_default_str();
  command->add_flag("--json", options->json, "Writes one JSON object instead of the table");
  command->footer(
      "Examples:\n"
      "  cairn demo                               the default: the pool is a little too small\n"
      "  cairn demo --blocks 4096                 everything fits: the best hit ratio there can be\n"
      "  cairn demo --blocks 512 --policy fifo    another eviction policy, the same requests");
  command->callback([=, &chosen] {
    chosen = [=] {
      const std::optional<PolicyKind> kind = parse_policy(*policy);
      if (!kind) {
        std::cerr << "cairn demo: there is no policy '" << *policy << "'; choose one of " << policy_names() << "\n";
        return 2;
      }
      options->policy = *kind;
      return finish("demo", run_demo(*options, std::cout));
    };
  });
}

}  // namespace cairn::cli
