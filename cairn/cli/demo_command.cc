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
  CLI::App* command =
      app.add_subcommand("demo", "Sends chats with shared prefixes through a block pool, and shows hits and evictions");
  command->add_option("--chats", options->chats, "Number of chats")->capture_default_str();
  command->add_option("--turns", options->turns, "Turns in each chat")->capture_default_str();
  command
      ->add_option("--system-prompts", options->system_prompts, "Number of different system prompts, which chats share")
      ->capture_default_str();
  command->add_option("--in-flight", options->in_flight, "Requests that hold their blocks at the same time")
      ->capture_default_str();
  command->add_option("--blocks", options->blocks, "Capacity of the pool in blocks")->capture_default_str();
  command->add_option("--block-size", options->block_size, "Tokens in a block")->capture_default_str();
  command->add_option("--policy", *policy, "Eviction policy: " + policy_names())->capture_default_str();
  command->add_option("--seed", options->seed, "The same seed gives the same run")->capture_default_str();
  command->add_flag("--json", options->json, "Print one JSON object instead of a table");
  command->footer(
      "Examples:\n"
      "  cairn demo                               the pool is a little too small for all chats\n"
      "  cairn demo --blocks 4096                 everything fits: the best hit ratio possible\n"
      "  cairn demo --blocks 512 --policy fifo    the same requests with another eviction policy");
  command->callback([=, &chosen] {
    chosen = [=] {
      const std::optional<PolicyKind> kind = parse_policy(*policy);
      if (!kind) {
        std::cerr << "cairn demo: unknown policy '" << *policy << "' (expected " << policy_names() << ")\n";
        return 2;
      }
      options->policy = *kind;
      return finish("demo", run_demo(*options, std::cout));
    };
  });
}

}  // namespace cairn::cli
