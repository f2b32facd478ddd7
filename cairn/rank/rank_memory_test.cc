#include "cairn/rank/rank_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "cairn/rank/rank_testing.h"

namespace cairn {
namespace {

using ::testing::HasSubstr;
using testing::kRankBlocks;
using testing::kRankShape;
using testing::one_group;
using testing::rank_config;

class RankMemoryTest : public ::testing::Test {
 protected:
  std::string refusal(const ManagerConfig& config, const LayoutGroups& device, std::uint32_t rank = 0,
                      std::uint32_t ranks = 1) {
    const Result<RankMemory> memory = RankMemory::make(config, device, rank, ranks);
    return memory ? "none" : memory.error().to_string();
  }
  // One group of a shape that is a little different.
  template <typename Change>
  std::string refusal_of_shape(Change change) {
    KvShape shape = kRankShape;
    change(shape);
    return refusal(rank_config(folder_.in("disk")), testing::device_groups({{"all", shape, {0, 1, 2}}}));
  }
  TestFolder folder_;
};

TEST_F(RankMemoryTest, HasALayoutForEachTierAndGroup) {
  const Result<RankMemory> memory = RankMemory::make(rank_config(folder_.in("disk")), testing::two_groups(), 0, 1);
  ASSERT_TRUE(memory.has_value()) << memory.error().to_string();
  for (const CacheLevel level : {CacheLevel::kG1, CacheLevel::kG2, CacheLevel::kG3}) {
    ASSERT_EQ(memory->layouts(level).size(), 2U);
    for (const BlockLayoutPtr& layout : memory->layouts(level)) {
      EXPECT_EQ(layout->blocks(), kRankBlocks);
    }
  }
  EXPECT_TRUE(memory->layouts(CacheLevel::kG4).empty());
  EXPECT_EQ(memory->layouts(CacheLevel::kG3)[1]->kind(), MemoryKind::kFile);
  EXPECT_EQ(memory->block_bytes(), 2U * 2 * 4 * 2 * 16 + 4 * 24);
  EXPECT_TRUE(std::filesystem::exists(folder_.in("disk.r0of1.g0")));
  EXPECT_TRUE(std::filesystem::exists(folder_.in("disk.r0of1.g1")));
}

TEST_F(RankMemoryTest, TiersThatAreNotConfiguredAreNotThere) {
  ManagerConfig config = rank_config("");
  config.host.blocks = 0;
  config.disk = {};
  const Result<RankMemory> memory = RankMemory::make(config, one_group(), 0, 1);
  ASSERT_TRUE(memory.has_value());
  EXPECT_TRUE(memory->layouts(CacheLevel::kG2).empty());
  EXPECT_TRUE(memory->layouts(CacheLevel::kG3).empty());
}

TEST_F(RankMemoryTest, EachRankHasAFileOfItsOwn) {
  const ManagerConfig config = rank_config(folder_.in("disk"), 2);
  const Result<RankMemory> first = RankMemory::make(config, one_group(), 0, 2);
  const Result<RankMemory> second = RankMemory::make(config, one_group(), 1, 2);
  EXPECT_TRUE(first && second);
  EXPECT_TRUE(std::filesystem::exists(folder_.in("disk.r1of2")));
}

TEST_F(RankMemoryTest, TheShapeIsTheRanksShare) {
  EXPECT_EQ(refusal_of_shape([](KvShape&) {}), "none");
  EXPECT_THAT(refusal_of_shape([](KvShape& shape) { shape.heads = 4; }), HasSubstr("4 heads where it is 2"));
  EXPECT_THAT(refusal_of_shape([](KvShape& shape) { shape.head_size = 4; }), HasSubstr("elements a head"));
  EXPECT_THAT(refusal_of_shape([](KvShape& shape) { shape.page_size = 8; }), HasSubstr("8 tokens a block"));
  EXPECT_THAT(refusal_of_shape([](KvShape& shape) { shape.element_bits = 8; }), HasSubstr("8 bits"));
  EXPECT_THAT(refusal_of_shape([](KvShape& shape) { shape.kv = 1; }), HasSubstr("of K and V"));
  EXPECT_THAT(refusal_of_shape([](KvShape& shape) { shape.layers = 9; }), HasSubstr("9 layers where it is 3"));
  EXPECT_EQ(refusal(rank_config(folder_.in("disk")), testing::k_and_v_apart()), "none");
  EXPECT_THAT(refusal(rank_config(folder_.in("disk"), 3), one_group(), 0, 4), HasSubstr("heads"));
}

TEST_F(RankMemoryTest, BlocksAreTheLeaders) {
  ManagerConfig config = rank_config(folder_.in("disk"));
  config.device.blocks = 99;
  EXPECT_THAT(refusal(config, one_group()), HasSubstr("16 device blocks here, the leader counts 99"));
  KvShape shape = kRankShape;
  shape.layers = 2;
  KvShape other = kRankShape;
  other.layers = 1;
  std::vector<BlockLayoutPtr> layouts = {testing::TestLayout::make({shape, {}, 16, 1}).layout(),
                                         testing::TestLayout::make({other, {}, 15, 1}).layout()};
  const LayerGroups groups = *LayerGroups::make(3, {{"a", shape, {0, 1}}, {"b", other, {2}}});
  EXPECT_THAT(refusal(rank_config(folder_.in("disk")), *LayoutGroups::make(groups, layouts)),
              HasSubstr("groups of 16 and of 15"));
}

TEST_F(RankMemoryTest, AFileThatFitsIsKeptAndAnotherIsReplacedOnlyIfTold) {
  const std::string path = folder_.in("disk.r0of1");
  ManagerConfig config = rank_config(folder_.in("disk"));
  config.disk.opening = DiskOpening::kExisting;
  EXPECT_NE(refusal(config, one_group()), "none") << "there is none";
  config.disk.opening = DiskOpening::kReuse;
  ASSERT_EQ(refusal(config, one_group()), "none");
  const auto id = [&] {
    struct stat facts{};
    EXPECT_EQ(::stat(path.c_str(), &facts), 0);
    return facts.st_ino;
  };
  const auto first = id();
  config.disk.opening = DiskOpening::kFresh;
  ASSERT_EQ(refusal(config, one_group()), "none");
  EXPECT_EQ(id(), first);
  config.model.weights_generation = 4;
  config.disk.opening = DiskOpening::kReuse;
  EXPECT_EQ(refusal(config, one_group()), "none") << "of which weights its bytes are stands in the leader's file";
  config.model.name = "another";
  config.disk.opening = DiskOpening::kReuse;
  EXPECT_THAT(refusal(config, one_group()), HasSubstr("model 'rank', not 'another'"));
  config.disk.opening = DiskOpening::kFresh;
  EXPECT_EQ(refusal(config, one_group()), "none");
  std::ofstream(path) << "a letter";
  EXPECT_NE(refusal(config, one_group()), "none") << "what is not ours is not thrown away";
}

// A rank opens its file on a thread of its own, where an exception would end the engine's process.
TEST_F(RankMemoryTest, APathThatTheSystemRefusesIsAnError) {
  EXPECT_THAT(refusal(rank_config(folder_.in(std::string(300, 'x'))), one_group()), HasSubstr("File name too long"));
  std::filesystem::create_symlink("loop.r0of1", folder_.in("loop.r0of1"));
  EXPECT_THAT(refusal(rank_config(folder_.in("loop")), one_group()), HasSubstr("symbolic links"));
}

TEST_F(RankMemoryTest, ADamagedFileDoesNotKeepTheRankFromComingUp) {
  const std::string path = folder_.in("disk.r0of1");
  ManagerConfig config = rank_config(folder_.in("disk"));
  const auto damage_of = [&] {
    const Result<RankMemory> memory = RankMemory::make(config, one_group(), 0, 1);
    return memory ? memory->damage() : "refused: " + memory.error().message;
  };
  EXPECT_EQ(damage_of(), "");
  const auto whole = std::filesystem::file_size(path);
  std::filesystem::resize_file(path, whole - 1);
  EXPECT_THAT(damage_of(), HasSubstr("was cut off"));
  EXPECT_EQ(std::filesystem::file_size(path), whole);
  EXPECT_EQ(damage_of(), "");
  for (const DiskOpening opening : {DiskOpening::kReuse, DiskOpening::kFresh}) {
    config.disk.opening = opening;
    std::filesystem::resize_file(path, 100);
    EXPECT_THAT(damage_of(), HasSubstr("the tier starts empty"));
    EXPECT_EQ(damage_of(), "");
  }
  config.disk.opening = DiskOpening::kExisting;
  std::filesystem::resize_file(path, 100);
  EXPECT_THAT(damage_of(), HasSubstr("refused: "));
}

}  // namespace
}  // namespace cairn
