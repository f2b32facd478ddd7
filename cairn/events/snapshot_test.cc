#include "cairn/events/event_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "cairn/events/events_testing.h"
#include "cairn/events/residency_view.h"

namespace cairn {
namespace {

using events_testing::block_at;
using events_testing::chain;
using events_testing::PlainPool;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr CacheLevel kG1 = CacheLevel::kG1;
constexpr CacheLevel kG2 = CacheLevel::kG2;
// More blocks than a walk takes under one lock, so that it has several pieces.
constexpr std::uint32_t kManyBlocks = 40'000;

// A source that calls a function after each piece of the walk, with the number of pieces so far.
class Disturbed final : public ResidentSource {
 public:
  Disturbed(const ResidentSource& pool, std::function<void(std::uint32_t piece)> disturb)
      : pool_(pool), disturb_(std::move(disturb)) {}
  [[nodiscard]] CacheLevel tier() const override { return pool_.tier(); }
  [[nodiscard]] std::uint32_t capacity() const override { return pool_.capacity(); }
  [[nodiscard]] std::uint32_t list_resident(std::uint32_t first, std::uint32_t count,
                                            std::vector<ResidentBlock>& out) const override {
    const std::uint32_t next = pool_.list_resident(first, count, out);
    disturb_(++pieces_);
    return next;
  }

 private:
  const ResidentSource& pool_;
  std::function<void(std::uint32_t piece)> disturb_;
  mutable std::uint32_t pieces_ = 0;
};

// Lists every block twice.
class TwoCopies final : public ResidentSource {
 public:
  explicit TwoCopies(const ResidentSource& pool) : pool_(pool) {}
  [[nodiscard]] CacheLevel tier() const override { return pool_.tier(); }
  [[nodiscard]] std::uint32_t capacity() const override { return pool_.capacity(); }
  [[nodiscard]] std::uint32_t list_resident(std::uint32_t first, std::uint32_t count,
                                            std::vector<ResidentBlock>& out) const override {
    static_cast<void>(pool_.list_resident(first, count, out));
    return pool_.list_resident(first, count, out);
  }

 private:
  const ResidentSource& pool_;
};

Result<Snapshot> snapshot_of(const EventLog& log, std::vector<const ResidentSource*> pools) {
  return take_snapshot(log, pools);
}

TEST(SnapshotTest, NothingAtTheStart) {
  const auto log = *EventLog::create({.blocks = 8});
  const Snapshot snapshot = *snapshot_of(*log, {});
  EXPECT_EQ(snapshot.sequence, 0U);
  EXPECT_THAT(snapshot.tiers, IsEmpty());
}

TEST(SnapshotTest, ParentsFirstForEachPoolInTheOrderGiven) {
  const auto log = *EventLog::create({.blocks = 8});
  PlainPool g1(kG1, 4, *log);
  PlainPool g2(kG2, 4, *log);
  g1.put(0, block_at(1, 2));
  g1.put(1, block_at(1, 0));
  g1.put(2, block_at(1, 1));
  g2.put(3, block_at(2, 0));
  const Snapshot snapshot = *snapshot_of(*log, {&g2, &g1});
  EXPECT_EQ(snapshot.sequence, 4U);
  ASSERT_THAT(snapshot.tiers, SizeIs(2));
  EXPECT_EQ(snapshot.tiers[0].tier, kG2);
  EXPECT_EQ(snapshot.tiers[0].blocks, chain(2, 0, 1));
  EXPECT_EQ(snapshot.tiers[1].tier, kG1);
  EXPECT_EQ(snapshot.tiers[1].blocks, chain(1, 0, 3));
}

TEST(SnapshotTest, TwoPoolsOfOneTierAreRefused) {
  const auto log = *EventLog::create({.blocks = 8});
  const PlainPool a(kG1, 4, *log);
  const PlainPool b(kG1, 4, *log);
  const auto snapshot = snapshot_of(*log, {&a, &b});
  ASSERT_FALSE(snapshot);
  EXPECT_EQ(snapshot.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(snapshot.error().message, HasSubstr("two pools of tier G1"));
}

TEST(SnapshotTest, CopiesOfOneKeyCountOnce) {
  const auto log = *EventLog::create({.blocks = 8});
  PlainPool pool(kG1, 2, *log);
  pool.put(0, block_at(1, 0));
  const TwoCopies copies(pool);
  EXPECT_EQ(snapshot_of(*log, {&copies})->tiers[0].blocks, chain(1, 0, 1));
}

// Blocks that move ahead of the walk, behind it, come, go and come back: the result is the state at one number.
TEST(SnapshotTest, WhatChangesDuringTheWalkIsAsAtItsEnd) {
  const auto log = *EventLog::create({.blocks = 64});
  PlainPool pool(kG1, kManyBlocks, *log);
  const std::uint32_t last = kManyBlocks - 1;
  pool.put(0, block_at(1, 0));         // stays
  pool.put(1, block_at(2, 0));         // seen, then removed
  pool.put(last, block_at(3, 0));      // removed before it is seen, comes back behind the walk
  pool.put(last - 1, block_at(4, 0));  // removed before it is seen
  pool.put(2, block_at(5, 0));         // seen, then moves ahead of the walk: seen twice
  const Disturbed source(pool, [&](std::uint32_t piece) {
    if (piece != 1) {
      return;
    }
    pool.remove(1);
    pool.remove(last);
    pool.put(3, block_at(3, 0));
    pool.remove(last - 1);
    pool.remove(2);
    pool.put(last - 2, block_at(5, 0));
    pool.put(4, block_at(6, 0));  // new, behind the walk
    pool.put(5, block_at(7, 0));  // comes and goes
    pool.remove(5);
  });
  const Snapshot snapshot = *snapshot_of(*log, {&source});
  EXPECT_EQ(snapshot.sequence, log->last_sequence());
  EXPECT_EQ(snapshot.tiers[0].blocks, pool.sorted_blocks());
  EXPECT_THAT(snapshot.tiers[0].blocks, ElementsAre(block_at(1, 0), block_at(3, 0), block_at(5, 0), block_at(6, 0)));
}

TEST(SnapshotTest, ClearedDuringTheWalkForgetsWhatWasSeen) {
  const auto log = *EventLog::create({.blocks = 64});
  PlainPool g1(kG1, kManyBlocks, *log);
  PlainPool g2(kG2, 2, *log);
  g1.put(0, block_at(1, 0));
  g1.put(kManyBlocks - 1, block_at(2, 0));
  g2.put(0, block_at(1, 0));
  const Disturbed disturbed_g1(g1, [&](std::uint32_t piece) {
    if (piece == 1) {
      g1.put(1, block_at(3, 0));
      g1.clear();
      g1.put(2, block_at(4, 0));
    }
  });
  const Snapshot snapshot = *snapshot_of(*log, {&g2, &disturbed_g1});
  EXPECT_EQ(snapshot.tiers[0].blocks, chain(1, 0, 1));
  EXPECT_EQ(snapshot.tiers[1].blocks, chain(4, 0, 1));
}

TEST(SnapshotTest, SaysWhichTiersAreSuspendedAndStillWhatTheyHold) {
  const auto log = *EventLog::create({.blocks = 2});
  PlainPool g1(kG1, 2, *log);
  PlainPool g2(kG2, 2, *log);
  g2.put(0, block_at(1, 0));
  log->suspend(kG2);
  g2.put(1, block_at(1, 1));
  g1.put(0, block_at(1, 0));
  g1.put(1, block_at(1, 1));  // the log has dropped the suspension by now
  const Snapshot suspended = *snapshot_of(*log, {&g1, &g2});
  EXPECT_FALSE(suspended.tiers[0].suspended);
  EXPECT_TRUE(suspended.tiers[1].suspended);
  EXPECT_EQ(suspended.tiers[1].blocks, chain(1, 0, 2));
  log->resume(kG2);
  EXPECT_FALSE(snapshot_of(*log, {&g1, &g2})->tiers[1].suspended);
}

// Tiers that the walk has passed, is in, or has yet to come to, suspended and resumed between two of its pieces.
TEST(SnapshotTest, SuspendedDuringTheWalkIsAsAtItsEnd) {
  constexpr CacheLevel kG3 = CacheLevel::kG3;
  for (const bool suspended_before : {false, true}) {
    for (const int changes : {1, 2}) {
      const auto log = *EventLog::create({.blocks = 64});
      PlainPool g1(kG1, 2, *log);
      PlainPool g2(kG2, kManyBlocks, *log);
      PlainPool g3(kG3, 2, *log);
      const auto toggle_all = [&] {
        for (const CacheLevel tier : {kG1, kG2, kG3}) {
          if (log->is_suspended(tier)) {
            log->resume(tier);
          } else {
            log->suspend(tier);
          }
        }
      };
      if (suspended_before) {
        toggle_all();
      }
      const Disturbed source(g2, [&](std::uint32_t piece) {
        for (int i = 0; piece == 1 && i < changes; ++i) {
          toggle_all();
          g2.clear();  // does not resume the tier
        }
      });
      const Snapshot snapshot = *snapshot_of(*log, {&g1, &source, &g3});
      EXPECT_EQ(snapshot.sequence, log->last_sequence());
      for (const TierSnapshot& tier : snapshot.tiers) {
        EXPECT_EQ(tier.suspended, suspended_before != (changes == 1)) << to_string(tier.tier);
      }
    }
  }
}

// A change right after the walk looked at a pool without blocks still counts.
TEST(SnapshotTest, SuspendedOfAPoolWithoutBlocks) {
  const auto log = *EventLog::create({.blocks = 8});
  const PlainPool pool(kG1, 0, *log);
  const Disturbed source(pool, [&](std::uint32_t) { log->suspend(kG1); });
  const Snapshot snapshot = *snapshot_of(*log, {&source});
  EXPECT_EQ(snapshot.sequence, 1U);
  EXPECT_TRUE(snapshot.tiers[0].suspended);
}

TEST(SnapshotTest, EventsAfterTheSnapshotContinueIt) {
  const auto log = *EventLog::create({.blocks = 64});
  PlainPool pool(kG1, 8, *log);
  pool.put(0, block_at(1, 0));
  const Snapshot snapshot = *snapshot_of(*log, {&pool});
  pool.put(0, block_at(2, 0));
  ResidencyView view;
  ASSERT_TRUE(view.apply(snapshot));
  const Result<EventBatch> batch = log->read(snapshot.sequence + 1, 100);
  for (const Event& event : std::get<std::vector<Event>>(*batch)) {
    ASSERT_TRUE(view.apply(event));
  }
  EXPECT_EQ(view.sorted_blocks(kG1), pool.sorted_blocks());
}

TEST(SnapshotTest, TakesLargerPiecesWhereTheLogIsTooSmall) {
  const auto log = *EventLog::create({.blocks = 8});
  PlainPool pool(kG1, kManyBlocks, *log);
  pool.put(0, block_at(1, 0));
  std::uint32_t pieces = 0;
  const Disturbed source(pool, [&](std::uint32_t piece) {
    pieces = piece;
    for (std::uint32_t i = 0; piece == 1 && i < 10; ++i) {
      pool.put(1, block_at(100 + i, 0));
    }
  });
  const Snapshot snapshot = *snapshot_of(*log, {&source});
  EXPECT_EQ(pieces, 2U);  // the second attempt took all blocks at once
  EXPECT_EQ(snapshot.tiers[0].blocks, pool.sorted_blocks());
}

TEST(SnapshotTest, GivesUpWhereTheLogNeverHoldsTheEvents) {
  const auto log = *EventLog::create({.blocks = 8});
  PlainPool pool(kG1, 4, *log);
  std::uint32_t next = 0;
  const Disturbed source(pool, [&](std::uint32_t) {
    for (int i = 0; i < 20; ++i) {
      pool.put(0, block_at(next++, 0));
    }
  });
  const auto snapshot = snapshot_of(*log, {&source});
  ASSERT_FALSE(snapshot);
  EXPECT_EQ(snapshot.error().code, ErrorCode::kExhausted);
  EXPECT_THAT(snapshot.error().message, HasSubstr("make the log larger"));
}

TEST(SnapshotTest, ASaveWithoutRoomForItsTokensForgetsNoneOfAnotherSave) {
  const auto log = *EventLog::create({.blocks = 16, .token_ids = 16, .known_blocks = 1, .block_size = 2});
  PlainPool pool(kG2, 4, *log);
  const BlockKey keys[] = {block_at(1, 0).key, block_at(2, 0).key};
  const Token tokens[] = {5, 6, 7, 8};
  ASSERT_EQ(log->expect_token_ids(keys, tokens), 1U) << "there is room for one";
  log->forget_token_ids({keys, 1});  // the first save is over
  ASSERT_EQ(log->expect_token_ids({keys + 1, 1}, std::span(tokens).last(2)), 1U);
  pool.put(0, block_at(2, 0));
  log->forget_token_ids({keys + 1, 1});
  const ResidentSource* pools[] = {&pool};
  EXPECT_EQ((*take_snapshot(*log, pools)).tiers[0].token_ids, (std::vector<std::vector<Token>>{{7, 8}}));
}

TEST(SnapshotTest, HasTheSourceAndTheTokensThatTheLogKnows) {
  const EventSource source{.worker_id = 9, .dp_rank = 1};
  const auto log =
      *EventLog::create({.blocks = 16, .token_ids = 16, .known_blocks = 4, .block_size = 2, .source = source});
  PlainPool pool(kG2, 4, *log);
  const BlockKey known = block_at(1, 0).key;
  const Token tokens[] = {5, 6};
  ASSERT_EQ(log->expect_token_ids({&known, 1}, tokens), 1U);
  pool.put(0, block_at(1, 0));
  pool.put(1, block_at(1, 1));
  const ResidentSource* pools[] = {&pool};
  const Snapshot snapshot = *take_snapshot(*log, pools);
  EXPECT_EQ(snapshot.source, source);
  ASSERT_THAT(snapshot.tiers, SizeIs(1));
  EXPECT_EQ(snapshot.tiers[0].group, 0U);
  EXPECT_EQ(snapshot.tiers[0].token_ids, (std::vector<std::vector<Token>>{{5, 6}, {}}));

  ResidencyView view;
  ASSERT_TRUE(view.apply(snapshot));
  const Status other =
      view.apply({.sequence = snapshot.sequence + 1, .tier = kG2, .data = Cleared{}, .source = {.worker_id = 9}});
  ASSERT_FALSE(other);
  EXPECT_THAT(other.error().message, HasSubstr("data parallel rank 0, but the view is of worker 9, rank 1"));
  EXPECT_EQ(view.size(kG2), 2U);
  EXPECT_TRUE(view.apply({.sequence = snapshot.sequence + 1, .tier = kG2, .data = Cleared{}, .source = source}));

  const auto plain = *EventLog::create({.blocks = 4});
  PlainPool other_pool(kG2, 4, *plain);
  other_pool.put(0, block_at(1, 0));
  const ResidentSource* other_pools[] = {&other_pool};
  EXPECT_THAT((*take_snapshot(*plain, other_pools)).tiers[0].token_ids, IsEmpty());
}

}  // namespace
}  // namespace cairn
