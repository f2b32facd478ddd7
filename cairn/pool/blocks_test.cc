// The handles: which steps exist, and what becomes of blocks that are dropped between steps.
#include "cairn/pool/blocks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <concepts>
#include <type_traits>
#include <utility>

#include "cairn/pool/pool_testing.h"

namespace cairn::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::IsEmpty;

// Which steps compile.
template <typename Blocks>
concept Completes = requires(Blocks blocks, BlockNames names) { std::forward<Blocks>(blocks).complete(names); };
template <typename Blocks>
concept Registers = requires(Blocks blocks) { std::forward<Blocks>(blocks).register_blocks(); };
template <typename Blocks>
concept Resets = requires(Blocks blocks) { std::forward<Blocks>(blocks).reset(); };
template <typename Blocks>
concept Quarantines = requires(Blocks blocks) { std::forward<Blocks>(blocks).quarantine(); };
template <typename Blocks>
concept ReleasesQuarantine = requires(Blocks blocks) { std::forward<Blocks>(blocks).release_proven_finished(); };
template <typename Blocks>
concept Shares = requires(const Blocks& blocks) { blocks.share(); };
template <typename Blocks>
concept Pins = requires(const Blocks& blocks) { blocks.pin(); };
template <typename Blocks>
concept Downgrades = requires(const Blocks& blocks) { blocks.downgrade(); };
template <typename Blocks>
concept Upgrades = requires(const Blocks& blocks) { blocks.upgrade(); };
template <typename Blocks>
concept Named = requires(const Blocks& blocks) { blocks.key(0); };
template <typename Blocks, typename Other>
concept Appends = requires(Blocks blocks, Other other) { blocks.append(std::move(other)); };

// A step consumes its handle: it needs an rvalue of the right kind of handle.
static_assert(Completes<MutableBlocks&&> && !Completes<MutableBlocks&> && !Completes<const MutableBlocks&>);
static_assert(!Completes<CompleteBlocks&&> && !Completes<ImmutableBlocks&&> && !Completes<QuarantinedBlocks&&>);
static_assert(Registers<CompleteBlocks&&> && !Registers<CompleteBlocks&>);
static_assert(!Registers<MutableBlocks&&> && !Registers<ImmutableBlocks&&>);
static_assert(Resets<CompleteBlocks&&> && !Resets<CompleteBlocks&> && !Resets<MutableBlocks&&>);
static_assert(!Resets<ImmutableBlocks&&>);
static_assert(Quarantines<MutableBlocks&&> && !Quarantines<MutableBlocks&> && !Quarantines<ImmutableBlocks&&>);
static_assert(ReleasesQuarantine<QuarantinedBlocks&&> && !ReleasesQuarantine<QuarantinedBlocks&>);
// Only registered blocks can be shared, pinned or referred to weakly.
static_assert(Shares<ImmutableBlocks> && !Shares<MutableBlocks> && !Shares<CompleteBlocks> && !Shares<PinnedBlocks>);
static_assert(Pins<ImmutableBlocks> && !Pins<MutableBlocks> && !Pins<CompleteBlocks>);
static_assert(Downgrades<ImmutableBlocks> && !Downgrades<MutableBlocks> && !Downgrades<CompleteBlocks>);
static_assert(Upgrades<WeakBlocks> && !Upgrades<PinnedBlocks>);
static_assert(Named<CompleteBlocks> && Named<ImmutableBlocks> && Named<PinnedBlocks> && !Named<MutableBlocks>);
static_assert(Appends<MutableBlocks, MutableBlocks> && !Appends<MutableBlocks, CompleteBlocks>);
static_assert(Appends<ImmutableBlocks, ImmutableBlocks> && !Appends<ImmutableBlocks, CompleteBlocks>);

template <typename Blocks>
constexpr bool kMoveOnly = std::is_nothrow_move_constructible_v<Blocks> && !std::is_copy_constructible_v<Blocks> &&
                           !std::is_copy_assignable_v<Blocks>;
static_assert(kMoveOnly<MutableBlocks> && kMoveOnly<CompleteBlocks> && kMoveOnly<ImmutableBlocks>);
static_assert(kMoveOnly<PinnedBlocks> && kMoveOnly<QuarantinedBlocks>);
// Assigning drops the old blocks. That is harmless only for registered blocks.
static_assert(std::is_nothrow_move_assignable_v<ImmutableBlocks>);
static_assert(!std::is_move_assignable_v<MutableBlocks> && !std::is_move_assignable_v<CompleteBlocks>);
static_assert(!std::is_move_assignable_v<PinnedBlocks> && !std::is_move_assignable_v<QuarantinedBlocks>);
static_assert(std::is_copy_constructible_v<WeakBlocks>);
static_assert(std::is_default_constructible_v<ImmutableBlocks> && !std::is_default_constructible_v<MutableBlocks>);

class BlocksTest : public ::testing::Test {
 protected:
  const Keys keys_ = chain(1, 3);
  std::unique_ptr<BlockPool> pool_ = make_pool(4, {.policy = PolicyKind::kLru});
};

TEST_F(BlocksTest, MutableOnesAreFreeWhenDropped) {
  {
    const MutableBlocks blocks = *pool_->allocate(3);
    EXPECT_EQ(pool_->counts(), (PoolCounts{.total = 4, .free = 1, .active = 3}));
  }
  EXPECT_EQ(pool_->counts(), (PoolCounts{.total = 4, .free = 4}));
}

TEST_F(BlocksTest, CompleteOnesAreFreeWhenDropped) {
  {
    const CompleteBlocks blocks = completed(*pool_, keys_);
    EXPECT_THAT(keys_of(blocks), ElementsAreArray(keys_));
    EXPECT_FALSE(pool_->contains(keys_[0]));  // nobody else sees them
    EXPECT_EQ(pool_->counts(), (PoolCounts{.total = 4, .free = 1, .active = 3}));
  }
  EXPECT_EQ(pool_->counts(), (PoolCounts{.total = 4, .free = 4}));
}

TEST_F(BlocksTest, CompleteOnesLoseTheirNamesAndGetOthers) {
  MutableBlocks blocks = completed(*pool_, keys_).reset();
  const Keys others = chain(2, 3);
  const ImmutableBlocks held = *(*std::move(blocks).complete({.keys = others})).register_blocks();
  EXPECT_THAT(keys_of(held), ElementsAreArray(others));
  EXPECT_FALSE(pool_->contains(keys_[0]));
}

TEST_F(BlocksTest, ImmutableOnesAreInactiveOnceTheLastHolderLetsGo) {
  ImmutableBlocks first = store(*pool_, keys_);
  {
    const ImmutableBlocks second = first.share();
    first = ImmutableBlocks();
    EXPECT_EQ(pool_->counts(), (PoolCounts{.total = 4, .free = 1, .active = 3, .registered = 3}));
    EXPECT_THAT(keys_of(second), ElementsAreArray(keys_));
  }
  EXPECT_EQ(pool_->counts(), (PoolCounts{.total = 4, .free = 1, .inactive = 3, .registered = 3}));
}

TEST_F(BlocksTest, AreReleasedLeafFirst) {
  cache(*pool_, keys_);
  EXPECT_THAT(evicted_for(*pool_, 4), ElementsAreArray(reversed(keys_)));
}

TEST_F(BlocksTest, AssigningReleasesWhatWasHeldBefore) {
  ImmutableBlocks held = store(*pool_, first_of(keys_, 1));
  held = store(*pool_, chain(2, 2));
  EXPECT_EQ(pool_->counts(), (PoolCounts{.total = 4, .free = 1, .inactive = 1, .active = 2, .registered = 3}));
  ImmutableBlocks& itself = held;
  held = std::move(itself);
  EXPECT_EQ(held.size(), 2U);
}

TEST_F(BlocksTest, ShareTakesTheFirstOnes) {
  ImmutableBlocks all = store(*pool_, keys_);
  const ImmutableBlocks two = all.share(2);
  EXPECT_THAT(keys_of(two), ElementsAre(keys_[0], keys_[1]));
  EXPECT_TRUE(all.share(0).empty());
  EXPECT_EQ(all.share(99).size(), 3U);
  all = ImmutableBlocks();
  EXPECT_EQ(pool_->counts(), (PoolCounts{.total = 4, .free = 1, .inactive = 1, .active = 2, .registered = 3}));
  EXPECT_TRUE(ImmutableBlocks().share().empty());
}

TEST_F(BlocksTest, ReleaseTailKeepsTheFirstOnes) {
  ImmutableBlocks held = store(*pool_, keys_);
  held.release_tail(3);
  held.release_tail(99);
  EXPECT_EQ(held.size(), 3U);
  held.release_tail(1);
  EXPECT_THAT(keys_of(held), ElementsAre(keys_[0]));
  EXPECT_EQ(pool_->counts().inactive, 2U);
  EXPECT_THAT(evicted_for(*pool_, 3), ElementsAre(keys_[2], keys_[1]));
  held.release_tail(0);
  EXPECT_TRUE(held.empty());
  EXPECT_EQ(pool_->counts().active, 0U);
}

TEST_F(BlocksTest, TakeFrontSplitsARun) {
  MutableBlocks rest = *pool_->allocate(3);
  const std::vector<BlockId> block_ids(rest.block_ids().begin(), rest.block_ids().end());
  {
    const MutableBlocks front = rest.take_front(2);
    EXPECT_THAT(front.block_ids(), ElementsAre(block_ids[0], block_ids[1]));
    EXPECT_THAT(rest.block_ids(), ElementsAre(block_ids[2]));
  }
  EXPECT_EQ(pool_->counts(), (PoolCounts{.total = 4, .free = 3, .active = 1}));
  EXPECT_TRUE(rest.take_front(0).empty());
  EXPECT_EQ(rest.take_front(99).size(), 1U);
  EXPECT_TRUE(rest.empty());
  EXPECT_TRUE(rest.take_front(1).empty());
}

TEST_F(BlocksTest, AppendJoinsRunsOfOnePool) {
  MutableBlocks blocks = *pool_->allocate(1);
  const BlockId first = blocks.block_ids()[0];
  MutableBlocks more = *pool_->allocate(2);
  const std::vector<BlockId> block_ids(more.block_ids().begin(), more.block_ids().end());
  ASSERT_TRUE(blocks.append(std::move(more)));
  EXPECT_THAT(blocks.block_ids(), ElementsAre(first, block_ids[0], block_ids[1]));
  ASSERT_TRUE(blocks.append(*pool_->allocate(0)));

  ImmutableBlocks held;
  ASSERT_TRUE(held.append(store(*pool_, chain(2, 1))));
  ASSERT_TRUE(held.append(held.share()));
  ASSERT_TRUE(held.append(ImmutableBlocks()));
  EXPECT_EQ(held.size(), 2U);
  EXPECT_EQ(pool_->counts(), (PoolCounts{.total = 4, .active = 4, .registered = 1}));
}

TEST_F(BlocksTest, AppendGivesBlocksOfAnotherPoolBack) {
  const auto other = make_pool(4);
  MutableBlocks blocks = *pool_->allocate(1);
  const auto appended = blocks.append(*other->allocate(2));
  ASSERT_FALSE(appended);
  expect_error(appended.error().error, ErrorCode::kInvalidArgument, "of another pool");
  EXPECT_EQ(appended.error().blocks.size(), 2U);
  EXPECT_EQ(blocks.size(), 1U);

  CompleteBlocks complete = completed(*pool_, chain(2, 1));
  const auto completes = complete.append(completed(*other, chain(2, 1)));
  EXPECT_THAT(keys_of(completes.error().blocks), ElementsAreArray(chain(2, 1)));

  ImmutableBlocks held = store(*pool_, chain(3, 1));
  const auto held_of_both = held.append(store(*other, chain(3, 1)));
  EXPECT_THAT(keys_of(held_of_both.error().blocks), ElementsAreArray(chain(3, 1)));
  EXPECT_EQ(held.size(), 1U);
  EXPECT_EQ(pool_->counts(), (PoolCounts{.total = 4, .free = 1, .active = 3, .registered = 1}));
  EXPECT_EQ(other->counts(), (PoolCounts{.total = 4, .active = 4, .registered = 1}));
}

TEST_F(BlocksTest, AnEmptyHandleHoldsNothingOfItsPool) {
  MutableBlocks rest = *pool_->allocate(2);
  (void)rest.take_front(2);
  ImmutableBlocks held = store(*pool_, keys_);
  held.release_tail(0);
  MutableBlocks none = *pool_->allocate(0);
  const ImmutableBlocks missed = pool_->match_prefix(chain(9, 2));
  pool_.reset();  // before the handles, which is allowed
}

TEST_F(BlocksTest, PinnedOnesStayAndAreCountedApart) {
  {
    const PinnedBlocks pinned = store(*pool_, keys_).pin();
    EXPECT_THAT(keys_of(pinned), ElementsAreArray(keys_));
    EXPECT_EQ(pool_->counts(), (PoolCounts{.total = 4, .free = 1, .active = 3, .registered = 3, .pinned = 3}));
    EXPECT_FALSE(pool_->allocate(2));
    EXPECT_EQ(pool_->reset_inactive(), 0U);
    const PinnedBlocks again = pool_->match_prefix(first_of(keys_, 1)).pin();
    EXPECT_EQ(pool_->counts().pinned, 4U);
  }
  EXPECT_EQ(pool_->counts(), (PoolCounts{.total = 4, .free = 1, .inactive = 3, .registered = 3}));
  EXPECT_EQ(ImmutableBlocks().pin().size(), 0U);
}

TEST_F(BlocksTest, WeakOnesHoldNothing) {
  const WeakBlocks weak = store(*pool_, keys_).downgrade();
  EXPECT_THAT(weak.keys(), ElementsAreArray(keys_));
  EXPECT_EQ(pool_->counts(), (PoolCounts{.total = 4, .free = 1, .inactive = 3, .registered = 3}));
}

TEST_F(BlocksTest, WeakOnesUpgradeWhereTheBlocksAreActiveOrInactive) {
  ImmutableBlocks held = store(*pool_, keys_);
  const WeakBlocks weak = held.downgrade();
  const std::vector<BlockId> block_ids(held.block_ids().begin(), held.block_ids().end());
  EXPECT_THAT(weak.upgrade()->block_ids(), ElementsAreArray(block_ids));
  held = ImmutableBlocks();
  const std::optional<ImmutableBlocks> upgraded = weak.upgrade();
  EXPECT_THAT(upgraded->block_ids(), ElementsAreArray(block_ids));
  EXPECT_EQ(pool_->counts(), (PoolCounts{.total = 4, .free = 1, .active = 3, .registered = 3}));
}

TEST_F(BlocksTest, WeakOnesUpgradeByNameAfterTheBlocksCameBackElsewhere) {
  const WeakBlocks weak = store(*pool_, keys_).downgrade();
  EXPECT_EQ(pool_->reset_inactive(), 3U);
  EXPECT_FALSE(weak.upgrade());
  const ImmutableBlocks again = store(*pool_, keys_);
  EXPECT_TRUE(weak.upgrade());
}

TEST_F(BlocksTest, WeakOnesOfNothingAlwaysUpgrade) {
  EXPECT_TRUE(ImmutableBlocks().downgrade().upgrade()->empty());
  EXPECT_TRUE(pool_->match_prefix({}).downgrade().upgrade()->empty());
}

TEST_F(BlocksTest, WeakOnesAreAllOrNothingAndAnUpgradeThatFailsTouchesNothing) {
  RecordingObserver observer;
  const auto pool = make_pool(4, {.policy = PolicyKind::kLru, .observers = {&observer}});
  const WeakBlocks weak = store(*pool, keys_).downgrade();
  EXPECT_THAT(evicted_for(*pool, 2), ElementsAre(keys_[2]));
  cache(*pool, chain(2, 1));
  (void)observer.take();
  const PoolCounts before = pool->counts();
  EXPECT_FALSE(weak.upgrade());
  EXPECT_EQ(pool->counts(), before);
  EXPECT_THAT(observer.take(), IsEmpty());
  EXPECT_THAT(evicted_for(*pool, 4), ElementsAre(keys_[1], keys_[0], chain(2, 1)[0]));  // in their old order
}

TEST_F(BlocksTest, QuarantinedOnesAreOutOfUseUntilProvenFinished) {
  QuarantinedBlocks blocks = (*pool_->allocate(3)).quarantine();
  EXPECT_EQ(blocks.block_ids().size(), 3U);
  EXPECT_EQ(pool_->counts(), (PoolCounts{.total = 4, .free = 1, .quarantined = 3}));
  EXPECT_FALSE(pool_->allocate(2));
  std::move(blocks).release_proven_finished();
  EXPECT_EQ(pool_->counts(), (PoolCounts{.total = 4, .free = 4}));
  pool_->check_invariants();
}

TEST_F(BlocksTest, QuarantinedOnesThatAreDroppedNeverComeBack) {
  {
    const QuarantinedBlocks lost = (*pool_->allocate(3)).quarantine();
  }
  EXPECT_EQ(pool_->counts(), (PoolCounts{.total = 4, .free = 1, .quarantined = 3}));
  EXPECT_EQ(pool_->stats().abandoned_in_quarantine, 3U);
  EXPECT_EQ(pool_->reset_inactive(), 0U);
  EXPECT_FALSE(pool_->allocate(2));
  pool_->check_invariants();
  pool_.reset();  // which is allowed
}

TEST_F(BlocksTest, MovedFromHandlesHoldNothing) {
  ImmutableBlocks held = store(*pool_, keys_);
  const ImmutableBlocks moved = std::move(held);
  EXPECT_EQ(held.size(), 0U);  // NOLINT(bugprone-use-after-move): that is the point
  EXPECT_EQ(moved.size(), 3U);
  EXPECT_EQ(pool_->counts().active, 3U);
}

}  // namespace
}  // namespace cairn::testing
