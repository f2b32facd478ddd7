// Blocks whose bytes turned out to be wrong.
#include "cairn/pool/pool_testing.h"

namespace cairn::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class BlockPoolDiscardTest : public ::testing::Test {
 protected:
  std::unique_ptr<BlockPool> make(BlockPoolOptions options = {}) {
    options.policy = PolicyKind::kLru;
    options.observers = {&observer_};
    return make_pool(8, options);
  }

  RecordingObserver observer_;
  Keys keys_ = chain(1, 4);
};

TEST_F(BlockPoolDiscardTest, UnusedBlocksAreFreeAtOnce) {
  const auto pool = make();
  cache(*pool, keys_);
  (void)observer_.take();
  const Keys asked{keys_[1], chain(9, 1)[0], keys_[2], keys_[1]};
  EXPECT_EQ(pool->discard(asked), 2U);
  EXPECT_THAT(observer_.take(), ElementsAre(removed({keys_[1], keys_[2]})));
  EXPECT_EQ(pool->counts().free, 6U);
  EXPECT_EQ(pool->counts().registered, 2U);
  EXPECT_EQ(pool->stats().discarded, 2U);
  EXPECT_EQ(pool->stats().reset, 0U);
  EXPECT_FALSE(pool->contains(keys_[1]));
  pool->check_invariants();
  EXPECT_EQ(pool->discard({}), 0U);
  EXPECT_THAT(observer_.take(), IsEmpty());
}

TEST_F(BlockPoolDiscardTest, BlocksInUseStayWithTheirHoldersAndAreMatchedNoMore) {
  const auto pool = make();
  ImmutableBlocks held = store(*pool, keys_);
  (void)observer_.take();
  const std::vector<BlockId> block_ids(held.block_ids().begin(), held.block_ids().end());
  EXPECT_EQ(pool->discard({&keys_[1], 1}), 1U);
  EXPECT_THAT(observer_.take(), ElementsAre(removed({keys_[1]})));
  EXPECT_EQ(pool->match_prefix(keys_).size(), 1U);
  EXPECT_EQ(pool->hold(keys_).size(), 3U);
  EXPECT_EQ(pool->discard({&keys_[1], 1}), 0U) << "it is no longer resident";
  EXPECT_EQ(keys_of(held), keys_);
  EXPECT_TRUE(std::ranges::equal(held.block_ids(), block_ids));
  PoolCounts counts = pool->counts();
  EXPECT_EQ(counts.active, 4U);
  EXPECT_EQ(counts.registered, 3U);
  pool->check_invariants();
  EXPECT_EQ(resident_keys(*pool).size(), 3U);
  // The other four can be allocated, its block cannot.
  const MutableBlocks others = *pool->allocate(4);
  EXPECT_FALSE(pool->allocate(1).has_value());

  held = {};
  counts = pool->counts();
  EXPECT_EQ(counts.free, 1U);
  EXPECT_EQ(counts.inactive, 3U);
  EXPECT_THAT(observer_.take(), ElementsAre(matched({keys_[0]}))) << "observers do not see that it is free";
  pool->check_invariants();
}

TEST_F(BlockPoolDiscardTest, SharesAndPinsKeepADiscardedBlockInItsPlace) {
  const auto pool = make();
  ImmutableBlocks held = store(*pool, first_of(keys_, 2));
  EXPECT_EQ(pool->discard(keys_), 2U);
  ImmutableBlocks shared = held.share();
  EXPECT_TRUE(std::ranges::equal(shared.block_ids(), held.block_ids()));
  EXPECT_EQ(keys_of(shared), first_of(keys_, 2));
  {
    const PinnedBlocks pinned = held.pin();
    held = {};
    shared.release_tail(1);
    EXPECT_EQ(pool->counts().active, 2U) << "the pin holds both";
    pool->check_invariants();
  }
  EXPECT_EQ(pool->counts().active, 1U);
  shared = {};
  EXPECT_EQ(pool->counts().free, 8U);
  EXPECT_EQ(pool->counts().inactive, 0U) << "they are never evictable again";
}

TEST_F(BlockPoolDiscardTest, WeakHandlesComeTooLate) {
  const auto pool = make();
  const ImmutableBlocks held = store(*pool, keys_);
  const WeakBlocks before = held.downgrade();
  EXPECT_EQ(pool->discard({&keys_[3], 1}), 1U);
  EXPECT_FALSE(before.upgrade().has_value());
  const WeakBlocks after = held.downgrade();
  EXPECT_THAT(after.keys(), ::testing::ElementsAreArray(keys_));
  EXPECT_FALSE(after.upgrade().has_value());
  EXPECT_EQ(pool->counts().active, 4U) << "a failed allocation takes nothing";
}

TEST_F(BlockPoolDiscardTest, RetentionAndResetOfADiscardedBlockChangeNothing) {
  const auto pool = make({.time_to_live = true});
  ImmutableBlocks held = store(*pool, keys_);
  EXPECT_EQ(pool->discard(keys_), 4U);
  EXPECT_TRUE(held.set_retention({.priority = 90, .time_to_live = std::chrono::milliseconds(1)}).has_value());
  held.reset_on_release(true);
  (void)observer_.take();
  held = {};
  EXPECT_THAT(observer_.take(), IsEmpty()) << "they were reported once";
  EXPECT_EQ(pool->stats().reset, 0U);
  EXPECT_EQ(pool->counts().free, 8U);
  pool->check_invariants();
}

TEST_F(BlockPoolDiscardTest, TheSameKeyCanBeRegisteredWhileAnOldCopyIsHeld) {
  const auto pool = make();
  ImmutableBlocks wrong = store(*pool, first_of(keys_, 1));
  EXPECT_EQ(pool->discard(keys_), 1U);
  const ImmutableBlocks right = store(*pool, first_of(keys_, 1));
  EXPECT_NE(right.block_ids()[0], wrong.block_ids()[0]);
  EXPECT_EQ(pool->stats().deduplicated, 0U);
  EXPECT_EQ(pool->counts().active, 2U);
  EXPECT_EQ(pool->counts().registered, 1U);
  EXPECT_EQ(wrong.downgrade().upgrade()->block_ids()[0], right.block_ids()[0])
      << "a key names the block that has it now";
  pool->check_invariants();
  wrong = {};
  EXPECT_TRUE(pool->contains(keys_[0]));
  EXPECT_EQ(pool->counts().free, 7U);
  pool->check_invariants();
}

TEST_F(BlockPoolDiscardTest, EveryCopyIsDiscarded) {
  const auto pool = make({.duplicates = Duplicates::kAllow});
  ImmutableBlocks first = store(*pool, first_of(keys_, 1));
  ImmutableBlocks second = store(*pool, first_of(keys_, 1));
  EXPECT_EQ(pool->discard(keys_), 1U);
  EXPECT_FALSE(pool->contains(keys_[0]));
  EXPECT_EQ(pool->counts().active, 2U);
  EXPECT_EQ(pool->counts().registered, 0U);
  pool->check_invariants();
  ImmutableBlocks anew = store(*pool, first_of(keys_, 1));
  EXPECT_EQ(pool->stats().duplicated, 1U) << "the new one is a duplicate of none of them";
  first = {};
  EXPECT_EQ(pool->counts().active, 3U) << "the second copy holds the first, as it always did";
  pool->check_invariants();
  second = {};
  EXPECT_EQ(pool->counts().active, 1U);
  anew = {};
  EXPECT_EQ(pool->counts().inactive, 1U);
  EXPECT_EQ(pool->counts().free, 7U);
  pool->check_invariants();
}

TEST_F(BlockPoolDiscardTest, ClaimedAndReadyBlocksAreDiscardedToo) {
  const auto pool = make({.low_water = 2});
  cache(*pool, keys_);
  ImmutableBlocks claimed = pool->claim_victims(2);
  EXPECT_EQ(pool->discard({&keys_[3], 1}), 1U);
  std::move(claimed).release_as_victims();
  EXPECT_EQ(pool->counts().ready, 1U);
  {
    const PinnedBlocks held = pool->hold({&keys_[2], 1});
    EXPECT_EQ(pool->discard({&keys_[2], 1}), 1U);
    pool->check_invariants();
  }
  EXPECT_EQ(pool->counts().ready, 0U);
  pool->claim_victims(1).release_as_victims();
  EXPECT_EQ(pool->discard({&keys_[1], 1}), 1U);
  EXPECT_EQ(pool->counts().ready, 0U);
  EXPECT_EQ(pool->counts().free, 7U);
  pool->check_invariants();
}

TEST_F(BlockPoolDiscardTest, ADiscardedBlockIsStillItsTenants) {
  constexpr TenantId kSecond{1};
  const auto pool = make({.tenants = {{.name = "first"}, {.name = "second", .limit = 2}}});
  ImmutableBlocks held = store(*pool, first_of(keys_, 2), {}, kSecond);
  EXPECT_EQ(pool->discard(keys_), 2U);
  EXPECT_EQ(pool->usage(kSecond)->used, 2U);
  EXPECT_FALSE(pool->allocate(1, kSecond).has_value());
  held = {};
  EXPECT_EQ(pool->usage(kSecond)->used, 0U);
}

}  // namespace
}  // namespace cairn::testing
