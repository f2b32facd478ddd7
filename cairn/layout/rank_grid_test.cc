#include "cairn/layout/rank_grid.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace cairn {
namespace {

using ::testing::HasSubstr;

constexpr KvShape kModel{.layers = 61, .kv = 2, .page_size = 16, .heads = 8, .head_size = 64, .element_bits = 16};

TEST(RankGrid, NumbersRanksStageByStage) {
  const RankGrid grid(4, 2);
  EXPECT_EQ(grid.count(), 8U);
  EXPECT_EQ(grid.stage_of(3), 0U);
  EXPECT_EQ(grid.tensor_rank_of(3), 3U);
  EXPECT_EQ(grid.stage_of(6), 1U);
  EXPECT_EQ(grid.tensor_rank_of(6), 2U);
  EXPECT_EQ(grid.to_string(), "8 ranks (4 tensor x 2 pipeline)");
  const RankGrid tensor_only = 4;
  EXPECT_EQ(tensor_only, RankGrid(4, 1));
  EXPECT_EQ(tensor_only.to_string(), "4 ranks");
}

TEST(RankGrid, RefusesGridsThatAreEmptyOrTooLarge) {
  EXPECT_TRUE(RankGrid(256, 256).validate());
  EXPECT_FALSE(RankGrid(0).validate());
  EXPECT_FALSE(RankGrid(1, 0).validate());
  EXPECT_FALSE(RankGrid(65'536, 65'536).validate());
}

TEST(RankGrid, DealsHeadsInOrder) {
  EXPECT_EQ(*share_of(1, 4, 8), (HeadShare{2, 2, 0, 1}));
  EXPECT_EQ(*share_of(3, 4, 2), (HeadShare{1, 1, 1, 2}));
  EXPECT_EQ(*share_of(5, 8, 1), (HeadShare{0, 1, 5, 8}));
  EXPECT_THAT(share_of(0, 4, 6).error().message, HasSubstr("6 heads cannot be dealt to 4 ranks"));
  EXPECT_THAT(share_of(0, 4, 0).error().message, HasSubstr("0 heads"));
  EXPECT_THAT(share_of(4, 4, 8).error().message, HasSubstr("rank 4 of 4"));
  EXPECT_FALSE(share_of(0, 0, 8));
}

TEST(RankGrid, DealsLayersAsVllmDoes) {
  const auto counts = [](std::uint32_t stages, std::uint32_t layers) {
    std::vector<std::uint32_t> all;
    std::uint32_t next = 0;
    for (std::uint32_t stage = 0; stage < stages; ++stage) {
      const LayerRange range = even_layers(stage, stages, layers);
      EXPECT_EQ(range.first, next);
      next = range.end();
      all.push_back(range.count);
    }
    EXPECT_EQ(next, layers);
    return all;
  };
  EXPECT_EQ(counts(4, 61), (std::vector<std::uint32_t>{15, 15, 16, 15}));
  EXPECT_EQ(counts(4, 63), (std::vector<std::uint32_t>{16, 16, 16, 15}));
  EXPECT_EQ(counts(2, 5), (std::vector<std::uint32_t>{3, 2}));
  EXPECT_EQ(counts(3, 9), (std::vector<std::uint32_t>{3, 3, 3}));
  EXPECT_EQ(counts(1, 7), (std::vector<std::uint32_t>{7}));
}

TEST(RankGrid, StagesCoverTheModel) {
  using Stages = std::vector<std::optional<LayerRange>>;
  EXPECT_TRUE(check_stages(Stages{LayerRange{0, 40}, LayerRange{40, 21}}, 61));
  EXPECT_TRUE(check_stages(Stages{std::nullopt, LayerRange{40, 21}}, 61));
  EXPECT_TRUE(check_stages(Stages{LayerRange{0, 40}, std::nullopt}, 61));
  EXPECT_TRUE(check_stages(Stages{std::nullopt, std::nullopt}, 61));

  const auto refusal = [](const Stages& stages) {
    const Status status = check_stages(stages, 61);
    return status ? std::string() : status.error().message;
  };
  EXPECT_EQ(refusal({LayerRange{0, 40}, LayerRange{41, 20}}),
            "pipeline stage 1 has layers 41 to 60 and stage 0 layers 0 to 39; no stage has layer 40");
  EXPECT_EQ(
      refusal({LayerRange{0, 40}, LayerRange{39, 22}}),
      "pipeline stage 1 has layers 39 to 60, but stage 0 has layers 0 to 39; stages must not overlap, and come in "
      "the order of their layers");
  EXPECT_EQ(refusal({LayerRange{1, 40}, LayerRange{41, 20}}),
            "pipeline stage 0 has layers 1 to 40; no stage has layer 0");
  EXPECT_EQ(refusal({LayerRange{0, 40}, LayerRange{40, 22}}),
            "pipeline stage 1 has layers 40 to 61, but the leader's model has 61 layers, 0 to 60");
  EXPECT_EQ(
      refusal({LayerRange{0, 40}, LayerRange{40, 20}}),
      "the last pipeline stage, 1, has layers 40 to 59, but the leader's model has 61 layers; no stage has layer 60");
  EXPECT_EQ(refusal({LayerRange{0, 0}, std::nullopt}), "pipeline stage 0 has no layers; give at least one");
}

TEST(RankGrid, SharesOfAllRanksAreTheModel) {
  for (const RankGrid grid : {RankGrid(1), RankGrid(2), RankGrid(16), RankGrid(4, 2), RankGrid(32, 4)}) {
    std::uint64_t bytes = 0;
    for (std::uint32_t rank = 0; rank < grid.count(); ++rank) {
      const RankShare share = *RankShare::make(grid, rank, kModel);
      EXPECT_EQ(share.heads.replicas, grid.tensor > 8 ? grid.tensor / 8 : 1);
      bytes += share.heads.replica == 0 ? share.shape(kModel).block_bytes() : 0;
    }
    EXPECT_EQ(bytes, kModel.block_bytes()) << grid.to_string();
  }
}

TEST(RankGrid, SharesAreNamedByWhatTheyHold) {
  EXPECT_EQ(RankShare::make(RankGrid(2), 1, kModel)->name(), "l0-60.h4-7");
  EXPECT_EQ(RankShare::make(RankGrid(2, 2), 3, kModel, LayerRange{40, 21})->name(), "l40-60.h4-7");
  EXPECT_EQ(RankShare::make(RankGrid(16), 2, kModel)->name(), "l0-60.h1-1");
  EXPECT_EQ(RankShare::make(RankGrid(16), 3, kModel)->name(), "l0-60.h1-1");
  EXPECT_FALSE(RankShare::make(RankGrid(2), 2, kModel));
  EXPECT_FALSE(RankShare::make(RankGrid(2, 2), 1, kModel, LayerRange{60, 2}));
  EXPECT_FALSE(RankShare::make(RankGrid(3), 0, kModel));
}

}  // namespace
}  // namespace cairn
