#include "cairn/leader/block_footprint.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace cairn {
namespace {

class BlockFootprintTest : public ::testing::Test {
 protected:
  // 61 layers of 32 KiB for each of 8 heads.
  BlockFootprintTest() {
    config_.block_size = 64;
    config_.model = {.name = "m", .layers = 61, .heads = 8, .head_size = 128, .element_type = "f16"};
    config_.disk.blocks = 1;
  }
  BlockFootprint of(RankGrid ranks, const char* address = "unix:/tmp/leader") {
    LeaderOptions options{.ranks = ranks};
    options.address = *RankAddress::parse(address);
    const Result<BlockFootprint> footprint = footprint_of(config_, options);
    EXPECT_TRUE(footprint.has_value()) << footprint.error().message;
    return footprint ? *footprint : BlockFootprint();
  }
  // With so many files of ranks, and the leader's.
  static BlockFootprint once(std::uint64_t bytes, std::uint32_t files) { return {bytes, {bytes, files + 1}}; }
  ManagerConfig config_;
};

TEST_F(BlockFootprintTest, IsTheBlockHoweverItIsSplit) {
  const std::uint64_t bytes = config_.shape().block_bytes();
  for (const RankGrid ranks :
       {RankGrid(1), RankGrid(2), RankGrid(8), RankGrid(2, 2), RankGrid(4, 4), RankGrid(1, 61)}) {
    EXPECT_EQ(of(ranks), once(bytes, ranks.count())) << ranks.to_string();
  }
}

TEST_F(BlockFootprintTest, ReplicasOnOneMachineCountOnce) {
  config_.model.kv = 1;
  for (const std::uint32_t heads : {1U, 2U}) {
    config_.model.heads = heads;
    const std::uint64_t bytes = config_.shape().block_bytes();
    for (const RankGrid ranks : {RankGrid(1), RankGrid(8), RankGrid(4, 2)}) {
      EXPECT_EQ(of(ranks), once(bytes, ranks.pipeline * std::min(heads, ranks.tensor))) << ranks.to_string();
    }
    EXPECT_EQ(of(RankGrid(8), "tcp:127.0.0.1:1"), once(8 / heads * bytes, 8));
  }
}

TEST_F(BlockFootprintTest, CountsThePaddingOfEveryPart) {
  config_.block_size = 1;
  config_.model.layers = 1;
  EXPECT_EQ(of(RankGrid(8)).disk.block_bytes, 8 * 4096U) << "512 bytes each";
  config_.disk.blocks = 0;
  EXPECT_EQ(of(RankGrid(8)).host_bytes, 8 * 512U);
}

TEST_F(BlockFootprintTest, RefusesHeadsThatCannotBeDealt) {
  EXPECT_FALSE(footprint_of(config_, {.ranks = 3}));
  config_.model.layers = 2;
  EXPECT_FALSE(footprint_of(config_, {.ranks = RankGrid(1, 3)}));
}

}  // namespace
}  // namespace cairn
