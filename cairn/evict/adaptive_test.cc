#include "cairn/evict/adaptive.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "cairn/evict/fake_blocks_testing.h"
#include "cairn/evict/reuse_history.h"
#include "cairn/evict/reuse_model.h"
#include "cairn/evict/shadow_cache.h"

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

TEST(ShadowCacheTest, HitsWhatItsExpertWouldHaveKept) {
  const ReuseModel model(4);
  const auto lru = *ShadowCache::create({.expert = Expert::kLru, .blocks = 2, .leaves_first = true});
  std::uint64_t now = 0;
  EXPECT_FALSE(lru->use(key(1), 1, model, ++now));
  EXPECT_FALSE(lru->use(key(2), 1, model, ++now));
  EXPECT_TRUE(lru->use(key(1), 2, model, ++now));
  EXPECT_FALSE(lru->use(key(3), 1, model, ++now));  // in place of 2
  EXPECT_TRUE(lru->use(key(1), 3, model, ++now));
  EXPECT_FALSE(lru->use(key(2), 2, model, ++now));
}

TEST(ShadowCacheTest, GivesMoreRoomToThePartThatLostWhatComesBack) {
  const ReuseModel model(4);
  const auto arc = *ShadowCache::create({.expert = Expert::kArc, .blocks = 4, .leaves_first = true});
  EXPECT_EQ(arc->once_share(), 0);
  std::uint64_t now = 0;
  for (std::uint64_t n = 0; n < 6; ++n) {
    arc->use(key(n), 1, model, ++now);
  }
  EXPECT_FALSE(arc->use(key(0), 2, model, ++now));  // it had been used once when it was evicted
  EXPECT_EQ(arc->once_share(), 0.25);
}

TEST(ShadowCacheTest, TakesLeavesFirst) {
  const ReuseModel model(4);
  const auto lru = *ShadowCache::create({.expert = Expert::kLru, .blocks = 2, .leaves_first = true});
  const BlockKey parent = key(1);
  const BlockKey child = child_key(parent, 77);
  lru->use(parent, 1, model, 1);
  lru->use(child, 1, model, 2);
  lru->use(key(2), 1, model, 3);
  EXPECT_TRUE(lru->use(parent, 2, model, 4));
  EXPECT_FALSE(lru->use(child, 2, model, 5));
}

// A cache of single blocks that are released at once.
class AdaptivePolicyTest : public ::testing::Test {
 protected:
  static constexpr std::uint32_t kBlocks = 200;

  bool use(std::uint64_t name) {
    const auto found = block_id_of_.find(name);
    const bool hit = found != block_id_of_.end();
    BlockId block_id{static_cast<std::uint32_t>(block_id_of_.size())};
    if (hit) {
      block_id = found->second;
      policy_->remove({&block_id, 1});
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
    policy_->insert({&block_id, 1});
    return hit;
  }
  [[nodiscard]] Expert leader() const { return dynamic_cast<const AdaptivePolicy&>(*policy_).leader(); }

  FakeBlocks fake_{kBlocks};
  std::unique_ptr<EvictionPolicy> policy_ = fake_.make(PolicyKind::kAdaptive);
  std::map<std::uint64_t, BlockId> block_id_of_;
  std::vector<std::uint64_t> name_in_ = std::vector<std::uint64_t>(kBlocks);
};

TEST_F(AdaptivePolicyTest, StartsAsLru) {
  for (std::uint64_t n = 0; n < 2 * kBlocks; ++n) {
    EXPECT_FALSE(use(n));
  }
  EXPECT_EQ(leader(), Expert::kLru);
  EXPECT_TRUE(use(kBlocks));
  EXPECT_FALSE(use(kBlocks - 1));
}

TEST_F(AdaptivePolicyTest, HitsInALoopThatIsOneTooLong) {
  std::uint32_t hits = 0;
  for (std::uint64_t n = 0; n < std::uint64_t{40} * (kBlocks + 1); ++n) {
    hits += use(n % (kBlocks + 1)) ? 1 : 0;
  }
  EXPECT_NE(leader(), Expert::kLru);
  EXPECT_GT(hits, 20 * kBlocks);  // LRU has none
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
