// Creating a pool, allocating from it, evicting, resetting, and counts that add up.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "cairn/pool/pool_testing.h"

namespace cairn::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAreArray;

TEST(BlockPoolCreateTest, SaysWhatIsWrongWithItsOptions) {
  const auto error = [](const BlockPoolOptions& options) { return BlockPool::create(options).error(); };
  expect_error(error({.capacity = 0, .block_size = 4}), ErrorCode::kInvalidArgument, "capacity is 0");
  expect_error(error({.capacity = 4, .block_size = 0}), ErrorCode::kInvalidArgument, "block size is 0");
  expect_error(error({.capacity = 0xFFFFFFFF, .block_size = 4}), ErrorCode::kInvalidArgument, "4294967295 blocks");
  expect_error(error({.capacity = 4, .block_size = 4, .observers = {nullptr}}), ErrorCode::kInvalidArgument,
               "observer of the pool is null");
  expect_error(error({.capacity = 4, .block_size = 4, .policy = PolicyKind{77}}), ErrorCode::kInvalidArgument,
               "no such eviction policy");
}

TEST(BlockPoolCreateTest, KeepsWhatItWasCreatedWith) {
  const auto pool = *BlockPool::create({.capacity = 7, .block_size = 16, .tier = CacheLevel::kG2});
  EXPECT_EQ(pool->capacity(), 7U);
  EXPECT_EQ(pool->block_size(), 16U);
  EXPECT_EQ(pool->tier(), CacheLevel::kG2);
  EXPECT_EQ(pool->counts(), (PoolCounts{.total = 7, .free = 7}));
  EXPECT_EQ(pool->counts().available(), 7U);
}

TEST(BlockPoolCreateTest, TakesUnder100BytesABlock) {
  constexpr std::uint32_t kBlocks = 100'000;
  for (const PolicyKind policy : kAllPolicies) {
    if (policy == PolicyKind::kAdaptive) {
      continue;  // has room for a segment of each block: up to 71 bytes a block instead of at most 44
    }
    EXPECT_LE(make_pool(kBlocks, {.policy = policy})->bytes(), std::size_t{96} * kBlocks) << to_string(policy);
  }
}

class AllocateTest : public ::testing::TestWithParam<PolicyKind> {
 protected:
  const Keys keys_ = chain(1, 3);
  std::unique_ptr<BlockPool> pool_ = make_pool(4, {.policy = GetParam()});
};

TEST_P(AllocateTest, GivesDistinctBlocksOfThePool) {
  const MutableBlocks blocks = *pool_->allocate(4);
  const std::set<BlockId> block_ids(blocks.block_ids().begin(), blocks.block_ids().end());
  EXPECT_THAT(block_ids, ElementsAre(BlockId{0}, BlockId{1}, BlockId{2}, BlockId{3}));
}

TEST_P(AllocateTest, NothingIsAlwaysToBeHad) {
  const MutableBlocks all = *pool_->allocate(4);
  EXPECT_TRUE(pool_->allocate(0)->empty());
}

TEST_P(AllocateTest, IsAllOrNothing) {
  const ImmutableBlocks held = store(*pool_, chain(2, 2));
  cache(*pool_, chain(3, 1));
  const PoolCounts before = pool_->counts();
  Keys evicted;
  const Result<MutableBlocks> blocks = pool_->allocate(3, kDefaultTenant, evicted);
  ASSERT_FALSE(blocks);
  expect_error(blocks.error(), ErrorCode::kExhausted, "cannot allocate 3 blocks: 2 available");
  EXPECT_THAT(evicted, IsEmpty());
  EXPECT_EQ(pool_->counts(), before);
  EXPECT_TRUE(pool_->contains(chain(3, 1)[0]));
  EXPECT_EQ(pool_->stats().allocation_failures, 1U);
  EXPECT_FALSE(pool_->allocate(0xFFFFFFFF));
  pool_->check_invariants();
}

TEST_P(AllocateTest, TakesFreeBlocksBeforeItEvicts) {
  cache(*pool_, keys_);
  EXPECT_THAT(evicted_for(*pool_, 1), IsEmpty());
  EXPECT_EQ(pool_->count_prefix(keys_), 3U);
  EXPECT_THAT(evicted_for(*pool_, 2), ElementsAre(keys_[2]));
  EXPECT_EQ(pool_->stats().evicted, 1U);
}

TEST_P(AllocateTest, AppendsTheKeysThatHadToGoInTheirOrder) {
  cache(*pool_, keys_);
  Keys evicted = chain(9, 1);
  const MutableBlocks blocks = *pool_->allocate(4, kDefaultTenant, evicted);
  EXPECT_THAT(evicted, ElementsAreArray(joined(chain(9, 1), reversed(keys_))));
  EXPECT_EQ(pool_->counts(), (PoolCounts{.total = 4, .active = 4}));
  EXPECT_FALSE(pool_->contains(keys_[0]));
}

TEST_P(AllocateTest, NeverEvictsBlocksInUse) {
  const ImmutableBlocks held = store(*pool_, keys_);
  cache(*pool_, chain(2, 1));
  EXPECT_FALSE(pool_->allocate(2));
  EXPECT_THAT(evicted_for(*pool_, 1), ElementsAreArray(chain(2, 1)));
  EXPECT_EQ(pool_->count_prefix(keys_), 3U);
}

TEST_P(AllocateTest, MakesRoomForWholeNewSequencesAgainAndAgain) {
  for (std::uint64_t name = 0; name < 50; ++name) {
    cache(*pool_, chain(name, 1 + name % 4));
    EXPECT_EQ(pool_->count_prefix(chain(name, 1 + name % 4)), 1 + name % 4);
    pool_->check_invariants();
  }
  EXPECT_EQ(pool_->stats().registered, 123U);
  EXPECT_EQ(pool_->stats().allocated, 123U);
}

TEST_P(AllocateTest, CountsAddUpInEveryState) {
  const MutableBlocks writing = *pool_->allocate(1);
  const QuarantinedBlocks quarantined = (*pool_->allocate(1)).quarantine();
  cache(*pool_, chain(2, 1));
  EXPECT_EQ(pool_->counts(),
            (PoolCounts{.total = 4, .free = 1, .inactive = 1, .active = 1, .quarantined = 1, .registered = 1}));
  EXPECT_EQ(pool_->counts().available(), 2U);
}

TEST_P(AllocateTest, ResetMakesInactiveBlocksOfTheKeysFree) {
  cache(*pool_, keys_);
  const ImmutableBlocks held = pool_->match_prefix(first_of(keys_, 1));
  const Keys asked = {keys_[0], keys_[1], keys_[1], chain(7, 1)[0]};
  const ResetOutcome outcome = pool_->reset(asked);
  EXPECT_EQ(outcome.reset, 1U);
  EXPECT_EQ(outcome.in_use, 1U);
  EXPECT_EQ(outcome.not_found, 2U);  // one was never resident, the other no longer is
  EXPECT_THAT(resident_keys(*pool_), UnorderedElementsAreArray({keys_[0], keys_[2]}));
  EXPECT_EQ(pool_->counts(), (PoolCounts{.total = 4, .free = 2, .inactive = 1, .active = 1, .registered = 2}));
  EXPECT_EQ(pool_->stats().reset, 1U);
  pool_->check_invariants();
}

TEST_P(AllocateTest, ResetInactiveLeavesWhatIsInUse) {
  cache(*pool_, keys_);
  const ImmutableBlocks held = pool_->match_prefix(first_of(keys_, 1));
  EXPECT_EQ(pool_->reset_inactive(), 2U);
  EXPECT_THAT(resident_keys(*pool_), ElementsAre(keys_[0]));
  EXPECT_EQ(pool_->reset_inactive(), 0U);
  EXPECT_EQ(pool_->counts(), (PoolCounts{.total = 4, .free = 3, .active = 1, .registered = 1}));
  pool_->check_invariants();
}

INSTANTIATE_TEST_SUITE_P(Policies, AllocateTest, ::testing::ValuesIn(kAllPolicies));

// What each policy evicts first, where they differ: a sequence 0, 1, 2 and a branch 3, 4 that follows 0.
struct PolicyOrder {
  PolicyKind policy;
  std::vector<std::size_t> order;
};
class PolicyOrderTest : public ::testing::TestWithParam<PolicyOrder> {};

TEST_P(PolicyOrderTest, IsThatOfThePolicy) {
  const auto pool = make_pool(5, {.policy = GetParam().policy});
  const Keys trunk = chain(1, 3);
  const Keys all = joined(trunk, chain(2, 2, first_of(trunk, 1)));
  cache(*pool, trunk);  // released: 2, 1, 0
  {
    const ImmutableBlocks shared = pool->match_prefix(first_of(trunk, 1));
    cache(*pool, {all[3], all[4]});  // 4, 3
  }  // 0 again
  EXPECT_EQ(pool->scan(Keys{trunk[2]}).size(), 1U);  // 2 again
  Keys expected;
  for (const std::size_t i : GetParam().order) {
    expected.push_back(all[i]);
  }
  EXPECT_THAT(evicted_for(*pool, 5), ElementsAreArray(expected));
}

INSTANTIATE_TEST_SUITE_P(Policies, PolicyOrderTest,
                         ::testing::Values(PolicyOrder{PolicyKind::kFifo, {2, 1, 0, 4, 3}},
                                           PolicyOrder{PolicyKind::kLru, {1, 4, 3, 0, 2}},
                                           PolicyOrder{PolicyKind::kLineageTick, {4, 3, 2, 1, 0}},
                                           PolicyOrder{PolicyKind::kLineageFifo, {4, 2, 3, 1, 0}}));

// The predecessor's test: chains 0-1-2-3-4 and 1-5-6, then 2-7-8-9; it discriminates the two lineage rules.
TEST(EvictionOrderTest, OfLineageIsThatOfThePredecessor) {
  for (const PolicyKind policy : {PolicyKind::kLineageTick, PolicyKind::kLineageFifo, PolicyKind::kLru}) {
    const auto pool = make_pool(10, {.policy = policy});
    const Keys first = chain(1, 5);
    const Keys second = joined(first_of(first, 2), chain(2, 2, first_of(first, 2)));
    const Keys third = joined(first_of(first, 3), chain(3, 3, first_of(first, 3)));
    {
      ImmutableBlocks a = store(*pool, first);
      ImmutableBlocks b = pool->match_prefix(second);
      ASSERT_TRUE(b.append(store(*pool, {second[2], second[3]})));
      a = ImmutableBlocks();
      b = ImmutableBlocks();
    }
    ImmutableBlocks c = pool->match_prefix(third);
    ASSERT_EQ(c.size(), 3U);
    ASSERT_TRUE(c.append(store(*pool, {third[3], third[4], third[5]})));
    Keys evicted;
    const MutableBlocks three = *pool->allocate(3, kDefaultTenant, evicted);
    const MutableBlocks one = *pool->allocate(1, kDefaultTenant, evicted);
    if (policy == PolicyKind::kLineageFifo) {
      EXPECT_THAT(evicted, ElementsAre(first[4], second[3], first[3], second[2]));
    } else {
      EXPECT_THAT(evicted, ElementsAre(first[4], first[3], second[3], second[2]));
    }
  }
}

TEST(EvictionOrderTest, OfLineageIsLeafFirstHoweverBlocksWereReleased) {
  for (const PolicyKind policy :
       {PolicyKind::kFifo, PolicyKind::kLru, PolicyKind::kLineageTick, PolicyKind::kLineageFifo}) {
    const auto pool = make_pool(5, {.policy = policy});
    const Keys keys = chain(1, 5);
    {
      ImmutableBlocks all = store(*pool, keys);
      std::vector<ImmutableBlocks> singles;
      for (const BlockKey& key : keys) {
        singles.push_back(pool->match_prefix({&key, 1}));
      }
      all = ImmutableBlocks();
      for (ImmutableBlocks& single : singles) {
        single = ImmutableBlocks();  // root first
      }
    }
    const bool lineage = policy == PolicyKind::kLineageTick || policy == PolicyKind::kLineageFifo;
    EXPECT_THAT(evicted_for(*pool, 5), ElementsAreArray(lineage ? reversed(keys) : keys)) << to_string(policy);
  }
}

}  // namespace
}  // namespace cairn::testing
