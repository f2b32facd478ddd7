// The options of `cairn replay`.
#include <CLI/CLI.hpp>

#include <fstream>
#include <iostream>
#include <memory>
#include <string>

#include "cairn/base/clock.h"
#include "cairn/cli/call_replay.h"
#include "cairn/cli/commands.h"
#include "cairn/cli/replay_runs.h"
#include "cairn/cli/replay_settings.h"
#include "cairn/cli/replay_showcase.h"
#include "cairn/cli/text.h"

namespace cairn::cli {

namespace {

// Exit status 3: the replayed connector refused a call of the recording.
int run_call_replay(CallReplayOptions options, const ReplayCommand& command) {
  ReplaySettings settings = command.settings;
  for (const std::string& link : command.bandwidths) {
    if (const Status set = set_bandwidth(link, settings); !set) {
      return finish("replay", set, 2);
    }
  }
  options.links.host = settings.host_gbps * 1e9;
  options.links.disk = settings.disk_gbps * 1e9;
  const Result<CallReplayReport> report = replay_calls(options);
  if (!report) {
    return finish("replay", Unexpected(report.error()), report.error().code == ErrorCode::kInvalidArgument ? 2 : 1);
  }
  if (command.json == "-") {
    std::cout << to_json(*report);
  } else {
    std::cout << to_text(*report);
    if (!command.json.empty() && !(std::ofstream(command.json) << to_json(*report)).flush()) {
      return finish("replay", fail(ErrorCode::kIo, command.json + " cannot be written"), 1);
    }
  }
  return report->problem_count == 0 ? 0 : 3;
}

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

void add_replay_options(CLI::App& command, ReplayCommand& replay, CallReplayOptions& calls) {
  ReplaySettings& settings = replay.settings;
  command
      .add_option("trace", replay.trace,
                  "Trace file in Mooncake's JSONL format, optionally gzipped; without one, "
                  "agents that call tools, with and without tiers below the GPUs")
      ->type_name("TRACE");
  command.add_option("--workers", settings.workers, "Number of engines, each with its own cache")
      ->capture_default_str();
  command.add_option("--block-size", settings.block_size, "Tokens in a block")->capture_default_str();
  command.add_option("--blocks", settings.blocks, "Device blocks of each worker")->capture_default_str();
  command.add_option("--host-blocks", settings.host_blocks, "Host blocks of each worker; 0 for no host tier")
      ->capture_default_str();
  command.add_option("--disk-blocks", settings.disk_blocks, "Disk blocks of each worker; 0 for no disk tier")
      ->capture_default_str();
  command
      .add_option("--bandwidth", replay.bandwidths,
                  "GB per second between a tier and the one above, each direction; default host=50, disk=3.5")
      ->type_name("TIER=GBPS");
  command.add_option("--kv-bytes", settings.kv_bytes, "KV bytes per token")->capture_default_str();
  command.add_option("--policy", settings.policy, "Eviction policy: " + policy_names())->capture_default_str();
  command
      .add_option("--placement", settings.placement,
                  "Which worker gets a request: round-robin, or prefix (the one that has most of the prompt)")
      ->capture_default_str();
  command.add_option("--profile", settings.profile, "strict: corrected; seed: counts as the original simulator did")
      ->capture_default_str();
  command.add_option("--speedup", settings.speedup, "Factor by which the engines compute faster")
      ->capture_default_str();
  command.add_option("--concurrency", settings.concurrency,
                     "Keep this many requests in flight, ignoring the times in the trace");
  command.add_option("--max-seqs", settings.max_seqs, "Most requests that a worker runs at the same time")
      ->capture_default_str();
  command.add_option("--batch-tokens", settings.batch_tokens, "Most tokens that a worker computes in one pass")
      ->capture_default_str();
  command.add_flag("!--no-chunked-prefill", settings.chunked_prefill, "Compute every prompt in one pass");
  command.add_flag("!--no-prefix-caching", settings.prefix_caching, "Reuse no blocks");
  command
      .add_option("--costs", settings.costs,
                  "Compute times of the engine: lines prefill,TOKENS,MS and decode,TOKENS,MS")
      ->type_name("FILE.csv");
  command.add_option("--compare", replay.compare, "Run one option with several values, side by side")
      ->type_name("KEY=V1,V2,...");
  command.add_option("--json", replay.json, "Write the report as JSON to this file; - for standard output")
      ->type_name("FILE");
  command.add_option("--html", replay.html, "Write a page with plots to this file")->type_name("FILE");
  command
      .add_option("--events", replay.events, "Write every stored and removed block to this file, one line of JSON each")
      ->type_name("FILE");
  command
      .add_option(
          "--calls", calls.path,
          "Instead of a trace: calls of an engine's scheduler that the setting record.path wrote; - for standard "
          "input. Of the other options only --set, --bandwidth and --json apply")
      ->type_name("FILE");
  command.add_option("--set", calls.settings, "With --calls: sets a key of the configuration (see cairn config)")
      ->type_name("KEY=VALUE");
  command.add_flag("--strict", replay.strict, "Fail on an invalid row of the trace instead of skipping it");
  command.footer(
      "Ctrl-C prints the report so far.\n\n"
      "Examples:\n"
      "  cairn trace --kind chat > chat.jsonl\n"
      "  cairn replay chat.jsonl --workers 8                                eight workers\n"
      "  cairn replay chat.jsonl --workers 8 --compare placement=round-robin,prefix\n"
      "  cairn replay chat.jsonl --compare blocks=4096,8192,16384           how much memory pays off\n"
      "  cairn replay chat.jsonl --compare host-blocks=0,65536              what a tier in host memory brings\n"
      "  cairn replay chat.jsonl --html replay.html                         with plots\n"
      "  cairn replay chat.jsonl.gz --json report.json --events events.jsonl\n"
      "  cairn replay --calls calls.jsonl --set host.size=64GiB             what an engine did, with a larger tier");
}

}  // namespace

void add_replay(CLI::App& app, const std::string& words, Chosen& chosen) {
  const auto replay = std::make_shared<ReplayCommand>();
  CLI::App* command =
      app.add_subcommand("replay", "Replays a trace on simulated engines, and reports hit rate, latencies and more");
  const auto calls = std::make_shared<CallReplayOptions>();
  add_replay_options(*command, *replay, *calls);
  command->callback([=, &chosen] {
    chosen = [=] {
      replay->words = words;
      return calls->path.empty() ? run_replay_of(*replay) : run_call_replay(*calls, *replay);
    };
  });
}

}  // namespace cairn::cli
