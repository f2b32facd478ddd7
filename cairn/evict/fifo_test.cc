// FIFO: a block's place is that of its first release, until it loses its key.
#include <gtest/gtest.h>

#include <memory>

#include "cairn/evict/fake_blocks_testing.h"

namespace cairn {
namespace {

class FifoTest : public ::testing::Test {
 protected:
  FifoTest() {
    for (std::uint32_t n = 0; n < fake_.capacity(); ++n) {
      fake_.put(BlockId{n}, root_key(n + 1));
    }
  }

  FakeBlocks fake_{6, 2};
  std::unique_ptr<EvictionPolicy> policy_ = fake_.make(PolicyKind::kFifo);
};

TEST_F(FifoTest, EvictsInTheOrderOfInsertion) {
  policy_->insert(block_ids({3, 0, 5}));
  policy_->insert(block_ids({1, 4}));
  EXPECT_EQ(evict_all(*policy_), block_ids({3, 0, 5, 1, 4}));
}

TEST_F(FifoTest, AHitChangesNothing) {
  policy_->insert(block_ids({0, 1, 2, 3}));
  policy_->remove(block_ids({1, 2, 0}));
  policy_->insert(block_ids({4, 2, 0, 1}));
  EXPECT_EQ(evict_all(*policy_), block_ids({0, 1, 2, 3, 4}));
}

TEST_F(FifoTest, ABlockEvictedButNotForgottenComesBackToItsPlace) {
  policy_->insert(block_ids({0, 1}));
  EXPECT_EQ(evict(*policy_, 1), block_ids({0}));
  policy_->insert(block_ids({2, 0}));
  EXPECT_EQ(evict_all(*policy_), block_ids({0, 1, 2}));
}

TEST_F(FifoTest, ForgettingGivesThePlaceUp) {
  policy_->insert(block_ids({0, 1, 2}));
  policy_->remove(block_ids({0}));
  fake_.drop(*policy_, BlockId{0});
  fake_.put(BlockId{0}, root_key(100));
  policy_->insert(block_ids({0}));
  EXPECT_EQ(evict_all(*policy_), block_ids({1, 2, 0}));
}

TEST_F(FifoTest, APlaceIsKeptIntoAnotherClass) {
  for (const std::uint32_t n : {1U, 2U, 3U}) {
    fake_.set_class(BlockId{n}, 1);
  }
  policy_->insert(block_ids({1, 0, 2, 3}));
  policy_->remove(block_ids({0}));
  fake_.set_class(BlockId{0}, 1);
  policy_->insert(block_ids({0}));
  EXPECT_EQ(evict_all(*policy_), block_ids({1, 0, 2, 3}));
}

#ifndef NDEBUG
using FifoDeathTest = FifoTest;

TEST_F(FifoDeathTest, AHeldBlockIsNotForgotten) {
  policy_->insert(block_ids({0}));
  EXPECT_DEATH(policy_->forget(BlockId{0}), "broken invariant");
}
#endif

}  // namespace
}  // namespace cairn
