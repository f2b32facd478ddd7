#include "cairn/tier/disk_rank_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <random>

#include "cairn/tier/disk_ranks_testing.h"

namespace cairn {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<std::string> names_of(const std::vector<DiskPart>& parts) {
  std::vector<std::string> names;
  for (const DiskPart& part : parts) {
    names.push_back(part.name());
  }
  return names;
}

KvShape shape(std::uint32_t layers, std::uint32_t heads, std::uint32_t kv = 2) {
  return {.layers = layers, .kv = kv, .page_size = 4, .heads = heads, .head_size = 24, .element_bits = 8};
}

TEST(DiskPartTest, TheRanksOfAGridHaveTheseParts) {
  EXPECT_THAT(names_of(*parts_of({1}, shape(5, 4))), ElementsAre("l0-4.h0-3"));
  EXPECT_THAT(names_of(*parts_of({2, 2}, shape(5, 4))),
              ElementsAre("l0-2.h0-1", "l0-2.h2-3", "l3-4.h0-1", "l3-4.h2-3"));
  const std::uint32_t stages[] = {1, 4};
  EXPECT_THAT(names_of(*parts_of({1, 2}, shape(5, 4), stages)), ElementsAre("l0-0.h0-3", "l1-4.h0-3"));
}

TEST(DiskPartTest, ReplicasHaveOnePart) {
  EXPECT_THAT(names_of(*parts_of({4}, shape(5, 2))), ElementsAre("l0-4.h0-0", "l0-4.h1-1"));
  EXPECT_THAT(names_of(*parts_of({8, 2}, shape(4, 1, 1))), ElementsAre("l0-1.h0-0", "l2-3.h0-0"));
}

TEST(DiskPartTest, AGridThatCannotDealTheModelIsRefused) {
  EXPECT_THAT(parts_of({3}, shape(5, 4)).error().message, HasSubstr("4 heads cannot be dealt to 3 ranks"));
  EXPECT_FALSE(parts_of({1, 6}, shape(5, 4))) << "a stage without layers";
  const std::uint32_t stages[] = {1, 3};
  EXPECT_FALSE(parts_of({1, 2}, shape(5, 4), stages));
  EXPECT_THAT(parts_of({1, 3}, shape(5, 4), stages).error().message, HasSubstr("give one number for each"));
}

TEST(DiskPartTest, ACoverHasEveryRowOnce) {
  const KvShape whole = shape(4, 4);
  std::vector<DiskPart> parts = *parts_of({2, 2}, whole);
  EXPECT_TRUE(check_cover(parts, whole));
  parts.push_back({{0, 1}, 0, 1});
  EXPECT_THAT(check_cover(parts, whole).error().message, HasSubstr("overlap"));
  parts.resize(3);
  EXPECT_THAT(check_cover(parts, whole).error().message, HasSubstr("no file has layer 2, head 2"));
  parts[0].layers.count = 9;
  EXPECT_THAT(check_cover(parts, whole).error().message, HasSubstr("not one of a model with 4 layers"));
}

// Every row of a part is the row of the block with the same numbers.
TEST(DiskPartTest, PartsHaveTheRowsOfTheBlock) {
  std::mt19937 random(1);
  for (const auto& [layers, kv, heads] : {std::tuple(5U, 2U, 4U), {4U, 1U, 1U}, {3U, 2U, 8U}}) {
    const KvShape whole = shape(layers, heads, kv);
    std::vector<std::byte> block(whole.block_bytes());
    std::ranges::generate(block, [&] { return static_cast<std::byte>(random()); });
    for (const RankGrid grid :
         {RankGrid(1), RankGrid(2), RankGrid(4), RankGrid(1, 2), RankGrid(2, 2), RankGrid(4, 3)}) {
      std::vector<std::byte> again(block.size());
      const std::vector<DiskPart> parts = *parts_of(grid, whole);
      for (const DiskPart& part : parts) {
        const KvShape of_part = part.shape(whole);
        std::vector<std::byte> bytes(of_part.block_bytes());
        take_part(whole, part, block, bytes);
        for (std::uint32_t layer = 0; layer < of_part.layers; ++layer) {
          for (std::uint32_t token = 0; token < whole.page_size; ++token) {
            for (std::uint32_t head = 0; head < of_part.heads; ++head) {
              const std::uint64_t mine = of_part.row(layer, kv - 1, token, head) * whole.row_bytes();
              const std::uint64_t its =
                  whole.row(part.layers.first + layer, kv - 1, token, part.first_head + head) * whole.row_bytes();
              ASSERT_EQ(std::memcmp(bytes.data() + mine, block.data() + its, whole.row_bytes()), 0);
            }
          }
        }
        put_part(whole, part, bytes, again);
      }
      EXPECT_EQ(again, block);
    }
  }
}

// From any split to any other: no byte changes, whatever the shape.
TEST(DiskPartTest, AnySplitGivesTheBlockAndAnyOtherSplit) {
  std::mt19937 random(7);
  const auto below = [&](std::uint32_t end) { return static_cast<std::uint32_t>(random() % end); };
  for (int round = 0; round < 300; ++round) {
    const KvShape whole{.layers = 2 + below(7),
                        .kv = 1 + below(2),
                        .page_size = 1 + below(5),
                        .heads = 1U << below(4),
                        .head_size = 1 + below(40),
                        .element_bits = 8};
    std::vector<std::byte> block(whole.block_bytes());
    std::ranges::generate(block, [&] { return static_cast<std::byte>(random()); });
    std::vector<std::byte> joined = block;
    for (int split = 0; split < 3; ++split) {
      const RankGrid grid(1U << below(5), 1 + below(2));
      const std::uint32_t first = 1 + below(whole.layers - 1);
      const std::vector<std::uint32_t> stages =
          grid.pipeline == 1 ? std::vector{whole.layers} : std::vector{first, whole.layers - first};
      const std::vector<DiskPart> parts = *parts_of(grid, whole, stages);
      ASSERT_TRUE(check_cover(parts, whole));
      std::vector<std::byte> next(block.size());
      for (const DiskPart& part : parts) {
        std::vector<std::byte> bytes(part.shape(whole).block_bytes());
        take_part(whole, part, joined, bytes);
        put_part(whole, part, bytes, next);
      }
      joined = std::move(next);
      ASSERT_EQ(joined, block);
    }
  }
}

TEST(RankFileNameTest, OnlyNamesThatRanksGive) {
  EXPECT_EQ(RankFileName::parse("l0-31.h4-7")->part, (DiskPart{{0, 32}, 4, 4}));
  EXPECT_EQ(RankFileName::parse("l0-31.h4-7.c1")->copy, 1U);
  EXPECT_EQ(RankFileName::parse("l0-31.t1of2.g0")->tensor, 2U);
  for (const char* const text :
       {"", "l0-31", "l0-31.h4", "l0-31.h7-4", "l0-31.h4-7.reshard", "l00-31.h4-7", "l0-31.h4-7.c0", "l-1-3.h0-1",
        "l0-31.t2of2.g0", "l0-31.t0of2", "l0-4294967295.h0-1", "r0of2", "l0-31.h4-7 "}) {
    EXPECT_FALSE(RankFileName::parse(text)) << text;
  }
}

TEST(RankFileNameTest, FilesOfAnotherGridAreThoseThatHoldPartsOfTheSame) {
  const TestFolder folder;
  const std::string path = folder.in("blocks");
  const auto touch = [&](const std::string& suffix) { std::ofstream(path + "." + suffix) << "x"; };
  touch("l0-3.h0-1");
  touch("l0-3.h2-3");
  std::ofstream(folder.in("blockss.l0-3.h0-3")) << "of another tier";
  EXPECT_THAT(files_of_another_grid(path, "l0-3.h0-1"), IsEmpty()) << "the same grid";
  EXPECT_THAT(files_of_another_grid(path, "l0-3.h0-3"), ElementsAre(path + ".l0-3.h0-1", path + ".l0-3.h2-3"));
  EXPECT_THAT(files_of_another_grid(path, "l0-1.h2-3"), ElementsAre(path + ".l0-3.h2-3"));
  EXPECT_THAT(files_of_another_grid(path, "l4-7.h0-3"), IsEmpty()) << "other layers, of another stage";
  EXPECT_THAT(files_of_another_grid(path, "l0-3.h0-1.c1"), IsEmpty()) << "a replica";
  EXPECT_THAT(files_of_another_grid(path, "l0-3.t0of2.g0").size(), 2U);
  touch("l8-9.t0of2.g0");
  touch("l8-9.t1of2.g1");
  EXPECT_THAT(files_of_another_grid(path, "l8-9.t0of2.g1"), IsEmpty());
  EXPECT_THAT(files_of_another_grid(path, "l8-9.t0of4.g1").size(), 2U);
  EXPECT_THAT(files_of_another_grid(path, "l8-8.t0of2.g0").size(), 2U);
}

class RankFilesTest : public RankedDisk {};

TEST_F(RankFilesTest, ReadsWholeBlocks) {
  write({2, 2}, 6);
  RankFiles files = *RankFiles::open(path_);
  EXPECT_EQ(files.whole().block_bytes(), whole_.block_bytes());
  EXPECT_EQ(files.parts().size(), 4U);
  const DiskCheck check = *check_blocks(files, files.leader().recover()->entries);
  EXPECT_EQ(check.right.size(), 6U);
}

TEST_F(RankFilesTest, TellsWrongBlocks) {
  write({2}, 6);
  damage("l0-4.h2-3", 3);
  RankFiles files = *RankFiles::open(path_);
  const DiskCheck check = *check_blocks(files, files.leader().recover()->entries);
  EXPECT_EQ(check.right.size(), 5U);
  ASSERT_EQ(check.wrong.size(), 1U);
  EXPECT_EQ(check.wrong.front().block_id, BlockId{3});
}

TEST_F(RankFilesTest, SaysWhichPartIsMissingOrThereTwice) {
  write({2}, 1);
  std::filesystem::copy_file(path_ + ".l0-4.h0-1", path_ + ".l0-4.h0-0");
  EXPECT_THAT(RankFiles::open(path_).error().message, HasSubstr("is not a rank's file of"));
  std::filesystem::remove(path_ + ".l0-4.h0-0");
  std::filesystem::remove(path_ + ".l0-4.h0-1");
  EXPECT_THAT(RankFiles::open(path_).error().message, HasSubstr("no file has layer 0, head 0"));
}

TEST_F(RankFilesTest, RefusesFilesInUseAndFilesOfOtherKinds) {
  write({2}, 1);
  {
    const DiskFile user = *DiskFile::inspect(path_ + ".l0-4.h2-3");
    EXPECT_THAT(RankFiles::open(path_).error().message, HasSubstr("l0-4.h2-3 is in use by another process"));
  }
  EXPECT_THAT(RankFiles::open(path_ + ".l0-4.h2-3").error().message, HasSubstr("give the leader's file, " + path_));
  EXPECT_TRUE(is_rank_file(*DiskFile::inspect(path_ + ".l0-4.h2-3")));
  EXPECT_FALSE(is_rank_file(*DiskFile::inspect(path_)));
  EXPECT_EQ(leader_of(*DiskFile::inspect(path_ + ".l0-4.h2-3")), path_);
  std::filesystem::rename(path_ + ".l0-4.h2-3", folder_.in("moved"));
  EXPECT_TRUE(is_rank_file(*DiskFile::inspect(folder_.in("moved"))));
}

}  // namespace
}  // namespace cairn
