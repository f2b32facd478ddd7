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
  CLI::App* command = app.add_subcommand("trace", "Generates a trace in Mooncake's JSONL format on standard output");
  command->add_option("--kind", options->kind, "Kind of traffic: " + workload_names())->capture_default_str();
  command->add_option("--requests", options->workload.requests, "Number of requests")->capture_default_str();
  command->add_option("--block-size", options->workload.block_size, "Tokens in a block")->capture_default_str();
  command->add_option("--loop-blocks", options->workload.loop_blocks, "For kind loop: number of distinct blocks")
      ->capture_default_str();
  command->add_option("--seed", options->workload.seed, "The same seed gives the same trace")->capture_default_str();
  command->add_flag("--json")->description("Accepted for uniformity: a trace is JSON, one object per line");
  command->footer(
      "Examples:\n"
      "  cairn trace --kind agents > agents.jsonl\n"
      "  cairn trace --kind loop --loop-blocks 1001 > loop.jsonl    then: cairn hitrate loop.jsonl --capacity 1000");
  command->callback([=, &chosen] { chosen = [=] { return finish("trace", run_trace(*options, std::cout)); }; });
}

}  // namespace cairn::cli
