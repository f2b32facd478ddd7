// The options of `cairn trace`.
#include <CLI/CLI.hpp>

#include <iostream>
#include <memory>
#include <string>

#include "cairn/cli/commands.h"
#include "cairn/cli/trace_output.h"

namespace cairn::cli {

void add_trace(CLI::App& app, Chosen& chosen) {
  const auto options = std::make_shared<TraceOptions>();
  CLI::App* command =
      app.add_subcommand("trace", "Writes traffic of a known kind to standard output, in Mooncake's JSONL");
  command->add_option("--kind", options->kind, "What the traffic is: " + workload_names())->capture_default_str();
  command->add_option("--requests", options->workload.requests, "How many requests there are")->capture_default_str();
  command->add_option("--block-size", options->workload.block_size, "Tokens in a block")->capture_default_str();
  command->add_option("--loop-blocks", options->workload.loop_blocks, "Distinct blocks of the kind loop")
      ->capture_default_str();
  command->add_option("--seed", options->workload.seed, "The same seed gives the same trace")->capture_default_str();
  command->footer(
      "Examples:\n"
      "  cairn trace --kind agents > agents.jsonl\n"
      "  cairn trace --kind loop --loop-blocks 1001 > loop.jsonl    then: cairn hitrate loop.jsonl --capacity 1000");
  command->callback([=, &chosen] { chosen = [=] { return finish("trace", run_trace(*options, std::cout)); }; });
}

}  // namespace cairn::cli
