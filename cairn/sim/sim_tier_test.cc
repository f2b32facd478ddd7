#include "cairn/sim/sim_tier.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "cairn/sim/kv_manager_testing.h"

namespace cairn::sim {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::unique_ptr<SimTier> tier(std::uint32_t capacity) {
  return *SimTier::create({.capacity = capacity, .block_size = 4, .tier = CacheLevel::kG3, .policy = PolicyKind::kLru});
}

BlockRecord block(std::uint64_t id) {
  return {.key = plh(id), .hash = SequenceHash{id}, .parent = SequenceHash{id - 1}, .tokens_hash = BlockHash{100 + id}};
}

// Copies blocks into the tier; returns the evicted ones.
std::vector<std::uint64_t> put(SimTier& into, const std::vector<std::uint64_t>& ids) {
  std::vector<BlockRecord> blocks;
  for (const std::uint64_t id : ids) {
    into.expect(plh(id));
    blocks.push_back(block(id));
  }
  std::vector<BlockRecord> evicted;
  into.store(into.make_room(ids.size(), evicted), blocks);
  into.check_invariants();
  std::vector<std::uint64_t> gone;
  for (const BlockRecord& record : evicted) {
    EXPECT_EQ(record.tokens_hash, BlockHash{100 + value_of(record.hash)});
    gone.push_back(value_of(record.hash));
  }
  return gone;
}

TEST(SimTierTest, ExpectsABlockUntilItIsStoredOrDropped) {
  const std::unique_ptr<SimTier> g3 = tier(4);
  EXPECT_EQ(g3->level(), CacheLevel::kG3);
  g3->expect(plh(1));
  g3->expect(plh(2));
  EXPECT_TRUE(g3->presence(plh(1)).expected);
  EXPECT_FALSE(g3->contains(plh(1)));
  g3->stop_expecting(plh(2));
  EXPECT_FALSE(g3->presence(plh(2)).expected);
  std::vector<BlockRecord> evicted;
  MutableBlocks room = g3->make_room(1, evicted);
  EXPECT_FALSE(g3->contains(plh(1))) << "not before the copy has ended";
  const BlockRecord one = block(1);
  g3->store(std::move(room), {&one, 1});
  EXPECT_TRUE(g3->presence(plh(1)).resident);
  EXPECT_FALSE(g3->presence(plh(1)).expected);
  EXPECT_EQ(g3->expected(), 0U);
  EXPECT_EQ(g3->record(plh(1)).parent, SequenceHash{0});
  EXPECT_THAT(evicted, IsEmpty());
  g3->check_invariants();
}

TEST(SimTierTest, EvictsInOrderOfStoringUnlessABlockWasReadOrIsPinned) {
  const std::unique_ptr<SimTier> g3 = tier(4);
  EXPECT_THAT(put(*g3, {1, 2, 3, 4}), IsEmpty());
  {
    const ImmutableBlocks read = g3->pin(std::vector{plh(1)});
  }
  EXPECT_THAT(put(*g3, {5}), ::testing::ElementsAre(2));
  {
    const ImmutableBlocks held = g3->pin(std::vector{plh(3), plh(4)});
    EXPECT_EQ(g3->counts().available(), 2U);
    EXPECT_THAT(put(*g3, {6}), ::testing::ElementsAre(1));
  }
  EXPECT_THAT(put(*g3, {7, 8, 9, 10}), ::testing::ElementsAre(5, 6, 4, 3));
}

TEST(SimTierTest, RejectsWhatItsPoolRejects) {
  EXPECT_THAT(SimTier::create({.capacity = 0, .block_size = 4}).error().message, HasSubstr("capacity"));
}

}  // namespace
}  // namespace cairn::sim
