// What sets each of the segmented policies apart, by example; their whole behaviour is in policy_model_test.cc.
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>

#include "cairn/evict/eviction_policy.h"
#include "cairn/evict/fake_slots.h"

namespace cairn {
namespace {

class SegmentedPoliciesTest : public ::testing::Test {
 protected:
  SegmentedPoliciesTest() {
    for (std::uint32_t n = 0; n < fake_.capacity(); ++n) {
      fake_.put(SlotId{n}, root_key(n + 1));
    }
  }
  static void use_again(EvictionPolicy& policy, std::uint32_t slot) {
    policy.remove(slots({slot}));
    policy.insert(slots({slot}));
  }
  // The block goes, and another comes into its slot.
  void replace(EvictionPolicy& policy, SlotId slot, std::uint64_t hash) {
    fake_.drop(policy, slot);
    fake_.put(slot, root_key(hash));
  }

  FakeSlots fake_{20};
};

TEST_F(SegmentedPoliciesTest, AScanPassesBlocksThatWereUsedAgain) {
  for (const PolicyKind kind : {PolicyKind::kSlru, PolicyKind::kArc, PolicyKind::kS3Fifo, PolicyKind::kLfu}) {
    const std::unique_ptr<EvictionPolicy> policy = fake_.make(kind);
    policy->insert(slots({0, 1, 2}));
    use_again(*policy, 1);
    use_again(*policy, 1);
    policy->insert(slots({3, 4, 5, 6, 7}));
    const std::vector<SlotId> victims = evict_all(*policy);
    EXPECT_EQ(victims.back(), SlotId{1}) << to_string(kind);
    EXPECT_EQ(victims.size(), 8U);
  }
}

TEST_F(SegmentedPoliciesTest, ABlockThatComesBackIsKeptByThoseThatRemember) {
  for (const PolicyKind kind : {PolicyKind::kArc, PolicyKind::kS3Fifo}) {
    const std::unique_ptr<EvictionPolicy> policy = fake_.make(kind);
    policy->insert(slots({0, 1, 2, 3, 4, 5}));
    EXPECT_EQ(evict(*policy, 1), slots({0}));
    replace(*policy, SlotId{0}, 1);
    policy->insert(slots({0}));
    EXPECT_EQ(evict_all(*policy).back(), SlotId{0}) << to_string(kind);
  }
}

TEST_F(SegmentedPoliciesTest, UsesWhileInUseCountForThoseThatCountUses) {
  for (const PolicyKind kind : {PolicyKind::kLfu, PolicyKind::kMultiLru, PolicyKind::kS3Fifo}) {
    const std::unique_ptr<EvictionPolicy> policy = fake_.make(kind);
    policy->insert(slots({0}));
    policy->remove(slots({0}));
    policy->touch(slots({0, 0, 0}));
    policy->insert(slots({0, 1, 2, 3}));
    EXPECT_EQ(evict_all(*policy).back(), SlotId{0}) << to_string(kind);
  }
}

TEST_F(SegmentedPoliciesTest, UsesFadeUnderLfu) {
  const std::unique_ptr<EvictionPolicy> policy = fake_.make(PolicyKind::kLfu);
  policy->insert(slots({0}));
  use_again(*policy, 0);
  use_again(*policy, 0);
  std::uint64_t hash = 100;
  int rounds = 0;
  for (SlotId victim = SlotId{1}; victim != SlotId{0} && rounds < 100; ++rounds) {
    policy->insert(slots({1}));
    use_again(*policy, 1);
    victim = policy->evict({0, 1}, {});
    replace(*policy, victim, ++hash);
  }
  EXPECT_LT(rounds, 5);
}

TEST_F(SegmentedPoliciesTest, MoreClassesThanCanBeToldApartAreRefused) {
  const FakeSlots many(4, 40'000);
  EXPECT_FALSE(make_policy(PolicyKind::kArc, many.view()));
  EXPECT_TRUE(make_policy(PolicyKind::kLru, many.view()));
}

}  // namespace
}  // namespace cairn
