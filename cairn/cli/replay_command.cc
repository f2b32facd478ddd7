// The options of `cairn replay`.
#include <CLI/CLI.hpp>

#include <algorithm>
#include <fstream>
#include <iostream>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cairn/base/clock.h"
#include "cairn/base/str_cat.h"
#include "cairn/cli/call_replay.h"
#include "cairn/cli/commands.h"
#include "cairn/cli/engine_profiles.h"
#include "cairn/cli/replay_runs.h"
#include "cairn/cli/replay_settings.h"
#include "cairn/cli/replay_showcase.h"
#include "cairn/cli/text.h"

namespace cairn::cli {

namespace {

// Exit status 3: the replayed connector refused a call of the recording.
int run_call_replay(CallReplayOptions options, const ReplayCommand& command) {
  options.settings = command.settings.options;
  LinkRate host{.up = options.links.host / 1e9};
  LinkRate disk{.up = options.links.disk / 1e9};
  std::erase_if(options.settings, [&](std::string_view option) {
    constexpr std::string_view kHost = "host-bandwidth=";
    constexpr std::string_view kDisk = "disk-bandwidth=";
    return (option.starts_with(kHost) && read_link_rate(option.substr(kHost.size()), host)) ||
           (option.starts_with(kDisk) && read_link_rate(option.substr(kDisk.size()), disk));
  });
  options.links.host = host.up * 1e9;
  options.links.disk = disk.up * 1e9;
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
  if (command.traces.empty()) {
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

// "h100-8b: ...", a line each.
std::string engines_text() {
  std::string text;
  for (const EngineProfile& profile : engine_profiles()) {
    text += str_cat("  ", profile.name, std::string(profile.name.size() < 14 ? 14 - profile.name.size() : 1, ' '),
                    profile.note, "\n");
  }
  return text;
}

void add_replay_options(CLI::App& command, ReplayCommand& replay, CallReplayOptions& calls) {
  std::vector<std::string>& options = replay.settings.options;
  // An option whose value is kept as text, to be read with all others.
  const auto add = [&](const std::string& name, const std::string& help, const char* type) {
    command
        .add_option_function<std::string>(
            "--" + name, [&options, name](const std::string& value) { options.push_back(name + "=" + value); }, help)
        ->type_name(type);
  };
  command
      .add_option("trace", replay.traces,
                  "Trace files in Mooncake's JSONL format, optionally gzipped; several are mixed. Without one, agents "
                  "that call tools, on GPUs alone and with host memory and a disk")
      ->type_name("TRACE");
  add("workers", "Number of engines, each with its own cache and tiers; default 1", "N");
  add("engine", "GPU and model: compute times, KV bytes, memory and links; see below, or a file of your own", "NAME");
  add("device-size", "KV memory of each worker; default 16384 blocks, or as the engine has", "SIZE");
  add("host-size", "Host memory of each worker; default 0, no host tier", "SIZE");
  add("disk-size", "Disk of each worker; default 0, no disk tier", "SIZE");
  add("blocks", "The same as --device-size, in blocks", "N");
  add("host-blocks", "The same as --host-size, in blocks", "N");
  add("disk-blocks", "The same as --disk-size, in blocks", "N");
  add("block-size", "Tokens in a block; default 64", "N");
  command.add_option("--config", replay.settings.config, "Configuration of the manager, as for an engine")
      ->type_name("FILE.toml");
  command
      .add_option_function<std::vector<std::string>>(
          "--set",
          [&options](const std::vector<std::string>& values) {
            options.insert(options.end(), values.begin(), values.end());
          },
          "Sets a key of the configuration (see cairn config), or an option of this command; can be repeated")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  command
      .add_option_function<std::vector<std::string>>(
          "--bandwidth",
          [&options](const std::vector<std::string>& values) {
            for (const std::string& value : values) {
              const std::size_t equals = std::min(value.find('='), value.size());
              options.push_back(value.substr(0, equals) + "-bandwidth" + value.substr(equals));
            }
          },
          "GB per second between a tier and the one above, into the tier and out of it; default host=50, disk=3.5")
      ->type_name("TIER=GBPS[/GBPS]")
      ->allow_extra_args(false);
  add("host-latency", "Latency of a copy between device and host memory; default 20us", "TIME");
  add("disk-latency", "Latency of a copy from or to the disk; default 100us", "TIME");
  add("shared-links", "Links that all workers share: none, host, disk or both; default none", "WHICH");
  add("link-order", "Copies on a link: fifo, or shared (all make progress); default fifo", "ORDER");
  command
      .add_option_function<std::vector<std::string>>(
          "--fault",
          [&options](const std::vector<std::string>& values) {
            for (const std::string& value : values) {
              options.push_back("fault=" + value);
            }
          },
          "A tier that stalls, fails or returns garbage for a while: disk:stall:10m+30s; can be repeated")
      ->type_name("TIER:KIND:BEGIN+LENGTH")
      ->allow_extra_args(false);
  add("kv-bytes", str_cat("KV bytes per token; default ", kDefaultKvBytes, ", or as engine or configuration say"), "N");
  add("policy", "Eviction policy of all tiers: " + policy_names() + "; default adaptive", "NAME");
  add("placement",
      "Which worker gets a request: round-robin (default), or prefix (the one that has most of the prompt)", "NAME");
  add("profile", "strict (default): corrected; seed: counts as the original simulator did", "NAME");
  add("speedup", "Factor by which the engines compute faster", "X");
  add("rate", "Requests per second on average: stretches or compresses the times of the trace", "X");
  add("concurrency", "Keep this many requests in flight, ignoring the times in the trace", "N");
  add("max-seqs", "Most requests that a worker runs at the same time; default 256", "N");
  add("batch-tokens", "Most tokens that a worker computes in one pass; default 8192", "N");
  command.add_flag_function(
      "--no-chunked-prefill", [&options](std::int64_t) { options.emplace_back("chunked-prefill=off"); },
      "Compute every prompt in one pass");
  command.add_flag_function(
      "--no-prefix-caching", [&options](std::int64_t) { options.emplace_back("prefix-caching=off"); },
      "Reuse no blocks");
  add("costs", "Compute times of the engine: lines prompt,TOKENS,MS and decode,TOKENS,MS", "FILE.csv");
  add("prices", "Dollars an hour of a worker's GPUs and of a GB; default gpu:3,host:0.004,disk:0.0001", "PRICES");
  command.add_option("--compare", replay.compare, "Run one option or key with several values, side by side")
      ->type_name("KEY=V1,V2,...");
  command.add_flag_function(
      "--scenarios", [&replay](std::int64_t) { replay.scenarios = Scenarios::kAll; },
      "Run GPU, +host, +disk and +both side by side, with the sizes that are given");
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
  command.add_flag("--strict", replay.strict, "Fail on an invalid row of the trace instead of skipping it");
  command.footer(
      "Sizes are of one worker: 64GiB, 512GB, 4TB. Engines:\n" + engines_text() +
      "\nCtrl-C prints the report so far.\n\n"
      "Examples:\n"
      "  cairn trace --kind chat > chat.jsonl\n"
      "  cairn replay chat.jsonl --workers 8                                eight workers\n"
      "  cairn replay chat.jsonl --engine h200-8b --host-size 512GB --disk-size 4TB --scenarios\n"
      "  cairn replay chat.jsonl --engine h200-8b --compare host.size=0,64GB,128GB,256GB --html capacity.html\n"
      "  cairn replay chat.jsonl --workers 8 --compare placement=round-robin,prefix\n"
      "  cairn replay chat.jsonl code.jsonl --rate 4                        two traces at once, 4 requests a second\n"
      "  cairn replay chat.jsonl --disk-size 1TB --fault disk:stall:10m+30s what a disk that stalls costs\n"
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
