// Tenants of a shared pool: reservations, limits, and which tenant's blocks are evicted for which.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cairn/pool/pool_testing.h"

namespace cairn::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::IsEmpty;

constexpr TenantId kA{0};
constexpr TenantId kB{1};
constexpr TenantId kC{2};

std::unique_ptr<BlockPool> shared_pool(std::uint32_t capacity, std::vector<TenantQuota> tenants,
                                       PolicyKind policy = PolicyKind::kLru) {
  return make_pool(capacity, {.policy = policy, .tenants = std::move(tenants)});
}

TEST(TenantsTest, AReservationIsAlwaysToBeHad) {
  const auto pool = shared_pool(10, {{.name = "a", .reserved = 4}, {.name = "b"}});
  const MutableBlocks greedy = *pool->allocate(6, kB);
  expect_error(pool->allocate(1, kB).error(), ErrorCode::kExhausted, "cannot allocate 1 blocks: 0 available (4 free");
  const MutableBlocks reserved = *pool->allocate(4, kA);
  EXPECT_FALSE(pool->allocate(1, kA));
  pool->check_invariants();
}

TEST(TenantsTest, AReservationThatIsCachedStaysCachedWhateverOthersNeed) {
  const auto pool = shared_pool(6, {{.name = "a", .reserved = 3}, {.name = "b"}});
  const Keys kept = chain(1, 3);
  cache(*pool, kept, {.priority = 0}, kA);
  const MutableBlocks all_of_theirs = *pool->allocate(3, kB);
  EXPECT_FALSE(pool->allocate(1, kB));
  EXPECT_EQ(pool->count_prefix(kept), 3U);
}

TEST(TenantsTest, ALimitIsNeverExceeded) {
  const auto pool = shared_pool(10, {{.name = "a", .limit = 3}, {.name = "b"}});
  const MutableBlocks most = *pool->allocate(3, kA);
  expect_error(pool->allocate(1, kA).error(), ErrorCode::kExhausted, "tenant 'a' is limited to 3 and holds 3");
  EXPECT_EQ(pool->usage(kA)->used, 3U);
  EXPECT_EQ(pool->counts().free, 7U);
}

TEST(TenantsTest, AtItsLimitATenantEvictsItsOwn) {
  const auto pool = shared_pool(10, {{.name = "a", .limit = 3}, {.name = "b"}});
  const Keys mine = chain(1, 3);
  cache(*pool, chain(2, 3), {.priority = 0}, kB);  // older and of lower priority
  cache(*pool, mine, {}, kA);
  EXPECT_THAT(evicted_for(*pool, 2, kA), ElementsAre(mine[2], mine[1]));
  EXPECT_EQ(pool->usage(kA)->used, 1U);
  EXPECT_EQ(pool->usage(kB)->inactive, 3U);
}

TEST(TenantsTest, AnAllocationPartlyBelowTheLimitTakesFreeBlocksFirst) {
  const auto pool = shared_pool(10, {{.name = "a", .limit = 4}, {.name = "b"}});
  const Keys mine = chain(1, 3);
  cache(*pool, mine, {}, kA);
  EXPECT_THAT(evicted_for(*pool, 3, kA), ElementsAre(mine[2], mine[1]));
}

TEST(TenantsTest, TheOneFurthestBeyondItsReservationGives) {
  const auto pool = shared_pool(9, {{.name = "a"}, {.name = "b", .reserved = 4}, {.name = "c"}});
  const Keys of_b = chain(1, 5);
  const Keys of_c = chain(2, 3);
  cache(*pool, of_b, {.priority = 0}, kB);
  cache(*pool, of_c, {.priority = 90}, kC);
  const MutableBlocks last_free = *pool->allocate(1, kA);
  Keys evicted;
  const MutableBlocks more = *pool->allocate(4, kA, evicted);
  // c is 3 beyond its reservation, b is 1; then 2 and 1; then a itself has most, but nothing to evict.
  EXPECT_THAT(evicted, ElementsAre(of_c[2], of_c[1], of_b[4], of_c[0]));
  expect_error(pool->allocate(1, kA).error(), ErrorCode::kExhausted, "0 available");
  EXPECT_EQ(pool->count_prefix(of_b), 4U);
  pool->check_invariants();
}

TEST(TenantsTest, OneThatIsFurthestItselfGivesItsOwn) {
  const auto pool = shared_pool(6, {{.name = "a"}, {.name = "b"}});
  const Keys of_a = chain(1, 4);
  cache(*pool, chain(2, 2), {}, kB);  // older
  cache(*pool, of_a, {}, kA);
  EXPECT_THAT(evicted_for(*pool, 1, kA), ElementsAre(of_a[3]));
}

TEST(TenantsTest, BlocksAreChargedToTheirAllocatingTenantUntilTheyAreFree) {
  const auto pool = shared_pool(6, {{.name = "a"}, {.name = "b"}});
  const Keys keys = chain(1, 2);
  cache(*pool, keys, {}, kA);
  const ImmutableBlocks used_by_anyone = pool->match_prefix(keys);
  EXPECT_EQ(pool->usage(kA)->used, 2U);
  EXPECT_EQ(pool->usage(kA)->inactive, 0U);
  const ImmutableBlocks late = store(*pool, keys, {}, kB);  // rejected as duplicates: b pays nothing
  EXPECT_EQ(pool->usage(kB)->used, 0U);
  const QuarantinedBlocks lost = (*pool->allocate(1, kB)).quarantine();
  EXPECT_EQ(pool->usage(kB)->used, 1U);
}

TEST(TenantsTest, ADuplicateThatIsKeptIsChargedToItsOwnTenant) {
  const auto pool =
      make_pool(4, {.duplicates = Duplicates::kAllow, .tenants = {{.name = "a"}, {.name = "b", .limit = 1}}});
  const Keys key = chain(1, 1);
  const ImmutableBlocks first = store(*pool, key, {}, kA);
  {
    const ImmutableBlocks copy = store(*pool, key, {}, kB);
    EXPECT_EQ(pool->usage(kB)->used, 1U);
    EXPECT_FALSE(pool->allocate(1, kB));
    pool->check_invariants();
  }
  EXPECT_EQ(pool->usage(kB)->used, 0U);
  EXPECT_EQ(pool->usage(kA)->used, 1U);
}

TEST(TenantsTest, ATenantThatDoesNotExistIsNamed) {
  const auto pool = shared_pool(4, {{.name = "a"}, {.name = "b"}});
  expect_error(pool->allocate(1, kC).error(), ErrorCode::kInvalidArgument, "no tenant 2; it was created with 2");
  expect_error(pool->usage(kC).error(), ErrorCode::kInvalidArgument, "no tenant 2");
  expect_error(make_pool(4)->allocate(1, kB).error(), ErrorCode::kInvalidArgument, "no tenant 1");
}

TEST(TenantsTest, QuotasThatContradictThemselvesAreNamed) {
  const auto error = [](std::vector<TenantQuota> tenants) {
    return BlockPool::create({.capacity = 10, .block_size = 1, .tenants = std::move(tenants)}).error();
  };
  expect_error(error({{.name = "x", .reserved = 5, .limit = 4}}), ErrorCode::kInvalidArgument,
               "tenant 'x' reserves 5 blocks and is limited to 4");
  expect_error(error({{.name = "x", .reserved = 11}}), ErrorCode::kInvalidArgument, "'x' reserves 11");
  expect_error(error({{.name = "x", .reserved = 6}, {.name = "y", .reserved = 5}}), ErrorCode::kInvalidArgument,
               "reserve 11 blocks together and the pool has 10");
  expect_error(error(std::vector<TenantQuota>(257)), ErrorCode::kInvalidArgument, "257 tenants");
}

TEST(TenantsTest, AsManyAsCanBeDistinguished) {
  const auto pool = shared_pool(256, std::vector<TenantQuota>(256, {.name = "one of many", .reserved = 1}));
  const MutableBlocks last = *pool->allocate(1, TenantId{255});
  EXPECT_FALSE(pool->allocate(1, TenantId{255}));
  EXPECT_EQ(pool->usage(TenantId{255})->used, 1U);
  pool->check_invariants();
}

// All blocks of one tenant may be below another tenant's in the same sequences: leaves are evicted first, and no tenant
// starves.
class SharedPrefixTest : public ::testing::TestWithParam<PolicyKind> {
 protected:
  const Keys prefix_ = chain(1, 2);
  const Keys tail_ = chain(2, 2, prefix_);
};

TEST_P(SharedPrefixTest, ATenantWithoutALeafDoesNotKeepOthersFromTheirOwn) {
  const auto pool = shared_pool(4, {{.name = "a"}, {.name = "b", .reserved = 1}}, GetParam());
  cache(*pool, prefix_, {}, kA);  // furthest beyond its reservation, and no leaf among them
  cache(*pool, tail_, {}, kB);
  EXPECT_THAT(evicted_for(*pool, 4, kB), ElementsAreArray(reversed(joined(prefix_, tail_))));
  pool->check_invariants();
}

TEST_P(SharedPrefixTest, ATenantAtItsLimitGetsAtItsOwnBelowThoseOfOthers) {
  const auto pool = shared_pool(6, {{.name = "a", .limit = 2}, {.name = "b", .reserved = 2}}, GetParam());
  cache(*pool, prefix_, {}, kA);
  cache(*pool, tail_, {}, kB);
  EXPECT_THAT(evicted_for(*pool, 1, kA), ElementsAre(tail_[1], tail_[0], prefix_[1]));
  EXPECT_EQ(pool->usage(kA)->used, 1U);
  EXPECT_EQ(pool->usage(kB)->used, 0U);
  const MutableBlocks reserved = *pool->allocate(2, kB);
  pool->check_invariants();
}

INSTANTIATE_TEST_SUITE_P(Lineage, SharedPrefixTest,
                         ::testing::Values(PolicyKind::kLineageTick, PolicyKind::kLineageFifo));

TEST(MayEvictTest, KeepsABlockForNow) {
  Keys kept = chain(1, 1);
  Keys asked;
  const auto pool = make_pool(3, {.policy = PolicyKind::kLru, .may_evict = [&](BlockId, const BlockKey& key) {
                                    asked.push_back(key);
                                    return kept.empty() || key != kept[0];
                                  }});
  const Keys other = chain(2, 1);
  cache(*pool, kept);
  cache(*pool, other);
  EXPECT_THAT(evicted_for(*pool, 2), ElementsAre(other[0]));
  EXPECT_THAT(asked, ElementsAre(kept[0], other[0]));
  expect_error(pool->allocate(3).error(), ErrorCode::kExhausted, "2 available, may_evict refused the others");
  EXPECT_EQ(pool->counts(), (PoolCounts{.total = 3, .free = 2, .inactive = 1, .registered = 1}));
  pool->check_invariants();
  const Keys last = std::exchange(kept, {});
  EXPECT_THAT(evicted_for(*pool, 3), ElementsAreArray(last));
}

TEST(MayEvictTest, ThatRefusesMidwayLeavesWhatWasEvictedFree) {
  const Keys keys = chain(1, 3);
  const auto pool = make_pool(
      3, {.policy = PolicyKind::kLru, .may_evict = [&](BlockId, const BlockKey& key) { return key != keys[0]; }});
  cache(*pool, keys);
  Keys evicted;
  EXPECT_FALSE(pool->allocate(3, kDefaultTenant, evicted));
  EXPECT_THAT(evicted, ElementsAre(keys[2], keys[1]));
  EXPECT_EQ(pool->counts(), (PoolCounts{.total = 3, .free = 2, .inactive = 1, .registered = 1}));
  pool->check_invariants();
}

TEST(MayEvictTest, IsCalledWithTheBlockThatHoldsTheKey) {
  BlockId asked{99};
  const auto pool = make_pool(1, {.may_evict = [&](BlockId block_id, const BlockKey&) {
                                asked = block_id;
                                return true;
                              }});
  cache(*pool, chain(1, 1));
  EXPECT_THAT(evicted_for(*pool, 1), ElementsAreArray(chain(1, 1)));
  EXPECT_EQ(asked, BlockId{0});
}

TEST(MayEvictTest, ARefusalByOneTenantsBlocksLeavesThoseOfTheOthers) {
  const Keys refused = chain(1, 3);
  const Keys given = chain(2, 1);
  const auto pool = make_pool(4, {.policy = PolicyKind::kLru,
                                  .tenants = {{.name = "a"}, {.name = "b"}},
                                  .may_evict = [&](BlockId, const BlockKey& key) { return key == given[0]; }});
  cache(*pool, refused, {}, kA);
  cache(*pool, given, {}, kB);
  EXPECT_THAT(evicted_for(*pool, 1, kB), ElementsAreArray(given));
}

}  // namespace
}  // namespace cairn::testing
