#include "cairn/events/event_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <variant>

#include "cairn/events/events_testing.h"

namespace cairn {
namespace {

using events_testing::block_at;
using events_testing::chain;
using events_testing::keys_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr CacheLevel kG1 = CacheLevel::kG1;
constexpr CacheLevel kG2 = CacheLevel::kG2;
constexpr std::size_t kAll = 1'000'000;

std::unique_ptr<EventLog> make_log(std::uint32_t blocks, std::uint32_t token_ids = 0) {
  return *EventLog::create({.blocks = blocks, .token_ids = token_ids});
}

std::vector<Event> events_from(const EventLog& log, std::uint64_t from, std::size_t max_blocks = kAll) {
  const Result<EventBatch> batch = log.read(from, max_blocks);
  return std::get<std::vector<Event>>(batch.value());
}

Stored stored_of(const Event& event) { return std::get<Stored>(event.data); }

std::vector<BlockKey> stored_keys(const Event& event) {
  std::vector<BlockKey> keys;
  for (const StoredBlock& block : stored_of(event).blocks) {
    keys.push_back(block.key);
  }
  return keys;
}

std::vector<Token> tokens_from(Token first, std::size_t count) {
  std::vector<Token> tokens(count);
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

TEST(EventLogTest, RefusesToHoldNothing) {
  const auto log = EventLog::create({.blocks = 0});
  ASSERT_FALSE(log);
  EXPECT_EQ(log.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(log.error().message, HasSubstr("0 blocks"));
}

TEST(EventLogTest, NumbersFromOneWithoutHolesWhateverTheTier) {
  const auto log = make_log(64);
  EXPECT_EQ(log->last_sequence(), 0U);
  EXPECT_EQ(log->oldest_sequence(), 1U);
  const auto blocks = chain(1, 0, 3);
  log->on_registered(kG1, blocks, {});
  log->on_registered(kG2, blocks, {});
  log->on_removed(kG1, keys_of(blocks));
  log->on_cleared(kG2);
  EXPECT_EQ(log->last_sequence(), 4U);
  const std::vector<Event> events = events_from(*log, 1);
  ASSERT_THAT(events, SizeIs(4));
  for (std::size_t i = 0; i < events.size(); ++i) {
    EXPECT_EQ(events[i].sequence, i + 1);
  }
  EXPECT_EQ(events[0].tier, kG1);
  EXPECT_EQ(events[1].tier, kG2);
  EXPECT_EQ(events[2], (Event{3, kG1, Removed{keys_of(blocks)}}));
  EXPECT_EQ(events[3], (Event{4, kG2, Cleared{}}));
}

TEST(EventLogTest, EmptyBatchesAndMatchesAreNoEvents) {
  const auto log = make_log(4);
  const auto blocks = chain(1, 0, 2);
  log->on_registered(kG1, {}, {});
  log->on_removed(kG1, {});
  log->on_matched(kG1, keys_of(blocks));
  EXPECT_EQ(log->last_sequence(), 0U);
}

TEST(EventLogTest, SuspendedAndResumedAreNumberedAmongTheRest) {
  const auto log = make_log(64);
  const auto blocks = chain(1, 0, 2);
  log->on_registered(kG2, blocks, {});
  log->suspend(kG2);
  log->on_removed(kG2, keys_of(blocks));
  log->suspend(kG1);
  log->on_cleared(kG2);
  log->resume(kG2);
  const std::vector<Event> events = events_from(*log, 1);
  ASSERT_THAT(events, SizeIs(6));
  EXPECT_EQ(events[1], (Event{2, kG2, Suspended{}}));
  EXPECT_EQ(events[2], (Event{3, kG2, Removed{keys_of(blocks)}}));
  EXPECT_EQ(events[3], (Event{4, kG1, Suspended{}}));
  EXPECT_EQ(events[4], (Event{5, kG2, Cleared{}}));
  EXPECT_EQ(events[5], (Event{6, kG2, Resumed{}}));
}

TEST(EventLogTest, SuspendingAndResumingAgainAreNoEvents) {
  const auto log = make_log(8);
  EXPECT_FALSE(log->is_suspended(kG2));
  log->resume(kG2);
  EXPECT_EQ(log->last_sequence(), 0U);
  log->suspend(kG2);
  log->suspend(kG2);
  EXPECT_EQ(log->last_sequence(), 1U);
  EXPECT_TRUE(log->is_suspended(kG2));
  EXPECT_FALSE(log->is_suspended(kG1));
  log->on_cleared(kG2);
  EXPECT_TRUE(log->is_suspended(kG2));
  log->resume(kG2);
  log->resume(kG2);
  EXPECT_EQ(log->last_sequence(), 3U);
  EXPECT_FALSE(log->is_suspended(kG2));
}

TEST(EventLogTest, ATierStaysSuspendedWhenItsEventIsDropped) {
  const auto log = make_log(4);
  log->suspend(kG2);
  for (std::uint32_t i = 0; i < 10; ++i) {
    log->on_registered(kG1, chain(i, 0, 2), {});
  }
  EXPECT_EQ(log->oldest_sequence(), 10U);
  EXPECT_TRUE(log->is_suspended(kG2));
  log->suspend(kG2);
  EXPECT_EQ(log->last_sequence(), 11U);
}

TEST(EventLogTest, StoredSaysParentAndTokensHashes) {
  const auto log = make_log(64);
  log->on_registered(kG1, chain(1, 0, 2), {});
  log->on_registered(kG1, chain(1, 2, 1), {});
  const std::vector<Event> events = events_from(*log, 1);
  ASSERT_THAT(events, SizeIs(2));
  EXPECT_EQ(events[0], (Event{1, kG1,
                              Stored{.parent = std::nullopt,
                                     .blocks = {{block_at(1, 0).key, block_at(1, 0).tokens_hash},
                                                {block_at(1, 1).key, block_at(1, 1).tokens_hash}},
                                     .token_ids = {}}}));
  EXPECT_EQ(stored_of(events[1]).parent, events_testing::hash_at(1, 1));
}

TEST(EventLogTest, SplitsWhereTheParentIsNotThePreviousBlock) {
  const auto log = make_log(64);
  // A hole in one chain, another chain at the fitting position, a root after a root.
  const std::vector<ResidentBlock> blocks = {block_at(1, 0), block_at(1, 1), block_at(1, 3),
                                             block_at(2, 4), block_at(3, 0), block_at(4, 0)};
  log->on_registered(kG1, blocks, {});
  const std::vector<Event> events = events_from(*log, 1);
  ASSERT_THAT(events, SizeIs(5));
  EXPECT_THAT(stored_keys(events[0]), ElementsAre(block_at(1, 0).key, block_at(1, 1).key));
  EXPECT_THAT(stored_keys(events[1]), ElementsAre(block_at(1, 3).key));
  EXPECT_EQ(stored_of(events[1]).parent, events_testing::hash_at(1, 2));
  EXPECT_EQ(stored_of(events[2]).parent, events_testing::hash_at(2, 3));
  EXPECT_EQ(stored_of(events[3]).parent, std::nullopt);
  EXPECT_EQ(stored_of(events[4]).parent, std::nullopt);
}

TEST(EventLogTest, ReadsWholeEventsUpToTheMaximumButAtLeastOne) {
  const auto log = make_log(64);
  for (std::uint32_t i = 0; i < 5; ++i) {
    log->on_registered(kG1, chain(i, 0, 4), {});
  }
  EXPECT_THAT(events_from(*log, 1, 0), SizeIs(1));
  EXPECT_THAT(events_from(*log, 1, 3), SizeIs(1));
  EXPECT_THAT(events_from(*log, 1, 8), SizeIs(2));
  EXPECT_THAT(events_from(*log, 2, 11), SizeIs(2));
  EXPECT_THAT(events_from(*log, 4, kAll), SizeIs(2));
  EXPECT_THAT(events_from(*log, 6, kAll), IsEmpty());
}

TEST(EventLogTest, ReadsNoMoreThanItsLimitOfEventsAtOnce) {
  const auto log = make_log(4096);
  for (std::uint32_t i = 0; i < 3000; ++i) {
    log->on_cleared(kG1);
  }
  EXPECT_THAT(events_from(*log, 1), SizeIs(EventLog::kMaxEventsPerRead));
}

TEST(EventLogTest, RejectsNumbersItHasNotGivenOut) {
  const auto log = make_log(4);
  log->on_cleared(kG1);
  for (const std::uint64_t from : {0, 3}) {
    const Result<EventBatch> batch = log->read(from, kAll);
    ASSERT_FALSE(batch);
    EXPECT_EQ(batch.error().code, ErrorCode::kOutOfRange);
    EXPECT_THAT(batch.error().message, HasSubstr("numbered events 1 to 1"));
  }
}

TEST(EventLogTest, DropsTheOldestForRoomAndSaysWhatIsLeft) {
  const auto log = make_log(8);
  for (std::uint32_t i = 0; i < 7; ++i) {
    log->on_registered(kG1, chain(i, 0, 3), {});
  }
  // 2 events of 3 blocks fit into 8.
  EXPECT_EQ(log->last_sequence(), 7U);
  EXPECT_EQ(log->oldest_sequence(), 6U);
  EXPECT_EQ(std::get<Lagged>(*log->read(4, kAll)), (Lagged{.missed_from = 4, .oldest = 6}));
  const std::vector<Event> events = events_from(*log, 6);
  ASSERT_THAT(events, SizeIs(2));
  for (std::uint32_t i = 0; i < 2; ++i) {
    EXPECT_EQ(stored_keys(events[i]), keys_of(chain(5 + i, 0, 3)));
  }
}

TEST(EventLogTest, WrapsAroundAtEveryPlace) {
  const auto log = make_log(8, 16);
  // Sizes that are no divisors of the capacities: every event lies elsewhere.
  for (std::uint32_t i = 0; i < 200; ++i) {
    const std::uint32_t count = 1 + i % 5;
    log->on_registered(kG1, chain(i, 0, count), tokens_from(100 * i, count * 2));
    const Event latest = events_from(*log, i + 1).at(0);
    EXPECT_EQ(stored_keys(latest), keys_of(chain(i, 0, count)));
    EXPECT_EQ(stored_of(latest).token_ids, tokens_from(100 * i, count * 2));
    for (std::uint64_t n = log->oldest_sequence(); n <= i; ++n) {
      const auto sequence = static_cast<std::uint32_t>(n - 1);
      EXPECT_EQ(stored_keys(events_from(*log, n).at(0)), keys_of(chain(sequence, 0, 1 + sequence % 5)));
    }
  }
}

TEST(EventLogTest, KeepsAsManyEventsWithoutBlocksAsItHasBlocks) {
  const auto log = make_log(5);  // 8, rounded up
  for (int i = 0; i < 12; ++i) {
    log->on_cleared(kG1);
  }
  EXPECT_EQ(log->oldest_sequence(), 5U);
  EXPECT_THAT(events_from(*log, 5), SizeIs(8));
  for (int i = 0; i < 6; ++i) {
    log->suspend(kG1);
    log->resume(kG1);
  }
  EXPECT_EQ(log->oldest_sequence(), 17U);
  EXPECT_THAT(events_from(*log, 17), SizeIs(8));
}

TEST(EventLogTest, EventsWithoutBlocksTakeNoRoomOfThoseWithBlocks) {
  const auto log = make_log(8);
  log->on_registered(kG1, chain(1, 0, 4), {});
  log->suspend(kG1);
  log->on_registered(kG1, chain(2, 0, 4), {});
  log->resume(kG1);
  EXPECT_EQ(log->oldest_sequence(), 1U);
  const std::vector<Event> events = events_from(*log, 1, 8);
  ASSERT_THAT(events, SizeIs(4));
  EXPECT_EQ(stored_keys(events[0]), keys_of(chain(1, 0, 4)));
  EXPECT_EQ(events[1], (Event{2, kG1, Suspended{}}));
  EXPECT_EQ(stored_keys(events[2]), keys_of(chain(2, 0, 4)));
  EXPECT_EQ(events[3], (Event{4, kG1, Resumed{}}));
}

TEST(EventLogTest, SplitsABatchLargerThanItself) {
  const auto log = make_log(4);
  const auto blocks = chain(1, 0, 10);
  log->on_registered(kG1, blocks, {});
  EXPECT_EQ(log->last_sequence(), 3U);
  std::vector<Event> events = events_from(*log, 3);
  ASSERT_THAT(events, SizeIs(1));
  EXPECT_THAT(stored_keys(events[0]), ElementsAre(blocks[8].key, blocks[9].key));
  EXPECT_EQ(stored_of(events[0]).parent, blocks[7].key.sequence_hash());

  log->on_removed(kG1, keys_of(blocks));
  EXPECT_EQ(log->last_sequence(), 6U);
  events = events_from(*log, 6);
  ASSERT_THAT(events, SizeIs(1));
  EXPECT_EQ(std::get<Removed>(events[0].data).keys, keys_of(std::span(blocks).subspan(8)));
}

TEST(EventLogTest, RecordsTokenIdsOnlyOnRequest) {
  const auto without = make_log(16);
  const auto with = make_log(16, 64);
  const auto blocks = chain(1, 0, 2);
  for (EventLog* log : {without.get(), with.get()}) {
    log->on_registered(kG1, blocks, tokens_from(5, 8));
    log->on_registered(kG1, chain(2, 0, 1), {});
  }
  EXPECT_THAT(stored_of(events_from(*without, 1)[0]).token_ids, IsEmpty());
  EXPECT_EQ(stored_of(events_from(*with, 1)[0]).token_ids, tokens_from(5, 8));
  EXPECT_THAT(stored_of(events_from(*with, 1)[1]).token_ids, IsEmpty());
}

TEST(EventLogTest, EachChainOfABatchGetsItsOwnTokenIds) {
  const auto log = make_log(16, 64);
  const std::vector<ResidentBlock> blocks = {block_at(1, 0), block_at(1, 1), block_at(2, 0)};
  log->on_registered(kG1, blocks, tokens_from(0, 12));
  const std::vector<Event> events = events_from(*log, 1);
  EXPECT_EQ(stored_of(events.at(0)).token_ids, tokens_from(0, 8));
  EXPECT_EQ(stored_of(events.at(1)).token_ids, tokens_from(8, 4));
}

TEST(EventLogTest, OverwrittenTokenIdsAreAbsentNotWrong) {
  const auto log = make_log(16, 8);
  for (std::uint32_t i = 0; i < 4; ++i) {
    log->on_registered(kG1, chain(i, 0, 1), tokens_from(100 * i, 3));
  }
  const std::vector<Event> events = events_from(*log, 1);
  ASSERT_THAT(events, SizeIs(4));
  EXPECT_THAT(stored_of(events[0]).token_ids, IsEmpty());
  EXPECT_THAT(stored_of(events[1]).token_ids, IsEmpty());
  EXPECT_EQ(stored_of(events[2]).token_ids, tokens_from(200, 3));
  EXPECT_EQ(stored_of(events[3]).token_ids, tokens_from(300, 3));
}

TEST(EventLogTest, SplitsWhereTokenIdsWouldNotFit) {
  const auto log = make_log(16, 8);
  log->on_registered(kG1, chain(1, 0, 5), tokens_from(0, 15));
  const std::vector<Event> events = events_from(*log, 1);
  ASSERT_THAT(events, SizeIs(3));
  EXPECT_THAT(stored_of(events[0]).token_ids, IsEmpty());
  EXPECT_EQ(stored_of(events[2]).token_ids, tokens_from(12, 3));
  // A single block that does not fit is stored without.
  log->on_registered(kG1, chain(2, 0, 2), tokens_from(0, 18));
  EXPECT_THAT(stored_of(events_from(*log, 4).at(0)).blocks, SizeIs(2));
  EXPECT_THAT(stored_of(events_from(*log, 4).at(0)).token_ids, IsEmpty());
}

TEST(EventLogTest, ReadsAnEventOfManyPieces) {
  const auto log = make_log(100'000, 400'000);
  log->on_cleared(kG1);
  const auto blocks = chain(1, 0, 70'000);
  log->on_registered(kG1, blocks, tokens_from(3, 280'000));
  const std::vector<Event> events = events_from(*log, 2, 1);
  ASSERT_THAT(events, SizeIs(1));
  EXPECT_EQ(stored_keys(events[0]), keys_of(blocks));
  EXPECT_EQ(stored_of(events[0]).token_ids, tokens_from(3, 280'000));
}

TEST(EventLogTest, MemoryIsFixedAtCreation) {
  const auto log = make_log(128, 512);
  const std::size_t bytes = log->bytes();
  EXPECT_GE(bytes, 128U * 64 + 512 * 4);
  EXPECT_LE(bytes, 128U * 64 + 512 * 4 + 512);
  for (std::uint32_t i = 0; i < 50; ++i) {
    log->on_registered(kG1, chain(i, 0, 30), tokens_from(0, 120));
  }
  EXPECT_EQ(log->bytes(), bytes);
}

using EventLogDeathTest = ::testing::Test;

TEST(EventLogDeathTest, TokenIdsOfPartOfABlockAbort) {
  const auto log = make_log(4, 16);
  EXPECT_DEATH(log->on_registered(kG1, chain(1, 0, 2), tokens_from(0, 3)), "token ids of whole blocks");
}

TEST(EventLogTest, EventsSayWhoseTheyAre) {
  const EventSource source{.worker_id = 1337, .dp_rank = 3};
  const auto log = *EventLog::create({.blocks = 8, .source = source});
  EXPECT_EQ(log->source(), source);
  log->on_registered(kG1, chain(1, 0, 2), {});
  log->on_cleared(kG1);
  for (const Event& event : events_from(*log, 1)) {
    EXPECT_EQ(event.source, source);
    EXPECT_EQ(event.group, 0U);
  }
}

TEST(EventLogTest, ACopyInAnotherTierHasTheTokensOfTheBlock) {
  const auto log = *EventLog::create({.blocks = 16, .token_ids = 64, .known_blocks = 8, .block_size = 2});
  ASSERT_TRUE(log->keeps_token_ids());
  const auto blocks = chain(1, 0, 3);
  log->on_registered(kG1, blocks, tokens_from(10, 6));
  log->on_registered(kG2, blocks, {});
  const std::vector<Event> events = events_from(*log, 1);
  ASSERT_THAT(events, SizeIs(2));
  EXPECT_EQ(stored_of(events[1]).token_ids, tokens_from(10, 6));
  log->on_removed(kG1, keys_of(blocks));
  log->on_removed(kG2, keys_of(blocks));
  log->on_registered(kG2, blocks, {});
  EXPECT_THAT(stored_of(events_from(*log, 5)[0]).token_ids, IsEmpty()) << "it was gone from all tiers";
}

TEST(EventLogTest, ExpectedTokensComeWithTheBlocks) {
  const auto log = *EventLog::create({.blocks = 16, .token_ids = 64, .known_blocks = 8, .block_size = 2});
  const auto blocks = chain(1, 0, 5);
  const std::vector<BlockKey> keys = keys_of(blocks);
  const auto expected = std::span(keys).subspan(1, 3);
  ASSERT_EQ(log->expect_token_ids(expected, tokens_from(20, 6)), 3U);
  log->on_registered(kG2, blocks, {});
  log->forget_token_ids(expected);
  // Blocks whose tokens are known stand in events of their own.
  const std::vector<Event> events = events_from(*log, 1);
  ASSERT_THAT(events, SizeIs(3));
  EXPECT_THAT(stored_of(events[0]).token_ids, IsEmpty());
  EXPECT_EQ(stored_of(events[1]).token_ids, tokens_from(20, 6));
  EXPECT_EQ(stored_of(events[1]).parent, blocks[0].key.sequence_hash());
  EXPECT_EQ(stored_keys(events[1]), std::vector<BlockKey>(expected.begin(), expected.end()));
  EXPECT_THAT(stored_of(events[2]).token_ids, IsEmpty());
  EXPECT_EQ(log->token_ids_of(blocks), (std::vector<std::vector<Token>>{{}, {20, 21}, {22, 23}, {24, 25}, {}}));
  log->on_cleared(kG2);
  EXPECT_THAT(log->token_ids_of(blocks), ::testing::Each(IsEmpty()));
}

TEST(EventLogTest, TokensOfKnownBlocksNeedABlockSize) {
  EXPECT_EQ(EventLog::create({.blocks = 4, .known_blocks = 4}).error().code, ErrorCode::kInvalidArgument);
  const auto log = make_log(4);
  EXPECT_FALSE(log->keeps_token_ids());
  const auto blocks = chain(1, 0, 1);
  EXPECT_EQ(log->expect_token_ids(keys_of(blocks), tokens_from(1, 2)), 0U) << "no effect";
  log->on_registered(kG2, blocks, {});
  EXPECT_THAT(stored_of(events_from(*log, 1)[0]).token_ids, IsEmpty());
}

struct CountingWaker final : EventWaker {
  void wake() override { ++calls; }
  int calls = 0;
};

TEST(EventLogTest, WakesThoseWhoWaitOnceAtTheNextEvent) {
  const auto log = make_log(64);
  CountingWaker one;
  CountingWaker other;
  ASSERT_TRUE(log->wake_after(0, one));
  ASSERT_TRUE(log->wake_after(0, one)) << "waits already";
  ASSERT_TRUE(log->wake_after(0, other));
  log->on_registered(kG1, chain(1, 0, 2), {});
  EXPECT_EQ(one.calls, 1);
  EXPECT_EQ(other.calls, 1);
  log->on_cleared(kG1);
  EXPECT_EQ(one.calls, 1) << "nobody waits any more";

  // Each kind of event wakes.
  ASSERT_TRUE(log->wake_after(2, one));
  log->on_removed(kG1, keys_of(chain(1, 0, 1)));
  ASSERT_TRUE(log->wake_after(3, one));
  log->suspend(kG1);
  ASSERT_TRUE(log->wake_after(4, one));
  log->suspend(kG1);
  EXPECT_EQ(one.calls, 3) << "no event";
  log->invalidate(kG1, 7);
  EXPECT_EQ(one.calls, 4);
}

TEST(EventLogTest, NobodyWaitsForAnEventThatIsThere) {
  const auto log = make_log(64);
  CountingWaker waker;
  log->on_cleared(kG1);
  EXPECT_FALSE(log->wake_after(0, waker));
  log->on_cleared(kG1);
  EXPECT_EQ(waker.calls, 0);
}

TEST(EventLogTest, WhoeverIsForgottenIsNotWoken) {
  const auto log = make_log(64);
  CountingWaker waker;
  ASSERT_TRUE(log->wake_after(0, waker));
  log->forget(waker);
  log->on_cleared(kG1);
  EXPECT_EQ(waker.calls, 0);
}

}  // namespace
}  // namespace cairn
