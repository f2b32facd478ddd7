#include "cairn/pool/block_records.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cairn/pool/pool_testing.h"

namespace cairn::testing {
namespace {

using State = BlockRecords::State;

class BlockRecordsTest : public ::testing::Test {
 protected:
  static BlockRecords make(BlockPoolOptions options = {}) {
    options.capacity = 4;
    options.block_size = kBlockSize;
    return *BlockRecords::create(options);
  }
  ~BlockRecordsTest() override { table_.check_invariants(); }

  BlockId take_private() {
    const BlockId block_id = table_.take_free();
    table_.tenants().charge(kDefaultTenant, 1);
    table_.make_private({&block_id, 1}, kDefaultTenant);
    return block_id;
  }
  // With one reference.
  BlockId take_registered(const BlockKey& key) {
    const BlockId block_id = take_private();
    EXPECT_TRUE(table_.complete({&block_id, 1}, {.keys = {&key, 1}}));
    EXPECT_TRUE(table_.is_registrable(block_id));
    table_.make_registered(block_id);
    return block_id;
  }

  Keys keys_ = chain(1, 4);
  BlockRecords table_ = make();
};

TEST_F(BlockRecordsTest, AFreedBlockIsTheNextToBeTaken) {
  const BlockId first = take_private();
  const BlockId second = take_private();
  EXPECT_NE(first, second);
  EXPECT_EQ(table_.free_count(), 2U);
  table_.make_free(first);
  EXPECT_EQ(table_.state(first), State::kFree);
  EXPECT_EQ(take_private(), first);
}

TEST_F(BlockRecordsTest, ChargesTheTenantUntilTheBlockIsFree) {
  BlockRecords table = make({.tenants = {{.name = "a", .reserved = 1}, {.name = "b"}}});
  const BlockId block_id = table.take_free();
  table.tenants().charge(TenantId{1}, 1);
  table.make_private({&block_id, 1}, TenantId{1});
  EXPECT_EQ(table.tenant_of(block_id), TenantId{1});
  table.check_invariants();
  table.make_free(block_id);
  EXPECT_EQ(table.tenants().usage(TenantId{1})->used, 0U);
  table.check_invariants();
}

TEST_F(BlockRecordsTest, TheLastReferenceToARegisteredBlockReturnsIt) {
  const BlockId block_id = take_registered(keys_[0]);
  EXPECT_TRUE(table_.is_matchable(block_id));
  EXPECT_FALSE(table_.add_reference(block_id)) << "it had one already";
  EXPECT_EQ(table_.drop_reference(block_id), kNoBlock);
  EXPECT_FALSE(table_.is_inactive(block_id));
  EXPECT_EQ(table_.drop_reference(block_id), block_id);
  EXPECT_TRUE(table_.is_inactive(block_id));
  EXPECT_TRUE(table_.add_reference(block_id)) << "it had none";
}

TEST_F(BlockRecordsTest, ADuplicateHoldsTheBlockOfItsKey) {
  const BlockId original = take_registered(keys_[0]);
  const BlockId copy = take_private();
  ASSERT_TRUE(table_.complete({&copy, 1}, {.keys = {keys_.data(), 1}}));
  (void)table_.add_reference(original);
  table_.make_duplicate(copy, original);
  EXPECT_EQ(table_.registered_as(copy), original);
  EXPECT_EQ(table_.drop_reference(original), kNoBlock) << "the duplicate holds it";
  table_.check_invariants();
  EXPECT_EQ(table_.drop_reference(copy), original);
  EXPECT_EQ(table_.state(copy), State::kFree);
}

TEST_F(BlockRecordsTest, ADiscardedBlockIsFreeWhenItsLastHolderReleasesIt) {
  const BlockId block_id = take_registered(keys_[0]);
  table_.discard(block_id);
  EXPECT_FALSE(table_.is_current(block_id));
  table_.check_invariants();
  EXPECT_EQ(table_.drop_reference(block_id), kNoBlock);
  EXPECT_EQ(table_.state(block_id), State::kFree);
}

TEST_F(BlockRecordsTest, ResetOnReleaseCanBeChangedForOneBlock) {
  const BlockId block_id = take_registered(keys_[0]);
  EXPECT_FALSE(table_.resets_on_release(block_id));
  table_.set_reset_on_release(block_id, true);
  EXPECT_TRUE(table_.resets_on_release(block_id));
  EXPECT_TRUE(table_.is_matchable(block_id));
}

TEST_F(BlockRecordsTest, ABorrowedBlockIsQuarantinedUntilItIsReturned) {
  const BlockId block_id = take_registered(keys_[0]);
  table_.lend(block_id);
  ASSERT_EQ(table_.drop_reference(block_id), block_id);
  table_.make_free(block_id);
  EXPECT_EQ(table_.quarantined_count(), 1U);
  table_.check_invariants();
  EXPECT_FALSE(table_.end_loan(block_id));
  EXPECT_EQ(table_.quarantined_count(), 0U);
  EXPECT_EQ(table_.state(block_id), State::kFree);
}

TEST_F(BlockRecordsTest, ADeferredEvictionIsReportedAtTheEndOfTheLoan) {
  const BlockId block_id = take_registered(keys_[0]);
  table_.lend(block_id);
  ASSERT_EQ(table_.drop_reference(block_id), block_id);
  table_.defer_eviction(block_id);
  EXPECT_EQ(table_.deferred_count(), 1U);
  EXPECT_TRUE(table_.is_in_use(block_id));
  table_.check_invariants();
  EXPECT_TRUE(table_.end_loan(block_id));
  EXPECT_EQ(table_.deferred_count(), 0U);
  EXPECT_EQ(table_.drop_reference(block_id), block_id);
}

TEST_F(BlockRecordsTest, AFenceMakesRegisteredBlocksStale) {
  const BlockId in_use = take_registered(keys_[0]);
  const BlockId unused = take_registered(keys_[1]);
  ASSERT_EQ(table_.drop_reference(unused), unused);
  table_.raise_fence(1);
  EXPECT_FALSE(table_.is_matchable(in_use));
  EXPECT_FALSE(table_.is_current(in_use));
  EXPECT_EQ(table_.unreclaimed(), 1U);
  table_.check_invariants();
  EXPECT_TRUE(table_.sweep(1)) << "there is another to look at";
  EXPECT_EQ(table_.state(in_use), State::kDiscarded);
  EXPECT_FALSE(table_.sweep(10));
  EXPECT_EQ(table_.state(unused), State::kFree);
  EXPECT_EQ(table_.unreclaimed(), 0U);
}

TEST_F(BlockRecordsTest, BlocksAllocatedBeforeOrDuringAFenceCannotBeRegistered) {
  const BlockId before = take_private();
  table_.raise_fence(0);
  const BlockId during = take_private();
  table_.lower_fence();
  const BlockId after = take_private();
  EXPECT_FALSE(table_.is_registrable(before));
  EXPECT_FALSE(table_.is_registrable(during));
  EXPECT_TRUE(table_.is_registrable(after));
  EXPECT_FALSE(table_.is_current(before));
  EXPECT_TRUE(table_.is_current(after));
}

TEST_F(BlockRecordsTest, AnAllocationReclaimsAsMuchAsItNeeds) {
  for (std::uint32_t i = 0; i < 4; ++i) {
    const BlockId block_id = take_registered(keys_[i]);
    ASSERT_EQ(table_.drop_reference(block_id), block_id);
  }
  table_.raise_fence(4);
  EXPECT_EQ(table_.free_count(), 0U);
  table_.sweep_for(2, kDefaultTenant);
  EXPECT_GE(table_.free_count(), 2U);
}

TEST_F(BlockRecordsTest, AStaleBlockStaysStaleAfterManyFences) {
  const BlockId block_id = take_registered(keys_[0]);
  for (int fences = 0; fences < 300; ++fences) {
    table_.raise_fence(0);
    table_.lower_fence();
    ASSERT_FALSE(table_.is_matchable(block_id)) << fences;
    table_.check_invariants();
  }
  EXPECT_EQ(table_.drop_reference(block_id), kNoBlock);
  EXPECT_EQ(table_.state(block_id), State::kFree);
}

TEST_F(BlockRecordsTest, RestoredBlocksAreInactiveAndTheOthersFree) {
  const std::vector<RestoredBlock> blocks = {{.block_id = BlockId{2}, .key = keys_[0], .tokens_hash = BlockHash{7}}};
  table_.set_restored_key(BlockId{2}, keys_[0]);
  table_.restore(blocks);
  EXPECT_TRUE(table_.is_inactive(BlockId{2}));
  EXPECT_EQ(table_.resident(BlockId{2}).tokens_hash, BlockHash{7});
  EXPECT_EQ(table_.free_count(), 3U);
  EXPECT_EQ(take_private(), BlockId{0});
  EXPECT_EQ(take_private(), BlockId{1});
  EXPECT_EQ(take_private(), BlockId{3});
}

TEST_F(BlockRecordsTest, AnUnknownParentIsTakenFromTheBlockThatHoldsIt) {
  const BlockId parent = take_registered(keys_[0]);
  const BlockId child = take_registered(keys_[1]);
  EXPECT_FALSE(table_.knows_parent(child));
  table_.set_unknown_parent(child, parent);
  EXPECT_TRUE(table_.knows_parent(child));
  EXPECT_EQ(table_.resident(child).parent, keys_[0].sequence_hash());
}

}  // namespace
}  // namespace cairn::testing
