#include "cairn/evict/hint_book.h"

#include <gtest/gtest.h>

#include <chrono>
#include <ostream>
#include <utility>

#include "cairn/evict/counting_new_testing.h"
#include "cairn/evict/fake_blocks_testing.h"

namespace cairn {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::seconds;
using Kind = RetentionHint::Kind;
using Rank = HintBook::Rank;

constexpr TenantId kTenant{0};
constexpr BlockId kBlock{3};

[[maybe_unused]] void PrintTo(const Rank& rank, std::ostream* out) {
  *out << "level " << rank.level << " until " << rank.review.count();
}

class HintBookTest : public ::testing::Test {
 protected:
  HintLevel level(TimePoint now, BlockId block_id = kBlock) { return book_.rank(block_id, kTenant, now).level; }
  void say(Kind kind, Duration in = {}, TimePoint now = {}, BlockId block_id = kBlock) {
    book_.add(block_id, {.kind = kind, .in = in}, now);
  }
  // As the book has measured it: a system prompt keeps its rank for four times as long.
  Duration time_per_hit() {
    say(Kind::kSystemPrompt, {}, {}, BlockId{8});
    return book_.rank(BlockId{8}, kTenant, {}).review / 4;
  }
  // Blocks with a hint that came true, or did not.
  void record(Kind kind, std::uint32_t blocks, bool right) {
    for (std::uint32_t i = 0; i < blocks; ++i) {
      say(kind, seconds(1), {}, BlockId{9});
      if (kind == Kind::kWillNotReturn) {
        right ? book_.on_removed(BlockId{9}, kTenant, root_key(next_name_++))
              : book_.on_used(BlockId{9}, kTenant, root_key(next_name_++));
      } else if (right) {
        book_.on_used(BlockId{9}, kTenant, root_key(1));
      } else {
        EXPECT_EQ(level(hours(24), BlockId{9}), kNormalLevel);
      }
      book_.on_removed(BlockId{9}, kTenant, root_key(next_name_++));
    }
  }

  HintBook book_ = *HintBook::create(100, 2);
  std::uint64_t next_name_ = 1'000;
};

TEST_F(HintBookTest, WithoutAHintTheRankIsNormal) {
  EXPECT_EQ(book_.rank(kBlock, kTenant, {}), Rank{});
  EXPECT_EQ(Rank{}.review, HintBook::kNoReview);
}

TEST_F(HintBookTest, ReturnsRankByTheTimeLeft) {
  ASSERT_EQ(time_per_hit(), seconds(60));
  say(Kind::kReturns, seconds(1000));
  constexpr std::pair<int, HintLevel> kLeft[] = {{1000, 1}, {961, 1}, {960, 2}, {720, 3}, {480, 4},  {360, 5},
                                                 {240, 6},  {180, 7}, {121, 7}, {120, 9}, {90, 10},  {60, 11},
                                                 {30, 12},  {15, 13}, {7, 14},  {3, 15},  {-249, 15}};
  for (const auto& [left, expected] : kLeft) {
    EXPECT_EQ(level(seconds(1000 - left)), expected) << left << " s left";
  }
}

TEST_F(HintBookTest, AReviewIsDueWhenTheLevelChanges) {
  say(Kind::kReturns, seconds(1000));
  for (TimePoint now{}; now < seconds(1250);) {
    const Rank rank = book_.rank(kBlock, kTenant, now);
    ASSERT_GT(rank.review, now);
    EXPECT_EQ(level(rank.review - milliseconds(1)), rank.level);
    EXPECT_NE(level(rank.review), rank.level);
    now = rank.review;
  }
}

TEST_F(HintBookTest, ItsTimeAndAQuarterMoreAndItIsDone) {
  say(Kind::kReturns, seconds(8));
  EXPECT_EQ(level(seconds(10) - milliseconds(1)), 15U);
  EXPECT_EQ(book_.rank(kBlock, kTenant, seconds(10)), Rank{});
  EXPECT_EQ(book_.rank(kBlock, kTenant, seconds(5)), Rank{}) << "it is gone for good";
}

TEST_F(HintBookTest, OfSeveralReturnsTheFirstCounts) {
  say(Kind::kReturns, seconds(10));
  say(Kind::kReturns, seconds(500));
  EXPECT_EQ(level(seconds(1)), 13U);
  say(Kind::kReturns, seconds(500), seconds(11));  // the first hint has passed
  EXPECT_EQ(level(seconds(11)), 3U);
  say(Kind::kReturns, seconds(1), seconds(12));
  EXPECT_EQ(level(seconds(12)), 15U);
}

TEST_F(HintBookTest, BlocksThatOthersAwaitAreKept) {
  say(Kind::kReturns, seconds(10));
  say(Kind::kWillNotReturn, {}, seconds(5));
  EXPECT_EQ(level(seconds(5)), 14U);
  say(Kind::kWillNotReturn, {}, seconds(11));
  EXPECT_EQ(level(seconds(11)), 0U);
  say(Kind::kSystemPrompt, {}, seconds(12));
  say(Kind::kWillNotReturn, {}, seconds(12));
  say(Kind::kReturns, seconds(900), seconds(12));
  EXPECT_EQ(level(seconds(12)), 15U);
}

TEST_F(HintBookTest, ASystemPromptLastsFourTimesPerHitFromItsLastUse) {
  say(Kind::kSystemPrompt);
  book_.on_released(kBlock, seconds(100));
  EXPECT_EQ(book_.rank(kBlock, kTenant, seconds(100)), (Rank{15, seconds(340)}));
  book_.on_used(kBlock, kTenant, root_key(1));
  book_.on_released(kBlock, seconds(200));
  EXPECT_EQ(level(seconds(439)), 15U);
  EXPECT_EQ(book_.rank(kBlock, kTenant, seconds(440)), Rank{});
}

TEST_F(HintBookTest, AUseEndsAReturnAndASessionsEnd) {
  for (const Kind kind : {Kind::kReturns, Kind::kWillNotReturn}) {
    say(kind, seconds(10));
    book_.on_used(kBlock, kTenant, root_key(1));
    EXPECT_EQ(book_.rank(kBlock, kTenant, seconds(1)), Rank{});
  }
}

TEST_F(HintBookTest, ABlocksNextBlockStartsAfresh) {
  say(Kind::kSystemPrompt);
  book_.on_removed(kBlock, kTenant, root_key(1));
  EXPECT_EQ(book_.rank(kBlock, kTenant, {}), Rank{});
}

TEST_F(HintBookTest, MostReturnsMustBeKeptToBeBelieved) {
  record(Kind::kReturns, 100, true);
  record(Kind::kReturns, 100, false);
  EXPECT_TRUE(book_.believes(kTenant, Kind::kReturns));
  record(Kind::kReturns, 10, false);
  EXPECT_FALSE(book_.believes(kTenant, Kind::kReturns));
  say(Kind::kReturns, seconds(1));
  EXPECT_EQ(level(seconds(0)), kNormalLevel);
  EXPECT_TRUE(book_.believes(TenantId{1}, Kind::kReturns));
  EXPECT_TRUE(book_.believes(kTenant, Kind::kSystemPrompt));
  record(Kind::kReturns, 100, true);  // a hint without effect is judged all the same
  EXPECT_TRUE(book_.believes(kTenant, Kind::kReturns));
}

TEST_F(HintBookTest, OneInEightMayReturnThatShouldNot) {
  record(Kind::kWillNotReturn, 2'000, true);
  EXPECT_TRUE(book_.believes(kTenant, Kind::kWillNotReturn));
  record(Kind::kWillNotReturn, 400, false);
  EXPECT_FALSE(book_.believes(kTenant, Kind::kWillNotReturn));
  say(Kind::kWillNotReturn);
  EXPECT_EQ(level({}), kNormalLevel);
}

TEST_F(HintBookTest, AReturnCountsAgainstTheHintThatDeniedIt) {
  for (std::uint64_t name = 1; name < 5'000; ++name) {
    say(Kind::kWillNotReturn);
    book_.on_removed(kBlock, kTenant, root_key(name));
    if (name > 100) {
      book_.on_registered(kTenant, root_key(name - 100));
    }
  }
  EXPECT_FALSE(book_.believes(kTenant, Kind::kWillNotReturn));
}

// In a large pool a sample is counted, of blocks that stay and of blocks that are evicted.
TEST_F(HintBookTest, AFewThatReturnToALargePoolDoNotOutweighTheManyThatGo) {
  HintBook book = *HintBook::create(10'000, 1);
  for (std::uint64_t name = 1; name < 40'000; ++name) {
    book.add(kBlock, {.kind = Kind::kWillNotReturn}, {});
    name % 20 == 0 ? book.on_used(kBlock, kTenant, root_key(name)) : book.on_removed(kBlock, kTenant, root_key(name));
  }
  EXPECT_TRUE(book.believes(kTenant, Kind::kWillNotReturn));
}

TEST_F(HintBookTest, LearnsTheTimeABlockTakesForAHit) {
  // 50 unused blocks, two hits a second: 25 seconds a hit.
  for (int second = 0; second < 1'000; ++second) {
    book_.observe(2, 1, 50, seconds(second));
  }
  EXPECT_NEAR(static_cast<double>(time_per_hit().count()), 25e9, 1e9);
  // Without hits, a longer time is better.
  for (int second = 1'000; second < 400'000; second += 10) {
    book_.observe(0, 10, 50, seconds(second));
  }
  EXPECT_GT(time_per_hit(), std::chrono::minutes(50));
}

TEST_F(HintBookTest, ATimeSpanOfZeroIsNotDividedBy) {
  for (int i = 0; i < 1'000; ++i) {
    book_.observe(1, 1, 50, seconds(7));
  }
  EXPECT_EQ(time_per_hit(), seconds(60));
}

TEST_F(HintBookTest, AllocatesNothing) {
  const std::uint64_t before = allocation_count();
  record(Kind::kReturns, 200, false);
  record(Kind::kWillNotReturn, 200, true);
  book_.on_registered(kTenant, root_key(1));
  book_.observe(1'000, 1'000, 50, hours(1));
  EXPECT_EQ(allocation_count(), before);
  EXPECT_LE(HintBook::create(100'000, 1)->bytes(), 17U * 100'000);
}

}  // namespace
}  // namespace cairn
