// The options of `cairn replay`.
#include <CLI/CLI.hpp>

#include <iostream>
#include <memory>
#include <string>

#include "cairn/base/clock.h"
#include "cairn/cli/commands.h"
#include "cairn/cli/replay_runs.h"
#include "cairn/cli/replay_showcase.h"
#include "cairn/cli/text.h"

namespace cairn::cli {

namespace {

int run_replay_of(ReplayCommand command) {
  if (command.trace.empty()) {
    if (Status ready = prepare_showcase(command, std::cout); !ready) {
      return finish("replay", ready, 1);
    }
  }
  const Result<ReplayEnd> end = run_replay_command(command, {.out = std::cout,
                                                             .log = std::cerr,
                                                             .clock = steady_clock(),
                                                             .stop = stop_on_interrupt(),
                                                             .log_is_a_terminal = log_is_a_terminal()});
  if (end) {
    return *end == ReplayEnd::kComplete ? 0 : 130;
  }
  return finish("replay", Unexpected(end.error()), end.error().code == ErrorCode::kInvalidArgument ? 2 : 1);
}

void add_replay_options(CLI::App& command, ReplayCommand& replay) {
  ReplaySettings& settings = replay.settings;
  command
      .add_option("trace", replay.trace,
                  "A file in Mooncake's JSONL, compressed with gzip or not; without one, "
                  "agents that call tools, with and without tiers below the GPUs")
      ->type_name("TRACE");
  command.add_option("--workers", settings.workers, "Engines, each with a cache of its own")->capture_default_str();
  command.add_option("--block-size", settings.block_size, "Tokens in a block")->capture_default_str();
  command.add_option("--blocks", settings.blocks, "Blocks of each worker")->capture_default_str();
  command.add_option("--host-blocks", settings.host_blocks, "Blocks in host memory below each worker")
      ->capture_default_str();
  command.add_option("--disk-blocks", settings.disk_blocks, "Blocks on disk below that")->capture_default_str();
  command
      .add_option("--bandwidth", replay.bandwidths,
                  "GB a second from the tier above, in each direction; host=50 and disk=3.5 unless given")
      ->type_name("EDGE=GBPS");
  command.add_option("--kv-bytes", settings.kv_bytes, "Bytes of keys and values a token")->capture_default_str();
  command.add_option("--policy", settings.policy, "Which block goes first: " + policy_names())->capture_default_str();
  command.add_option("--placement", settings.placement, "round-robin; prefix: to whom has most of the prompt")
      ->capture_default_str();
  command.add_option("--profile", settings.profile, "strict: sound; seed: as the original counts")
      ->capture_default_str();
  command.add_option("--speedup", settings.speedup, "The engines compute that many times as fast")
      ->capture_default_str();
  command.add_option("--concurrency", settings.concurrency,
                     "Requests in flight, whatever the trace says of their times");
  command.add_option("--max-seqs", settings.max_seqs, "Requests that a worker runs at the same time")
      ->capture_default_str();
  command.add_option("--batch-tokens", settings.batch_tokens, "Tokens that a worker computes in one pass")
      ->capture_default_str();
  command.add_flag("!--no-chunked-prefill", settings.chunked_prefill, "A prompt is computed in one pass, or waits");
  command.add_flag("!--no-prefix-caching", settings.prefix_caching, "Nothing is used again");
  command
      .add_option("--costs", settings.costs,
                  "How long the engine computes: lines prefill,TOKENS,MS and decode,TOKENS,MS")
      ->type_name("FILE.csv");
  command.add_option("--compare", replay.compare, "Runs one setting with several values side by side")
      ->type_name("KEY=V1,V2,...");
  command.add_option("--json", replay.json, "Writes the report to this file; - is standard output")->type_name("FILE");
  command.add_option("--html", replay.html, "Writes a page with plots to this file")->type_name("FILE");
  command.add_option("--events", replay.events, "Writes what was stored and removed, a line of JSON each")
      ->type_name("FILE");
  command.add_flag("--strict", replay.strict, "A bad row of the trace is an error");
  command.footer(
      "Ctrl-C prints the report so far.\n\n"
      "Examples:\n"
      "  cairn trace --kind chat > chat.jsonl\n"
      "  cairn replay chat.jsonl --workers 8                                what eight workers make of it\n"
      "  cairn replay chat.jsonl --workers 8 --compare placement=round-robin,prefix\n"
      "  cairn replay chat.jsonl --compare blocks=4096,8192,16384           how much memory is worth it\n"
      "  cairn replay chat.jsonl --compare host-blocks=0,65536              what a tier in host memory brings\n"
      "  cairn replay chat.jsonl --html replay.html                         with plots, for people to look at\n"
      "  cairn replay chat.jsonl.gz --json report.json --events events.jsonl");
}

}  // namespace

void add_replay(CLI::App& app, const std::string& words, Chosen& chosen) {
  const auto replay = std::make_shared<ReplayCommand>();
  CLI::App* command =
      app.add_subcommand("replay", "Sends a trace through simulated engines and reports hit ratio, latencies and more");
  add_replay_options(*command, *replay);
  command->callback([=, &chosen] {
    chosen = [=] {
      replay->words = words;
      return run_replay_of(*replay);
    };
  });
}

}  // namespace cairn::cli
