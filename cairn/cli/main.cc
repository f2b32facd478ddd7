// The `cairn` command.
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>

#include <atomic>
#include <cstdio>
#include <exception>
#include <fstream>
#include <iostream>
#include <string>

#include "cairn/base/clock.h"
#include "cairn/base/result.h"
#include "cairn/cli/config.h"
#include "cairn/cli/demo.h"
#include "cairn/cli/hitrate.h"
#include "cairn/cli/ops.h"
#include "cairn/cli/replay.h"
#include "cairn/cli/replay_showcase.h"
#include "cairn/cli/text.h"
#include "cairn/cli/trace.h"

namespace cairn::cli {
namespace {

std::string policy_names() {
  std::string names;
  for (const PolicyKind kind : kAllPolicies) {
    names += (names.empty() ? "" : ", ") + std::string(to_string(kind));
  }
  return names;
}

// Prints what went wrong, and makes the exit status of it.
int finish(const std::string& command, const Status& status, int failure = 1) {
  if (status) {
    return 0;
  }
  std::cerr << "cairn " << command << ": " << status.error().message << "\n";
  return failure;
}

// `file` may be "-", for standard input.
int run_ops_of(const std::string& file, const std::string& profile) {
  const std::optional<sim::Profile> kind = sim::parse_profile(profile);
  if (!kind) {
    std::cerr << "cairn ops: there is no profile '" << profile << "'; choose seed or strict\n";
    return 2;
  }
  if (file == "-") {
    std::ios::sync_with_stdio(false);
    return finish("ops", run_ops({.profile = *kind}, std::cin, std::cout), 2);
  }
  std::ifstream script(file);
  if (!script) {
    std::cerr << "cairn ops: cannot read " << file << "\n";
    return 1;
  }
  return finish("ops", run_ops({.profile = *kind}, script, std::cout), 2);
}

// Set by Ctrl-C. The second one ends the program as if there were no handler.
std::atomic<bool> stop_requested{false};
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler may set it");

int run_replay_of(ReplayCommand command) {
  if (command.trace.empty()) {
    if (Status ready = prepare_showcase(command, std::cout); !ready) {
      return finish("replay", ready, 1);
    }
  }
  struct sigaction action{};
  action.sa_handler = [](int) { stop_requested.store(true, std::memory_order_relaxed); };
  action.sa_flags = SA_RESETHAND | SA_RESTART;
  sigaction(SIGINT, &action, nullptr);
  const Result<ReplayEnd> end = run_replay_command(command, {.out = std::cout,
                                                             .log = std::cerr,
                                                             .clock = steady_clock(),
                                                             .stop = stop_requested,
                                                             .log_is_a_terminal = isatty(STDERR_FILENO) == 1});
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

int run(int argc, char** argv) {
  CLI::App app{"Cairn, a KV-cache block manager for LLM inference", "cairn"};
  app.set_version_flag("--version", CAIRN_VERSION);
  app.require_subcommand(1);
  app.footer("Each command has a --help of its own with examples.");

  DemoOptions demo;
  std::string policy(to_string(demo.policy));
  CLI::App* demo_command = app.add_subcommand(
      "demo", "Sends a small workload of chats with shared prefixes through a real pool and shows what became of it");
  demo_command->add_option("--chats", demo.chats, "How many chats there are")->capture_default_str();
  demo_command->add_option("--turns", demo.turns, "Turns of each chat")->capture_default_str();
  demo_command->add_option("--system-prompts", demo.system_prompts, "Beginnings that chats share")
      ->capture_default_str();
  demo_command->add_option("--in-flight", demo.in_flight, "Requests that hold their blocks at the same time")
      ->capture_default_str();
  demo_command->add_option("--blocks", demo.blocks, "Capacity of the pool in blocks")->capture_default_str();
  demo_command->add_option("--block-size", demo.block_size, "Tokens in a block")->capture_default_str();
  demo_command->add_option("--policy", policy, "Which block goes first: " + policy_names())->capture_default_str();
  demo_command->add_option("--seed", demo.seed, "The same seed gives the same run")->capture_default_str();
  demo_command->add_flag("--json", demo.json, "Writes one JSON object instead of the table");
  demo_command->footer(
      "Examples:\n"
      "  cairn demo                               the default: the pool is a little too small\n"
      "  cairn demo --blocks 4096                 everything fits: the best hit ratio there can be\n"
      "  cairn demo --blocks 512 --policy fifo    another eviction policy, the same requests");

  std::string ops_file = "-";
  std::string ops_profile(sim::to_string(OpsOptions().profile));
  CLI::App* ops_command = app.add_subcommand(
      "ops", "Runs a script of operations on a simulated KvManager: one JSON object a line in, one answer a line out");
  ops_command->add_option("FILE", ops_file, "The script; - is standard input")->capture_default_str();
  ops_command->add_option("--profile", ops_profile, "seed: as the original answers; strict: sound")
      ->capture_default_str();
  ops_command->footer(
      "Operations: config, new, alloc, push, preempt, free, use, deref, cost. A line that is none stops the script\n"
      "with its number and exit status 2.\n\n"
      "Example:\n"
      "  cairn ops <<'END'\n"
      "  {\"op\":\"config\",\"capacity\":8,\"block_size\":4,\"eviction\":\"lineage\"}\n"
      "  {\"op\":\"new\",\"seq\":\"a\",\"tokens\":[1,2,3,4,5,6]}\n"
      "  {\"op\":\"alloc\",\"seq\":\"a\",\"tokens\":6}\n"
      "  {\"op\":\"push\",\"seq\":\"a\",\"token\":7}\n"
      "  {\"op\":\"free\",\"seq\":\"a\"}\n"
      "  END");
  HitrateOptions hitrate;
  CLI::App* hitrate_command = app.add_subcommand(
      "hitrate", "Runs traces through caches of several sizes and shows what each eviction policy would have hit");
  hitrate_command->add_option("traces", hitrate.traces, "Files in Mooncake's JSONL, compressed with gzip or not")
      ->required()
      ->type_name("TRACE");
  hitrate_command->add_option("--policy", hitrate.policies, "all, or some of: " + policy_names() + ", opt, infinite")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->capture_default_str();
  hitrate_command->add_option("--capacity", hitrate.capacities, "Blocks, or shares of the distinct blocks of a trace")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->capture_default_str();
  hitrate_command
      ->add_option("--tiers", hitrate.tiers,
                   "Capacities of the tiers below: what one evicts goes to the next, where it is looked for")
      ->delimiter(',')
      ->allow_extra_args(false);
  hitrate_command
      ->add_option(
          "--admit", hitrate.admit,
          "What lower tiers take: all; likely: what is likely to be read again there; twice: of that, what was "
          "used twice")
      ->capture_default_str();
  hitrate_command->add_flag(
      "--hints", hitrate.hints,
      "Policies are told what an engine could know: system prompts, when a session returns, its end");
  hitrate_command->add_flag("--leaves-first", hitrate.leaves_first, "No block goes before those below it");
  hitrate_command->add_option("--block-size", hitrate.block_size, "Tokens that one id of the trace stands for")
      ->capture_default_str();
  hitrate_command->add_option("--json", hitrate.json, "Writes the rows to this file; - is standard output");
  hitrate_command->add_option("--html", hitrate.html, "Writes a page with the curves to this file")->type_name("FILE");
  hitrate_command->footer(
      "Examples:\n"
      "  cairn hitrate chat.jsonl                                  every policy, five sizes\n"
      "  cairn hitrate a.jsonl b.jsonl.gz --policy lru,opt --capacity 4096,16384\n"
      "  cairn hitrate chat.jsonl --policy lru,adaptive --hints    with what an engine could have said\n"
      "  cairn hitrate chat.jsonl --capacity 2% --tiers 20%        a small tier above a large one\n"
      "  cairn hitrate chat.jsonl --json rows.json                 for a program to read\n"
      "  cairn hitrate chat.jsonl --html curves.html               for people to look at");

  ReplayCommand replay;
  CLI::App* replay_command =
      app.add_subcommand("replay", "Sends a trace through simulated engines and reports hit ratio, latencies and more");
  add_replay_options(*replay_command, replay);

  TraceOptions trace;
  CLI::App* trace_command =
      app.add_subcommand("trace", "Writes traffic of a known kind to standard output, in Mooncake's JSONL");
  trace_command->add_option("--kind", trace.kind, "What the traffic is: " + workload_names())->capture_default_str();
  trace_command->add_option("--requests", trace.workload.requests, "How many requests there are")
      ->capture_default_str();
  trace_command->add_option("--block-size", trace.workload.block_size, "Tokens in a block")->capture_default_str();
  trace_command->add_option("--loop-blocks", trace.workload.loop_blocks, "Distinct blocks of the kind loop")
      ->capture_default_str();
  trace_command->add_option("--seed", trace.workload.seed, "The same seed gives the same trace")->capture_default_str();
  trace_command->footer(
      "Examples:\n"
      "  cairn trace --kind agents > agents.jsonl\n"
      "  cairn trace --kind loop --loop-blocks 1001 > loop.jsonl    then: cairn hitrate loop.jsonl --capacity 1000");

  ConfigOptions config;
  CLI::App* config_command =
      app.add_subcommand("config", "Shows what a manager is configured with, every key with what it means and may be");
  config_command->add_option("--file", config.file, "A configuration, in TOML")->type_name("FILE.toml");
  config_command->add_option("--set", config.settings, "One key, over the file and the environment")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  config_command->add_flag("--json", config.json, "Writes JSON instead of TOML");
  config_command->footer(
      "The file goes over the defaults, variables such as CAIRN_HOST_SIZE over the file, --set over both. What is\n"
      "wrong is told by key, with exit status 2.\n\n"
      "Examples:\n"
      "  cairn config > cairn.toml                                 the defaults, to begin with\n"
      "  cairn config --file cairn.toml --set host.size=64GiB      what would come of it\n"
      "  CAIRN_BLOCK_SIZE=32 cairn config --file cairn.toml --json");

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  if (config_command->parsed()) {
    config.environment = ManagerConfig::environment_of_process();
    return finish("config", run_config(config, std::cout), 2);
  }
  if (ops_command->parsed()) {
    return run_ops_of(ops_file, ops_profile);
  }
  if (hitrate_command->parsed()) {
    hitrate.command = command_line(argc, argv);
    return finish("hitrate", run_hitrate(hitrate, std::cout, std::cerr));
  }
  if (replay_command->parsed()) {
    replay.words = command_line(argc, argv);
    return run_replay_of(replay);
  }
  if (trace_command->parsed()) {
    return finish("trace", run_trace(trace, std::cout));
  }
  const std::optional<PolicyKind> kind = parse_policy(policy);
  if (!kind) {
    std::cerr << "cairn demo: there is no policy '" << policy << "'; choose one of " << policy_names() << "\n";
    return 2;
  }
  demo.policy = *kind;
  return finish("demo", run_demo(demo, std::cout));
}

}  // namespace
}  // namespace cairn::cli

int main(int argc, char** argv) {
  try {
    return cairn::cli::run(argc, argv);
  } catch (const std::exception& error) {  // of the command-line library or the system: out of memory, say
    std::fprintf(stderr, "cairn: %s\n", error.what());
    return 1;
  }
}
