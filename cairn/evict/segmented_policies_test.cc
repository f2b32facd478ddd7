// How the segmented policies differ, by example; policy_model_test.cc tests their whole behaviour.
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>

#include "cairn/evict/eviction_policy.h"
#include "cairn/evict/fake_blocks_testing.h"

namespace cairn {
namespace {

class SegmentedPoliciesTest : public ::testing::Test {
 protected:
  SegmentedPoliciesTest() {
    for (std::uint32_t n = 0; n < fake_.capacity(); ++n) {
      fake_.put(BlockId{n}, root_key(n + 1));
    }
  }
  static void use_again(EvictionPolicy& policy, std::uint32_t block_id) {
    policy.remove(block_ids({block_id}));
    policy.insert(block_ids({block_id}));
  }
  // The block is evicted, and another takes its block id.
  void replace(EvictionPolicy& policy, BlockId block_id, std::uint64_t hash) {
    fake_.drop(policy, block_id);
    fake_.put(block_id, root_key(hash));
  }

  FakeBlocks fake_{20};
};

TEST_F(SegmentedPoliciesTest, AScanPassesBlocksThatWereUsedAgain) {
  for (const PolicyKind kind : {PolicyKind::kSlru, PolicyKind::kArc, PolicyKind::kS3Fifo, PolicyKind::kLfu}) {
    const std::unique_ptr<EvictionPolicy> policy = fake_.make(kind);
    policy->insert(block_ids({0, 1, 2}));
    use_again(*policy, 1);
    use_again(*policy, 1);
    policy->insert(block_ids({3, 4, 5, 6, 7}));
    const std::vector<BlockId> victims = evict_all(*policy);
    EXPECT_EQ(victims.back(), BlockId{1}) << to_string(kind);
    EXPECT_EQ(victims.size(), 8U);
  }
}

TEST_F(SegmentedPoliciesTest, ABlockThatComesBackIsKeptByThoseThatRemember) {
  for (const PolicyKind kind : {PolicyKind::kArc, PolicyKind::kS3Fifo}) {
    const std::unique_ptr<EvictionPolicy> policy = fake_.make(kind);
    policy->insert(block_ids({0, 1, 2, 3, 4, 5}));
    EXPECT_EQ(evict(*policy, 1), block_ids({0}));
    replace(*policy, BlockId{0}, 1);
    policy->insert(block_ids({0}));
    EXPECT_EQ(evict_all(*policy).back(), BlockId{0}) << to_string(kind);
  }
}

TEST_F(SegmentedPoliciesTest, UsesWhileInUseCountForThoseThatCountUses) {
  for (const PolicyKind kind : {PolicyKind::kLfu, PolicyKind::kMultiLru, PolicyKind::kS3Fifo}) {
    const std::unique_ptr<EvictionPolicy> policy = fake_.make(kind);
    policy->insert(block_ids({0}));
    policy->remove(block_ids({0}));
    policy->match({}, block_ids({0, 0, 0}));
    policy->insert(block_ids({0, 1, 2, 3}));
    EXPECT_EQ(evict_all(*policy).back(), BlockId{0}) << to_string(kind);
  }
}

TEST_F(SegmentedPoliciesTest, UsesFadeUnderLfu) {
  const std::unique_ptr<EvictionPolicy> policy = fake_.make(PolicyKind::kLfu);
  policy->insert(block_ids({0}));
  use_again(*policy, 0);
  use_again(*policy, 0);
  std::uint64_t hash = 100;
  int rounds = 0;
  for (BlockId victim = BlockId{1}; victim != BlockId{0} && rounds < 100; ++rounds) {
    policy->insert(block_ids({1}));
    use_again(*policy, 1);
    victim = policy->evict({0, 1}, {});
    replace(*policy, victim, ++hash);
  }
  EXPECT_LT(rounds, 5);
}

TEST_F(SegmentedPoliciesTest, MoreClassesThanCanBeDistinguishedAreRefused) {
  const FakeBlocks many(4, 40'000);
  EXPECT_FALSE(make_policy(PolicyKind::kArc, many.view()));
  EXPECT_TRUE(make_policy(PolicyKind::kLru, many.view()));
}

}  // namespace
}  // namespace cairn
