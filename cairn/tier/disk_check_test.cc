#include "cairn/tier/disk_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <utility>
#include <vector>

#include "cairn/layout/block_layout.h"
#include "cairn/memory/system_region.h"
#include "cairn/tier/disk_testing.h"
#include "cairn/tier/tier.h"
#include "cairn/transfer/copy_plan.h"
#include "cairn/transfer/row_sums.h"

namespace cairn {
namespace {

using ::testing::ElementsAre;

class DiskCheckTest : public DiskFileOfBlocks {
 protected:
  [[nodiscard]] DiskCheck check(const DiskProgress& progress = {}) const {
    DiskFile file = *DiskFile::inspect(path_);
    return *check_blocks(file, file.recover()->entries, progress);
  }
  static std::vector<std::uint32_t> block_ids(const std::vector<DiskEntry>& entries) {
    std::vector<std::uint32_t> all;
    for (const DiskEntry& entry : entries) {
      all.push_back(index_of(entry.block_id));
    }
    return all;
  }
};

TEST_F(DiskCheckTest, ChecksumsAreThoseThatTransfersMake) {
  // Rows of 26 bytes take four words each.
  const KvShape shape{.layers = 2, .kv = 2, .page_size = 4, .heads = 3, .head_size = 13, .element_bits = 16};
  DiskGeometry small = geometry(1, shape.row_bytes());
  small.block_bytes = shape.block_bytes();
  const BlockLayout::Options options{.shape = shape, .blocks = 1};
  const auto region = [&options] { return *system_region({.size = BlockLayout::region_sizes(options)->front()}); };
  const RegionPtr source = region();
  const std::vector<std::byte> bytes = block(small, 5);
  std::copy(bytes.begin(), bytes.end(), source->base());
  const CopyPlanPtr plan =
      *CopyPlan::make(*BlockLayout::make(options, {source}), *BlockLayout::make(options, {region()}));
  const NamespaceId space = small.space.id();
  EXPECT_EQ(checksum_of(small, space, key(5), bytes),
            finish(sum_block(*plan, PlanSide::kSource, 0), shape.block_bytes(), block_tag(space, key(5))));
  EXPECT_NE(checksum_of(small, space, key(5), bytes), checksum_of(small, space, key(6), bytes));
}

TEST_F(DiskCheckTest, FindsTheBlocksThatAreNotWhatTheirEntriesSay) {
  for (const std::uint64_t row_bytes : {100, 128}) {
    const DiskGeometry small = geometry(20, row_bytes);
    std::filesystem::remove(path_);
    write(small, {{7, 1}, {3, 2}, {4, 3}, {5, 4}, {19, 5}, {0, 6}});
    EXPECT_THAT(block_ids(check().right), ElementsAre(7, 3, 4, 5, 19, 0)) << "in the order in which they were put";
    damage_block(small, 4);
    damage_block(small, 19);
    damage_block(small, 12);  // has no block
    const std::string before = bytes_of_file();
    std::vector<std::uint64_t> reported;
    const DiskCheck found = check([&reported](std::uint64_t done, std::uint64_t all) {
      reported.push_back(done);
      return all == 6;
    });
    EXPECT_THAT(block_ids(found.right), ElementsAre(7, 3, 5, 0));
    EXPECT_THAT(block_ids(found.wrong), ElementsAre(4, 19));
    EXPECT_TRUE(found.unreadable.empty());
    EXPECT_THAT(reported, ElementsAre(1, 4, 5, 6)) << "blocks 3 to 5 in one read";
    EXPECT_EQ(bytes_of_file(), before) << "a check changes nothing";
  }
}

TEST_F(DiskCheckTest, BlocksThatChangedPlacesAreWrong) {
  const DiskGeometry small = geometry(4);
  write(small, {{0, 1}, {1, 2}, {2, 3}});
  DiskFile file = *DiskFile::open(path_, small);
  ASSERT_TRUE(file.write_blocks(BlockId{0}, block(small, 2)));
  ASSERT_TRUE(file.write_blocks(BlockId{1}, block(small, 1)));
  EXPECT_THAT(block_ids(check_blocks(file, file.recover()->entries)->wrong), ElementsAre(0, 1));
}

TEST_F(DiskCheckTest, WhatCannotBeReadIsAFinding) {
  write(geometry(8), {{5, 1}, {6, 2}, {7, 3}});
  DiskFile file = *DiskFile::inspect(path_);
  const std::vector<DiskEntry> entries = file.recover()->entries;
  std::filesystem::resize_file(path_, file.data_offset() + 7 * file.block_step());
  const DiskCheck found = *check_blocks(file, entries);
  EXPECT_THAT(block_ids(found.right), ElementsAre(5, 6)) << "though one read covered all three";
  EXPECT_THAT(block_ids(found.unreadable), ElementsAre(7));
}

TEST_F(DiskCheckTest, ReadsLargeFilesInPieces) {
  const DiskGeometry large = geometry(5, 200'000);  // 10 MB a block: one a read
  write(large, {{0, 1}, {1, 2}, {2, 3}});
  damage_block(large, 1);
  std::vector<std::uint64_t> reported;
  const DiskCheck found = check([&reported](std::uint64_t done, std::uint64_t) {
    reported.push_back(done);
    return true;
  });
  EXPECT_THAT(reported, ElementsAre(1, 2, 3));
  EXPECT_THAT(block_ids(found.wrong), ElementsAre(1));
}

TEST_F(DiskCheckTest, StopsOnRequest) {
  write(geometry(8), {{1, 1}, {3, 2}, {5, 3}});
  DiskFile file = *DiskFile::inspect(path_);
  const Result<DiskCheck> stopped =
      check_blocks(file, file.recover()->entries, [](std::uint64_t done, std::uint64_t) { return done < 2; });
  ASSERT_FALSE(stopped);
  EXPECT_EQ(stopped.error().code, ErrorCode::kCancelled);
  EXPECT_EQ(stopped.error().message, "stopped after 2 of 3 blocks");
}

TEST_F(DiskCheckTest, AnEmptyFileHasNothingWrong) {
  write(geometry(8), {});
  const DiskCheck found = check();
  EXPECT_TRUE(found.right.empty() && found.wrong.empty() && found.unreadable.empty());
}

}  // namespace
}  // namespace cairn
