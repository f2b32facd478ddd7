#include "cairn/evict/adaptive.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "cairn/evict/fake_slots.h"
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

TEST(ReuseHistoryTest, KeepsTheLatestThreeTimesTheSlots) {
  constexpr std::uint64_t kSlots = 50'000;
  ReuseHistory history = *ReuseHistory::create(kSlots);
  for (std::uint64_t n = 0; n < 20 * kSlots; ++n) {
    history.record(key(n), n, 1);
  }
  std::uint64_t kept = 0;
  for (std::uint64_t n = 17 * kSlots; n < 20 * kSlots; ++n) {
    kept += history.find(key(n), 20 * kSlots) ? 1 : 0;
  }
  EXPECT_GT(kept, 3 * kSlots * 8 / 10);
  std::uint64_t strangers = 0;
  for (std::uint64_t n = 100 * kSlots; n < 101 * kSlots; ++n) {
    strangers += history.find(key(n), 20 * kSlots) ? 1 : 0;
  }
  EXPECT_LT(strangers, kSlots / 500);
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
  EXPECT_GT(model.worth(2, 2'500), model.worth(2, 100));  // it is about to come
  EXPECT_GT(model.worth(2, 100), model.worth(1, 100));
  EXPECT_LT(model.worth(2, 8'000), model.worth(2, 100));  // it did not come
}

TEST(ShadowCacheTest, HitsWhatItsExpertWouldHaveKept) {
  const ReuseModel model(4);
  const auto lru = *ShadowCache::create({.expert = Expert::kLru, .slots = 2, .leaves_first = true});
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
  const auto arc = *ShadowCache::create({.expert = Expert::kArc, .slots = 4, .leaves_first = true});
  EXPECT_EQ(arc->once_share(), 0);
  std::uint64_t now = 0;
  for (std::uint64_t n = 0; n < 6; ++n) {
    arc->use(key(n), 1, model, ++now);
  }
  EXPECT_FALSE(arc->use(key(0), 2, model, ++now));  // it was used once when it went
  EXPECT_EQ(arc->once_share(), 0.25);
}

TEST(ShadowCacheTest, TakesLeavesFirst) {
  const ReuseModel model(4);
  const auto lru = *ShadowCache::create({.expert = Expert::kLru, .slots = 2, .leaves_first = true});
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
  static constexpr std::uint32_t kSlots = 200;

  bool use(std::uint64_t name) {
    const auto found = slot_of_.find(name);
    const bool hit = found != slot_of_.end();
    SlotId slot{static_cast<std::uint32_t>(slot_of_.size())};
    if (hit) {
      slot = found->second;
      policy_->remove({&slot, 1});
    } else {
      if (slot_of_.size() == kSlots) {
        slot = policy_->evict({0, 1}, {});
        slot_of_.erase(name_in_[index_of(slot)]);
        fake_.drop(*policy_, slot);
      }
      fake_.put(slot, key(name));
      slot_of_[name] = slot;
      name_in_[index_of(slot)] = name;
    }
    policy_->insert({&slot, 1});
    return hit;
  }
  [[nodiscard]] Expert leader() const { return dynamic_cast<const AdaptivePolicy&>(*policy_).leader(); }

  FakeSlots fake_{kSlots};
  std::unique_ptr<EvictionPolicy> policy_ = fake_.make(PolicyKind::kAdaptive);
  std::map<std::uint64_t, SlotId> slot_of_;
  std::vector<std::uint64_t> name_in_ = std::vector<std::uint64_t>(kSlots);
};

TEST_F(AdaptivePolicyTest, StartsAsLru) {
  for (std::uint64_t n = 0; n < 2 * kSlots; ++n) {
    EXPECT_FALSE(use(n));
  }
  EXPECT_EQ(leader(), Expert::kLru);
  EXPECT_TRUE(use(kSlots));
  EXPECT_FALSE(use(kSlots - 1));
}

TEST_F(AdaptivePolicyTest, HitsInALoopThatIsOneTooLong) {
  std::uint32_t hits = 0;
  for (std::uint64_t n = 0; n < std::uint64_t{40} * (kSlots + 1); ++n) {
    hits += use(n % (kSlots + 1)) ? 1 : 0;
  }
  EXPECT_NE(leader(), Expert::kLru);
  EXPECT_GT(hits, 20 * kSlots);  // LRU has none
}

TEST_F(AdaptivePolicyTest, FollowsTheTrafficWhenItChanges) {
  for (std::uint64_t n = 0; n < std::uint64_t{40} * (kSlots + 1); ++n) {
    use(n % (kSlots + 1));
  }
  // What was used last is used again, and then never: nothing but recency counts.
  std::uint32_t hits = 0;
  for (std::uint64_t n = 0; n < 40 * kSlots; ++n) {
    use(1'000'000 + n);
    hits += n > 20 * kSlots && use(1'000'000 + n - kSlots / 2) ? 1 : 0;
  }
  EXPECT_GT(hits, 15 * kSlots);
}

}  // namespace
}  // namespace cairn
