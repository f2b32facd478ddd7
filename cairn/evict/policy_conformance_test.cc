// What every eviction policy owes its pool, whatever its order. A new policy joins by its line in kAllPolicies.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cairn/evict/counting_new_testing.h"
#include "cairn/evict/eviction_policy.h"
#include "cairn/evict/fake_blocks_testing.h"
#include "cairn/evict/watched_policy_testing.h"

namespace cairn {
namespace {

std::vector<BlockId> sorted(std::vector<BlockId> block_ids) {
  std::ranges::sort(block_ids);
  return block_ids;
}

class PolicyConformanceTest : public ::testing::TestWithParam<Asked> {
 protected:
  static constexpr std::uint32_t kBlocks = 300;
  static constexpr std::uint32_t kClasses = 202;

  PolicyConformanceTest() { put_roots(fake_); }

  static void put_roots(FakeBlocks& fake) {
    for (std::uint32_t n = 0; n < fake.capacity(); ++n) {
      fake.put(BlockId{n}, root_key(n + 1));
    }
  }
  // Four blocks each on both sides of every boundary between words of 64 classes.
  std::vector<BlockId> spread_over_classes() {
    constexpr std::uint32_t kUsed[] = {201, 0, 64, 127, 63, 128, 1, 192, 65, 191};
    std::vector<BlockId> all;
    for (std::uint32_t n = 0; n < 4 * std::size(kUsed); ++n) {
      fake_.set_class(BlockId{n}, kUsed[n % std::size(kUsed)]);
      all.push_back(BlockId{n});
    }
    return all;
  }
  // Chats that share prefixes: releases, hits, evictions and resets from a seed.
  static void churn(Watched& watched, FakeBlocks& fake, std::uint32_t seed, std::uint32_t steps);

  FakeBlocks fake_{kBlocks, kClasses};
  std::unique_ptr<EvictionPolicy> policy_ = fake_.make(GetParam());
};

void PolicyConformanceTest::churn(Watched& watched, FakeBlocks& fake, std::uint32_t seed, std::uint32_t steps) {
  std::mt19937 random(seed);
  const auto below = [&random](std::uint32_t limit) { return static_cast<std::uint32_t>(random() % limit); };
  const Veto veto = [](BlockId block_id) { return index_of(block_id) % 5 == 0; };
  const Veto none;
  for (std::uint32_t n = 0; n < fake.capacity(); ++n) {
    const BlockId parent{below(n + 1)};
    fake.put(BlockId{n}, index_of(parent) == n ? root_key(n + 1) : child_key(fake.key_of(parent), n + 1),
             below(fake.all_classes().last));
  }
  for (std::uint32_t step = 0; step < steps; ++step) {
    std::vector<BlockId> chosen;
    const bool held = below(3) == 0;
    for (std::uint32_t n = below(fake.capacity()), count = below(20); count > 0; --count, n = below(fake.capacity())) {
      if (watched.holds(BlockId{n}) == held && std::ranges::count(chosen, BlockId{n}) == 0) {
        chosen.push_back(BlockId{n});
      }
    }
    if (held) {
      watched.remove(chosen);
    } else {
      watched.insert(chosen);
    }
    for (std::uint32_t evictions = below(8); evictions > 0; --evictions) {
      const std::uint32_t first = below(fake.all_classes().last);
      const BlockId victim = watched.evict({below(2) * first, fake.all_classes().last}, below(2) == 0 ? veto : none);
      if (victim != kNoBlock && below(4) != 0) {
        const BlockKey key = fake.key_of(victim);
        fake.drop(watched, victim);
        fake.put(victim, key, below(fake.all_classes().last));
      }
    }
  }
}

TEST_P(PolicyConformanceTest, HasANameThatParsesBack) {
  EXPECT_EQ(parse_policy(to_string(GetParam().kind)), GetParam().kind);
  EXPECT_EQ(parse_policy(std::string(to_string(GetParam().kind)) + "?"), std::nullopt);
}

TEST_P(PolicyConformanceTest, StartsEmpty) {
  EXPECT_EQ(policy_->size(), 0U);
  EXPECT_FALSE(policy_->contains(BlockId{0}));
  EXPECT_FALSE(policy_->contains(BlockId{kBlocks - 1}));
  EXPECT_EQ(policy_->evict(fake_.all_classes(), {}), kNoBlock);
  EXPECT_GT(policy_->bytes(), 0U);
}

TEST_P(PolicyConformanceTest, OfNoBlocksHasNothingToGive) {
  const FakeBlocks none(0);
  const std::unique_ptr<EvictionPolicy> policy = none.make(GetParam());
  policy->insert({});
  policy->remove({});
  EXPECT_EQ(policy->size(), 0U);
  EXPECT_EQ(policy->evict({0, 1}, {}), kNoBlock);
}

TEST_P(PolicyConformanceTest, HoldsWhatWasInsertedAndNotRemoved) {
  policy_->insert(block_ids({7, 299, 0}));
  policy_->insert(block_ids({}));
  policy_->insert(block_ids({150}));
  EXPECT_EQ(policy_->size(), 4U);
  policy_->remove(block_ids({299, 7}));
  EXPECT_EQ(policy_->size(), 2U);
  for (std::uint32_t n = 0; n < kBlocks; ++n) {
    EXPECT_EQ(policy_->contains(BlockId{n}), n == 0 || n == 150) << "block " << n;
  }
}

TEST_P(PolicyConformanceTest, EvictsEachHeldBlockOnceAndThenNothing) {
  const std::vector<BlockId> held = block_ids({5, 299, 0, 17, 64, 63});
  policy_->insert(held);
  const std::vector<BlockId> victims = evict(*policy_, 6);
  EXPECT_EQ(sorted(victims), sorted(held));
  EXPECT_EQ(policy_->size(), 0U);
  EXPECT_FALSE(policy_->contains(BlockId{5}));
  EXPECT_EQ(policy_->evict(fake_.all_classes(), {}), kNoBlock);
}

TEST_P(PolicyConformanceTest, DoesNotEvictWhatWasRemoved) {
  policy_->insert(block_ids({0, 1, 2, 3, 4, 5, 6, 7}));
  policy_->remove(block_ids({0, 4, 7}));
  EXPECT_EQ(sorted(evict_all(*policy_)), block_ids({1, 2, 3, 5, 6}));
}

TEST_P(PolicyConformanceTest, TakesABlockBackAfterRemovalAndAfterEviction) {
  policy_->insert(block_ids({0, 1}));
  policy_->remove(block_ids({0}));
  policy_->insert(block_ids({0}));
  EXPECT_EQ(sorted(evict_all(*policy_)), block_ids({0, 1}));
  policy_->insert(block_ids({1, 0}));
  EXPECT_EQ(policy_->size(), 2U);
  EXPECT_EQ(sorted(evict_all(*policy_)), block_ids({0, 1}));
}

TEST_P(PolicyConformanceTest, EmptiesLowerClassesFirst) {
  const std::vector<BlockId> all = spread_over_classes();
  policy_->insert(all);
  const std::vector<BlockId> victims = evict_all(*policy_);
  EXPECT_EQ(sorted(victims), all);
  EXPECT_TRUE(std::ranges::is_sorted(victims, {}, [this](BlockId block_id) { return fake_.class_of(block_id); }));
}

TEST_P(PolicyConformanceTest, KeepsToTheRangeOfClasses) {
  const std::vector<BlockId> all = spread_over_classes();
  constexpr std::uint32_t kBounds[] = {0, 1, 2, 63, 64, 65, 66, 127, 128, 129, 191, 192, 193, 201, 202};
  for (const std::uint32_t first : kBounds) {
    for (const std::uint32_t last : kBounds) {
      policy_->insert(all);
      std::vector<BlockId> inside = all;
      std::erase_if(inside, [&](BlockId block_id) {
        return fake_.class_of(block_id) < first || fake_.class_of(block_id) >= last;
      });
      EXPECT_EQ(sorted(evict_all(*policy_, {first, last})), inside) << first << " to " << last;
      EXPECT_EQ(policy_->size(), all.size() - inside.size());
      evict_all(*policy_);
    }
  }
}

TEST_P(PolicyConformanceTest, AClassThatChangedWhileTheBlockWasInUseCounts) {
  fake_.set_class(BlockId{0}, 70);
  policy_->insert(block_ids({0, 1}));
  policy_->remove(block_ids({0, 1}));
  fake_.set_class(BlockId{1}, 201);
  policy_->insert(block_ids({1, 0}));
  EXPECT_EQ(evict(*policy_, 1, {0, 70}), block_ids({}));
  EXPECT_EQ(evict_all(*policy_), block_ids({0, 1}));
}

TEST_P(PolicyConformanceTest, VetoedBlocksKeepTheirPlaces) {
  const std::vector<BlockId> all = spread_over_classes();
  const std::unique_ptr<EvictionPolicy> other = fake_.make(GetParam());
  for (EvictionPolicy* policy : {policy_.get(), other.get()}) {
    policy->insert(all);
    policy->remove(block_ids({20, 3, 11}));
    policy->insert(block_ids({11, 3, 20}));
  }
  const auto vetoed = [](BlockId block_id) { return index_of(block_id) % 3 == 0; };
  std::vector<BlockId> order = evict_all(*other);
  const auto kept = std::ranges::stable_partition(order, [&](BlockId block_id) { return !vetoed(block_id); });
  EXPECT_EQ(evict_all(*policy_, fake_.all_classes(), vetoed), std::vector<BlockId>(order.begin(), kept.begin()));
  EXPECT_EQ(policy_->size(), kept.size());
  EXPECT_EQ(evict_all(*policy_), std::vector<BlockId>(kept.begin(), kept.end()));
}

TEST_P(PolicyConformanceTest, WhereAllAreVetoedNothingIsGivenAndNothingChanges) {
  const std::vector<BlockId> all = spread_over_classes();
  const std::unique_ptr<EvictionPolicy> other = fake_.make(GetParam());
  policy_->insert(all);
  other->insert(all);
  EXPECT_EQ(policy_->evict(fake_.all_classes(), [](BlockId) { return true; }), kNoBlock);
  EXPECT_EQ(policy_->size(), all.size());
  EXPECT_TRUE(std::ranges::all_of(all, [this](BlockId block_id) { return policy_->contains(block_id); }));
  EXPECT_EQ(evict_all(*policy_), evict_all(*other));
}

TEST_P(PolicyConformanceTest, AVetoOnAWholeClassLeadsToTheNext) {
  const std::vector<BlockId> all = spread_over_classes();
  policy_->insert(all);
  const BlockId victim =
      policy_->evict(fake_.all_classes(), [this](BlockId block_id) { return fake_.class_of(block_id) < 64; });
  EXPECT_EQ(fake_.class_of(victim), 64U);
}

TEST_P(PolicyConformanceTest, AForgottenBlockIsAsGoodAsNew) {
  // A block with some history is evicted; the next block gets the same block id here and a new one there.
  const std::unique_ptr<EvictionPolicy> other = fake_.make(GetParam());
  for (EvictionPolicy* policy : {policy_.get(), other.get()}) {
    policy->insert(block_ids({0, 1, 2, 3, 4}));
    policy->remove(block_ids({2}));
    policy->insert(block_ids({2}));
    policy->remove(block_ids({2}));
  }
  other->forget(BlockId{2});
  fake_.drop(*policy_, BlockId{2});
  fake_.put(BlockId{2}, root_key(1'000));
  fake_.put(BlockId{5}, root_key(1'001));
  policy_->insert(block_ids({2, 6}));
  other->insert(block_ids({5, 6}));
  std::vector<BlockId> expected = evict_all(*other);
  std::ranges::replace(expected, BlockId{5}, BlockId{2});
  EXPECT_EQ(evict_all(*policy_), expected);
}

TEST_P(PolicyConformanceTest, ManyInOneCallAreThemOneByOne) {
  for (std::uint32_t n = 1; n < 40; ++n) {
    fake_.put(BlockId{n}, n % 7 == 0 ? root_key(n + 1) : child_key(fake_.key_of(BlockId{n - 1}), n + 1));
  }
  std::vector<BlockId> leaf_first;
  for (std::uint32_t n = 40; n > 0; --n) {
    leaf_first.push_back(BlockId{n - 1});
  }
  const auto some = std::span<const BlockId>(leaf_first).subspan(5, 25);
  const std::unique_ptr<EvictionPolicy> other = fake_.make(GetParam());
  policy_->insert(leaf_first);
  policy_->remove(some);
  policy_->insert(some);
  for (const BlockId block_id : leaf_first) {
    other->insert({&block_id, 1});
  }
  for (const BlockId block_id : some) {
    other->remove({&block_id, 1});
  }
  for (const BlockId block_id : some) {
    other->insert({&block_id, 1});
  }
  EXPECT_EQ(evict_all(*policy_), evict_all(*other));
}

TEST(CountingNewTest, SeesAllocations) {
  const std::uint64_t before = allocation_count();
  ::operator delete(::operator new(8));
  EXPECT_EQ(allocation_count(), before + 1);
}

TEST_P(PolicyConformanceTest, HoldsToItsContractThroughChurnAndAllocatesNothing) {
  Watched watched(GetParam(), fake_);
  churn(watched, fake_, 1, 3'000);
  const std::vector<BlockId> held = watched.held();
  EXPECT_EQ(sorted(evict_all(watched.policy())), held);
  EXPECT_GT(std::ranges::count_if(watched.victims(), [](BlockId block_id) { return block_id != kNoBlock; }), 1'000);
}

TEST_P(PolicyConformanceTest, ManyVictimsOfOneCallAreThemOneByOne) {
  for (std::uint32_t seed = 0; seed < 20; ++seed) {
    FakeBlocks fake_single(60, 3);
    FakeBlocks fake_batched(60, 3);
    Watched single(GetParam(), fake_single);
    Watched batched(GetParam(), fake_batched);
    churn(single, fake_single, seed, 30);
    churn(batched, fake_batched, seed, 30);
    const Veto veto = seed % 2 == 0 ? Veto{} : Veto{[](BlockId block_id) { return index_of(block_id) % 5 == 0; }};
    std::vector<BlockId> victims(7);
    while (!victims.empty()) {
      victims.resize(batched.policy().evict({0, 3}, veto, victims));
      for (const BlockId victim : victims) {
        ASSERT_EQ(victim, single.policy().evict({0, 3}, veto));
      }
    }
    ASSERT_EQ(single.policy().evict({0, 3}, veto), kNoBlock);
  }
}

TEST_P(PolicyConformanceTest, TakesAtMost64BytesABlock) {
  constexpr std::uint32_t kMany = 100'000;
  // kAdaptive has room for a segment of each block, and its model.
  const std::size_t most = GetParam().kind == PolicyKind::kAdaptive ? 71U * kMany + 1'000'000U : 64U * kMany;
  EXPECT_LE(FakeBlocks(kMany).make(GetParam())->bytes(), most);
}

TEST_P(PolicyConformanceTest, UsesOfBlocksInUseChangeNoHoldings) {
  policy_->insert(block_ids({0, 1, 2, 3}));
  policy_->remove(block_ids({1, 2}));
  const std::vector<BlockId> used = block_ids({1, 2, 1});
  const std::uint64_t before = allocation_count();
  policy_->match({}, used);
  EXPECT_EQ(allocation_count(), before);
  EXPECT_EQ(policy_->size(), 2U);
  policy_->insert(block_ids({2, 1}));
  EXPECT_EQ(sorted(evict_all(*policy_)), block_ids({0, 1, 2, 3}));
}

TEST_P(PolicyConformanceTest, LeavesAreEvictedFirstIfConfigured) {
  if (!GetParam().leaves_first) {
    return;
  }
  FakeBlocks fake(120, 3);
  Watched watched(GetParam(), fake);
  churn(watched, fake, 7, 400);
  // The remaining blocks are those of the last churn; no victim may have a held block below it.
  for (std::vector<BlockId> held = watched.held(); !held.empty(); held = watched.held()) {
    const BlockId victim = watched.evict({0, 3}, {});
    ASSERT_NE(victim, kNoBlock);
    for (const BlockId other : held) {
      ASSERT_FALSE(fake.key_of(victim).is_parent_of(fake.key_of(other))) << index_of(victim) << " went first";
    }
  }
}

TEST_P(PolicyConformanceTest, KnowsWhatHangsBelowABlockWhereLeavesGoFirst) {
  const std::vector<BlockId> family = block_ids({0, 1});  // a parent and its child
  fake_.put(BlockId{0}, root_key(1000));
  fake_.put(BlockId{1}, child_key(root_key(1000), 1001));
  EXPECT_TRUE(policy_->leaves_first() || !GetParam().leaves_first);
  EXPECT_FALSE(policy_->holds_below(BlockId{0}));
  policy_->insert(block_ids({1, 0}));
  EXPECT_EQ(sorted(evict(*policy_, 2)), family);
  EXPECT_FALSE(policy_->holds_below(BlockId{0}));
  policy_->insert(block_ids({1}));  // used again before it was forgotten
  EXPECT_EQ(policy_->holds_below(BlockId{0}), policy_->leaves_first());
  EXPECT_FALSE(policy_->holds_below(BlockId{1}));
  policy_->insert(block_ids({0}));
  if (policy_->leaves_first()) {
    EXPECT_EQ(evict(*policy_, 2), block_ids({1, 0}));
  }
}

TEST_P(PolicyConformanceTest, TheSameCallsGiveTheSameVictims) {
  FakeBlocks again(kBlocks, kClasses);
  Watched one(GetParam(), fake_);
  Watched other(GetParam(), again);
  churn(one, fake_, 2, 1'000);
  churn(other, again, 2, 1'000);
  EXPECT_EQ(one.victims(), other.victims());
  EXPECT_EQ(evict_all(one.policy()), evict_all(other.policy()));
}

#ifndef NDEBUG
using PolicyConformanceDeathTest = PolicyConformanceTest;

TEST_P(PolicyConformanceDeathTest, AHeldBlockIsNotInserted) {
  policy_->insert(block_ids({1, 0}));
  EXPECT_DEATH(policy_->insert(block_ids({1})), "broken invariant");
}

TEST_P(PolicyConformanceDeathTest, ABlockThatIsNotHeldIsNotRemoved) {
  policy_->insert(block_ids({0}));
  EXPECT_DEATH(policy_->remove(block_ids({1})), "broken invariant");
}
#endif

INSTANTIATE_TEST_SUITE_P(All, PolicyConformanceTest, ::testing::ValuesIn(all_asked()), kAskedName);
#ifndef NDEBUG
INSTANTIATE_TEST_SUITE_P(All, PolicyConformanceDeathTest, ::testing::ValuesIn(all_asked()), kAskedName);
#endif

}  // namespace
}  // namespace cairn
