// Pools of tiers that outlive the process.
#include <algorithm>
#include <chrono>

#include "cairn/pool/pool_testing.h"

namespace cairn::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Restored = std::vector<RestoredBlock>;

TEST(BlockPoolRestoreTest, RestoredBlocksAreInactiveAtTheirBlockIds) {
  const auto pool = make_pool(8, {.policy = PolicyKind::kLru});
  const Keys keys = chain(1, 3);
  const Restored blocks{{BlockId{6}, keys[2]}, {BlockId{1}, keys[1]}, {BlockId{3}, keys[0]}};
  ASSERT_TRUE(pool->restore(blocks).has_value());
  pool->check_invariants();
  const PoolCounts counts = pool->counts();
  EXPECT_EQ(counts.free, 5U);
  EXPECT_EQ(counts.inactive, 3U);
  EXPECT_EQ(counts.registered, 3U);
  EXPECT_EQ(pool->stats().registered, 3U);
  EXPECT_EQ(pool->stats().allocated, 0U);
  {
    const ImmutableBlocks found = pool->match_prefix(keys);
    EXPECT_THAT(found.block_ids(), ElementsAre(BlockId{3}, BlockId{1}, BlockId{6}));
  }
  // Every other block can be allocated.
  const MutableBlocks others = *pool->allocate(5);
  std::vector<BlockId> block_ids(others.block_ids().begin(), others.block_ids().end());
  std::ranges::sort(block_ids);
  EXPECT_THAT(block_ids, ElementsAre(BlockId{0}, BlockId{2}, BlockId{4}, BlockId{5}, BlockId{7}));
  pool->check_invariants();
}

class RestorePoliciesTest : public ::testing::TestWithParam<PolicyKind> {};

TEST_P(RestorePoliciesTest, TheFirstIsTheFirstToGo) {
  const auto pool = make_pool(6, {.policy = GetParam()});
  Keys order;
  Restored blocks;
  for (std::uint32_t i = 0; i < 6; ++i) {
    order.push_back(chain(i, 1)[0]);
    blocks.push_back({BlockId{5 - i}, order.back()});
  }
  ASSERT_TRUE(pool->restore(blocks).has_value());
  EXPECT_EQ(evicted_for(*pool, 6), order);
  pool->check_invariants();
}

INSTANTIATE_TEST_SUITE_P(Policies, RestorePoliciesTest, ::testing::ValuesIn(kAllPolicies), [](const auto& test) {
  std::string name(to_string(test.param));
  std::erase(name, '-');
  return name;
});

TEST(BlockPoolRestoreTest, ObserversSeeParentsBeforeChildren) {
  RecordingObserver observer;
  const auto pool = make_pool(8, {.observers = {&observer}});
  const Keys keys = chain(1, 3);
  const Restored blocks{{BlockId{0}, keys[2]}, {BlockId{1}, keys[1]}, {BlockId{2}, keys[0]}};
  ASSERT_TRUE(pool->restore(blocks).has_value());
  EXPECT_THAT(observer.take(), ElementsAre(registered(keys)));
  EXPECT_EQ(observer.blocks()[1].parent, keys[0].sequence_hash());
  EXPECT_EQ(observer.blocks()[2].parent, keys[1].sequence_hash());
  EXPECT_EQ(observer.blocks()[2].tokens_hash, BlockHash{0});
  std::vector<ResidentBlock> resident;
  (void)pool->list_resident(0, 8, resident);
  EXPECT_THAT(resident, ::testing::UnorderedElementsAreArray(observer.blocks()));
}

TEST(BlockPoolRestoreTest, WhatCannotBeRestoredChangesNothing) {
  RecordingObserver observer;
  const auto pool = make_pool(4, {.observers = {&observer}});
  const Keys keys = chain(1, 4);
  const auto expect_refused = [&](const Restored& blocks, ErrorCode code, const char* part) {
    const Result<void> restored = pool->restore(blocks);
    ASSERT_FALSE(restored.has_value());
    expect_error(restored.error(), code, part);
    EXPECT_EQ(pool->counts().free, 4U);
    EXPECT_EQ(pool->count_prefix(keys), 0U);
    EXPECT_THAT(observer.take(), IsEmpty());
    pool->check_invariants();
  };
  expect_refused({{BlockId{0}, keys[0]}, {BlockId{4}, keys[1]}}, ErrorCode::kOutOfRange, "in block 4 of a pool of 4");
  expect_refused({{BlockId{2}, keys[0]}, {BlockId{2}, keys[1]}}, ErrorCode::kInvalidArgument, "block 2 is twice among");
  expect_refused({{BlockId{1}, keys[0]}, {BlockId{2}, keys[1]}, {BlockId{3}, keys[0]}}, ErrorCode::kInvalidArgument,
                 "is twice among");
  Restored too_many;
  for (std::uint32_t i = 0; i < 5; ++i) {
    too_many.push_back({BlockId{i}, chain(i, 1)[0]});
  }
  expect_refused(too_many, ErrorCode::kInvalidArgument, "5 blocks to restore in a pool of 4");
  ASSERT_TRUE(pool->restore({}).has_value());
  ASSERT_TRUE(pool->restore(Restored{{BlockId{3}, keys[0]}}).has_value()) << "a refused call has no effect";
  expect_error(pool->restore(Restored{{BlockId{1}, keys[1]}}).error(), ErrorCode::kFailedPrecondition, "used before");
  EXPECT_EQ(pool->counts().inactive, 1U);
}

TEST(BlockPoolRestoreTest, APoolThatWasUsedIsNotRestored) {
  const auto pool = make_pool(4);
  {
    const MutableBlocks used = *pool->allocate(1);
  }
  expect_error(pool->restore(Restored{{BlockId{0}, chain(1, 1)[0]}}).error(), ErrorCode::kFailedPrecondition,
               "used before");
}

TEST(BlockPoolRestoreTest, BlocksAreTheDefaultTenantsWithinItsMeans) {
  const auto pool = make_pool(4, {.tenants = {{.name = "default"}, {.name = "other", .reserved = 2}}});
  const Keys keys = chain(1, 3);
  const Restored three{{BlockId{0}, keys[2]}, {BlockId{1}, keys[1]}, {BlockId{2}, keys[0]}};
  expect_error(pool->restore(three).error(), ErrorCode::kExhausted, "2 available");
  ASSERT_TRUE(pool->restore({three.data(), 2}).has_value());
  EXPECT_EQ(pool->usage(kDefaultTenant)->used, 2U);
  EXPECT_EQ(pool->usage(kDefaultTenant)->inactive, 2U);
  EXPECT_TRUE(pool->allocate(2, TenantId{1}).has_value()) << "the reservation can be allocated";
  pool->check_invariants();
}

TEST(BlockPoolRestoreTest, BlocksHaveThePoolsRetention) {
  ManualClock clock;
  const auto pool = make_pool(
      4, {.retention = {.time_to_live = std::chrono::milliseconds(5)}, .time_to_live = true, .clock = &clock});
  ASSERT_TRUE(pool->restore(Restored{{BlockId{2}, chain(1, 1)[0]}}).has_value());
  clock.advance(std::chrono::milliseconds(5));
  EXPECT_EQ(pool->counts().free, 4U);
  pool->check_invariants();
}

TEST(BlockPoolRestoreTest, ManyBlocksAreReportedInPartsAndAllFound) {
  constexpr std::uint32_t kChains = 20;
  constexpr std::uint32_t kLength = 250;
  RecordingObserver observer;
  const auto pool = make_pool(kChains * kLength, {.observers = {&observer}});
  Restored blocks;
  for (std::uint32_t name = 0; name < kChains; ++name) {
    const Keys keys = chain(name, kLength);
    for (std::uint32_t i = kLength; i-- > 0;) {
      blocks.push_back({BlockId{name * kLength + i}, keys[i]});
    }
  }
  ASSERT_TRUE(pool->restore(blocks).has_value());
  EXPECT_EQ(observer.blocks().size(), blocks.size());
  EXPECT_GT(observer.take().size(), 1U);
  for (std::uint32_t name = 0; name < kChains; ++name) {
    EXPECT_EQ(pool->match_prefix(chain(name, kLength)).size(), kLength);
  }
  EXPECT_EQ(pool->counts().free, 0U);
  pool->check_invariants();
}

}  // namespace
}  // namespace cairn::testing
