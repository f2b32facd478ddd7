// LRU: a block's place is that of its last release.
#include <gtest/gtest.h>

#include <memory>

#include "cairn/evict/fake_slots.h"

namespace cairn {
namespace {

class LruTest : public ::testing::Test {
 protected:
  LruTest() {
    for (std::uint32_t n = 0; n < fake_.capacity(); ++n) {
      fake_.put(SlotId{n}, root_key(n + 1));
    }
  }

  FakeSlots fake_{6, 2};
  std::unique_ptr<EvictionPolicy> policy_ = fake_.make(PolicyKind::kLru);
};

TEST_F(LruTest, EvictsInTheOrderOfRelease) {
  policy_->insert(slots({3, 0, 5}));
  policy_->insert(slots({1, 4}));
  EXPECT_EQ(evict_all(*policy_), slots({3, 0, 5, 1, 4}));
}

TEST_F(LruTest, AHitMovesABlockToTheEnd) {
  policy_->insert(slots({0, 1, 2, 3}));
  policy_->remove(slots({1, 2, 0}));
  policy_->insert(slots({4, 2, 0, 1}));
  EXPECT_EQ(evict_all(*policy_), slots({3, 4, 2, 0, 1}));
}

TEST_F(LruTest, ABlockThatChangesClassIsTheLastOfItsNewOne) {
  for (const std::uint32_t n : {1U, 2U}) {
    fake_.set_class(SlotId{n}, 1);
  }
  policy_->insert(slots({0, 1, 2}));
  policy_->remove(slots({0}));
  fake_.set_class(SlotId{0}, 1);
  policy_->insert(slots({0}));
  EXPECT_EQ(evict_all(*policy_), slots({1, 2, 0}));
}

TEST_F(LruTest, ChainsAreNoConcernOfIt) {
  fake_.put(SlotId{1}, child_key(fake_.key_of(SlotId{0}), 2));
  policy_->insert(slots({0, 1}));
  EXPECT_EQ(evict_all(*policy_), slots({0, 1}));
}

TEST_F(LruTest, NeedsNoWayToFindParents) {
  PolicyView view = fake_.view();
  view.parents = nullptr;
  for (const PolicyKind kind : {PolicyKind::kLru, PolicyKind::kFifo}) {
    const std::unique_ptr<EvictionPolicy> policy = *make_policy(kind, view);
    policy->insert(slots({1, 0}));
    EXPECT_EQ(evict_all(*policy), slots({1, 0}));
  }
}

}  // namespace
}  // namespace cairn
