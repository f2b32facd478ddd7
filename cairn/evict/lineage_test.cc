// What the lineage policy promises beyond the conformance suite: leaves first, by either rule.
#include "cairn/evict/lineage.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "cairn/evict/fake_slots.h"

namespace cairn {
namespace {

// Block n lies in slot n; `parents[n]` is the block before it.
using Parents = std::vector<std::optional<std::uint32_t>>;

class LineageTest : public ::testing::Test {
 protected:
  void build(const Parents& parents, PolicyKind kind = PolicyKind::kLineageTick, std::uint32_t class_count = 1) {
    fake_ = std::make_unique<FakeSlots>(static_cast<std::uint32_t>(parents.size()), class_count);
    for (std::uint32_t n = 0; n < parents.size(); ++n) {
      fake_->put(SlotId{n}, parents[n] ? child_key(fake_->key_of(SlotId{*parents[n]}), n + 1) : root_key(n + 1));
    }
    policy_ = fake_->make(kind);
  }
  void build_chain(std::uint32_t length, PolicyKind kind = PolicyKind::kLineageTick) {
    Parents parents(length);
    for (std::uint32_t n = 1; n < length; ++n) {
      parents[n] = n - 1;
    }
    build(parents, kind);
  }

  void release(std::initializer_list<std::uint32_t> numbers) { policy_->insert(slots(numbers)); }
  void hit(std::initializer_list<std::uint32_t> numbers) { policy_->remove(slots(numbers)); }
  void drop(std::uint32_t number) { fake_->drop(*policy_, SlotId{number}); }
  // As for one allocation: all are chosen before the first is forgotten.
  std::vector<SlotId> allocate(std::uint32_t count) {
    const std::vector<SlotId> victims = evict(*policy_, count);
    for (const SlotId victim : victims) {
      fake_->drop(*policy_, victim);
    }
    return victims;
  }

  std::unique_ptr<FakeSlots> fake_;
  std::unique_ptr<EvictionPolicy> policy_;
};

// 0 - 1 - 2 - 3 - 4, 1 - 5 - 6 and 2 - 7 - 8 - 9: two requests that share 0 and 1, then a third that reuses 0, 1, 2.
struct WorkedExample {
  PolicyKind kind;
  std::vector<SlotId> first;
};
class LineageWorkedExample : public LineageTest, public ::testing::WithParamInterface<WorkedExample> {};

TEST_P(LineageWorkedExample, EvictsInTheOrderOfTheRule) {
  build({{}, 0, 1, 2, 3, 1, 5, 2, 7, 8}, GetParam().kind);
  release({4, 3, 2});
  release({6, 5, 1, 0});
  hit({0, 1, 2});
  EXPECT_EQ(policy_->size(), 4);
  EXPECT_EQ(allocate(3), GetParam().first);
  EXPECT_EQ(allocate(1), slots({5}));
  EXPECT_EQ(allocate(1), slots({}));
}

INSTANTIATE_TEST_SUITE_P(Rules, LineageWorkedExample,
                         ::testing::Values(WorkedExample{PolicyKind::kLineageTick, slots({4, 3, 6})},
                                           WorkedExample{PolicyKind::kLineageFifo, slots({4, 6, 3})}),
                         [](const auto& param_info) {
                           return param_info.param.kind == PolicyKind::kLineageTick ? "Tick" : "Fifo";
                         });

TEST_F(LineageTest, EvictsTheLeavesOfAChainReleasedRootFirst) {
  for (const PolicyKind kind : {PolicyKind::kLineageTick, PolicyKind::kLineageFifo}) {
    build_chain(5, kind);
    release({0, 1, 2, 3, 4});
    EXPECT_EQ(allocate(3), slots({4, 3, 2}));
    EXPECT_EQ(allocate(1), slots({1}));
  }
}

TEST_F(LineageTest, UnlikeLru) {
  build_chain(5, PolicyKind::kLru);
  release({0, 1, 2, 3, 4});
  EXPECT_EQ(allocate(3), slots({0, 1, 2}));
  EXPECT_EQ(allocate(1), slots({3}));
}

TEST_F(LineageTest, AParentThatBecomesALeafKeepsItsTimeUnderTick) {
  build({{}, 0, {}, {}});
  release({2});
  release({0});  // before its child
  release({3});
  release({1});
  EXPECT_EQ(evict_all(*policy_), slots({2, 3, 1, 0}));

  release({0});
  release({1});
  release({2});
  hit({1});  // exposes 0, older than 2
  release({3});
  EXPECT_EQ(evict_all(*policy_), slots({0, 2, 3}));
}

TEST_F(LineageTest, AParentThatBecomesALeafGoesToTheEndUnderFifo) {
  build({{}, 0, {}, {}}, PolicyKind::kLineageFifo);
  release({0});
  release({1});
  release({2});
  hit({1});  // exposes 0 after 2
  release({3});
  EXPECT_EQ(evict_all(*policy_), slots({2, 0, 3}));
}

TEST_F(LineageTest, AReleasedParentIsNoLeafWhileAnEvictableChildHangsBelow) {
  build_chain(3);
  release({2});
  release({0, 1});
  EXPECT_EQ(evict(*policy_, 1, {0, 1}, [](SlotId slot) { return slot == SlotId{2}; }), slots({}));
  EXPECT_EQ(evict_all(*policy_), slots({2, 1, 0}));
}

TEST_F(LineageTest, AParentInUseStandsInTheTreeAsAGhost) {
  build_chain(3);
  release({2, 1, 0});
  hit({1});  // 0 still has 2 below it
  EXPECT_EQ(evict(*policy_, 1), slots({2}));
  EXPECT_EQ(evict(*policy_, 1), slots({0}));
}

TEST_F(LineageTest, SeveralGhostsInARowGiveWayTogether) {
  build_chain(6);
  release({5, 4, 3, 2, 1, 0});
  hit({1, 2, 3, 4});
  EXPECT_EQ(evict_all(*policy_), slots({5, 0}));
  release({4, 3, 2, 1});
  EXPECT_EQ(evict_all(*policy_), slots({4, 3, 2, 1}));
}

TEST_F(LineageTest, AGhostIsFilledWithItsNewTime) {
  build({{}, 0, {}});
  release({1, 0});
  hit({0});
  release({2});
  release({0});
  EXPECT_EQ(evict_all(*policy_), slots({1, 2, 0}));
}

TEST_F(LineageTest, ChildrenOfADroppedParentAreLeavesOnTheirOwn) {
  build_chain(4);
  release({3, 2, 1, 0});
  hit({2});
  drop(2);  // 3 waits for it; 1 has nothing below it any more
  EXPECT_EQ(evict(*policy_, 1, {0, 1}, [](SlotId slot) { return slot == SlotId{3}; }), slots({1}));
  EXPECT_EQ(evict_all(*policy_), slots({3, 0}));
}

TEST_F(LineageTest, AParentThatComesBackInAnotherSlotAdoptsItsChildren) {
  build({{}, 0, 1, 1, {}});
  const BlockKey middle = fake_->key_of(SlotId{1});
  release({2, 3, 1, 0});
  hit({1});
  drop(1);
  fake_->put(SlotId{4}, middle);
  EXPECT_EQ(evict(*policy_, 1, {0, 1}, [](SlotId slot) { return slot != SlotId{0}; }), slots({0}))
      << "a parent in use does not hold 0 back";
  release({0});
  release({4});
  EXPECT_EQ(evict_all(*policy_), slots({2, 3, 4, 0}));
}

TEST_F(LineageTest, AParentThatAppearsAfterItsChildrenAdoptsThem) {
  FakeSlots fake(3);
  const BlockKey root = root_key(1);
  const std::unique_ptr<EvictionPolicy> policy = fake.make(PolicyKind::kLineageTick);
  fake.put(SlotId{0}, child_key(root, 2));
  fake.put(SlotId{1}, child_key(root, 3));
  policy->insert(slots({0, 1}));
  fake.put(SlotId{2}, root);
  policy->insert(slots({2}));
  EXPECT_EQ(evict(*policy, 1, {0, 1}, [](SlotId slot) { return slot != SlotId{2}; }), slots({}));
  EXPECT_EQ(evict_all(*policy), slots({0, 1, 2}));
}

TEST_F(LineageTest, AChainHoldsTogetherWhereKeysChangeTheirLayout) {
  for (const std::uint32_t first : {254U, 65534U, BlockKey::kMaxPosition - 3}) {
    FakeSlots fake(4);
    BlockKey key = BlockKey::make_checked(first, SequenceHash{~std::uint64_t{0}}, SequenceHash{7});
    for (std::uint32_t n = 0; n < 4; ++n) {
      fake.put(SlotId{n}, key);
      key = n < 3 ? child_key(key, ~std::uint64_t{n + 1}) : key;
    }
    const std::unique_ptr<EvictionPolicy> policy = fake.make(PolicyKind::kLineageTick);
    policy->insert(slots({0, 1, 2, 3}));
    EXPECT_EQ(evict_all(*policy), slots({3, 2, 1, 0})) << "from position " << first;
  }
}

TEST_F(LineageTest, OrphansAreAdoptedWhereKeysChangeTheirLayout) {
  for (const std::uint32_t position : {0U, 254U, 255U, 65534U, 65535U, BlockKey::kMaxPosition - 1}) {
    FakeSlots fake(1'000);  // many lists of orphans, so that the right one is not found by chance
    const BlockKey parent = BlockKey::make_checked(position, SequenceHash{~std::uint64_t{0}}, SequenceHash{7});
    const std::unique_ptr<EvictionPolicy> policy = fake.make(PolicyKind::kLineageTick);
    fake.put(SlotId{0}, child_key(parent, 1));
    policy->insert(slots({0}));
    fake.put(SlotId{1}, parent);
    policy->insert(slots({1}));
    EXPECT_EQ(evict_all(*policy, {0, 1}, [](SlotId slot) { return slot == SlotId{0}; }), slots({}))
        << "the parent at position " << position << " is a leaf";
    EXPECT_EQ(evict_all(*policy), slots({0, 1}));
  }
}

// Classes come before leaves only as far as the tree permits.
TEST_F(LineageTest, AParentOfALowerClassWaitsForItsChildren) {
  build({{}, 0, {}}, PolicyKind::kLineageTick, 3);
  fake_->set_class(SlotId{1}, 2);
  fake_->set_class(SlotId{2}, 1);
  release({1, 0, 2});
  EXPECT_EQ(evict(*policy_, 1, {0, 1}), slots({})) << "the only block of the class has a child of another";
  EXPECT_EQ(evict_all(*policy_), slots({2, 1, 0}));
}

TEST_F(LineageTest, AVetoedLeafKeepsItsAncestors) {
  build({{}, 0, 1, {}});
  release({2, 1, 0, 3});
  const Veto not_the_leaf = [](SlotId slot) { return slot == SlotId{2}; };
  EXPECT_EQ(evict_all(*policy_, {0, 1}, not_the_leaf), slots({3}));
  EXPECT_EQ(evict_all(*policy_), slots({2, 1, 0}));
}

RC_GTEST_PROP(LineageProperty, NoBlockIsEvictedBeforeAChildOfIts, ()) {
  const auto kind = *rc::gen::element(PolicyKind::kLineageTick, PolicyKind::kLineageFifo);
  const auto links = *rc::gen::nonEmpty<std::vector<std::uint32_t>>();
  const auto count = static_cast<std::uint32_t>(links.size());
  FakeSlots fake(count);
  for (std::uint32_t n = 0; n < count; ++n) {
    const std::uint32_t parent = links[n] % (n + 1);
    fake.put(SlotId{n}, parent == n ? root_key(n + 1) : child_key(fake.key_of(SlotId{parent}), n + 1));
  }
  std::vector<SlotId> order;
  for (std::uint32_t n = 0; n < count; ++n) {
    order.insert(order.begin() + *rc::gen::inRange<std::ptrdiff_t>(0, n + 1), SlotId{n});
  }
  const std::unique_ptr<EvictionPolicy> policy = fake.make(kind);
  policy->insert(order);
  for (std::uint32_t evicted = 0; evicted < count; ++evicted) {
    const SlotId victim = policy->evict(fake.all_classes(), {});
    RC_ASSERT(victim != kNoSlot);
    for (const SlotId other : order) {
      RC_ASSERT(!policy->contains(other) || !fake.key_of(victim).is_parent_of(fake.key_of(other)));
    }
  }
  RC_ASSERT(policy->size() == 0U);
}

// Two blocks that a child cannot tell apart: same position, and sequence hashes equal in the 38 bits a key keeps.
RC_GTEST_PROP(LineageProperty, EverySlotIsEvictedOnceAlthoughFragmentsCollide, ()) {
  constexpr std::uint32_t kFirst = 1U << 16;
  constexpr std::uint32_t kLevels = 4;
  constexpr std::uint32_t kTwins = 3;
  FakeSlots fake(kLevels * kTwins);
  for (std::uint32_t n = 0; n < fake.capacity(); ++n) {
    const std::uint64_t level = n / kTwins;
    const std::uint64_t high_bits = std::uint64_t{n % kTwins} << BlockKey::kMinFragmentBits;
    fake.put(SlotId{n}, BlockKey::make_checked(kFirst + static_cast<std::uint32_t>(level),
                                               SequenceHash{high_bits | (level + 1)}, SequenceHash{level}));
  }
  RC_ASSERT(fake.key_of(SlotId{0}) != fake.key_of(SlotId{1}));
  RC_ASSERT(fake.key_of(SlotId{0}).is_parent_of(fake.key_of(SlotId{kTwins})));
  RC_ASSERT(fake.key_of(SlotId{1}).is_parent_of(fake.key_of(SlotId{kTwins})));

  const auto kind = *rc::gen::element(PolicyKind::kLineageTick, PolicyKind::kLineageFifo);
  const std::unique_ptr<EvictionPolicy> policy = fake.make(kind);
  const auto steps = *rc::gen::scale(2.0, rc::gen::container<std::vector<std::pair<bool, std::uint32_t>>>(rc::gen::pair(
                                              rc::gen::arbitrary<bool>(), rc::gen::inRange(0U, fake.capacity()))));
  for (const auto& [forget, number] : steps) {
    const SlotId slot{number};
    if (!policy->contains(slot)) {
      policy->insert({&slot, 1});
      continue;
    }
    policy->remove({&slot, 1});
    if (forget) {
      const BlockKey key = fake.key_of(slot);
      fake.drop(*policy, slot);
      fake.put(slot, key);
    }
  }
  std::vector<SlotId> held;
  for (std::uint32_t n = 0; n < fake.capacity(); ++n) {
    if (policy->contains(SlotId{n})) {
      held.push_back(SlotId{n});
    }
  }
  std::vector<SlotId> victims = evict_all(*policy);
  std::ranges::sort(victims);
  RC_ASSERT(victims == held);
}

TEST(LineageDeathTest, NeedsAWayToFindParents) {
  const FakeSlots fake(1);
  PolicyView view = fake.view();
  view.parents = nullptr;
  EXPECT_DEATH(static_cast<void>(make_policy(PolicyKind::kLineageTick, view)), "a way to find parents");
}

TEST(LineagePolicyTest, RefusesMoreSlotsThanItCanOrder) {
  FakeSlots fake(1);
  PolicyView view = fake.view();
  view.capacity = LineageForest::kMaxSlots + 1;
  const auto policy = make_policy(PolicyKind::kLineageFifo, view);
  ASSERT_FALSE(policy.has_value());
  EXPECT_EQ(policy.error().code, ErrorCode::kInvalidArgument);
}

#ifndef NDEBUG
TEST(LineageDeathTest, AHeldSlotIsNotForgotten) {
  FakeSlots fake(1);
  fake.put(SlotId{0}, root_key(1));
  const std::unique_ptr<EvictionPolicy> policy = fake.make(PolicyKind::kLineageTick);
  policy->insert(slots({0}));
  EXPECT_DEATH(policy->forget(SlotId{0}), "broken invariant");
}
#endif

}  // namespace
}  // namespace cairn
