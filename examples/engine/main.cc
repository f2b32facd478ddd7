// example_engine: see README.md beside it, or --help.
#include <unistd.h>

#include <cstdio>
#include <memory>

#include "examples/engine/engine.h"
#include "examples/engine/options.h"
#include "examples/engine/process_ranks.h"
#include "examples/engine/report.h"

namespace {

using namespace cairn;
using namespace cairn::engine;

Result<std::unique_ptr<Ranks>> start_ranks(const Options& options, const RankConfig& config) {
  if (options.ranks == 1 && !options.processes) {
    return std::unique_ptr<Ranks>(std::make_unique<LocalRanks>(config));
  }
  auto started = ProcessRanks::start("/proc/self/exe", config);
  if (!started) {
    return Unexpected(started.error());
  }
  return std::unique_ptr<Ranks>(std::move(*started));
}

Result<RunFigures> run(const Options& options) {
  RankConfig rank_config;
  rank_config.model.seed = options.seed;
  rank_config.ranks = options.ranks;
  rank_config.device_blocks = options.device_blocks;
  const auto workload = make_workload({.requests = options.requests,
                                       .turns = options.turns,
                                       .vocabulary = rank_config.model.vocabulary,
                                       .seed = options.seed});
  auto ranks = start_ranks(options, rank_config);
  if (!ranks) {
    return Unexpected(ranks.error());
  }
  Scheduler scheduler({.device_blocks = options.device_blocks,
                       .step_tokens = options.step_tokens,
                       .max_positions = rank_config.model.max_positions,
                       .end_token = kEndToken});
  auto figures = run_workload(workload, scheduler, **ranks, {.drop_device = options.drop_device});
  if (Status stopped = (*ranks)->stop(); figures && !stopped) {
    return Unexpected(stopped.error());
  }
  return figures;
}

int failed(const Error& error) {
  std::fprintf(stderr, "example_engine: %s\n", error.message.c_str());
  return 1;
}

}  // namespace

int main(int count, char** values) {
  const auto options = parse_options({values + 1, values + count});
  if (!options) {
    failed(options.error());
    return 2;
  }
  if (options->help) {
    std::fputs(help_text().data(), stdout);
    return 0;
  }
  if (options->rank) {
    const Status served = serve_rank(STDIN_FILENO, *options->rank);
    // An engine that is gone has said why, or cannot any more.
    return served ? 0 : served.error().code == ErrorCode::kUnavailable ? 1 : failed(served.error());
  }
  const auto figures = run(*options);
  if (!figures) {
    return failed(figures.error());
  }
  std::fputs((options->json ? report_json(*options, *figures) : report_text(*options, *figures)).c_str(), stdout);
  return 0;
}
