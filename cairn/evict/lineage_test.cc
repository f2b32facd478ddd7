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

#include "cairn/evict/fake_blocks_testing.h"

namespace cairn {
namespace {

// Block n has block id n; `parents[n]` is the block before it.
using Parents = std::vector<std::optional<std::uint32_t>>;

class LineageTest : public ::testing::Test {
 protected:
  void build(const Parents& parents, PolicyKind kind = PolicyKind::kLineageTick, std::uint32_t class_count = 1) {
    fake_ = std::make_unique<FakeBlocks>(static_cast<std::uint32_t>(parents.size()), class_count);
    for (std::uint32_t n = 0; n < parents.size(); ++n) {
      fake_->put(BlockId{n}, parents[n] ? child_key(fake_->key_of(BlockId{*parents[n]}), n + 1) : root_key(n + 1));
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

  void release(std::initializer_list<std::uint32_t> numbers) { policy_->insert(block_ids(numbers)); }
  void hit(std::initializer_list<std::uint32_t> numbers) { policy_->remove(block_ids(numbers)); }
  void drop(std::uint32_t number) { fake_->drop(*policy_, BlockId{number}); }
  // As for one allocation: all are chosen before the first is forgotten.
  std::vector<BlockId> allocate(std::uint32_t count) {
    const std::vector<BlockId> victims = evict(*policy_, count);
    for (const BlockId victim : victims) {
      fake_->drop(*policy_, victim);
    }
    return victims;
  }

  std::unique_ptr<FakeBlocks> fake_;
  std::unique_ptr<EvictionPolicy> policy_;
};

// 0 - 1 - 2 - 3 - 4, 1 - 5 - 6 and 2 - 7 - 8 - 9: two requests that share 0 and 1, then a third that reuses 0, 1, 2.
struct WorkedExample {
  PolicyKind kind;
  std::vector<BlockId> first;
};
class LineageWorkedExample : public LineageTest, public ::testing::WithParamInterface<WorkedExample> {};

TEST_P(LineageWorkedExample, EvictsInTheOrderOfTheRule) {
  build({{}, 0, 1, 2, 3, 1, 5, 2, 7, 8}, GetParam().kind);
  release({4, 3, 2});
  release({6, 5, 1, 0});
  hit({0, 1, 2});
  EXPECT_EQ(policy_->size(), 4);
  EXPECT_EQ(allocate(3), GetParam().first);
  EXPECT_EQ(allocate(1), block_ids({5}));
  EXPECT_EQ(allocate(1), block_ids({}));
}

INSTANTIATE_TEST_SUITE_P(Rules, LineageWorkedExample,
                         ::testing::Values(WorkedExample{PolicyKind::kLineageTick, block_ids({4, 3, 6})},
                                           WorkedExample{PolicyKind::kLineageFifo, block_ids({4, 6, 3})}),
                         [](const auto& param_info) {
                           return param_info.param.kind == PolicyKind::kLineageTick ? "Tick" : "Fifo";
                         });

TEST_F(LineageTest, EvictsTheLeavesOfAChainReleasedRootFirst) {
  for (const PolicyKind kind : {PolicyKind::kLineageTick, PolicyKind::kLineageFifo}) {
    build_chain(5, kind);
    release({0, 1, 2, 3, 4});
    EXPECT_EQ(allocate(3), block_ids({4, 3, 2}));
    EXPECT_EQ(allocate(1), block_ids({1}));
  }
}

TEST_F(LineageTest, UnlikeLru) {
  build_chain(5, PolicyKind::kLru);
  release({0, 1, 2, 3, 4});
  EXPECT_EQ(allocate(3), block_ids({0, 1, 2}));
  EXPECT_EQ(allocate(1), block_ids({3}));
}

TEST_F(LineageTest, AParentThatBecomesALeafKeepsItsTimeUnderTick) {
  build({{}, 0, {}, {}});
  release({2});
  release({0});  // before its child
  release({3});
  release({1});
  EXPECT_EQ(evict_all(*policy_), block_ids({2, 3, 1, 0}));

  release({0});
  release({1});
  release({2});
  hit({1});  // exposes 0, older than 2
  release({3});
  EXPECT_EQ(evict_all(*policy_), block_ids({0, 2, 3}));
}

TEST_F(LineageTest, AParentThatBecomesALeafGoesToTheEndUnderFifo) {
  build({{}, 0, {}, {}}, PolicyKind::kLineageFifo);
  release({0});
  release({1});
  release({2});
  hit({1});  // exposes 0 after 2
  release({3});
  EXPECT_EQ(evict_all(*policy_), block_ids({2, 0, 3}));
}

TEST_F(LineageTest, AReleasedParentIsNoLeafWhileAnEvictableChildHangsBelow) {
  build_chain(3);
  release({2});
  release({0, 1});
  EXPECT_EQ(evict(*policy_, 1, {0, 1}, [](BlockId block_id) { return block_id == BlockId{2}; }), block_ids({}));
  EXPECT_EQ(evict_all(*policy_), block_ids({2, 1, 0}));
}

TEST_F(LineageTest, AParentInUseIsAGhostInTheTree) {
  build_chain(3);
  release({2, 1, 0});
  hit({1});  // 0 still has 2 below it
  EXPECT_EQ(evict(*policy_, 1), block_ids({2}));
  EXPECT_EQ(evict(*policy_, 1), block_ids({0}));
}

TEST_F(LineageTest, SeveralGhostsInARowGiveWayTogether) {
  build_chain(6);
  release({5, 4, 3, 2, 1, 0});
  hit({1, 2, 3, 4});
  EXPECT_EQ(evict_all(*policy_), block_ids({5, 0}));
  release({4, 3, 2, 1});
  EXPECT_EQ(evict_all(*policy_), block_ids({4, 3, 2, 1}));
}

TEST_F(LineageTest, AGhostIsFilledWithItsNewTime) {
  build({{}, 0, {}});
  release({1, 0});
  hit({0});
  release({2});
  release({0});
  EXPECT_EQ(evict_all(*policy_), block_ids({1, 2, 0}));
}

TEST_F(LineageTest, ChildrenOfADroppedParentAreLeavesOnTheirOwn) {
  build_chain(4);
  release({3, 2, 1, 0});
  hit({2});
  drop(2);  // 3 waits for it; 1 has no child left
  EXPECT_EQ(evict(*policy_, 1, {0, 1}, [](BlockId block_id) { return block_id == BlockId{3}; }), block_ids({1}));
  EXPECT_EQ(evict_all(*policy_), block_ids({3, 0}));
}

TEST_F(LineageTest, AParentThatComesBackInAnotherBlockAdoptsItsChildren) {
  build({{}, 0, 1, 1, {}});
  const BlockKey middle = fake_->key_of(BlockId{1});
  release({2, 3, 1, 0});
  hit({1});
  drop(1);
  fake_->put(BlockId{4}, middle);
  EXPECT_EQ(evict(*policy_, 1, {0, 1}, [](BlockId block_id) { return block_id != BlockId{0}; }), block_ids({0}))
      << "a parent in use does not hold 0 back";
  release({0});
  release({4});
  EXPECT_EQ(evict_all(*policy_), block_ids({2, 3, 4, 0}));
}

TEST_F(LineageTest, AParentThatAppearsAfterItsChildrenAdoptsThem) {
  FakeBlocks fake(3);
  const BlockKey root = root_key(1);
  const std::unique_ptr<EvictionPolicy> policy = fake.make(PolicyKind::kLineageTick);
  fake.put(BlockId{0}, child_key(root, 2));
  fake.put(BlockId{1}, child_key(root, 3));
  policy->insert(block_ids({0, 1}));
  fake.put(BlockId{2}, root);
  policy->insert(block_ids({2}));
  EXPECT_EQ(evict(*policy, 1, {0, 1}, [](BlockId block_id) { return block_id != BlockId{2}; }), block_ids({}));
  EXPECT_EQ(evict_all(*policy), block_ids({0, 1, 2}));
}

TEST_F(LineageTest, AChainHoldsTogetherWhereKeysChangeTheirLayout) {
  for (const std::uint32_t first : {254U, 65534U, BlockKey::kMaxPosition - 3}) {
    FakeBlocks fake(4);
    BlockKey key = BlockKey::make_checked(first, SequenceHash{~std::uint64_t{0}}, SequenceHash{7});
    for (std::uint32_t n = 0; n < 4; ++n) {
      fake.put(BlockId{n}, key);
      key = n < 3 ? child_key(key, ~std::uint64_t{n + 1}) : key;
    }
    const std::unique_ptr<EvictionPolicy> policy = fake.make(PolicyKind::kLineageTick);
    policy->insert(block_ids({0, 1, 2, 3}));
    EXPECT_EQ(evict_all(*policy), block_ids({3, 2, 1, 0})) << "from position " << first;
  }
}

TEST_F(LineageTest, OrphansAreAdoptedWhereKeysChangeTheirLayout) {
  for (const std::uint32_t position : {0U, 254U, 255U, 65534U, 65535U, BlockKey::kMaxPosition - 1}) {
    FakeBlocks fake(1'000);  // many lists of orphans, so that the right list is not found by chance
    const BlockKey parent = BlockKey::make_checked(position, SequenceHash{~std::uint64_t{0}}, SequenceHash{7});
    const std::unique_ptr<EvictionPolicy> policy = fake.make(PolicyKind::kLineageTick);
    fake.put(BlockId{0}, child_key(parent, 1));
    policy->insert(block_ids({0}));
    fake.put(BlockId{1}, parent);
    policy->insert(block_ids({1}));
    EXPECT_EQ(evict_all(*policy, {0, 1}, [](BlockId block_id) { return block_id == BlockId{0}; }), block_ids({}))
        << "the parent at position " << position << " is a leaf";
    EXPECT_EQ(evict_all(*policy), block_ids({0, 1}));
  }
}

// Classes come before leaves only as far as the tree permits.
TEST_F(LineageTest, AParentOfALowerClassWaitsForItsChildren) {
  build({{}, 0, {}}, PolicyKind::kLineageTick, 3);
  fake_->set_class(BlockId{1}, 2);
  fake_->set_class(BlockId{2}, 1);
  release({1, 0, 2});
  EXPECT_EQ(evict(*policy_, 1, {0, 1}), block_ids({})) << "the only block of the class has a child of another";
  EXPECT_EQ(evict_all(*policy_), block_ids({2, 1, 0}));
}

TEST_F(LineageTest, AVetoedLeafKeepsItsAncestors) {
  build({{}, 0, 1, {}});
  release({2, 1, 0, 3});
  const Veto not_the_leaf = [](BlockId block_id) { return block_id == BlockId{2}; };
  EXPECT_EQ(evict_all(*policy_, {0, 1}, not_the_leaf), block_ids({3}));
  EXPECT_EQ(evict_all(*policy_), block_ids({2, 1, 0}));
}

RC_GTEST_PROP(LineageProperty, NoBlockIsEvictedBeforeAChildOfIts, ()) {
  const auto kind = *rc::gen::element(PolicyKind::kLineageTick, PolicyKind::kLineageFifo);
  const auto links = *rc::gen::nonEmpty<std::vector<std::uint32_t>>();
  const auto count = static_cast<std::uint32_t>(links.size());
  FakeBlocks fake(count);
  for (std::uint32_t n = 0; n < count; ++n) {
    const std::uint32_t parent = links[n] % (n + 1);
    fake.put(BlockId{n}, parent == n ? root_key(n + 1) : child_key(fake.key_of(BlockId{parent}), n + 1));
  }
  std::vector<BlockId> order;
  for (std::uint32_t n = 0; n < count; ++n) {
    order.insert(order.begin() + *rc::gen::inRange<std::ptrdiff_t>(0, n + 1), BlockId{n});
  }
  const std::unique_ptr<EvictionPolicy> policy = fake.make(kind);
  policy->insert(order);
  for (std::uint32_t evicted = 0; evicted < count; ++evicted) {
    const BlockId victim = policy->evict(fake.all_classes(), {});
    RC_ASSERT(victim != kNoBlock);
    for (const BlockId other : order) {
      RC_ASSERT(!policy->contains(other) || !fake.key_of(victim).is_parent_of(fake.key_of(other)));
    }
  }
  RC_ASSERT(policy->size() == 0U);
}

// Two blocks that a child cannot distinguish: same position, and sequence hashes equal in the 38 bits a key keeps.
RC_GTEST_PROP(LineageProperty, EveryBlockIsEvictedOnceAlthoughFragmentsCollide, ()) {
  constexpr std::uint32_t kFirst = 1U << 16;
  constexpr std::uint32_t kLevels = 4;
  constexpr std::uint32_t kTwins = 3;
  FakeBlocks fake(kLevels * kTwins);
  for (std::uint32_t n = 0; n < fake.capacity(); ++n) {
    const std::uint64_t level = n / kTwins;
    const std::uint64_t high_bits = std::uint64_t{n % kTwins} << BlockKey::kMinFragmentBits;
    fake.put(BlockId{n}, BlockKey::make_checked(kFirst + static_cast<std::uint32_t>(level),
                                                SequenceHash{high_bits | (level + 1)}, SequenceHash{level}));
  }
  RC_ASSERT(fake.key_of(BlockId{0}) != fake.key_of(BlockId{1}));
  RC_ASSERT(fake.key_of(BlockId{0}).is_parent_of(fake.key_of(BlockId{kTwins})));
  RC_ASSERT(fake.key_of(BlockId{1}).is_parent_of(fake.key_of(BlockId{kTwins})));

  const auto kind = *rc::gen::element(PolicyKind::kLineageTick, PolicyKind::kLineageFifo);
  const std::unique_ptr<EvictionPolicy> policy = fake.make(kind);
  const auto steps = *rc::gen::scale(2.0, rc::gen::container<std::vector<std::pair<bool, std::uint32_t>>>(rc::gen::pair(
                                              rc::gen::arbitrary<bool>(), rc::gen::inRange(0U, fake.capacity()))));
  for (const auto& [forget, number] : steps) {
    const BlockId block_id{number};
    if (!policy->contains(block_id)) {
      policy->insert({&block_id, 1});
      continue;
    }
    policy->remove({&block_id, 1});
    if (forget) {
      const BlockKey key = fake.key_of(block_id);
      fake.drop(*policy, block_id);
      fake.put(block_id, key);
    }
  }
  std::vector<BlockId> held;
  for (std::uint32_t n = 0; n < fake.capacity(); ++n) {
    if (policy->contains(BlockId{n})) {
      held.push_back(BlockId{n});
    }
  }
  std::vector<BlockId> victims = evict_all(*policy);
  std::ranges::sort(victims);
  RC_ASSERT(victims == held);
}

TEST(LineageDeathTest, NeedsAWayToFindParents) {
  const FakeBlocks fake(1);
  PolicyView view = fake.view();
  view.parents = nullptr;
  EXPECT_DEATH(static_cast<void>(make_policy(PolicyKind::kLineageTick, view)), "needs a ParentFinder");
}

TEST(LineagePolicyTest, RefusesMoreBlocksThanItCanOrder) {
  FakeBlocks fake(1);
  PolicyView view = fake.view();
  view.capacity = LineageForest::kMaxBlocks + 1;
  const auto policy = make_policy(PolicyKind::kLineageFifo, view);
  ASSERT_FALSE(policy.has_value());
  EXPECT_EQ(policy.error().code, ErrorCode::kInvalidArgument);
}

#ifndef NDEBUG
TEST(LineageDeathTest, AHeldBlockIsNotForgotten) {
  FakeBlocks fake(1);
  fake.put(BlockId{0}, root_key(1));
  const std::unique_ptr<EvictionPolicy> policy = fake.make(PolicyKind::kLineageTick);
  policy->insert(block_ids({0}));
  EXPECT_DEATH(policy->forget(BlockId{0}), "broken invariant");
}
#endif

}  // namespace
}  // namespace cairn
