// Completing and registering: a failed call returns the blocks and changes nothing; duplicates; reset on release.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "cairn/pool/pool_testing.h"

namespace cairn::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::IsEmpty;

class CompleteTest : public ::testing::Test {
 protected:
  // The step fails, says why, gives all three blocks back and leaves the pool as it was.
  void expect_rejected(const BlockNames& names, const char* part) {
    MutableBlocks blocks = *pool_->allocate(3);
    const std::vector<BlockId> block_ids(blocks.block_ids().begin(), blocks.block_ids().end());
    const PoolCounts before = pool_->counts();
    auto complete = std::move(blocks).complete(names);
    ASSERT_FALSE(complete);
    expect_error(complete.error().error, ErrorCode::kInvalidArgument, part);
    EXPECT_THAT(complete.error().blocks.block_ids(), ElementsAreArray(block_ids));
    EXPECT_EQ(pool_->counts(), before);
    // They can be completed correctly afterwards.
    EXPECT_TRUE(std::move(complete.error().blocks).complete({.keys = keys_}));
  }

  const Keys keys_ = chain(1, 3);
  std::unique_ptr<BlockPool> pool_ = make_pool(4);
};

TEST_F(CompleteTest, WantsOneKeyForEachBlock) {
  expect_rejected({.keys = chain(1, 2)}, "2 keys for 3 blocks");
  expect_rejected({.keys = chain(1, 4)}, "4 keys for 3 blocks");
  expect_rejected({}, "0 keys for 3 blocks");
}

TEST_F(CompleteTest, NeedsTokensHashesForAllBlocksOrNone) {
  const std::vector<BlockHash> two(2);
  expect_rejected({.keys = keys_, .tokens_hashes = two}, "2 tokens hashes for 3 blocks");
}

TEST_F(CompleteTest, WantsTheParentThatTheFirstKeyNames) {
  expect_rejected({.keys = keys_, .parent = SequenceHash{1}}, "not the parent that block 0's key names");
  const Keys branch = chain(2, 3, keys_);
  expect_rejected({.keys = branch, .parent = SequenceHash{1}}, "not the parent that block 3's key names");
  MutableBlocks blocks = *pool_->allocate(3);
  EXPECT_TRUE(std::move(blocks).complete({.keys = branch, .parent = keys_.back().sequence_hash()}));
}

TEST_F(CompleteTest, OfNothingIsNothing) {
  auto complete = (*pool_->allocate(0)).complete({});
  ASSERT_TRUE(complete);
  const auto registered = (*std::move(complete)).register_blocks();
  ASSERT_TRUE(registered);
  EXPECT_TRUE(registered->empty());
}

class RegisterTest : public ::testing::Test {
 protected:
  void expect_rejected(BlockPool& pool, const Keys& keys, const Retention& retention, std::span<const Token> tokens,
                       ErrorCode code, const char* part) {
    CompleteBlocks blocks = completed(pool, keys);
    (void)observer_.take();
    const PoolCounts before = pool.counts();
    const auto rejected = std::move(blocks).register_blocks(retention, tokens);
    ASSERT_FALSE(rejected);
    expect_error(rejected.error().error, code, part);
    EXPECT_THAT(keys_of(rejected.error().blocks), ElementsAreArray(keys));
    EXPECT_EQ(pool.counts(), before);
    EXPECT_THAT(observer_.take(), IsEmpty());
    EXPECT_EQ(pool.stats().registered, 0U);
    pool.check_invariants();
  }

  std::unique_ptr<BlockPool> make(BlockPoolOptions options = {}) {
    options.observers = {&observer_};
    return make_pool(6, options);
  }

  RecordingObserver observer_;
  const Keys keys_ = chain(1, 3);
};

TEST_F(RegisterTest, MakesBlocksKnown) {
  const auto pool = make();
  CompleteBlocks complete = completed(*pool, keys_);
  const std::vector<BlockId> block_ids(complete.block_ids().begin(), complete.block_ids().end());
  const ImmutableBlocks held = *std::move(complete).register_blocks();
  EXPECT_THAT(held.block_ids(), ElementsAreArray(block_ids));
  EXPECT_EQ(pool->count_prefix(keys_), 3U);
  EXPECT_EQ(pool->counts(), (PoolCounts{.total = 6, .free = 3, .active = 3, .registered = 3}));
}

TEST_F(RegisterTest, FailsOnAKeyThatIsTwiceInOneBatch) {
  const Keys twice = {keys_[0], keys_[1], keys_[0]};
  expect_rejected(*make(), twice, {}, {}, ErrorCode::kInvalidArgument,
                  (keys_[0].to_string() + " is in one registration twice").c_str());
  expect_rejected(*make({.duplicates = Duplicates::kAllow}), {keys_[0], keys_[0]}, {}, {}, ErrorCode::kInvalidArgument,
                  "twice");
}

TEST_F(RegisterTest, FailsOnANumberOfTokensThatDoesNotFit) {
  const std::vector<Token> tokens(13);
  expect_rejected(*make(), keys_, {}, tokens, ErrorCode::kInvalidArgument,
                  "13 token ids for 3 blocks of 4; give 12, or none");
  expect_rejected(*make(), keys_, {}, std::span(tokens).first(4), ErrorCode::kInvalidArgument, "4 token ids");
}

TEST_F(RegisterTest, FailsOnARetentionThePoolCannotKeep) {
  expect_rejected(*make(), keys_, {.priority = 101}, {}, ErrorCode::kInvalidArgument, "priority 101 is beyond 100");
  expect_rejected(*make(), keys_, {.time_to_live = std::chrono::seconds(1)}, {}, ErrorCode::kFailedPrecondition,
                  "the pool keeps no time");
  expect_rejected(*make({.time_to_live = true}), keys_, {.time_to_live = std::chrono::seconds(0)}, {},
                  ErrorCode::kInvalidArgument, "a time to live of 0 ns");
}

TEST_F(RegisterTest, TakesBlocksOfSeveralSequencesInAnyOrder) {
  const auto pool = make();
  const Keys mixed = {keys_[2], chain(2, 1)[0], keys_[0], keys_[1]};
  const ImmutableBlocks held = store(*pool, mixed);
  EXPECT_THAT(keys_of(held), ElementsAreArray(mixed));
  EXPECT_EQ(pool->count_prefix(keys_), 3U);
}

TEST_F(RegisterTest, ALateCopyIsRejectedAndTheOneThatWasThereHeldInstead) {
  const auto pool = make();
  const ImmutableBlocks first = store(*pool, keys_);
  ImmutableBlocks second = store(*pool, keys_);
  EXPECT_THAT(second.block_ids(), ElementsAreArray(first.block_ids()));
  EXPECT_EQ(pool->counts(), (PoolCounts{.total = 6, .free = 3, .active = 3, .registered = 3}));
  EXPECT_EQ(pool->stats().deduplicated, 3U);
  pool->check_invariants();
}

TEST_F(RegisterTest, ALateCopyBringsAnInactiveBlockBackIntoUse) {
  const auto pool = make();
  cache(*pool, keys_);
  const ImmutableBlocks again = store(*pool, keys_);
  EXPECT_EQ(pool->counts(), (PoolCounts{.total = 6, .free = 3, .active = 3, .registered = 3}));
  pool->check_invariants();
}

TEST_F(RegisterTest, ALateCopyInABatchLeavesTheOthersNew) {
  const auto pool = make();
  const ImmutableBlocks middle = store(*pool, {keys_[1]});
  const ImmutableBlocks all = store(*pool, keys_);
  EXPECT_EQ(all.block_ids()[1], middle.block_ids()[0]);
  EXPECT_THAT(keys_of(all), ElementsAreArray(keys_));
  EXPECT_EQ(pool->stats().registered, 3U);
  EXPECT_EQ(pool->counts().registered, 3U);
}

class DuplicatesTest : public RegisterTest {
 protected:
  std::unique_ptr<BlockPool> pool_ = make({.policy = PolicyKind::kLru, .duplicates = Duplicates::kAllow});
  const Keys key_ = chain(1, 1);
};

TEST_F(DuplicatesTest, AreSeveralPhysicalCopiesOfOneLogicalBlock) {
  const ImmutableBlocks first = store(*pool_, key_);
  const ImmutableBlocks second = store(*pool_, key_);
  EXPECT_NE(first.block_ids()[0], second.block_ids()[0]);
  EXPECT_THAT(keys_of(second), ElementsAreArray(key_));
  EXPECT_EQ(pool_->counts(), (PoolCounts{.total = 6, .free = 4, .active = 2, .registered = 1}));
  EXPECT_EQ(pool_->match_prefix(key_).block_ids()[0], first.block_ids()[0]);
  EXPECT_EQ(pool_->stats().duplicated, 1U);
  EXPECT_THAT(observer_.take(), ElementsAre(registered(key_), matched(key_)));
  EXPECT_THAT(resident_keys(*pool_), ElementsAreArray(key_));
  pool_->check_invariants();
}

TEST_F(DuplicatesTest, AreFreeWhenDroppedAndHoldTheFirstUntilThen) {
  ImmutableBlocks first = store(*pool_, key_);
  ImmutableBlocks second = store(*pool_, key_);
  ImmutableBlocks shared = second.share();
  first = ImmutableBlocks();
  EXPECT_EQ(pool_->counts(), (PoolCounts{.total = 6, .free = 4, .active = 2, .registered = 1}));
  second = ImmutableBlocks();
  EXPECT_EQ(pool_->counts().active, 2U);
  EXPECT_EQ(pool_->reset(key_).in_use, 1U);
  shared = ImmutableBlocks();
  EXPECT_EQ(pool_->counts(), (PoolCounts{.total = 6, .free = 5, .inactive = 1, .registered = 1}));
  pool_->check_invariants();
}

TEST_F(DuplicatesTest, BringAnInactiveBlockBackIntoUse) {
  cache(*pool_, key_);
  const ImmutableBlocks copy = store(*pool_, key_);
  EXPECT_EQ(pool_->counts(), (PoolCounts{.total = 6, .free = 4, .active = 2, .registered = 1}));
  pool_->check_invariants();
}

TEST_F(DuplicatesTest, OptionsSetThroughACopyAreThoseOfTheBlock) {
  ImmutableBlocks first = store(*pool_, key_);
  {
    ImmutableBlocks copy = store(*pool_, key_);
    copy.reset_on_release(true);
  }
  EXPECT_TRUE(pool_->contains(key_[0]));
  first = ImmutableBlocks();
  EXPECT_FALSE(pool_->contains(key_[0]));
  EXPECT_EQ(pool_->counts().free, 6U);
}

TEST_F(DuplicatesTest, ArePinnedAndKnownWeaklyLikeOthers) {
  const ImmutableBlocks first = store(*pool_, key_);
  ImmutableBlocks copy = store(*pool_, key_);
  const PinnedBlocks pinned = copy.pin();
  EXPECT_EQ(pinned.block_ids()[0], copy.block_ids()[0]);
  const WeakBlocks weak = copy.downgrade();
  EXPECT_EQ(weak.upgrade()->block_ids()[0], first.block_ids()[0]);
  copy = ImmutableBlocks();
  EXPECT_EQ(pool_->counts(), (PoolCounts{.total = 6, .free = 4, .active = 2, .registered = 1, .pinned = 1}));
}

class ResetOnReleaseTest : public RegisterTest {};

TEST_F(ResetOnReleaseTest, MakesBlocksFreeWhenTheLastHolderLetsGo) {
  const auto pool = make();
  ImmutableBlocks held = store(*pool, keys_);
  held.reset_on_release(true);
  ImmutableBlocks shared = held.share(2);
  held = ImmutableBlocks();
  EXPECT_EQ(pool->count_prefix(keys_), 2U);
  (void)observer_.take();
  shared = ImmutableBlocks();
  EXPECT_EQ(pool->counts(), (PoolCounts{.total = 6, .free = 6}));
  EXPECT_THAT(observer_.take(), ElementsAre(removed({keys_[1], keys_[0]})));
  EXPECT_EQ(pool->stats().reset, 3U);
  pool->check_invariants();
}

TEST_F(ResetOnReleaseTest, CanBeTakenBack) {
  const auto pool = make();
  ImmutableBlocks held = store(*pool, keys_);
  held.reset_on_release(true);
  held.reset_on_release(false);
  held = ImmutableBlocks();
  EXPECT_EQ(pool->counts().inactive, 3U);
}

TEST_F(ResetOnReleaseTest, CanBeThePoolsDefaultThatABlockIsExemptFrom) {
  const auto pool = make({.reset_on_release = true});
  cache(*pool, keys_);
  EXPECT_EQ(pool->counts(), (PoolCounts{.total = 6, .free = 6}));
  {
    ImmutableBlocks held = store(*pool, keys_);
    held.reset_on_release(false);
  }
  EXPECT_EQ(pool->counts().inactive, 3U);
  EXPECT_EQ(pool->match_prefix(keys_).size(), 3U);  // also when the block is used again
  EXPECT_EQ(pool->counts().inactive, 3U);
}

TEST_F(ResetOnReleaseTest, IsForgottenWithTheBlock) {
  const auto pool = make();
  {
    ImmutableBlocks held = store(*pool, keys_);
    held.reset_on_release(true);
  }
  cache(*pool, keys_);
  EXPECT_EQ(pool->counts().inactive, 3U);
}

}  // namespace
}  // namespace cairn::testing
