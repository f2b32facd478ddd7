#include "cairn/pool/inactive_blocks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

#include "cairn/pool/pool_testing.h"

namespace cairn::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

// The table, index and inactive blocks of a pool, without lock and handles.
class Parts {
 public:
  explicit Parts(BlockPoolOptions options, Veto veto = {})
      : options_(with_defaults(std::move(options))), inactive(options_, clock, table, index, std::move(veto)) {
    InactiveBlocks::Order order = *inactive.make_order();
    EXPECT_EQ(inactive.swap_order(order), 0U);
    inactive.reserve(options_.capacity);
  }
  ~Parts() { check(); }

  void check() const {
    table.check_invariants();
    inactive.check_invariants();
  }

  // Registers a block under each key, in use.
  std::vector<BlockId> add(const Keys& keys, const Retention& retention = {}, TenantId tenant = kDefaultTenant) {
    std::vector<BlockId> block_ids;
    for (const BlockKey& key : keys) {
      const BlockId block_id = table.take_free();
      table.tenants().charge(tenant, 1);
      table.make_private({&block_id, 1}, tenant);
      EXPECT_TRUE(table.complete({&block_id, 1}, {.keys = {&key, 1}}));
      table.make_registered(block_id);
      inactive.on_registered(block_id, retention);
      index.insert(block_id, index.place_of(key));
      block_ids.push_back(block_id);
    }
    return block_ids;
  }
  // Drops the reference to each, last one first.
  std::vector<BlockId> unreferenced(const std::vector<BlockId>& block_ids) {
    std::vector<BlockId> unused;
    for (std::size_t i = block_ids.size(); i-- > 0;) {
      unused.push_back(table.drop_reference(block_ids[i]));
    }
    return unused;
  }
  std::vector<BlockId> cache(const Keys& keys, const Retention& retention = {}, TenantId tenant = kDefaultTenant) {
    std::vector<BlockId> block_ids = add(keys, retention, tenant);
    inactive.insert(unreferenced(block_ids));
    return block_ids;
  }
  void reference(std::span<const BlockId> block_ids) {
    for (const BlockId block_id : block_ids) {
      (void)table.add_reference(block_id);
    }
  }
  // Evicts so many blocks and makes them free.
  std::vector<BlockId> evict(std::size_t count, TenantId tenant = kDefaultTenant) {
    std::vector<BlockId> victims(count);
    std::size_t taken = 0;
    for (std::size_t more = 1; taken < count && more > 0; taken += more) {
      more = inactive.evict(tenant, std::span(victims).subspan(taken));
    }
    victims.resize(taken);
    drop(victims);
    return victims;
  }
  void drop(std::span<const BlockId> block_ids) {
    index.erase(block_ids);
    inactive.forget(block_ids);
    for (const BlockId block_id : block_ids) {
      table.make_free(block_id);
    }
  }

 private:
  static BlockPoolOptions with_defaults(BlockPoolOptions options) {
    options.capacity = options.capacity == 0 ? 16 : options.capacity;
    options.block_size = kBlockSize;
    options.policy = PolicyKind::kLru;
    return options;
  }

  const BlockPoolOptions options_;

 public:
  ManualClock clock;
  BlockRecords table = *BlockRecords::create(options_);
  KeyIndex index = *KeyIndex::create(options_.capacity, table.key_column());
  InactiveBlocks inactive;
};

TEST(InactiveBlocksTest, EvictsInTheOrderOfThePolicy) {
  Parts parts({});
  const std::vector<BlockId> a = parts.cache(chain(1, 2));
  const std::vector<BlockId> b = parts.cache(chain(2, 1));
  EXPECT_EQ(parts.inactive.size(), 3U);
  EXPECT_THAT(parts.evict(10), ElementsAre(a[1], a[0], b[0])) << "leaf first";
  EXPECT_EQ(parts.inactive.size(), 0U);
}

TEST(InactiveBlocksTest, ABlockInUseIsNotEvicted) {
  Parts parts({});
  const std::vector<BlockId> a = parts.cache(chain(1, 1));
  const std::vector<BlockId> b = parts.cache(chain(2, 1));
  parts.reference(a);
  parts.inactive.use(a, {});
  parts.check();
  EXPECT_THAT(parts.evict(10), ElementsAre(b[0]));
  parts.inactive.insert(parts.unreferenced(a));
  EXPECT_THAT(parts.evict(10), ElementsAre(a[0]));
}

TEST(InactiveBlocksTest, LowerPrioritiesGoFirst) {
  Parts parts({});
  const std::vector<BlockId> high = parts.cache(chain(1, 1), {.priority = 80});
  const std::vector<BlockId> low = parts.cache(chain(2, 1), {.priority = 10});
  EXPECT_THAT(parts.evict(2), ElementsAre(low[0], high[0]));
}

TEST(InactiveBlocksTest, RaisedRetentionKeepsTheHigherPriority) {
  Parts parts({});
  const std::vector<BlockId> a = parts.add(chain(1, 1), {.priority = 50});
  parts.inactive.raise_retention(a[0], {.priority = 20});
  EXPECT_EQ(parts.table.priority_of(a[0]), 50U);
  parts.inactive.raise_retention(a[0], {.priority = 90});
  EXPECT_EQ(parts.table.priority_of(a[0]), 90U);
}

TEST(InactiveBlocksTest, ReadyBlocksGoBeforeAllOthersInTheirOwnOrder) {
  Parts parts({.low_water = 4});
  const std::vector<BlockId> old = parts.cache(chain(1, 1));
  const std::vector<BlockId> ready = parts.add(chain(2, 2));
  const std::vector<BlockId> unused = parts.unreferenced(ready);
  parts.inactive.insert_ready(unused);
  EXPECT_EQ(parts.inactive.ready_count(), 2U);
  EXPECT_EQ(parts.inactive.unready_count(), 1U);
  EXPECT_THAT(parts.evict(3), ElementsAre(unused[0], unused[1], old[0]));
}

TEST(InactiveBlocksTest, WithoutLowWaterReadyBlocksAreAsOthers) {
  Parts parts({});
  const std::vector<BlockId> a = parts.add(chain(1, 1));
  parts.inactive.insert_ready(parts.unreferenced(a));
  EXPECT_FALSE(parts.inactive.keeps_ready_blocks());
  EXPECT_EQ(parts.inactive.unready_count(), 1U);
}

TEST(InactiveBlocksTest, AHeldReadyBlockIsReadyAgainUnlessItWasUsed) {
  Parts parts({.low_water = 4});
  const std::vector<BlockId> a = parts.add(chain(1, 1));
  const std::vector<BlockId> b = parts.add(chain(2, 1));
  parts.inactive.insert_ready(parts.unreferenced(a));
  parts.inactive.insert_ready(parts.unreferenced(b));
  for (const std::vector<BlockId>& each : {a, b}) {
    parts.reference(each);
    parts.inactive.hold(each);
  }
  parts.check();
  EXPECT_EQ(parts.inactive.size(), 0U);
  parts.inactive.use({}, b);
  parts.inactive.insert(parts.unreferenced(a));
  parts.inactive.insert(parts.unreferenced(b));
  EXPECT_EQ(parts.inactive.ready_count(), 1U);
  EXPECT_THAT(parts.evict(2), ElementsAre(a[0], b[0]));
}

TEST(InactiveBlocksTest, AReadyParentWaitsForItsInactiveChildIfLeavesGoFirst) {
  Parts parts({.leaves_first = true, .low_water = 4});
  const Keys keys = chain(1, 2);
  const std::vector<BlockId> parent = parts.add(first_of(keys, 1));
  const std::vector<BlockId> child = parts.add({keys[1]});
  parts.inactive.insert_ready(parts.unreferenced(parent));
  parts.inactive.insert(parts.unreferenced(child));
  EXPECT_THAT(parts.evict(1), ElementsAre(child[0]));
  parts.check();
  EXPECT_THAT(parts.evict(1), ElementsAre(parent[0]));
}

TEST(InactiveBlocksTest, AParentInThePolicyWaitsForItsReadyChildIfLeavesGoFirst) {
  Parts parts({.leaves_first = true, .low_water = 4});
  const Keys keys = chain(1, 2);
  const std::vector<BlockId> parent = parts.cache(first_of(keys, 1));
  const std::vector<BlockId> child = parts.add({keys[1]});
  parts.inactive.insert_ready(parts.unreferenced(child));
  parts.check();
  EXPECT_THAT(parts.evict(2), ElementsAre(child[0], parent[0]));
}

TEST(InactiveBlocksTest, ABorrowedBlockIsDeferredAndAnotherOneEvicted) {
  Parts parts({.low_water = 4});
  const std::vector<BlockId> a = parts.cache(chain(1, 1));
  const std::vector<BlockId> b = parts.cache(chain(2, 1));
  parts.table.lend(a[0]);
  parts.inactive.on_lent();
  EXPECT_EQ(parts.inactive.borrowed_count(), 1U);
  EXPECT_THAT(parts.evict(2), ElementsAre(b[0]));
  EXPECT_EQ(parts.inactive.borrowed_count(), 0U);
  EXPECT_EQ(parts.table.deferred_count(), 1U);
  parts.check();
  ASSERT_TRUE(parts.table.end_loan(a[0]));
  parts.inactive.insert_ready(parts.unreferenced(a));
  EXPECT_EQ(parts.inactive.ready_count(), 1U);
}

TEST(InactiveBlocksTest, AVetoedBlockStaysWhereItIs) {
  BlockId kept = kNoBlock;
  Parts parts({}, [&kept](BlockId block_id) { return block_id == kept; });
  const std::vector<BlockId> a = parts.cache(chain(1, 1));
  const std::vector<BlockId> b = parts.cache(chain(2, 1));
  kept = a[0];
  EXPECT_THAT(parts.evict(2), ElementsAre(b[0]));
  kept = kNoBlock;
  EXPECT_EQ(parts.inactive.evict_any(), a[0]);
  parts.drop(a);
}

TEST(InactiveBlocksTest, ExpiresBlocksWhoseTimeHasPassed) {
  Parts parts({.time_to_live = true});
  const std::vector<BlockId> a = parts.cache(chain(1, 1), {.time_to_live = std::chrono::milliseconds(5)});
  parts.cache(chain(2, 1));
  EXPECT_TRUE(parts.inactive.keeps_time());
  EXPECT_EQ(parts.inactive.next_expired(parts.clock.now()), kNoBlock);
  parts.clock.advance(std::chrono::milliseconds(5));
  ASSERT_EQ(parts.inactive.next_expired(parts.clock.now()), a[0]);
  parts.inactive.remove(a);
  parts.drop(a);
  EXPECT_EQ(parts.inactive.next_expired(parts.clock.now()), kNoBlock);
  EXPECT_EQ(parts.inactive.size(), 1U);
}

TEST(InactiveBlocksTest, APriorityForATimeEnds) {
  Parts parts({.time_to_live = true});
  const std::vector<BlockId> a =
      parts.cache(chain(1, 1), {.priority = 90, .priority_duration = std::chrono::milliseconds(5)});
  const std::vector<BlockId> b = parts.cache(chain(2, 1), {.priority = 60});
  parts.clock.advance(std::chrono::milliseconds(5));
  EXPECT_EQ(parts.inactive.next_expired(parts.clock.now()), kNoBlock);
  EXPECT_EQ(parts.table.priority_of(a[0]), Retention::kDefaultPriority);
  EXPECT_THAT(parts.evict(2), ElementsAre(a[0], b[0]));
}

TEST(InactiveBlocksTest, AHintMovesAnInactiveBlock) {
  Parts parts({.hints = true});
  const std::vector<BlockId> a = parts.cache(chain(1, 1));
  const std::vector<BlockId> b = parts.cache(chain(2, 1));
  parts.inactive.hint(b[0], {.kind = RetentionHint::Kind::kWillNotReturn}, parts.clock.now());
  EXPECT_THAT(parts.evict(2), ElementsAre(b[0], a[0]));
}

TEST(InactiveBlocksTest, ClaimsFromTheTenantFurthestBeyondItsReservation) {
  Parts parts({.tenants = {{.name = "a", .reserved = 4}, {.name = "b"}}, .low_water = 4});
  parts.cache(chain(1, 4), {}, TenantId{0});
  const std::vector<BlockId> b = parts.cache(chain(2, 2), {}, TenantId{1});
  std::vector<BlockId> claimed(2);
  ASSERT_EQ(parts.inactive.claim(claimed), 2U);
  EXPECT_THAT(claimed, UnorderedElementsAre(b[0], b[1]));
  parts.reference(claimed);
  parts.check();
}

TEST(InactiveBlocksTest, TakesOutAllReadyOnesFirst) {
  Parts parts({.low_water = 4});
  const std::vector<BlockId> a = parts.cache(chain(1, 1));
  const std::vector<BlockId> b = parts.add(chain(2, 1));
  parts.inactive.insert_ready(parts.unreferenced(b));
  std::vector<BlockId> all;
  parts.inactive.take_all(all);
  EXPECT_THAT(all, ElementsAre(b[0], a[0]));
  EXPECT_EQ(parts.inactive.size(), 0U);
  parts.drop(all);
}

TEST(InactiveBlocksTest, AnEmptyOrderForgetsEveryBlock) {
  Parts parts({.low_water = 4});
  parts.cache(chain(1, 3));
  InactiveBlocks::Order order = *parts.inactive.make_order();
  EXPECT_EQ(parts.inactive.swap_order(order), 3U);
  parts.table.raise_fence(3);
  EXPECT_EQ(parts.inactive.size(), 0U);
  EXPECT_THAT(parts.evict(3), IsEmpty());
}

}  // namespace
}  // namespace cairn::testing
