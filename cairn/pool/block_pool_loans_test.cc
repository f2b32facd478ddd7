// Borrowed blocks, and reads that change nothing.
#include <chrono>
#include <optional>
#include <random>

#include "cairn/base/clock.h"
#include "cairn/pool/pool_testing.h"

namespace cairn::testing {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

BlockPoolOptions lru(std::uint32_t low_water = 2) { return {.policy = PolicyKind::kLru, .low_water = low_water}; }

Keys lent_keys(const BorrowedBlocks& loan) {
  Keys keys;
  for (const BlockFacts& facts : loan.facts()) {
    keys.push_back(facts.block.key);
  }
  return keys;
}

class EveryPolicyLoansTest : public ::testing::TestWithParam<PolicyKind> {};

// A borrowed block keeps its place and its uses: pools with and without copies evict the same blocks.
TEST_P(EveryPolicyLoansTest, ALoanChangesNoOrder) {
  const auto run = [](PolicyKind policy, bool lends) {
    auto pool = make_pool(64, {.policy = policy, .low_water = 8});
    std::mt19937 random(11);
    Keys evicted;
    for (int i = 0; i < 400; ++i) {
      const Keys keys = chain(random() % 40, 1 + random() % 5);
      const ImmutableBlocks found = pool->match_prefix(keys);
      if (found.size() < keys.size()) {
        const Keys rest(keys.begin() + found.size(), keys.end());
        MutableBlocks room = *pool->allocate(static_cast<std::uint32_t>(rest.size()), kDefaultTenant, evicted);
        (void)*(*std::move(room).complete({.keys = rest})).register_blocks();
      }
      const Keys copied = chain(random() % 40, 5);
      if (lends) {
        const BorrowedBlocks loan = pool->borrow(copied);
        pool->check_invariants();
      }
    }
    return joined(evicted, evicted_for(*pool, 64));
  };
  EXPECT_EQ(run(GetParam(), true), run(GetParam(), false));
}

INSTANTIATE_TEST_SUITE_P(Policies, EveryPolicyLoansTest, ::testing::ValuesIn(kAllPolicies), [](const auto& each) {
  std::string name(to_string(each.param));
  std::erase(name, '-');
  return name;
});

TEST(BlockPoolLoansTest, IsNoUseAndObserversAreNotNotified) {
  RecordingObserver observer;
  const auto pool = make_pool(8, {.policy = PolicyKind::kLru, .observers = {&observer}, .low_water = 2});
  const Keys keys = chain(1, 3);
  cache(*pool, keys);
  (void)observer.take();
  const PoolCounts before = pool->counts();
  {
    const BorrowedBlocks loan = pool->borrow(joined({chain(9, 1)[0]}, keys));
    EXPECT_EQ(lent_keys(loan), keys);
    EXPECT_EQ(pool->counts().inactive, 3U);
    EXPECT_EQ(pool->counts().borrowed, 3U);
    EXPECT_EQ(pool->counts().available(), 5U);
    EXPECT_EQ(pool->borrow(keys).size(), 0U) << "already borrowed";
  }
  EXPECT_EQ(pool->counts(), before);
  EXPECT_EQ(pool->stats().lookups, 0U);
  EXPECT_THAT(observer.take(), IsEmpty());
}

TEST(BlockPoolLoansTest, AnotherBlockGoesInThePlaceOfOneThatIsRead) {
  const auto pool = make_pool(4, lru());
  const Keys keys = chain(1, 4);
  cache(*pool, keys);  // the last one goes first
  std::optional<BorrowedBlocks> loan = pool->borrow({{keys[3], keys[1]}});
  EXPECT_EQ(evicted_for(*pool, 1), Keys({keys[2]}));
  EXPECT_EQ(pool->counts().active, 1U) << "set aside";
  EXPECT_TRUE(pool->contains(keys[3]));
  pool->check_invariants();
  loan.reset();
  EXPECT_EQ(pool->counts().ready, 1U) << "it is next to be evicted";
  EXPECT_EQ(pool->counts().active, 0U);
  EXPECT_EQ(evicted_for(*pool, 2), Keys({keys[3]}));
  pool->check_invariants();
}

TEST(BlockPoolLoansTest, AReadyBlockThatIsReadWaitsForItsReader) {
  const auto pool = make_pool(4, lru());
  const Keys keys = joined(joined(chain(1, 1), chain(2, 1)), joined(chain(3, 1), chain(4, 1)));
  for (const BlockKey& key : keys) {
    cache(*pool, {key});
  }
  pool->claim_victims(2).release_as_victims();
  std::optional<BorrowedBlocks> loan = pool->borrow({{keys[0]}});
  EXPECT_EQ(pool->counts().ready, 2U);
  EXPECT_EQ(evicted_for(*pool, 2), Keys({keys[1], keys[2]}));
  EXPECT_EQ(pool->wanted_victims(), 0U) << "two are free and one is returned";
  loan.reset();
  EXPECT_EQ(evicted_for(*pool, 3), Keys({keys[0]}));
}

TEST(BlockPoolLoansTest, ClaimsPassOverWhatIsReadAndCountOnIt) {
  const auto pool = make_pool(4, lru(2));
  const Keys keys = chain(1, 4);
  cache(*pool, keys);
  std::optional<BorrowedBlocks> loan = pool->borrow({{keys[3]}});
  EXPECT_EQ(pool->wanted_victims(), 4U);
  EXPECT_EQ(keys_of(pool->claim_victims(1)), Keys({keys[2]}));
  EXPECT_EQ(pool->wanted_victims(), 3U) << "the one that is read is ready soon";
  loan.reset();
  EXPECT_EQ(pool->counts().ready, 1U);
}

TEST(BlockPoolLoansTest, AMatchOfABlockThatIsReadIsAMatch) {
  const auto pool = make_pool(4, lru());
  const Keys keys = chain(1, 4);
  cache(*pool, keys);
  std::optional<BorrowedBlocks> loan = pool->borrow(keys);
  std::optional<ImmutableBlocks> used = pool->match_prefix(first_of(keys, 1));
  EXPECT_EQ(pool->counts().borrowed, 3U);
  loan.reset();
  EXPECT_EQ(pool->counts().active, 1U);
  used.reset();
  EXPECT_EQ(evicted_for(*pool, 4), reversed(keys));
}

TEST(BlockPoolLoansTest, ABlockInUseCanBeReadAndReleased) {
  const auto pool = make_pool(4, lru());
  const Keys keys = chain(1, 2);
  std::optional<ImmutableBlocks> used = store(*pool, keys);
  std::optional<BorrowedBlocks> loan = pool->borrow(keys);
  EXPECT_EQ(pool->counts().borrowed, 0U);
  used.reset();
  EXPECT_EQ(pool->counts().borrowed, 2U);
  EXPECT_FALSE(pool->allocate(3));
  pool->check_invariants();
  loan.reset();
  EXPECT_TRUE(pool->allocate(4));
}

TEST(BlockPoolLoansTest, AnAllocationThatFailsEvictsNothing) {
  const auto pool = make_pool(4, lru());
  cache(*pool, chain(1, 4));
  const BorrowedBlocks loan = pool->borrow(chain(1, 1));
  const auto refused = pool->allocate(4);
  ASSERT_FALSE(refused);
  expect_error(refused.error(), ErrorCode::kExhausted, "while a copy reads 1 more");
  EXPECT_EQ(pool->counts().registered, 4U);
  EXPECT_TRUE(pool->allocate(3));
}

TEST(BlockPoolLoansTest, MemoryThatIsReadIsInQuarantineWhateverHappensToTheBlock) {
  ManualClock clock;
  for (int how = 0; how < 4; ++how) {
    const auto pool = make_pool(4, {.policy = PolicyKind::kLru, .time_to_live = true, .clock = &clock, .low_water = 1});
    const Keys keys = chain(1, 1);
    std::optional<ImmutableBlocks> used = store(*pool, keys, {.time_to_live = milliseconds(5)});
    if (how != 3) {
      used.reset();
    }
    std::optional<BorrowedBlocks> loan = pool->borrow(keys);
    if (how == 0) {
      EXPECT_EQ(pool->reset(keys).reset, 1U);
    } else if (how == 1) {
      EXPECT_EQ(pool->reset_inactive(), 1U);
    } else if (how == 2) {
      clock.advance(milliseconds(6));
    } else {
      EXPECT_EQ(pool->discard(keys), 1U);
      used.reset();
    }
    EXPECT_FALSE(pool->contains(keys[0]));
    EXPECT_EQ(pool->counts().quarantined, 1U) << how;
    EXPECT_EQ(pool->counts().free, 3U);
    pool->check_invariants();
    cache(*pool, keys);  // the same block again, in other memory
    EXPECT_TRUE(pool->contains(keys[0]));
    loan.reset();
    EXPECT_EQ(pool->counts().quarantined, 0U);
    EXPECT_EQ(pool->counts().free, 3U);
    pool->check_invariants();
  }
}

TEST(BlockPoolLoansTest, AFenceFreesNoMemoryThatIsRead) {
  const auto pool = make_pool(4, lru());
  const Keys keys = chain(1, 4);
  cache(*pool, keys);
  std::optional<BorrowedBlocks> loan = pool->borrow({{keys[3], keys[0]}});
  (void)evicted_for(*pool, 1);  // sets one of them aside
  (void)pool->raise_fence(*pool->plan_fence());
  pool->lower_fence();
  pool->check_invariants();
  EXPECT_EQ(pool->borrow(keys).size(), 0U);
  EXPECT_FALSE(pool->allocate(3)) << "two are still read";
  EXPECT_TRUE(pool->allocate(2));
  pool->check_invariants();
  loan.reset();
  pool->check_invariants();
  EXPECT_TRUE(pool->allocate(4));
  EXPECT_EQ(pool->counts(), (PoolCounts{.total = 4, .free = 4}));
}

TEST(BlockPoolLoansTest, AWholePoolThatIsReadComesBack) {
  for (const std::uint32_t low_water : {0U, 4U}) {
    const auto pool = make_pool(8, lru(low_water));
    const Keys keys = chain(1, 8);
    cache(*pool, keys);
    {
      const BorrowedBlocks loan = pool->borrow(keys);
      EXPECT_FALSE(pool->allocate(1));
      EXPECT_THAT(keys_of(pool->claim_victims(8)), IsEmpty());
      pool->check_invariants();
    }
    EXPECT_EQ(pool->counts().inactive, 8U);
    EXPECT_TRUE(pool->allocate(8));
    pool->check_invariants();
  }
}

TEST(BlockPoolLoansTest, ALookShowsPriorityAndParentAndTakesNothing) {
  const auto pool = make_pool(4, lru());
  const Keys keys = chain(1, 3);
  cache(*pool, {keys[0]});
  cache(*pool, {keys[1]}, {.priority = 70});
  const auto seen = pool->peek(keys);
  ASSERT_EQ(seen.size(), 3U);
  ASSERT_TRUE(seen[0].has_value());
  EXPECT_EQ(seen[0]->parent, std::nullopt);
  ASSERT_TRUE(seen[1].has_value());
  EXPECT_EQ(seen[1]->facts.priority, 70U);
  EXPECT_EQ(seen[1]->parent, keys[0]);
  EXPECT_FALSE(seen[2].has_value());
  EXPECT_FALSE(pool->contains_parent_of(keys[0]));
  EXPECT_TRUE(pool->contains_parent_of(keys[2]));
  EXPECT_EQ(pool->stats().lookups, 0U);
}

TEST(BlockPoolLoansTest, TheWaterIsRaisedAndNeverBelowThePoolsOwn) {
  const auto pool = make_pool(16, lru(2));
  cache(*pool, chain(1, 14));
  EXPECT_EQ(pool->wanted_victims(), 0U);
  pool->set_low_water(5);
  EXPECT_EQ(pool->wanted_victims(), 8U);
  pool->set_low_water(1);
  EXPECT_EQ(pool->wanted_victims(), 0U);
  const auto without = make_pool(16, lru(0));
  cache(*without, chain(1, 16));
  without->set_low_water(5);
  EXPECT_EQ(without->wanted_victims(), 0U);
}

}  // namespace
}  // namespace cairn::testing
