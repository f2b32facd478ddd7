#include "cairn/evict/adaptive.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "cairn/evict/fake_blocks_testing.h"
#include "cairn/evict/return_model.h"
#include "cairn/evict/reuse_history.h"
#include "cairn/evict/reuse_model.h"
#include "cairn/evict/segment_groups.h"

namespace cairn {
namespace {

BlockKey key(std::uint64_t n) { return root_key(n * 0x9E3779B97F4A7C15U + 1); }

TEST(ReuseHistoryTest, RemembersWhenAndHowOften) {
  ReuseHistory history = *ReuseHistory::create(100'000);
  EXPECT_FALSE(history.find(key(1), 10));
  history.record(key(1), 10, 1);
  history.record(key(2), 5'000, 7);
  const auto one = history.find(key(1), 50'000);
  ASSERT_TRUE(one);
  EXPECT_EQ(one->uses, 1U);
  EXPECT_NEAR(static_cast<double>(one->age), 49'990, 100'000.0 / 512);
  EXPECT_EQ(history.find(key(2), 50'000)->uses, ReuseHistory::kMaxUses);
  history.record(key(1), 50'000, 2);
  EXPECT_EQ(history.find(key(1), 50'000)->uses, 2U);
  EXPECT_LT(history.find(key(1), 50'000)->age, 200U);
}

TEST(ReuseHistoryTest, KeepsTheLatestThreeTimesTheBlocks) {
  constexpr std::uint64_t kBlocks = 50'000;
  ReuseHistory history = *ReuseHistory::create(kBlocks);
  for (std::uint64_t n = 0; n < 20 * kBlocks; ++n) {
    history.record(key(n), n, 1);
  }
  std::uint64_t kept = 0;
  for (std::uint64_t n = 17 * kBlocks; n < 20 * kBlocks; ++n) {
    kept += history.find(key(n), 20 * kBlocks) ? 1 : 0;
  }
  EXPECT_GT(kept, 3 * kBlocks * 8 / 10);
  std::uint64_t strangers = 0;
  for (std::uint64_t n = 100 * kBlocks; n < 101 * kBlocks; ++n) {
    strangers += history.find(key(n), 20 * kBlocks) ? 1 : 0;
  }
  EXPECT_LT(strangers, kBlocks / 500);
}

TEST(ReuseModelTest, BeforeAnythingIsSeenOlderIsWorthLess) {
  ReuseModel model(6'400);
  model.learn(1);
  for (std::uint64_t age = 100; age < 16 * 6'400; age *= 2) {
    EXPECT_GT(model.worth(1, age), model.worth(1, 2 * age));
  }
  EXPECT_EQ(model.worth(1, 1'000'000), 0);
}

TEST(ReuseModelTest, LearnsThatBlocksComeBackAfterAWhile) {
  ReuseModel model(6'400);
  for (int i = 0; i < 10'000; ++i) {
    model.began(1);
    model.began(2);
    model.returned(2, 3'000 + i % 100);
  }
  model.learn(1);
  EXPECT_GT(model.worth(2, 2'500), model.worth(2, 100));  // its use is expected soon
  EXPECT_GT(model.worth(2, 100), model.worth(1, 100));
  EXPECT_LT(model.worth(2, 8'000), model.worth(2, 100));  // the expected use did not come
}

TEST(ReturnModelTest, BucketsAreQuartersOfADoubling) {
  using namespace std::chrono_literals;
  EXPECT_EQ(ReturnModel::bucket_of(0s), 0U);
  EXPECT_EQ(ReturnModel::bucket_of(999ms), 0U);
  EXPECT_EQ(ReturnModel::bucket_of(1s), 1U);
  EXPECT_EQ(ReturnModel::bucket_of(1180ms), 1U);
  EXPECT_EQ(ReturnModel::bucket_of(1200ms), 2U);
  EXPECT_EQ(ReturnModel::bucket_of(1900ms), 4U);
  EXPECT_EQ(ReturnModel::bucket_of(2s), 5U);
  EXPECT_EQ(ReturnModel::bucket_of(1000h), ReturnModel::kBuckets - 1);
}

TEST(ReturnModelTest, BeforeAnythingIsLearnedOlderIsWorthLess) {
  const auto model = *ReturnModel::create();
  const ReturnModel::Class any = ReturnModel::class_of({.uses = 3, .new_blocks = 9});
  for (std::uint32_t bucket = 2; bucket < ReturnModel::kBuckets; ++bucket) {
    EXPECT_LT(model->worth(any, bucket), model->worth(any, bucket - 1)) << bucket;
  }
}

using Observation = ReturnModel::Observation;

// A segment of this class lives through the buckets before `last`, and returns in it or does not.
Observation seen(ReturnModel::Class of, std::uint32_t last, bool returned) {
  return {.of = of, .first = 0, .last = static_cast<std::uint8_t>(last), .returned = returned};
}

constexpr std::uint32_t kNever = ReturnModel::kBuckets - 1;

TEST(ReturnModelTest, WorthRisesTowardsTheTimeOfReturnAndFallsBehindIt) {
  using namespace std::chrono_literals;
  const auto model = *ReturnModel::create();
  const ReturnModel::Class agents = ReturnModel::class_of({.uses = 2, .gap = ReturnModel::log_gap(16s)});
  const ReturnModel::Class others = ReturnModel::class_of({.uses = 1});
  const std::uint32_t at = ReturnModel::bucket_of(16s);
  for (int i = 0; i < 1'000; ++i) {
    model->learn(std::vector{seen(agents, at, true), seen(others, kNever, false)});
  }
  EXPECT_GT(model->worth(agents, at - 1), 2 * model->worth(agents, ReturnModel::bucket_of(2s)));
  EXPECT_LT(model->worth(agents, at + 8), model->worth(agents, ReturnModel::bucket_of(2s)));
  EXPECT_GT(model->worth(agents, 4), 10 * model->worth(others, 4));
}

TEST(ReturnModelTest, TellsEndingsApart) {
  using namespace std::chrono_literals;
  const auto model = *ReturnModel::create();
  const ReturnModel::Traits any{.uses = 2, .new_blocks = 5, .gap = ReturnModel::log_gap(16s)};
  const ReturnModel::Class unknown = ReturnModel::class_of(any);
  const ReturnModel::Class tool = ReturnModel::with_ending(unknown, RequestEnding::kToolCall);
  const ReturnModel::Class turn = ReturnModel::with_ending(tool, RequestEnding::kEndOfTurn);
  EXPECT_EQ(ReturnModel::with_ending(turn, RequestEnding::kUnknown), unknown);
  const std::uint32_t at = ReturnModel::bucket_of(8s);
  for (int i = 0; i < 1'000; ++i) {
    model->learn(std::vector{seen(tool, at, true), seen(turn, kNever, false)});
  }
  EXPECT_GT(model->worth(tool, 4), 10 * model->worth(turn, 4));
}

TEST(ReturnModelTest, ManyClassesShareCoarserCurves) {
  const auto model = *ReturnModel::create();
  std::vector<Observation> all;
  for (std::uint32_t uses = 1; uses <= ReturnModel::kMaxUses; ++uses) {
    for (const RequestEnding ending : kAllEndings) {
      for (std::uint32_t blocks = 0; blocks < 10'000; blocks = 4 * blocks + 1) {
        for (int octave = 0; octave < 9; ++octave) {
          const auto gap = static_cast<ReturnModel::LogGap>(octave * ReturnModel::kGapSteps);
          all.push_back(seen(ReturnModel::class_of({.uses = uses, .new_blocks = blocks, .gap = gap, .ending = ending}),
                             20, true));
        }
      }
    }
  }
  for (int i = 0; i < 1'000; ++i) {
    model->learn(all);
  }
  for (const Observation& each : all) {
    EXPECT_GT(model->worth(each.of, 18), model->worth(each.of, 40));
  }
}

TEST(ReturnModelTest, WhatWasLearnedSurvives) {
  const auto model = *ReturnModel::create();
  std::mt19937 random(7);
  for (int i = 0; i < 3'000; ++i) {
    const ReturnModel::Class of = ReturnModel::class_of({.uses = 1 + static_cast<std::uint32_t>(random() % 5),
                                                         .new_blocks = static_cast<std::uint32_t>(random() % 99)});
    model->learn(std::vector{seen(of, static_cast<std::uint32_t>(random() % 60), random() % 2 == 0)});
  }
  const auto other = *ReturnModel::create();
  ASSERT_TRUE(other->decode(model->encode()));
  EXPECT_EQ(other->encode(), model->encode());
  const auto again = *ReturnModel::create();
  ASSERT_TRUE(again->decode(other->encode()));
  for (std::uint32_t uses = 1; uses <= 5; ++uses) {
    for (std::uint32_t bucket = 0; bucket < ReturnModel::kBuckets; ++bucket) {
      const ReturnModel::Class of = ReturnModel::class_of({.uses = uses, .new_blocks = 20});
      EXPECT_EQ(again->worth(of, bucket), other->worth(of, bucket));
    }
  }
}

TEST(ReturnModelTest, RefusesWhatIsNotAModel) {
  const auto model = *ReturnModel::create();
  const ReturnModel::Class any = ReturnModel::class_of({.uses = 2});
  for (int i = 0; i < 500; ++i) {
    model->learn(std::vector{seen(any, 10, true)});
  }
  const std::vector<std::byte> whole = model->encode();
  EXPECT_FALSE(model->decode({}));
  std::mt19937 random(3);
  for (int i = 0; i < 2'000; ++i) {
    std::vector<std::byte> bytes = whole;
    switch (random() % 3) {
      case 0:
        bytes.resize(random() % bytes.size());
        break;
      case 1:
        bytes[random() % bytes.size()] ^= std::byte{static_cast<std::uint8_t>(1 + random() % 255)};
        break;
      default:
        bytes.resize(bytes.size() + 1 + random() % 1'000);
    }
    const Status decoded = model->decode(bytes);
    ASSERT_FALSE(decoded);
    EXPECT_NE(decoded.error().message.find("not a model of return times"), std::string::npos);
  }
  EXPECT_EQ(model->encode(), whole);  // nothing changed
}

TEST(SegmentGroupsTest, KeepsEachClassTogetherAndFindsTheLowest) {
  SegmentGroups groups = *SegmentGroups::create(100, 200);
  std::map<std::uint32_t, std::uint32_t> places;
  const auto place_of = [&places](std::uint32_t segment) -> std::uint32_t& { return places[segment]; };
  std::map<std::uint32_t, std::set<std::uint32_t>> expected;
  std::mt19937 random(5);
  std::map<std::uint32_t, std::uint32_t> class_of;
  for (int step = 0; step < 5'000; ++step) {
    const auto segment = static_cast<std::uint32_t>(random() % 100);
    if (class_of.contains(segment)) {
      groups.remove(segment, class_of[segment], place_of);
      expected[class_of[segment]].erase(segment);
      class_of.erase(segment);
    } else {
      constexpr std::uint32_t kUsed[] = {0, 5, 63, 64, 130, 199};
      class_of[segment] = kUsed[random() % std::size(kUsed)];
      groups.add(segment, class_of[segment], place_of);
      expected[class_of[segment]].insert(segment);
    }
    std::erase_if(expected, [](const auto& of_class) { return of_class.second.empty(); });
    std::uint32_t next = groups.next_class(0, 200);
    for (const auto& [eviction_class, segments] : expected) {
      ASSERT_EQ(next, eviction_class);
      const std::span<const std::uint32_t> members = groups.of_class(eviction_class);
      ASSERT_EQ(std::set<std::uint32_t>(members.begin(), members.end()), segments);
      next = groups.next_class(eviction_class + 1, 200);
    }
    ASSERT_EQ(next, 200U);
  }
}

// A cache of single blocks that are released at once.
class AdaptivePolicyTest : public ::testing::Test {
 protected:
  static constexpr std::uint32_t kBlocks = 200;

  bool use(std::uint64_t name, RequestEnding ending = RequestEnding::kUnknown) {
    fake_.advance(step_);
    const auto found = block_id_of_.find(name);
    const bool hit = found != block_id_of_.end();
    BlockId block_id{static_cast<std::uint32_t>(block_id_of_.size())};
    if (hit) {
      block_id = found->second;
      policy_->match({&block_id, 1}, {});
    } else {
      if (block_id_of_.size() == kBlocks) {
        block_id = policy_->evict({0, 1}, {});
        block_id_of_.erase(name_in_[index_of(block_id)]);
        fake_.drop(*policy_, block_id);
      }
      fake_.put(block_id, key(name));
      block_id_of_[name] = block_id;
      name_in_[index_of(block_id)] = name;
    }
    policy_->end({&block_id, 1}, ending);
    policy_->insert({&block_id, 1});
    return hit;
  }
  Duration step_ = std::chrono::seconds(1);
  FakeBlocks fake_{kBlocks};
  std::unique_ptr<EvictionPolicy> policy_ = fake_.make(PolicyKind::kAdaptive);
  std::map<std::uint64_t, BlockId> block_id_of_;
  std::vector<std::uint64_t> name_in_ = std::vector<std::uint64_t>(kBlocks);
};

TEST_F(AdaptivePolicyTest, IsNearLruAmongBlocksOfTheSameAge) {
  step_ = std::chrono::nanoseconds(1);
  for (std::uint64_t n = 0; n < 2 * kBlocks; ++n) {
    EXPECT_FALSE(use(n));
  }
  // The oldest of 64 picked at random is never of the newer half.
  for (std::uint64_t n = 2 * kBlocks; n > kBlocks * 3 / 2; --n) {
    EXPECT_TRUE(use(n - 1)) << n - 1;
  }
  EXPECT_FALSE(use(0));
}

TEST_F(AdaptivePolicyTest, HitsInALoopThatIsOneTooLong) {
  std::uint32_t hits = 0;
  for (std::uint64_t n = 0; n < std::uint64_t{40} * (kBlocks + 1); ++n) {
    hits += use(n % (kBlocks + 1)) ? 1 : 0;
  }
  EXPECT_GT(hits, 20 * kBlocks);  // LRU has none
}

TEST_F(AdaptivePolicyTest, KeepsWhatReturnsAfterAToolCall) {
  // Blocks come in pairs. The even one waits for a tool and returns after 50 requests; the odd one does not return.
  std::uint32_t hits = 0;
  for (std::uint64_t n = 0; n < 4'000; ++n) {
    use(2 * n, RequestEnding::kToolCall);
    use(2 * n + 1, RequestEnding::kEndOfTurn);
    hits += n >= 3'000 && use(2 * (n - 150), RequestEnding::kAbort) ? 1 : 0;
    if (n >= 150 && n < 3'000) {
      use(2 * (n - 150), RequestEnding::kAbort);
    }
  }
  // 150 of 200 blocks wait for a tool; without endings there are as many others.
  EXPECT_GT(hits, 800U);
}

TEST_F(AdaptivePolicyTest, ABlockFromAnotherPoolKeepsItsPast) {
  use(1);
  for (int i = 0; i < 5; ++i) {
    use(2);
  }
  const BlockId used = block_id_of_[2];
  const BlockPast past = policy_->past_of(used);
  EXPECT_EQ(past.uses, 5U);
  EXPECT_GT(past.last_use, policy_->past_of(block_id_of_[1]).last_use);

  FakeBlocks below(kBlocks);
  below.advance(std::chrono::hours(1));
  const std::unique_ptr<EvictionPolicy> lower = below.make(PolicyKind::kAdaptive);
  below.put(BlockId{0}, key(2));
  lower->adopt({&used, 0}, {});  // nothing
  const BlockId first{0};
  lower->adopt({&first, 1}, {&past, 1});
  lower->insert({&first, 1});
  EXPECT_EQ(lower->past_of(first), past);
  EXPECT_EQ(lower->evict({0, 1}, {}), first);
}

TEST_F(AdaptivePolicyTest, FollowsTheTrafficWhenItChanges) {
  for (std::uint64_t n = 0; n < std::uint64_t{40} * (kBlocks + 1); ++n) {
    use(n % (kBlocks + 1));
  }
  // The latest block is used once more, and then never again: only recency counts.
  std::uint32_t hits = 0;
  for (std::uint64_t n = 0; n < 40 * kBlocks; ++n) {
    use(1'000'000 + n);
    hits += n > 20 * kBlocks && use(1'000'000 + n - kBlocks / 2) ? 1 : 0;
  }
  EXPECT_GT(hits, 15 * kBlocks);
}

}  // namespace
}  // namespace cairn
