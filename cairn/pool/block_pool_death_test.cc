// Broken invariants abort, with a message that names them.
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
  EXPECT_DEATH(index.erase(BlockId{0}), "every registered block is in the key index");
}

TEST_F(BlockPoolDeathTest, APoolDestroyedBeforeWeakBlocksAborts) {
  std::optional<WeakBlocks> weak = store(*pool_, chain(1, 1)).downgrade();
  const WeakBlocks copy = *weak;
  weak.reset();
  EXPECT_DEATH(pool_.reset(), "every WeakBlocks is gone before its pool is destroyed");
}

TEST_F(BlockPoolDeathTest, TheKeyOfABlockThatTheRunDoesNotHaveAborts) {
  cache(*pool_, chain(1, 1));
  const ImmutableBlocks blocks = store(*pool_, chain(2, 1));
  EXPECT_DEATH((void)blocks.key(1), "key\\(i\\) needs a block that the run has");
  EXPECT_DEATH((void)blocks.pin().key(7), "key\\(i\\) needs");
  EXPECT_DEATH((void)ImmutableBlocks().key(0), "key\\(i\\) needs");
  EXPECT_DEATH((void)completed(*pool_, chain(3, 1)).key(1), "key\\(i\\) needs");
}

// An observer that calls the pool that notifies it.
class CallsItsPool final : public PoolObserver {
 public:
  void on_registered(CacheLevel, std::span<const ResidentBlock>, std::span<const Token>) override { call(); }
  void on_removed(CacheLevel, std::span<const BlockKey>) override { call(); }
  void on_cleared(CacheLevel) override { call(); }
  void on_matched(CacheLevel, std::span<const BlockKey>) override { call(); }

  BlockPool* pool = nullptr;

 private:
  void call() {
    if (pool != nullptr) {
      (void)pool->counts();
    }
  }
};

TEST_F(BlockPoolDeathTest, AnObserverThatCallsItsPoolAbortsInsteadOfHanging) {
  CallsItsPool observer;
  const auto pool = make_pool(2, {.observers = {&observer}});
  const Keys keys = chain(1, 1);
  cache(*pool, keys);
  observer.pool = pool.get();
  constexpr const char* kMessage = "an observer of a pool calls back into the object that called it";
  EXPECT_DEATH((void)pool->match_prefix(keys), kMessage);
  EXPECT_DEATH((void)store(*pool, chain(2, 1)), kMessage);
  EXPECT_DEATH((void)pool->reset(keys), kMessage);
  EXPECT_DEATH((void)pool->reset_inactive(), kMessage);
  // Another pool may be called, as far as the order of locks goes.
  observer.pool = nullptr;
}

TEST_F(BlockPoolDeathTest, AMayEvictThatCallsThePoolAborts) {
  BlockPool* self = nullptr;
  const auto pool = make_pool(1, {.may_evict = [&self](BlockId, const BlockKey& key) { return self->contains(key); }});
  self = pool.get();
  cache(*pool, chain(1, 1));
  EXPECT_DEATH((void)pool->allocate(1), "may_evict of a pool calls back into the object that called it");
}

TEST_F(BlockPoolDeathTest, AWhenLowThatCallsThePoolAborts) {
  BlockPool* self = nullptr;
  const auto pool = make_pool(2, {.low_water = 2, .when_low = [&self] { (void)self->counts(); }});
  self = pool.get();
  cache(*pool, chain(1, 1));
  EXPECT_DEATH((void)pool->allocate(1), "when_low of a pool calls back into the object that called it");
}

}  // namespace
}  // namespace cairn::testing
