// FIFO: a block's place is that of its first release, whatever happens to it until its key is gone.
#include <gtest/gtest.h>

#include <memory>

#include "cairn/evict/fake_slots.h"

namespace cairn {
namespace {

class FifoTest : public ::testing::Test {
 protected:
  FifoTest() {
    for (std::uint32_t n = 0; n < fake_.capacity(); ++n) {
      fake_.put(SlotId{n}, root_key(n + 1));
    }
  }

  FakeSlots fake_{6, 2};
  std::unique_ptr<EvictionPolicy> policy_ = fake_.make(PolicyKind::kFifo);
};

TEST_F(FifoTest, EvictsInTheOrderOfInsertion) {
  policy_->insert(slots({3, 0, 5}));
  policy_->insert(slots({1, 4}));
  EXPECT_EQ(evict_all(*policy_), slots({3, 0, 5, 1, 4}));
}

TEST_F(FifoTest, AHitChangesNothing) {
  policy_->insert(slots({0, 1, 2, 3}));
  policy_->remove(slots({1, 2, 0}));
  policy_->insert(slots({4, 2, 0, 1}));
  EXPECT_EQ(evict_all(*policy_), slots({0, 1, 2, 3, 4}));
}

TEST_F(FifoTest, ABlockEvictedButNotForgottenComesBackToItsPlace) {
  policy_->insert(slots({0, 1}));
  EXPECT_EQ(evict(*policy_, 1), slots({0}));
  policy_->insert(slots({2, 0}));
  EXPECT_EQ(evict_all(*policy_), slots({0, 1, 2}));
}

TEST_F(FifoTest, ForgettingGivesThePlaceUp) {
  policy_->insert(slots({0, 1, 2}));
  policy_->remove(slots({0}));
  fake_.drop(*policy_, SlotId{0});
  fake_.put(SlotId{0}, root_key(100));
  policy_->insert(slots({0}));
  EXPECT_EQ(evict_all(*policy_), slots({1, 2, 0}));
}

TEST_F(FifoTest, APlaceIsKeptIntoAnotherClass) {
  for (const std::uint32_t n : {1U, 2U, 3U}) {
    fake_.set_class(SlotId{n}, 1);
  }
  policy_->insert(slots({1, 0, 2, 3}));
  policy_->remove(slots({0}));
  fake_.set_class(SlotId{0}, 1);
  policy_->insert(slots({0}));
  EXPECT_EQ(evict_all(*policy_), slots({1, 0, 2, 3}));
}

#ifndef NDEBUG
using FifoDeathTest = FifoTest;

TEST_F(FifoDeathTest, AHeldSlotIsNotForgotten) {
  policy_->insert(slots({0}));
  EXPECT_DEATH(policy_->forget(SlotId{0}), "broken invariant");
}
#endif

}  // namespace
}  // namespace cairn
