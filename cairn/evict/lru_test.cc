// LRU: a block's place is that of its last release.
#include <gtest/gtest.h>

#include <memory>

#include "cairn/evict/fake_blocks_testing.h"

namespace cairn {
namespace {

class LruTest : public ::testing::Test {
 protected:
  LruTest() {
    for (std::uint32_t n = 0; n < fake_.capacity(); ++n) {
      fake_.put(BlockId{n}, root_key(n + 1));
    }
  }

  FakeBlocks fake_{6, 2};
  std::unique_ptr<EvictionPolicy> policy_ = fake_.make(PolicyKind::kLru);
};

TEST_F(LruTest, EvictsInTheOrderOfRelease) {
  policy_->insert(block_ids({3, 0, 5}));
  policy_->insert(block_ids({1, 4}));
  EXPECT_EQ(evict_all(*policy_), block_ids({3, 0, 5, 1, 4}));
}

TEST_F(LruTest, AHitMovesABlockToTheEnd) {
  policy_->insert(block_ids({0, 1, 2, 3}));
  policy_->remove(block_ids({1, 2, 0}));
  policy_->insert(block_ids({4, 2, 0, 1}));
  EXPECT_EQ(evict_all(*policy_), block_ids({3, 4, 2, 0, 1}));
}

TEST_F(LruTest, ABlockThatChangesClassIsTheLastOfItsNewOne) {
  for (const std::uint32_t n : {1U, 2U}) {
    fake_.set_class(BlockId{n}, 1);
  }
  policy_->insert(block_ids({0, 1, 2}));
  policy_->remove(block_ids({0}));
  fake_.set_class(BlockId{0}, 1);
  policy_->insert(block_ids({0}));
  EXPECT_EQ(evict_all(*policy_), block_ids({1, 2, 0}));
}

TEST_F(LruTest, ChainsAreNoConcernOfIt) {
  fake_.put(BlockId{1}, child_key(fake_.key_of(BlockId{0}), 2));
  policy_->insert(block_ids({0, 1}));
  EXPECT_EQ(evict_all(*policy_), block_ids({0, 1}));
}

TEST_F(LruTest, NeedsNoWayToFindParents) {
  PolicyView view = fake_.view();
  view.parents = nullptr;
  for (const PolicyKind kind : {PolicyKind::kLru, PolicyKind::kFifo}) {
    const std::unique_ptr<EvictionPolicy> policy = *make_policy(kind, view);
    policy->insert(block_ids({1, 0}));
    EXPECT_EQ(evict_all(*policy), block_ids({1, 0}));
  }
}

}  // namespace
}  // namespace cairn
