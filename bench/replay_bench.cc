// The speed of replays: requests and generated tokens per second of real time, on one thread.
//
//     replay_bench --benchmark_filter=Generated    generated traffic; up to a million requests on 1,000 workers
//     CAIRN_TRACE=FILE replay_bench --benchmark_filter=Trace
//
// Requests are generated one by one, so that memory does not grow with their number.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <cstdlib>
#include <vector>

#include "cairn/cli/trace_source.h"
#include "cairn/sim/replay.h"

namespace cairn {
namespace {

// Chat on many workers: the prompt of each session grows with every turn; a worker gets 2.5 requests per second.
class ChatSource final : public sim::RequestSource {
 public:
  ChatSource(std::uint64_t requests, std::uint64_t workers) : requests_(requests), sessions_(workers * kPerWorker) {}

  [[nodiscard]] bool next(sim::ReplayRequest& request) override {
    if (next_ == requests_) {
      return false;
    }
    Session& session = sessions_[next_ % sessions_.size()];
    if (session.turns == 0) {
      session = {.turns = static_cast<std::uint32_t>(1 + random() % 8), .blocks = {}};
      session.blocks.push_back(static_cast<Token>(random() % 20));  // a system prompt that many share
    }
    --session.turns;
    for (std::uint64_t i = 0, more = 2 + random() % 8; i < more; ++i) {
      session.blocks.push_back(static_cast<Token>(random()));
    }
    request.line = ++next_;
    request.arrival = std::chrono::microseconds(next_ * 400'000 / (sessions_.size() / kPerWorker));
    request.output_tokens = 50 + random() % 300;
    request.prompt.clear();
    for (const Token block : session.blocks) {
      request.prompt.push_back({block, 512});
    }
    return true;
  }

 private:
  static constexpr std::uint64_t kPerWorker = 40;
  struct Session {
    std::uint32_t turns = 0;
    std::vector<Token> blocks;
  };

  std::uint64_t random() {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    return state_ ^= state_ << 17;
  }

  const std::uint64_t requests_;
  std::uint64_t next_ = 0;
  std::vector<Session> sessions_;
  std::uint64_t state_ = 88172645463325252U;
};

void report_rates(benchmark::State& state, const sim::Report& report) {
  const auto runs = static_cast<double>(state.iterations());
  state.counters["requests/s"] =
      benchmark::Counter(runs * static_cast<double>(report.counts.completed), benchmark::Counter::kIsRate);
  state.counters["tokens/s"] =
      benchmark::Counter(runs * static_cast<double>(report.counts.output_tokens), benchmark::Counter::kIsRate);
  state.counters["hit_ratio"] = report.reused_ratio();
}

void replay_generated(benchmark::State& state) {
  const auto requests = static_cast<std::uint64_t>(state.range(0));
  const auto workers = static_cast<std::uint32_t>(state.range(1));
  sim::Report report;
  for (auto _ : state) {
    ChatSource source(requests, workers);
    report = *sim::run_replay({.engine = {.blocks = 4'096}, .workers = workers}, source);
  }
  report_rates(state, report);
}

void replay_trace(benchmark::State& state) {
  const char* const trace = std::getenv("CAIRN_TRACE");
  if (trace == nullptr) {
    state.SkipWithError("set CAIRN_TRACE to a trace in Mooncake's JSONL");
    return;
  }
  sim::Report report;
  for (auto _ : state) {
    Result<cli::TraceSource> source = cli::TraceSource::open(trace, cli::TraceSource::BadRows::kLeaveOut);
    if (!source) {
      state.SkipWithError(source.error().message.c_str());
      return;
    }
    report = *sim::run_replay({.engine = {.profile = state.range(1) == 0 ? sim::Profile::kSeed : sim::Profile::kStrict},
                               .workers = static_cast<std::uint32_t>(state.range(0))},
                              *source);
  }
  report_rates(state, report);
}

BENCHMARK(replay_generated)
    ->Name("GeneratedReplay")
    ->ArgNames({"requests", "workers"})
    ->Args({10'000, 8})
    ->Args({100'000, 1'000})
    ->Args({300'000, 1'000})
    ->Args({1'000'000, 1'000})
    ->Iterations(1)
    ->Unit(benchmark::kSecond);
BENCHMARK(replay_trace)
    ->Name("TraceReplay")
    ->ArgNames({"workers", "strict"})
    ->Args({8, 0})
    ->Args({1, 0})
    ->Args({8, 1})
    ->Args({1, 1})
    ->Iterations(1)
    ->Unit(benchmark::kSecond);

}  // namespace
}  // namespace cairn

BENCHMARK_MAIN();
