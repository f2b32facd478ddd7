#include "cairn/sim/replay.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cairn/sim/list_source_testing.h"
#include "cairn/sim/prefix_index.h"
#include "cairn/sim/prompt.h"

namespace cairn::sim {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

ReplayOptions small(std::uint32_t workers) {
  return {.engine = {.blocks = 16,
                     .block_size = 4,
                     .max_num_batched_tokens = 64,
                     .costs = *CostModel::parse("prefill,0,0\nprefill,1000,1000\ndecode,0,10\ndecode,1000,10\n")},
          .workers = workers};
}

ReplayRequest request(std::uint64_t line, Token token, std::uint32_t input, std::uint64_t output,
                      TimePoint arrival = TimePoint(0)) {
  return {.line = line, .arrival = arrival, .prompt = {{token, input}}, .output_tokens = output};
}

Report replay(const ReplayOptions& options, std::vector<ReplayRequest> requests) {
  ListSource source(std::move(requests));
  return *run_replay(options, source);
}

// The workers that stored blocks, in order.
class Listener final : public ReplayEventSink {
 public:
  void on_stored(std::uint32_t worker, TimePoint at, std::uint64_t /*id*/, CacheLevel /*tier*/,
                 const KvStored& stored) override {
    workers.push_back(worker);
    times.push_back(at);
    blocks += stored.blocks.size();
  }
  void on_removed(std::uint32_t /*worker*/, TimePoint /*at*/, std::uint64_t /*id*/, CacheLevel /*tier*/,
                  const KvRemoved& gone) override {
    removed += gone.hashes.size();
  }
  std::vector<std::uint32_t> workers;
  std::vector<TimePoint> times;
  std::uint64_t blocks = 0;
  std::uint64_t removed = 0;
};

TEST(ReplayTest, RoundRobinPlacesInTurnAndEventsHaveTimes) {
  ReplayOptions options = small(3);
  Listener listener;
  options.events = &listener;
  const Report report = replay(options, {request(1, 1, 8, 1), request(2, 2, 8, 1), request(3, 3, 8, 1, milliseconds(1)),
                                         request(4, 4, 8, 1, milliseconds(5))});
  EXPECT_THAT(listener.workers, ElementsAre(0, 1, 2, 0));
  EXPECT_THAT(listener.times, ElementsAre(milliseconds(0), milliseconds(0), milliseconds(1), milliseconds(18)))
      << "the fourth waits until its worker's pass has ended";
  EXPECT_EQ(report.cache.stored_blocks, 8U);
  EXPECT_EQ(report.cache.events, 4U);
  EXPECT_EQ(report.counts.completed, 4U);
  EXPECT_DOUBLE_EQ(report.duration_ms, 36);
  EXPECT_DOUBLE_EQ(report.latencies.ttft_ms.max, 31);
  EXPECT_DOUBLE_EQ(report.latencies.queue_ms.max, 13);
}

// The default policy asks how long ago a block was used: in virtual time, not by the machine's clock.
TEST(ReplayTest, TheSameTraceGivesTheSameReportUnderAPolicyThatAsksForTheTime) {
  std::vector<ReplayRequest> requests;
  std::uint64_t state = 1;
  for (std::uint32_t i = 0; i < 3000; ++i) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    const auto session = static_cast<Token>(1 + (state >> 33) % (i % 7 == 0 ? 400 : 20));
    requests.push_back(request(i, session, 8 + 4 * (session % 6), 1, milliseconds(20 * i + session % 13)));
  }
  ReplayOptions options = small(2);
  options.engine.eviction = PolicyKind::kAdaptive;
  Listener first;
  options.events = &first;
  const Report once = replay(options, requests);
  Listener second;
  options.events = &second;
  const Report again = replay(options, requests);
  EXPECT_EQ(first.times, second.times);
  EXPECT_EQ(first.removed, second.removed);
  EXPECT_EQ(once.counts.saved_tokens, again.counts.saved_tokens);
  EXPECT_EQ(once.latencies.ttft_ms.mean, again.latencies.ttft_ms.mean);
}

TEST(ReplayTest, PlacementByPrefixFollowsTheEvents) {
  ReplayOptions options = small(3);
  options.placement = Placement::kPrefix;
  Listener listener;
  options.events = &listener;
  const Report report =
      replay(options, {request(1, 1, 8, 1), request(2, 2, 8, 1), request(3, 2, 12, 1, milliseconds(100)),
                       request(4, 1, 16, 1, milliseconds(200)), request(5, 9, 8, 1, milliseconds(300))});
  EXPECT_THAT(listener.workers, ElementsAre(0, 1, 1, 0, 0))
      << "without a prefix, the worker with the fewest requests gets it";
  EXPECT_EQ(report.counts.reused_tokens, 16U);
}

TEST(ReplayTest, PlacementByPrefixDoesNotOverloadOneWorker) {
  ReplayOptions options = small(4);
  options.engine.blocks = 256;
  options.placement = Placement::kPrefix;
  std::vector<ReplayRequest> requests;
  for (std::uint64_t i = 0; i < 200; ++i) {
    requests.push_back(request(i + 1, 1, 8, 20));
  }
  Listener listener;
  options.events = &listener;
  EXPECT_EQ(replay(options, requests).counts.completed, 200U);
  EXPECT_THAT(listener.workers, ::testing::Contains(3U));
}

TEST(ReplayTest, RequestsThatCannotBeServedAreRefusedCountedAndListed) {
  ReplayRequest delayed = request(3, 1, 8, 1);
  delayed.session = 5;
  delayed.delay = milliseconds(1);
  ReplayRequest after = request(4, 1, 8, 1);
  after.session = 5;
  const Report report =
      replay(small(1), {request(1, 1, 8, 1), request(2, 1, 60, 5), delayed, after, request(5, 1, 8, 0)});
  EXPECT_EQ(report.counts.arrived, 5U);
  EXPECT_EQ(report.counts.refused, 3U);
  EXPECT_EQ(report.counts.completed, 2U) << "the session continues";
  ASSERT_EQ(report.refusals.size(), 3U);
  EXPECT_THAT(report.refusals[0], HasSubstr("line 2: 65 tokens take 17 blocks of 4, and a worker has 16"));
  EXPECT_THAT(report.refusals[1], HasSubstr("line 3: the first turn of a session has a delay"));
  EXPECT_THAT(report.refusals[2], HasSubstr("line 5: no tokens are to be generated"));
}

TEST(ReplayTest, SessionsWaitForAnswers) {
  ReplayRequest first = request(1, 1, 8, 3);
  first.session = 9;
  ReplayRequest second = request(2, 1, 12, 1);
  second.session = 9;
  second.delay = milliseconds(7);
  const Report report = replay(small(1), {first, second});
  // 8 tokens and three steps, the delay, 4 tokens and a step.
  EXPECT_DOUBLE_EQ(report.duration_ms, 38 + 7 + 14);
  EXPECT_DOUBLE_EQ(report.latencies.ttft_ms.min, 14);
}

TEST(ReplayTest, ConcurrencyLimitsRequestsInFlight) {
  ReplayOptions options = small(1);
  options.concurrency = 2;
  std::vector<ReplayRequest> requests;
  for (std::uint64_t i = 0; i < 6; ++i) {
    requests.push_back(request(i + 1, static_cast<Token>(i), 4, 2, milliseconds(100'000 * i)));
  }
  const Report report = replay(options, requests);
  EXPECT_EQ(report.counts.completed, 6U);
  EXPECT_DOUBLE_EQ(report.duration_ms, 3 * (8 + 10 + 10));
  EXPECT_DOUBLE_EQ(report.latencies.e2e_ms.max, 28);
}

TEST(ReplayTest, ReportsOverTimeAddUp) {
  std::vector<ReplayRequest> requests;
  for (std::uint64_t i = 0; i < 100; ++i) {
    requests.push_back(request(i + 1, static_cast<Token>(i % 7), 12, 3, milliseconds(700 * i)));
  }
  const Report report = replay(small(2), requests);
  std::uint64_t bars = 0;
  for (const Bar& bar : report.ttft_histogram) {
    bars += bar.count;
  }
  EXPECT_EQ(bars, 100U);
  double tokens = 0;
  for (const SeriesPoint& point : report.series) {
    tokens += point.output_tokens_per_s * report.span_s;
    EXPECT_LE(point.blocks_in_use, point.blocks_resident);
    EXPECT_LE(point.blocks_resident, 16);
  }
  EXPECT_NEAR(tokens, 300, 1e-6);
  std::uint64_t evicted = 0;
  for (const Bar& bar : report.eviction_histogram) {
    evicted += bar.count;
  }
  EXPECT_GT(evicted, 0U);
  EXPECT_EQ(evicted, report.cache.evicted);
  EXPECT_EQ(evicted, report.cache.removed_blocks);
}

TEST(ReplayTest, StopsIfProgressReturnsFalse) {
  ReplayOptions options = small(1);
  std::uint64_t asked = 0;
  options.progress = [&](const ReplayProgress& at) {
    EXPECT_LE(at.finished, at.arrived);
    return ++asked < 3;
  };
  std::vector<ReplayRequest> requests;
  for (std::uint64_t i = 0; i < 5'000; ++i) {
    requests.push_back(request(i + 1, 1, 8, 2, milliseconds(100 * i)));
  }
  const Report report = replay(options, requests);
  EXPECT_FALSE(report.complete);
  EXPECT_EQ(asked, 3U);
  EXPECT_GT(report.counts.completed, 100U);
  EXPECT_LT(report.counts.completed, 5'000U);
}

TEST(ReplayTest, RejectsBadOptions) {
  ListSource source({});
  EXPECT_FALSE(run_replay(small(0), source));
  ReplayOptions options = small(1);
  options.engine.block_size = 1;
  EXPECT_FALSE(run_replay(options, source));
  EXPECT_EQ(run_replay(small(1), source)->counts.arrived, 0U);
  EXPECT_EQ(parse_placement("prefix"), Placement::kPrefix);
  EXPECT_EQ(parse_placement("best"), std::nullopt);
}

TEST(PrefixIndexTest, CountsBlocksWithoutAGap) {
  PrefixIndex index(3);
  const TokenRun run{1, 40};
  const Prompt prompt = *Prompt::hashed({&run, 1}, 4);
  const auto stored = [&](std::uint32_t worker, std::initializer_list<std::size_t> blocks) {
    for (const std::size_t block : blocks) {
      const KvStoredBlock one{prompt.keys[block].sequence_hash(), prompt.block_hashes[block]};
      index.stored(worker, {.parent = std::nullopt, .blocks = {&one, 1}, .token_ids = std::nullopt});
    }
  };
  stored(0, {0, 1, 2, 2});
  stored(1, {0, 1, 3});
  stored(2, {1, 2});
  EXPECT_THAT(index.depths(prompt.keys), ElementsAre(3, 2, 0));
  const SequenceHash second = prompt.keys[1].sequence_hash();
  index.removed(0, {{&second, 1}});
  index.removed(0, {{&second, 1}});
  EXPECT_THAT(index.depths(prompt.keys), ElementsAre(1, 2, 0));
  index.removed(1, {{&second, 1}});
  index.removed(2, {{&second, 1}});
  EXPECT_THAT(index.depths(prompt.keys), ElementsAre(1, 1, 0));
  stored(1, {1});
  EXPECT_THAT(index.depths(prompt.keys), ElementsAre(1, 2, 0));
}

}  // namespace
}  // namespace cairn::sim
