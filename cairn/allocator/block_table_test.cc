#include "cairn/allocator/block_manager.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace cairn {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr PhysicalTokenBlock kFive{5, 16, 0};
constexpr PhysicalTokenBlock kTwo{2, 16, 0};
constexpr PhysicalTokenBlock kOtherSize{7, 32, 0};

TEST(PhysicalTokenBlockTest, ComparesByAllThreeFieldsAndOrdersByNumber) {
  EXPECT_EQ(kFive, (PhysicalTokenBlock{5, 16, 0}));
  EXPECT_NE(kFive, (PhysicalTokenBlock{5, 16, 1}));
  EXPECT_NE(kFive, (PhysicalTokenBlock{5, 32, 0}));
  EXPECT_THAT((std::set<PhysicalTokenBlock>{kFive, kTwo, kFive}), ElementsAre(kTwo, kFive));
}

TEST(BlockTableTest, StartsEmptyWithItsBlockSize) {
  const BlockTable table(16);
  EXPECT_TRUE(table.empty());
  EXPECT_EQ(table.size(), 0U);
  EXPECT_EQ(table.block_size(), 16U);
  EXPECT_TRUE(table.physical_blocks().empty());
}

TEST(BlockTableTest, KeepsBlocksInTheOrderAppended) {
  BlockTable table(16);
  ASSERT_TRUE(table.append(kFive));
  ASSERT_TRUE(table.append(kTwo));
  EXPECT_FALSE(table.empty());
  EXPECT_EQ(table.size(), 2U);
  EXPECT_THAT(table.physical_blocks(), ElementsAre(kFive, kTwo));
}

TEST(BlockTableTest, ACopyIsIndependent) {
  BlockTable table(16);
  ASSERT_TRUE(table.append(kFive));
  const BlockTable copy = table;
  ASSERT_TRUE(table.append(kTwo));
  EXPECT_THAT(copy.physical_blocks(), ElementsAre(kFive));
}

TEST(BlockTableTest, ReplacesOneBlockInPlace) {
  BlockTable table(16);
  ASSERT_TRUE(table.append(std::vector{kFive, kFive}));
  ASSERT_TRUE(table.replace(1, kTwo));
  EXPECT_THAT(table.physical_blocks(), ElementsAre(kFive, kTwo));
}

TEST(BlockTableTest, RejectsABlockOfAnotherSizeAndStaysAsItWas) {
  BlockTable table(16);
  ASSERT_TRUE(table.append(kFive));
  const Status appended = table.append(std::vector{kTwo, kOtherSize});
  ASSERT_FALSE(appended);
  EXPECT_EQ(appended.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(appended.error().message, HasSubstr("block 7 of device 0 holds 32 tokens"));
  const Status replaced = table.replace(0, kOtherSize);
  ASSERT_FALSE(replaced);
  EXPECT_EQ(replaced.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(table.physical_blocks(), ElementsAre(kFive));
}

TEST(BlockTableTest, RejectsAReplacementPastTheEnd) {
  BlockTable table(16);
  ASSERT_TRUE(table.append(kFive));
  const Status replaced = table.replace(1, kTwo);
  ASSERT_FALSE(replaced);
  EXPECT_EQ(replaced.error().code, ErrorCode::kOutOfRange);
  EXPECT_THAT(table.physical_blocks(), ElementsAre(kFive));
}

}  // namespace
}  // namespace cairn
