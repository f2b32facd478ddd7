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

#include "cairn/evict/counting_new.h"
#include "cairn/evict/eviction_policy.h"
#include "cairn/evict/fake_slots.h"
#include "cairn/evict/watched_policy_test.h"

namespace cairn {
namespace {

std::vector<SlotId> sorted(std::vector<SlotId> slots) {
  std::ranges::sort(slots);
  return slots;
}

class PolicyConformanceTest : public ::testing::TestWithParam<Asked> {
 protected:
  static constexpr std::uint32_t kSlots = 300;
  static constexpr std::uint32_t kClasses = 202;

  PolicyConformanceTest() { put_roots(fake_); }

  static void put_roots(FakeSlots& fake) {
    for (std::uint32_t n = 0; n < fake.capacity(); ++n) {
      fake.put(SlotId{n}, root_key(n + 1));
    }
  }
  // Four slots each on both sides of every boundary between words of 64 classes.
  std::vector<SlotId> spread_over_classes() {
    constexpr std::uint32_t kUsed[] = {201, 0, 64, 127, 63, 128, 1, 192, 65, 191};
    std::vector<SlotId> all;
    for (std::uint32_t n = 0; n < 4 * std::size(kUsed); ++n) {
      fake_.set_class(SlotId{n}, kUsed[n % std::size(kUsed)]);
      all.push_back(SlotId{n});
    }
    return all;
  }
  // Chats that share prefixes: releases, hits, evictions and resets from a seed.
  static void churn(Watched& watched, FakeSlots& fake, std::uint32_t seed, std::uint32_t steps);

  FakeSlots fake_{kSlots, kClasses};
  std::unique_ptr<EvictionPolicy> policy_ = fake_.make(GetParam());
};

void PolicyConformanceTest::churn(Watched& watched, FakeSlots& fake, std::uint32_t seed, std::uint32_t steps) {
  std::mt19937 random(seed);
  const auto below = [&random](std::uint32_t limit) { return static_cast<std::uint32_t>(random() % limit); };
  const Veto veto = [](SlotId slot) { return index_of(slot) % 5 == 0; };
  const Veto none;
  for (std::uint32_t n = 0; n < fake.capacity(); ++n) {
    const SlotId parent{below(n + 1)};
    fake.put(SlotId{n}, index_of(parent) == n ? root_key(n + 1) : child_key(fake.key_of(parent), n + 1),
             below(fake.all_classes().last));
  }
  for (std::uint32_t step = 0; step < steps; ++step) {
    std::vector<SlotId> chosen;
    const bool held = below(3) == 0;
    for (std::uint32_t n = below(fake.capacity()), count = below(20); count > 0; --count, n = below(fake.capacity())) {
      if (watched.holds(SlotId{n}) == held && std::ranges::count(chosen, SlotId{n}) == 0) {
        chosen.push_back(SlotId{n});
      }
    }
    if (held) {
      watched.remove(chosen);
    } else {
      watched.insert(chosen);
    }
    for (std::uint32_t evictions = below(8); evictions > 0; --evictions) {
      const std::uint32_t first = below(fake.all_classes().last);
      const SlotId victim = watched.evict({below(2) * first, fake.all_classes().last}, below(2) == 0 ? veto : none);
      if (victim != kNoSlot && below(4) != 0) {
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
  EXPECT_FALSE(policy_->contains(SlotId{0}));
  EXPECT_FALSE(policy_->contains(SlotId{kSlots - 1}));
  EXPECT_EQ(policy_->evict(fake_.all_classes(), {}), kNoSlot);
  EXPECT_GT(policy_->bytes(), 0U);
}

TEST_P(PolicyConformanceTest, OfNoSlotsHasNothingToGive) {
  const FakeSlots none(0);
  const std::unique_ptr<EvictionPolicy> policy = none.make(GetParam());
  policy->insert({});
  policy->remove({});
  EXPECT_EQ(policy->size(), 0U);
  EXPECT_EQ(policy->evict({0, 1}, {}), kNoSlot);
}

TEST_P(PolicyConformanceTest, HoldsWhatWasInsertedAndNotRemoved) {
  policy_->insert(slots({7, 299, 0}));
  policy_->insert(slots({}));
  policy_->insert(slots({150}));
  EXPECT_EQ(policy_->size(), 4U);
  policy_->remove(slots({299, 7}));
  EXPECT_EQ(policy_->size(), 2U);
  for (std::uint32_t n = 0; n < kSlots; ++n) {
    EXPECT_EQ(policy_->contains(SlotId{n}), n == 0 || n == 150) << "slot " << n;
  }
}

TEST_P(PolicyConformanceTest, EvictsEachHeldSlotOnceAndThenNothing) {
  const std::vector<SlotId> held = slots({5, 299, 0, 17, 64, 63});
  policy_->insert(held);
  const std::vector<SlotId> victims = evict(*policy_, 6);
  EXPECT_EQ(sorted(victims), sorted(held));
  EXPECT_EQ(policy_->size(), 0U);
  EXPECT_FALSE(policy_->contains(SlotId{5}));
  EXPECT_EQ(policy_->evict(fake_.all_classes(), {}), kNoSlot);
}

TEST_P(PolicyConformanceTest, DoesNotEvictWhatWasRemoved) {
  policy_->insert(slots({0, 1, 2, 3, 4, 5, 6, 7}));
  policy_->remove(slots({0, 4, 7}));
  EXPECT_EQ(sorted(evict_all(*policy_)), slots({1, 2, 3, 5, 6}));
}

TEST_P(PolicyConformanceTest, TakesASlotBackAfterRemovalAndAfterEviction) {
  policy_->insert(slots({0, 1}));
  policy_->remove(slots({0}));
  policy_->insert(slots({0}));
  EXPECT_EQ(sorted(evict_all(*policy_)), slots({0, 1}));
  policy_->insert(slots({1, 0}));
  EXPECT_EQ(policy_->size(), 2U);
  EXPECT_EQ(sorted(evict_all(*policy_)), slots({0, 1}));
}

TEST_P(PolicyConformanceTest, EmptiesLowerClassesFirst) {
  const std::vector<SlotId> all = spread_over_classes();
  policy_->insert(all);
  const std::vector<SlotId> victims = evict_all(*policy_);
  EXPECT_EQ(sorted(victims), all);
  EXPECT_TRUE(std::ranges::is_sorted(victims, {}, [this](SlotId slot) { return fake_.class_of(slot); }));
}

TEST_P(PolicyConformanceTest, KeepsToTheRangeOfClasses) {
  const std::vector<SlotId> all = spread_over_classes();
  constexpr std::uint32_t kBounds[] = {0, 1, 2, 63, 64, 65, 66, 127, 128, 129, 191, 192, 193, 201, 202};
  for (const std::uint32_t first : kBounds) {
    for (const std::uint32_t last : kBounds) {
      policy_->insert(all);
      std::vector<SlotId> inside = all;
      std::erase_if(inside, [&](SlotId slot) { return fake_.class_of(slot) < first || fake_.class_of(slot) >= last; });
      EXPECT_EQ(sorted(evict_all(*policy_, {first, last})), inside) << first << " to " << last;
      EXPECT_EQ(policy_->size(), all.size() - inside.size());
      evict_all(*policy_);
    }
  }
}

TEST_P(PolicyConformanceTest, AClassThatChangedWhileTheSlotWasInUseCounts) {
  fake_.set_class(SlotId{0}, 70);
  policy_->insert(slots({0, 1}));
  policy_->remove(slots({0, 1}));
  fake_.set_class(SlotId{1}, 201);
  policy_->insert(slots({1, 0}));
  EXPECT_EQ(evict(*policy_, 1, {0, 70}), slots({}));
  EXPECT_EQ(evict_all(*policy_), slots({0, 1}));
}

TEST_P(PolicyConformanceTest, VetoedSlotsKeepTheirPlaces) {
  const std::vector<SlotId> all = spread_over_classes();
  const std::unique_ptr<EvictionPolicy> other = fake_.make(GetParam());
  for (EvictionPolicy* policy : {policy_.get(), other.get()}) {
    policy->insert(all);
    policy->remove(slots({20, 3, 11}));
    policy->insert(slots({11, 3, 20}));
  }
  const auto vetoed = [](SlotId slot) { return index_of(slot) % 3 == 0; };
  std::vector<SlotId> order = evict_all(*other);
  const auto kept = std::ranges::stable_partition(order, [&](SlotId slot) { return !vetoed(slot); });
  EXPECT_EQ(evict_all(*policy_, fake_.all_classes(), vetoed), std::vector<SlotId>(order.begin(), kept.begin()));
  EXPECT_EQ(policy_->size(), kept.size());
  EXPECT_EQ(evict_all(*policy_), std::vector<SlotId>(kept.begin(), kept.end()));
}

TEST_P(PolicyConformanceTest, WhereAllAreVetoedNothingIsGivenAndNothingChanges) {
  const std::vector<SlotId> all = spread_over_classes();
  const std::unique_ptr<EvictionPolicy> other = fake_.make(GetParam());
  policy_->insert(all);
  other->insert(all);
  EXPECT_EQ(policy_->evict(fake_.all_classes(), [](SlotId) { return true; }), kNoSlot);
  EXPECT_EQ(policy_->size(), all.size());
  EXPECT_TRUE(std::ranges::all_of(all, [this](SlotId slot) { return policy_->contains(slot); }));
  EXPECT_EQ(evict_all(*policy_), evict_all(*other));
}

TEST_P(PolicyConformanceTest, AVetoOnAWholeClassLeadsToTheNext) {
  const std::vector<SlotId> all = spread_over_classes();
  policy_->insert(all);
  const SlotId victim = policy_->evict(fake_.all_classes(), [this](SlotId slot) { return fake_.class_of(slot) < 64; });
  EXPECT_EQ(fake_.class_of(victim), 64U);
}

TEST_P(PolicyConformanceTest, AForgottenSlotIsAsGoodAsNew) {
  // A block with some history goes; the next one comes into the same slot here and into a fresh one there.
  const std::unique_ptr<EvictionPolicy> other = fake_.make(GetParam());
  for (EvictionPolicy* policy : {policy_.get(), other.get()}) {
    policy->insert(slots({0, 1, 2, 3, 4}));
    policy->remove(slots({2}));
    policy->insert(slots({2}));
    policy->remove(slots({2}));
  }
  other->forget(SlotId{2});
  fake_.drop(*policy_, SlotId{2});
  fake_.put(SlotId{2}, root_key(1'000));
  fake_.put(SlotId{5}, root_key(1'001));
  policy_->insert(slots({2, 6}));
  other->insert(slots({5, 6}));
  std::vector<SlotId> expected = evict_all(*other);
  std::ranges::replace(expected, SlotId{5}, SlotId{2});
  EXPECT_EQ(evict_all(*policy_), expected);
}

TEST_P(PolicyConformanceTest, ManyInOneCallAreThemOneByOne) {
  for (std::uint32_t n = 1; n < 40; ++n) {
    fake_.put(SlotId{n}, n % 7 == 0 ? root_key(n + 1) : child_key(fake_.key_of(SlotId{n - 1}), n + 1));
  }
  std::vector<SlotId> leaf_first;
  for (std::uint32_t n = 40; n > 0; --n) {
    leaf_first.push_back(SlotId{n - 1});
  }
  const auto some = std::span<const SlotId>(leaf_first).subspan(5, 25);
  const std::unique_ptr<EvictionPolicy> other = fake_.make(GetParam());
  policy_->insert(leaf_first);
  policy_->remove(some);
  policy_->insert(some);
  for (const SlotId slot : leaf_first) {
    other->insert({&slot, 1});
  }
  for (const SlotId slot : some) {
    other->remove({&slot, 1});
  }
  for (const SlotId slot : some) {
    other->insert({&slot, 1});
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
  const std::vector<SlotId> held = watched.held();
  EXPECT_EQ(sorted(evict_all(watched.policy())), held);
  EXPECT_GT(std::ranges::count_if(watched.victims(), [](SlotId slot) { return slot != kNoSlot; }), 1'000);
}

TEST_P(PolicyConformanceTest, ManyVictimsOfOneCallAreThemOneByOne) {
  for (std::uint32_t seed = 0; seed < 20; ++seed) {
    FakeSlots fake_single(60, 3);
    FakeSlots fake_batched(60, 3);
    Watched single(GetParam(), fake_single);
    Watched batched(GetParam(), fake_batched);
    churn(single, fake_single, seed, 30);
    churn(batched, fake_batched, seed, 30);
    const Veto veto = seed % 2 == 0 ? Veto{} : Veto{[](SlotId slot) { return index_of(slot) % 5 == 0; }};
    std::vector<SlotId> victims(7);
    while (!victims.empty()) {
      victims.resize(batched.policy().evict({0, 3}, veto, victims));
      for (const SlotId victim : victims) {
        ASSERT_EQ(victim, single.policy().evict({0, 3}, veto));
      }
    }
    ASSERT_EQ(single.policy().evict({0, 3}, veto), kNoSlot);
  }
}

TEST_P(PolicyConformanceTest, TakesAtMost64BytesASlot) {
  constexpr std::uint32_t kMany = 100'000;
  EXPECT_LE(FakeSlots(kMany).make(GetParam())->bytes(), 64U * kMany);
}

TEST_P(PolicyConformanceTest, UsesOfBlocksInUseChangeNoHoldings) {
  policy_->insert(slots({0, 1, 2, 3}));
  policy_->remove(slots({1, 2}));
  const std::vector<SlotId> used = slots({1, 2, 1});
  const std::uint64_t before = allocation_count();
  policy_->touch(used);
  EXPECT_EQ(allocation_count(), before);
  EXPECT_EQ(policy_->size(), 2U);
  policy_->insert(slots({2, 1}));
  EXPECT_EQ(sorted(evict_all(*policy_)), slots({0, 1, 2, 3}));
}

TEST_P(PolicyConformanceTest, LeavesGoFirstWhereAskedFor) {
  if (!GetParam().leaves_first) {
    return;
  }
  FakeSlots fake(120, 3);
  Watched watched(GetParam(), fake);
  churn(watched, fake, 7, 400);
  // What is left is all of the last churn; no victim may have a held block below it.
  for (std::vector<SlotId> held = watched.held(); !held.empty(); held = watched.held()) {
    const SlotId victim = watched.evict({0, 3}, {});
    ASSERT_NE(victim, kNoSlot);
    for (const SlotId other : held) {
      ASSERT_FALSE(fake.key_of(victim).is_parent_of(fake.key_of(other))) << index_of(victim) << " went first";
    }
  }
}

TEST_P(PolicyConformanceTest, KnowsWhatHangsBelowASlotWhereLeavesGoFirst) {
  const std::vector<SlotId> family = slots({0, 1});  // a parent and its child
  fake_.put(SlotId{0}, root_key(1000));
  fake_.put(SlotId{1}, child_key(root_key(1000), 1001));
  EXPECT_TRUE(policy_->leaves_first() || !GetParam().leaves_first);
  EXPECT_FALSE(policy_->holds_below(SlotId{0}));
  policy_->insert(slots({1, 0}));
  EXPECT_EQ(sorted(evict(*policy_, 2)), family);
  EXPECT_FALSE(policy_->holds_below(SlotId{0}));
  policy_->insert(slots({1}));  // wanted again before it was gone
  EXPECT_EQ(policy_->holds_below(SlotId{0}), policy_->leaves_first());
  EXPECT_FALSE(policy_->holds_below(SlotId{1}));
  policy_->insert(slots({0}));
  if (policy_->leaves_first()) {
    EXPECT_EQ(evict(*policy_, 2), slots({1, 0}));
  }
}

TEST_P(PolicyConformanceTest, TheSameCallsGiveTheSameVictims) {
  FakeSlots again(kSlots, kClasses);
  Watched one(GetParam(), fake_);
  Watched other(GetParam(), again);
  churn(one, fake_, 2, 1'000);
  churn(other, again, 2, 1'000);
  EXPECT_EQ(one.victims(), other.victims());
  EXPECT_EQ(evict_all(one.policy()), evict_all(other.policy()));
}

#ifndef NDEBUG
using PolicyConformanceDeathTest = PolicyConformanceTest;

TEST_P(PolicyConformanceDeathTest, AHeldSlotIsNotInserted) {
  policy_->insert(slots({1, 0}));
  EXPECT_DEATH(policy_->insert(slots({1})), "broken invariant");
}

TEST_P(PolicyConformanceDeathTest, ASlotThatIsNotHeldIsNotRemoved) {
  policy_->insert(slots({0}));
  EXPECT_DEATH(policy_->remove(slots({1})), "broken invariant");
}
#endif

INSTANTIATE_TEST_SUITE_P(All, PolicyConformanceTest, ::testing::ValuesIn(all_asked()), kAskedName);
#ifndef NDEBUG
INSTANTIATE_TEST_SUITE_P(All, PolicyConformanceDeathTest, ::testing::ValuesIn(all_asked()), kAskedName);
#endif

}  // namespace
}  // namespace cairn
