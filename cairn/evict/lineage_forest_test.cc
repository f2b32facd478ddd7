// LineageForest: which blocks are leaves after each call.
#include "cairn/evict/lineage_forest.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>

#include "cairn/evict/fake_blocks_testing.h"

namespace cairn {
namespace {

// The results of insert and remove, to compare both at once.
using Answer = std::pair<bool, BlockId>;

// Blocks 0 to 3 hold a chain, 4 a second child of 1, 5 nothing.
class LineageForestTest : public ::testing::Test {
 protected:
  LineageForestTest() {
    fake_.put(BlockId{0}, root_key(1));
    for (std::uint32_t n = 1; n < 4; ++n) {
      fake_.put(BlockId{n}, child_key(fake_.key_of(BlockId{n - 1}), n + 1));
    }
    fake_.put(BlockId{4}, child_key(fake_.key_of(BlockId{1}), 5));
  }

  Answer insert(std::uint32_t number) {
    const BlockId block_id{number};
    const BlockKey& key = fake_.key_of(block_id);
    const auto [is_leaf, no_longer_leaf] =
        forest_.insert(block_id, key.position() == 0 ? kNoBlock : fake_.find_parent(key));
    return {is_leaf, no_longer_leaf};
  }
  Answer remove(std::uint32_t number) {
    const auto [was_leaf, new_leaf] = forest_.remove(BlockId{number});
    return {was_leaf, new_leaf};
  }
  // Forgets as the pool does, and returns the new leaf.
  BlockId drop(std::uint32_t number) {
    struct Recorder {
      LineageForest& forest;
      BlockId new_leaf = kNoBlock;
      void forget(BlockId block_id) { new_leaf = forest.forget(block_id); }
    } recorder{forest_};
    fake_.drop(recorder, BlockId{number});
    return recorder.new_leaf;
  }

  FakeBlocks fake_{6};
  LineageForest forest_ = *LineageForest::create(fake_.view());
};

constexpr bool kLeaf = true;
constexpr bool kNoLeaf = false;

TEST_F(LineageForestTest, LeafFirstEachParentIsNone) {
  EXPECT_EQ(insert(3), Answer(kLeaf, kNoBlock));
  EXPECT_EQ(insert(2), Answer(kNoLeaf, kNoBlock));
  EXPECT_EQ(insert(1), Answer(kNoLeaf, kNoBlock));
  EXPECT_EQ(insert(0), Answer(kNoLeaf, kNoBlock));
}

TEST_F(LineageForestTest, RootFirstEachChildTakesItsParentsPlace) {
  EXPECT_EQ(insert(0), Answer(kLeaf, kNoBlock));
  EXPECT_EQ(insert(1), Answer(kLeaf, BlockId{0}));
  EXPECT_EQ(insert(2), Answer(kLeaf, BlockId{1}));
  EXPECT_EQ(insert(4), Answer(kLeaf, kNoBlock)) << "1 was no longer a leaf";
}

TEST_F(LineageForestTest, ContainsTheEvictableOnes) {
  insert(2);
  insert(1);
  EXPECT_TRUE(forest_.contains(BlockId{2}));
  EXPECT_TRUE(forest_.contains(BlockId{1}));
  EXPECT_FALSE(forest_.contains(BlockId{0}));
  remove(1);
  EXPECT_FALSE(forest_.contains(BlockId{1})) << "a ghost";
}

TEST_F(LineageForestTest, TheLastChildToGoExposesItsParent) {
  insert(2);
  insert(4);
  insert(1);
  EXPECT_EQ(remove(2), Answer(kLeaf, kNoBlock));
  EXPECT_EQ(remove(4), Answer(kLeaf, BlockId{1}));
  EXPECT_EQ(remove(1), Answer(kLeaf, kNoBlock));
}

TEST_F(LineageForestTest, AGhostHoldsItsParentBack) {
  for (const std::uint32_t n : {3U, 2U, 1U, 0U}) {
    insert(n);
  }
  EXPECT_EQ(remove(1), Answer(kNoLeaf, kNoBlock));
  EXPECT_EQ(remove(2), Answer(kNoLeaf, kNoBlock));
  EXPECT_EQ(remove(3), Answer(kLeaf, BlockId{0})) << "over two ghosts";
}

TEST_F(LineageForestTest, AGhostIsFilledInItsPlace) {
  for (const std::uint32_t n : {2U, 1U, 0U}) {
    insert(n);
  }
  remove(1);
  EXPECT_EQ(insert(1), Answer(kNoLeaf, kNoBlock));
  EXPECT_EQ(remove(2), Answer(kLeaf, BlockId{1}));
  EXPECT_EQ(remove(1), Answer(kLeaf, BlockId{0}));
}

TEST_F(LineageForestTest, AParentThatWasNeverEvictableHoldsNoChildBack) {
  insert(0);
  EXPECT_EQ(insert(2), Answer(kLeaf, kNoBlock)) << "1 is in use";
  EXPECT_EQ(remove(0), Answer(kLeaf, kNoBlock));
  EXPECT_EQ(remove(2), Answer(kLeaf, kNoBlock));
}

TEST_F(LineageForestTest, ForgettingAGhostExposesWhatIsAboveIt) {
  for (const std::uint32_t n : {2U, 4U, 1U, 0U}) {
    insert(n);
  }
  remove(1);
  EXPECT_EQ(drop(1), BlockId{0});
  EXPECT_EQ(remove(2), Answer(kLeaf, kNoBlock));
  EXPECT_EQ(remove(4), Answer(kLeaf, kNoBlock));
}

TEST_F(LineageForestTest, ForgettingTheLastGhostOfSeveralExposesTheFirstEvictableAbove) {
  for (const std::uint32_t n : {3U, 2U, 1U, 0U}) {
    insert(n);
  }
  remove(1);
  remove(2);
  EXPECT_EQ(drop(2), BlockId{0});
  EXPECT_EQ(insert(1), Answer(kLeaf, BlockId{0})) << "1 is out of the tree";
}

TEST_F(LineageForestTest, ForgettingWhatIsNotInTheTreeChangesNothing) {
  insert(0);
  EXPECT_EQ(drop(5), kNoBlock);
  EXPECT_EQ(drop(1), kNoBlock);
  EXPECT_EQ(remove(0), Answer(kLeaf, kNoBlock));
}

TEST_F(LineageForestTest, OrphansWaitForTheirParentInWhateverBlock) {
  const BlockKey middle = fake_.key_of(BlockId{1});
  for (const std::uint32_t n : {2U, 4U, 1U, 0U}) {
    insert(n);
  }
  remove(1);
  drop(1);
  fake_.put(BlockId{5}, middle);
  EXPECT_EQ(insert(5), Answer(kNoLeaf, BlockId{0}));
  EXPECT_EQ(remove(2), Answer(kLeaf, kNoBlock));
  EXPECT_EQ(remove(4), Answer(kLeaf, BlockId{5}));
  EXPECT_EQ(remove(5), Answer(kLeaf, BlockId{0}));
}

TEST_F(LineageForestTest, AnOrphanThatLeftIsNotAdopted) {
  const BlockKey middle = fake_.key_of(BlockId{1});
  drop(1);
  EXPECT_EQ(insert(2), Answer(kLeaf, kNoBlock));
  EXPECT_EQ(remove(2), Answer(kLeaf, kNoBlock));
  fake_.put(BlockId{5}, middle);
  EXPECT_EQ(insert(5), Answer(kLeaf, kNoBlock));
}

TEST_F(LineageForestTest, AnOrphanThatIsAGhostIsAdoptedWithWhatHangsBelow) {
  const BlockKey middle = fake_.key_of(BlockId{1});
  drop(1);
  insert(3);
  insert(2);
  remove(2);
  fake_.put(BlockId{5}, middle);
  EXPECT_EQ(insert(5), Answer(kNoLeaf, kNoBlock));
  EXPECT_EQ(remove(3), Answer(kLeaf, BlockId{5}));
}

TEST_F(LineageForestTest, AForgottenOrphanOrphansItsOwnChildren) {
  const BlockKey middle = fake_.key_of(BlockId{1});
  drop(1);
  insert(3);
  insert(2);
  remove(2);
  EXPECT_EQ(drop(2), kNoBlock);
  fake_.put(BlockId{5}, middle);
  EXPECT_EQ(insert(5), Answer(kLeaf, kNoBlock));
  EXPECT_EQ(remove(3), Answer(kLeaf, kNoBlock));
}

TEST_F(LineageForestTest, OnlyAParentAdopts) {
  drop(1);
  insert(2);
  fake_.put(BlockId{5}, child_key(fake_.key_of(BlockId{0}), 99));  // stands where 1 stood
  EXPECT_EQ(insert(5), Answer(kLeaf, kNoBlock));
  EXPECT_EQ(remove(2), Answer(kLeaf, kNoBlock));
}

TEST_F(LineageForestTest, RefusesMoreBlocksThanItsLinksCanName) {
  PolicyView view = fake_.view();
  view.capacity = LineageForest::kMaxBlocks + 1;
  const Result<LineageForest> forest = LineageForest::create(view);
  ASSERT_FALSE(forest.has_value());
  EXPECT_EQ(forest.error().code, ErrorCode::kInvalidArgument);
  EXPECT_NE(forest.error().message.find("1073741823"), std::string::npos) << forest.error().message;
}

#ifndef NDEBUG
using LineageForestDeathTest = LineageForestTest;

TEST_F(LineageForestDeathTest, ABlockBecomesEvictableOnce) {
  insert(0);
  EXPECT_DEATH(insert(0), "broken invariant");
}

TEST_F(LineageForestDeathTest, OnlyAnEvictableBlockIsRemoved) {
  EXPECT_DEATH(remove(0), "broken invariant");
  insert(1);  // makes a ghost of 0
  EXPECT_DEATH(remove(0), "broken invariant");
}

TEST_F(LineageForestDeathTest, AnEvictableBlockIsNotForgotten) {
  insert(0);
  EXPECT_DEATH(forest_.forget(BlockId{0}), "broken invariant");
}
#endif

}  // namespace
}  // namespace cairn
