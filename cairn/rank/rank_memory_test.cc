#include "cairn/rank/rank_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "cairn/rank/rank_testing.h"

namespace cairn {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::kRankBlocks;
using testing::kRankShape;
using testing::one_group;
using testing::rank_config;

class RankMemoryTest : public ::testing::Test {
 protected:
  static RankClaim claim(std::uint32_t rank, RankGrid ranks) { return {.rank = rank, .ranks = ranks, .layers = 3}; }
  std::string refusal(const ManagerConfig& config, const LayoutGroups& device, std::uint32_t rank = 0,
                      RankGrid ranks = 1) {
    const Result<RankMemory> memory = RankMemory::make(config, device, claim(rank, ranks));
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
  const Result<RankMemory> memory =
      RankMemory::make(rank_config(folder_.in("disk")), testing::two_groups(), claim(0, 1));
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
  EXPECT_TRUE(std::filesystem::exists(folder_.in("disk.l0-2.t0of1.g0")));
  EXPECT_TRUE(std::filesystem::exists(folder_.in("disk.l0-2.t0of1.g1")));
}

TEST_F(RankMemoryTest, TiersThatAreNotConfiguredDoNotExist) {
  ManagerConfig config = rank_config("");
  config.host.blocks = 0;
  config.disk = {};
  const Result<RankMemory> memory = RankMemory::make(config, one_group(), claim(0, 1));
  ASSERT_TRUE(memory.has_value());
  EXPECT_TRUE(memory->layouts(CacheLevel::kG2).empty());
  EXPECT_TRUE(memory->layouts(CacheLevel::kG3).empty());
}

TEST_F(RankMemoryTest, EachRankHasAFileOfItsOwn) {
  const ManagerConfig config = rank_config(folder_.in("disk"), 2);
  const Result<RankMemory> first = RankMemory::make(config, one_group(), claim(0, 2));
  const Result<RankMemory> second = RankMemory::make(config, one_group(), claim(1, 2));
  EXPECT_TRUE(first && second);
  EXPECT_TRUE(std::filesystem::exists(folder_.in("disk.l0-2.h2-3")));
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

TEST_F(RankMemoryTest, AFileThatFitsIsKeptAndAnotherIsReplacedOnlyOnRequest) {
  const std::string path = folder_.in("disk.l0-2.h0-1");
  ManagerConfig config = rank_config(folder_.in("disk"));
  config.disk.opening = DiskOpening::kExisting;
  EXPECT_NE(refusal(config, one_group()), "none") << "there is no file";
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
  EXPECT_EQ(refusal(config, one_group()), "none") << "the weights generation of its bytes is in the leader's file";
  config.model.name = "another";
  config.disk.opening = DiskOpening::kReuse;
  EXPECT_THAT(refusal(config, one_group()), HasSubstr("model 'rank', not 'another'"));
  config.disk.opening = DiskOpening::kFresh;
  EXPECT_EQ(refusal(config, one_group()), "none");
  std::ofstream(path) << "a letter";
  EXPECT_NE(refusal(config, one_group()), "none") << "a file of another format is not replaced";
}

TEST_F(RankMemoryTest, FilesOfAnotherGridAreKeptUntilSomebodySaysWhatBecomesOfThem) {
  const std::string disk = folder_.in("disk");
  ManagerConfig config = rank_config(disk, 2);
  config.model.layers = 6;
  const auto refused = [&](const RankClaim& claim) {
    const Result<RankMemory> memory = RankMemory::make(config, one_group(), claim);
    return memory ? "none" : memory.error().to_string();
  };
  ASSERT_EQ(refused({.rank = 0, .ranks = RankGrid(2, 2), .layers = 3}), "none");
  EXPECT_EQ(refused({.rank = 0, .ranks = RankGrid(2, 2), .layers = 3}), "none") << "the same layers and heads";
  EXPECT_THAT(refused({.rank = 2, .ranks = RankGrid(2, 2), .layers = 3, .first_layer = 2}),
              AllOf(HasSubstr("disk.l0-2.h0-1 was written by ranks of another tensor or pipeline size"),
                    HasSubstr("run `cairn disk reshard " + disk + " --tensor 2 --pipeline 2 --layers"),
                    HasSubstr("disk.opening = \"fresh\"")));
  config.disk.opening = DiskOpening::kFresh;
  EXPECT_EQ(refused({.rank = 2, .ranks = RankGrid(2, 2), .layers = 3, .first_layer = 2}), "none");
  EXPECT_FALSE(std::filesystem::exists(disk + ".l0-2.h0-1"));
  EXPECT_TRUE(std::filesystem::exists(disk + ".l2-4.h0-1"));
}

TEST_F(RankMemoryTest, AReshardThatWasKilledIsFinishedFirst) {
  const ManagerConfig config = rank_config(folder_.in("disk"));
  std::ofstream(folder_.in("disk.reshard")) << "cairn reshard 1\n";
  EXPECT_THAT(refusal(config, one_group()),
              HasSubstr("was killed before it was done; run `cairn disk reshard " + config.disk.path + " --tensor 1"));
}

// A rank opens its file on a thread of its own, where an exception would end the engine's process.
TEST_F(RankMemoryTest, APathThatTheSystemRefusesIsAnError) {
  EXPECT_THAT(refusal(rank_config(folder_.in(std::string(300, 'x'))), one_group()), HasSubstr("File name too long"));
  std::filesystem::create_symlink("loop.l0-2.h0-1", folder_.in("loop.l0-2.h0-1"));
  EXPECT_THAT(refusal(rank_config(folder_.in("loop")), one_group()), HasSubstr("symbolic links"));
}

TEST_F(RankMemoryTest, ADamagedFileDoesNotKeepTheRankFromComingUp) {
  const std::string path = folder_.in("disk.l0-2.h0-1");
  ManagerConfig config = rank_config(folder_.in("disk"));
  const auto damage_of = [&] {
    const Result<RankMemory> memory = RankMemory::make(config, one_group(), claim(0, 1));
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

TEST_F(RankMemoryTest, AStageHasSomeLayersOfTheModel) {
  ManagerConfig config = rank_config(folder_.in("disk"), 2);
  config.model.layers = 7;
  const RankClaim claim{.rank = 3, .ranks = RankGrid(2, 2), .layers = 3, .first_layer = 4};
  for (const LayoutGroups& device : {one_group(), testing::k_and_v_apart()}) {
    const Result<RankMemory> memory = RankMemory::make(config, device, claim);
    ASSERT_TRUE(memory.has_value()) << memory.error().to_string();
    EXPECT_TRUE(std::filesystem::exists(folder_.in("disk.l4-6.h2-3")));
    const BlockPart& numbering = memory->numbering();
    const std::uint32_t each = device.layouts()[0]->shape().layers / 3;
    EXPECT_EQ(numbering.whole_head, 2U);
    EXPECT_EQ(numbering.whole_heads, 4U);
    EXPECT_EQ(numbering.whole_layer, 4 * each);
    EXPECT_EQ(numbering.whole_layers, 7 * each);
  }
  config.model.layers = 8;
  const Result<RankMemory> uneven =
      RankMemory::make(config, one_group(), {.rank = 3, .ranks = RankGrid(2, 2), .layers = 3});
  EXPECT_THAT(uneven.error().message, HasSubstr("give its first_layer"));
}

}  // namespace
}  // namespace cairn
