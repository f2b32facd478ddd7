// Broken invariants of one's own abort, with a message that names them.
#include <gtest/gtest.h>

#include "cairn/pool/key_index.h"
#include "cairn/pool/pool_testing.h"

namespace cairn::testing {
namespace {

constexpr const char* kHandleLeft = "every handle is gone before its pool is destroyed";

class BlockPoolDeathTest : public ::testing::Test {
 protected:
  BlockPoolDeathTest() { ::testing::FLAGS_gtest_death_test_style = "threadsafe"; }
  std::unique_ptr<BlockPool> pool_ = make_pool(2);
};

TEST_F(BlockPoolDeathTest, APoolDestroyedBeforeMutableBlocksAborts) {
  const MutableBlocks blocks = *pool_->allocate(1);
  EXPECT_DEATH(pool_.reset(), kHandleLeft);
}

TEST_F(BlockPoolDeathTest, APoolDestroyedBeforeCompleteBlocksAborts) {
  const CompleteBlocks blocks = completed(*pool_, chain(1, 1));
  EXPECT_DEATH(pool_.reset(), kHandleLeft);
}

TEST_F(BlockPoolDeathTest, APoolDestroyedBeforeImmutableBlocksAborts) {
  const ImmutableBlocks blocks = store(*pool_, chain(1, 1));
  EXPECT_DEATH(pool_.reset(), kHandleLeft);
}

TEST_F(BlockPoolDeathTest, APoolDestroyedBeforePinnedBlocksAborts) {
  const PinnedBlocks blocks = store(*pool_, chain(1, 1)).pin();
  EXPECT_DEATH(pool_.reset(), kHandleLeft);
}

TEST_F(BlockPoolDeathTest, APoolDestroyedBeforeQuarantinedBlocksAborts) {
  const QuarantinedBlocks blocks = (*pool_->allocate(1)).quarantine();
  EXPECT_DEATH(pool_.reset(), kHandleLeft);
}

TEST_F(BlockPoolDeathTest, TheValueOfAFailedAllocationAborts) {
  Result<MutableBlocks> blocks = pool_->allocate(3);
  EXPECT_DEATH((void)blocks->size(), "value\\(\\) of a failed Result");
}

TEST_F(BlockPoolDeathTest, ErasingWhatTheIndexDoesNotHoldAborts) {
  const Keys keys = chain(1, 1);
  KeyIndex index = *KeyIndex::create(1, Column<BlockKey>(keys.data(), sizeof(BlockKey)));
  EXPECT_DEATH(index.erase(SlotId{0}, index.place_of(keys[0])), "every registered slot is in the key index");
}

#ifdef CAIRN_CHECK_LOCK_RANKS
TEST_F(BlockPoolDeathTest, AMayEvictThatCallsThePoolAborts) {
  BlockPool* self = nullptr;
  const auto pool = make_pool(1, {.may_evict = [&self](SlotId, const BlockKey& key) { return self->contains(key); }});
  self = pool.get();
  cache(*pool, chain(1, 1));
  EXPECT_DEATH((void)pool->allocate(1), "rank 30 taken while rank 30 is held");
}
#endif

}  // namespace
}  // namespace cairn::testing
