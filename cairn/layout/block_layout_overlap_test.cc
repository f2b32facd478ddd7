// from_places(): places by their steps, with exact bounds and overlaps.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "cairn/layout/block_layout.h"
#include "cairn/layout/layout_testing.h"

namespace cairn {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::TestRegion;

constexpr KvShape kShape{2, 2, 4, 2, 8, 8};  // rows of 8 bytes, planes of 64
constexpr LayerPlace kFirst{0, 0, 256, 64, 16, 8};
constexpr LayerPlace kSecond{0, 128, 256, 64, 16, 8};

std::string error_of(const std::vector<LayerPlace>& layers, std::uint64_t size, std::uint32_t blocks = 3,
                     const KvShape& shape = kShape) {
  Result<BlockLayoutPtr> made = BlockLayout::from_places(shape, blocks, layers, {TestRegion(size).region()});
  return made ? std::string("accepted") : made.error().message;
}

TEST(FromPlacesTest, TakesLayersInterleavedInOneRegion) {
  EXPECT_EQ(error_of({kFirst, kSecond}, 768), "accepted");
  EXPECT_EQ(error_of({kSecond, kFirst}, 768), "accepted");
}

TEST(FromPlacesTest, RefusesWhatIsOutOfBounds) {
  EXPECT_THAT(error_of({kFirst, kSecond}, 767),
              AllOf(HasSubstr("layer 1 ends at byte 768 of region 0, which has 767 bytes"),
                    HasSubstr("3 x block step 256"), HasSubstr("2 x K/V step 64"), HasSubstr("4 x token step 16"),
                    HasSubstr("2 x head step 8"), HasSubstr("offset 128")));
  LayerPlace elsewhere = kSecond;
  elsewhere.region = 1;
  EXPECT_THAT(error_of({kFirst, elsewhere}, 768), HasSubstr("layer 1 lies in region 1; there are 1"));
  LayerPlace huge = kSecond;
  huge.block_step = std::uint64_t{1} << 63U;
  EXPECT_THAT(error_of({kFirst, huge}, 768), HasSubstr("beyond 2^64"));
  huge = kSecond;
  huge.offset = ~std::uint64_t{0} - 3;
  EXPECT_THAT(error_of({kFirst, huge}, 768), HasSubstr("beyond 2^64"));
  huge = kSecond;
  huge.head_step = ~std::uint64_t{0} - 200;  // the sum overflows, no product does
  EXPECT_THAT(error_of({kFirst, huge}, 768), HasSubstr("beyond 2^64"));
}

TEST(FromPlacesTest, RefusesNumbersThatMakeNoLayout) {
  EXPECT_THAT(error_of({kFirst}, 768), HasSubstr("2 layers and the places of 1"));
  EXPECT_THAT(error_of({kFirst, kSecond}, 768, 0), HasSubstr("0 blocks"));
  EXPECT_THAT(error_of({kFirst, kSecond}, 768, 3, KvShape{2, 2, 4, 2, 8, 3}), HasSubstr("3 bits"));
  EXPECT_THAT(BlockLayout::from_places(kShape, 3, {kFirst, kSecond}, {}).error().message, HasSubstr("without regions"));
  EXPECT_THAT(BlockLayout::from_places(kShape, 3, {kFirst, kSecond}, {nullptr}).error().message, HasSubstr("is null"));
  RegionFacts facts;
  facts.size = (std::uint64_t{1} << 60U) + 1;
  EXPECT_THAT(BlockLayout::from_places(kShape, 3, {kFirst, kSecond}, {std::make_shared<Region>(facts, nullptr)})
                  .error()
                  .message,
              HasSubstr("above 2^60"));
}

TEST(FromPlacesTest, RefusesStepsBelowARow) {
  for (const auto& [member, name] :
       std::vector<std::pair<std::uint64_t LayerPlace::*, std::string>>{{&LayerPlace::block_step, "block"},
                                                                        {&LayerPlace::kv_step, "K/V"},
                                                                        {&LayerPlace::token_step, "token"},
                                                                        {&LayerPlace::head_step, "head"}}) {
    for (const std::uint64_t step : {0U, 7U}) {
      LayerPlace place = kSecond;
      place.*member = step;
      EXPECT_THAT(error_of({kFirst, place}, 2048),
                  HasSubstr("layer 1: a " + name + " step of " + std::to_string(step) + " bytes"));
    }
  }
}

TEST(FromPlacesTest, StepsOfASingleIndexDoNotMatter) {
  const KvShape single{1, 1, 1, 1, 8, 8};
  EXPECT_EQ(error_of({{0, 0, 0, 0, 0, 0}}, 8, 1, single), "accepted");
  EXPECT_EQ(error_of({{0, 0, ~std::uint64_t{0}, 1, 2, 3}}, 8, 1, single), "accepted");
}

TEST(FromPlacesTest, NamesTwoRowsThatOverlap) {
  LayerPlace place = kSecond;
  place.offset = 64;  // its K on the first layer's V
  EXPECT_THAT(error_of({kFirst, place}, 768),
              AllOf(HasSubstr("overlap"), HasSubstr("layer 0, V"), HasSubstr("layer 1, K")));
  place = kSecond;
  place.offset = 135;  // the last row ends in the next block's first
  EXPECT_THAT(error_of({kFirst, place}, 1024), AllOf(HasSubstr("block 1, layer 0, K, token 0, head 0"),
                                                     HasSubstr("block 0, layer 1, V, token 3, head 1")));
  LayerPlace tight = kFirst;
  tight.block_step = 64;  // V of a block on K of the next
  EXPECT_THAT(error_of({tight, {0, 512, 256, 64, 16, 8}}, 2048),
              AllOf(HasSubstr("block 0, layer 0, V"), HasSubstr("block 1, layer 0, K")));
}

TEST(FromPlacesTest, ViewsOfOneAllocationAreNotTwoRegions) {
  const TestRegion memory(2048);
  const auto view = [&](std::uint64_t offset) {
    RegionFacts facts;
    facts.base = memory.bytes().data() + offset;
    facts.size = 1024;
    return std::make_shared<Region>(facts, nullptr);
  };
  LayerPlace second = kFirst;
  second.region = 1;
  EXPECT_TRUE(BlockLayout::from_places(kShape, 3, {kFirst, second}, {view(0), view(1024)}));
  EXPECT_TRUE(BlockLayout::from_places(kShape, 3, {kFirst, second}, {view(0), view(128)}));  // interleaved
  EXPECT_FALSE(BlockLayout::from_places(kShape, 3, {kFirst, second}, {view(0), view(72)}));
}

// Rows in two files never overlap; rows in one file may.
TEST(FromPlacesTest, FilesAreSpacesOfTheirOwn) {
  const auto file = [](int descriptor) {
    RegionFacts facts;
    facts.kind = MemoryKind::kFile;
    facts.size = 1024;
    facts.file = descriptor;
    return std::make_shared<Region>(facts, nullptr);
  };
  LayerPlace second = kFirst;
  second.region = 1;
  EXPECT_TRUE(BlockLayout::from_places(kShape, 3, {kFirst, second}, {file(5), file(6)}));
  EXPECT_FALSE(BlockLayout::from_places(kShape, 3, {kFirst, second}, {file(5), file(5)}));
}

// The answer for large layouts comes from steps, not from rows: there are 2^45 of them here.
TEST(FromPlacesTest, LargeLayoutsTakeNoTime) {
  const KvShape shape{1U << 10U, 2, 1U << 4U, 1U << 4U, 8, 8};
  const std::uint64_t plane = 8U << 8U;
  std::vector<LayerPlace> layers;
  for (std::uint64_t layer = 0; layer < shape.layers; ++layer) {
    layers.push_back({0, layer * 2 * plane, shape.layers * 2 * plane, plane, 128, 8});
  }
  RegionFacts facts;
  facts.size = std::uint64_t{1} << 60U;
  const auto region = std::make_shared<Region>(facts, nullptr);
  EXPECT_TRUE(BlockLayout::from_places(shape, 1U << 26U, layers, {region}));
  std::swap(layers[3], layers[700]);  // no longer at regular distances
  EXPECT_TRUE(BlockLayout::from_places(shape, 1U << 26U, layers, {region}));
  layers[5].offset += 8;
  EXPECT_FALSE(BlockLayout::from_places(shape, 1U << 26U, layers, {region}));
}

// Layers of different steps whose rows are close to each other everywhere need a search that stops at its limit.
TEST(FromPlacesTest, SaysWhenStepsAreTooIrregular) {
  const KvShape shape{2, 1, 1U << 12U, 1U << 12U, 1, 8};
  RegionFacts facts;
  facts.size = std::uint64_t{1} << 59U;
  const auto region = std::make_shared<Region>(facts, nullptr);
  // Even and odd addresses: never equal, always close.
  Result<BlockLayoutPtr> made = BlockLayout::from_places(
      shape, 1U << 12U, {{0, 0, 2U << 24U, 0, 2U << 12U, 2}, {0, 1, (2U << 24U) + 2, 0, (2U << 12U) + 2, 2}}, {region});
  ASSERT_FALSE(made);
  EXPECT_THAT(made.error().message, HasSubstr("too irregular"));
}

TEST(FromPlacesTest, FindsOverlapsAsCountingBytesDoes) {
  std::mt19937_64 random(7);
  int accepted = 0;
  constexpr int kCases = 6000;
  for (int i = 0; i < kCases; ++i) {
    const auto draw = [&](std::uint64_t least, std::uint64_t most) { return least + random() % (most - least + 1); };
    const auto small = [&] { return static_cast<std::uint32_t>(draw(1, 3)); };
    const KvShape shape{small(), static_cast<std::uint32_t>(draw(1, 2)), small(), small(), small(), 8};
    const std::uint32_t blocks = small();
    const auto step = [&] { return shape.row_bytes() * draw(1, 12) + (draw(0, 3) == 0 ? draw(0, 2) : 0); };
    std::vector<LayerPlace> layers;
    LayerPlace common{0, 0, step(), step(), step(), step()};
    for (std::uint32_t layer = 0; layer < shape.layers; ++layer) {
      LayerPlace place = draw(0, 1) == 0 ? common : LayerPlace{0, 0, step(), step(), step(), step()};
      place.offset = draw(0, 60);
      layers.push_back(place);
    }
    std::vector<int> uses(1000, 0);
    bool overlaps = false;
    for (const LayerPlace& place : layers) {
      for (std::uint32_t block = 0; block < blocks; ++block) {
        for (std::uint32_t kv = 0; kv < shape.kv; ++kv) {
          for (std::uint32_t token = 0; token < shape.page_size; ++token) {
            for (std::uint32_t head = 0; head < shape.heads; ++head) {
              const std::uint64_t at = place.offset + block * place.block_step + kv * place.kv_step +
                                       token * place.token_step + head * place.head_step;
              for (std::uint64_t byte = at; byte < at + shape.row_bytes(); ++byte) {
                overlaps = overlaps || ++uses[byte] > 1;
              }
            }
          }
        }
      }
    }
    const std::string error = error_of(layers, 1000, blocks, shape);
    ASSERT_EQ(error == "accepted", !overlaps) << "case " << i << ": " << error;
    accepted += overlaps ? 0 : 1;
  }
  EXPECT_GT(accepted, kCases / 20);  // both answers were drawn often
  EXPECT_LT(accepted, kCases * 19 / 20);
}

}  // namespace
}  // namespace cairn
