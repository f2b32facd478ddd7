#include "cairn/layout/block_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cairn/layout/layout_testing.h"

namespace cairn {
namespace {

using ::testing::HasSubstr;
using testing::TestLayout;
using testing::TestRegion;

constexpr KvShape kShape{3, 2, 4, 2, 6, 8};
constexpr std::uint32_t kBlocks = 5;

std::string error_of(const Result<BlockLayoutPtr>& made) {
  return made ? std::string("accepted") : made.error().message;
}

// The address by counting, in the order that the arrangement's comment gives.
BlockLayout::Address counted(const BlockLayout::Options& options, std::uint32_t block, std::uint32_t layer,
                             std::uint32_t kv, std::uint32_t token, std::uint32_t head) {
  const KvShape& s = options.shape;
  const auto up = [&](std::uint64_t bytes) {
    return (bytes + options.alignment - 1) / options.alignment * options.alignment;
  };
  const std::uint64_t nhd = (std::uint64_t{token} * s.heads + head) * s.row_bytes();
  const std::uint64_t hnd = (std::uint64_t{head} * s.page_size + token) * s.row_bytes();
  const std::uint64_t plane = std::uint64_t{s.page_size} * s.heads * s.row_bytes();
  switch (options.arrangement) {
    case Arrangement::kContiguousNhd:
      return {0, block * up(s.block_bytes()) + (layer * s.kv + kv) * plane + nhd};
    case Arrangement::kContiguousHnd:
      return {0, block * up(s.block_bytes()) + (layer * s.kv + kv) * plane + hnd};
    case Arrangement::kLayersKvNhd:
      return {layer, (std::uint64_t{kv} * options.blocks + block) * up(plane) + nhd};
    case Arrangement::kLayersKvHnd:
      return {layer, (std::uint64_t{kv} * options.blocks + block) * up(plane) + hnd};
    case Arrangement::kLayersBlockNhd:
      return {layer, block * up(s.kv * plane) + kv * plane + nhd};
    case Arrangement::kLayersBlockHnd:
      return {layer, block * up(s.kv * plane) + kv * plane + hnd};
  }
  return {};
}

TEST(BlockLayoutTest, AddressesAreThoseOfTheArrangement) {
  for (const KvShape& shape :
       {kShape, KvShape{2, 1, 3, 1, 5, 16}, KvShape{4, 2, 1, 3, 2, 4}, KvShape{1, 1, 1, 1, 1, 64}}) {
    for (const Arrangement arrangement : kAllArrangements) {
      for (const std::uint64_t alignment : {1U, 8U, 64U, 4096U}) {
        const BlockLayout::Options options{shape, arrangement, kBlocks, alignment};
        const TestLayout made = TestLayout::make(options);
        for (std::uint32_t block = 0; block < kBlocks; ++block) {
          made.for_each_row([&](std::uint32_t layer, std::uint32_t kv, std::uint32_t token, std::uint32_t head) {
            const BlockLayout::Address at = made.layout()->address(block, layer, kv, token, head);
            const BlockLayout::Address expected = counted(options, block, layer, kv, token, head);
            ASSERT_EQ(at.region, expected.region) << to_string(arrangement);
            ASSERT_EQ(at.offset, expected.offset) << to_string(arrangement);
          });
          const auto first = reinterpret_cast<std::uintptr_t>(made.row(block, 0, 0, 0, 0).data());
          EXPECT_EQ(first % alignment, 0U);
        }
      }
    }
  }
}

TEST(BlockLayoutTest, RegionsTakeWhatTheArrangementTakes) {
  const auto sizes = [](Arrangement arrangement, std::uint64_t alignment) {
    return *BlockLayout::region_sizes({kShape, arrangement, kBlocks, alignment});
  };
  const std::uint64_t plane = 4 * 2 * 6;
  EXPECT_EQ(sizes(Arrangement::kContiguousNhd, 1), std::vector<std::uint64_t>{3 * 2 * plane * kBlocks});
  EXPECT_EQ(sizes(Arrangement::kContiguousHnd, 512), std::vector<std::uint64_t>{512 * kBlocks});
  EXPECT_EQ(sizes(Arrangement::kLayersKvNhd, 1), std::vector<std::uint64_t>(3, 2 * plane * kBlocks));
  EXPECT_EQ(sizes(Arrangement::kLayersKvHnd, 64), std::vector<std::uint64_t>(3, 2 * std::uint64_t{64} * kBlocks));
  EXPECT_EQ(sizes(Arrangement::kLayersBlockNhd, 64), std::vector<std::uint64_t>(3, std::uint64_t{128} * kBlocks));
}

TEST(BlockLayoutTest, NamesArrangements) {
  EXPECT_EQ(to_string(Arrangement::kContiguousNhd), "contiguous-nhd");
  EXPECT_EQ(to_string(Arrangement::kContiguousHnd), "contiguous-hnd");
  EXPECT_EQ(to_string(Arrangement::kLayersKvNhd), "layers-kv-nhd");
  EXPECT_EQ(to_string(Arrangement::kLayersKvHnd), "layers-kv-hnd");
  EXPECT_EQ(to_string(Arrangement::kLayersBlockNhd), "layers-block-nhd");
  EXPECT_EQ(to_string(Arrangement::kLayersBlockHnd), "layers-block-hnd");
}

TEST(BlockLayoutTest, HoldsItsRegionsAlive) {
  bool released = false;
  RegionFacts facts;
  std::vector<std::byte> memory(kShape.block_bytes());
  facts.base = memory.data();
  facts.size = memory.size();
  auto region = std::make_shared<Region>(facts, [&] { released = true; });
  Result<BlockLayoutPtr> made = BlockLayout::make({kShape, Arrangement::kContiguousNhd, 1, 1}, {region});
  ASSERT_TRUE(made);
  region.reset();
  EXPECT_FALSE(released);
  *made = nullptr;
  EXPECT_TRUE(released);
}

TEST(BlockLayoutTest, BlocksMayBeElsewhere) {
  const KvShape shape{.layers = 2, .page_size = 4, .heads = 2, .head_size = 8, .element_bits = 16};
  const BlockLayoutPtr device = *BlockLayout::elsewhere(shape, 10, MemoryKind::kDevice);
  EXPECT_EQ(device->kind(), MemoryKind::kDevice);
  EXPECT_EQ(device->blocks(), 10U);
  EXPECT_TRUE(device->regions().front()->is_elsewhere());
  EXPECT_FALSE(BlockLayout::elsewhere(shape, 0, MemoryKind::kDevice).has_value());
}

TEST(BlockLayoutTest, RefusesOptionsThatMakeNoLayout) {
  const auto refused = [](const BlockLayout::Options& options) {
    const auto sizes = BlockLayout::region_sizes(options);
    const std::string message = sizes ? std::string("accepted") : sizes.error().message;
    EXPECT_EQ(message, error_of(BlockLayout::make(options, {})));
    return message;
  };
  EXPECT_THAT(refused({KvShape{}, Arrangement::kContiguousNhd, 1, 1}), HasSubstr("layers 0"));
  EXPECT_THAT(refused({kShape, Arrangement::kContiguousNhd, 0, 1}), HasSubstr("0 blocks"));
  EXPECT_THAT(refused({kShape, Arrangement::kContiguousNhd, 1, 0}), HasSubstr("alignment of 0"));
  EXPECT_THAT(refused({kShape, Arrangement::kContiguousNhd, 1, 48}), HasSubstr("alignment of 48"));
  EXPECT_THAT(refused({kShape, Arrangement::kContiguousNhd, ~0U, std::uint64_t{1} << 40U}), HasSubstr("2^60"));
  EXPECT_THAT(refused({kShape, Arrangement::kContiguousNhd, 1, std::uint64_t{1} << 63U}), HasSubstr("2^60"));
}

TEST(BlockLayoutTest, RefusesRegionsThatDoNotFit) {
  const BlockLayout::Options one{kShape, Arrangement::kContiguousNhd, kBlocks, 64};
  const BlockLayout::Options three{kShape, Arrangement::kLayersKvNhd, kBlocks, 64};
  const std::uint64_t size = BlockLayout::region_sizes(one)->front();
  const std::uint64_t layer_size = BlockLayout::region_sizes(three)->front();
  const RegionPtr good = TestRegion(size).region();
  EXPECT_EQ(error_of(BlockLayout::make(one, {good})), "accepted");
  EXPECT_THAT(error_of(BlockLayout::make(one, {})), HasSubstr("takes 1 regions; 0 were given"));
  EXPECT_THAT(error_of(BlockLayout::make(three, {good})), HasSubstr("takes 3 regions; 1 were given"));
  EXPECT_THAT(error_of(BlockLayout::make(one, {nullptr})), HasSubstr("region 0 is null"));
  EXPECT_THAT(error_of(BlockLayout::make(one, {TestRegion(size - 1).region()})),
              HasSubstr(std::to_string(size - 1) + " bytes"));
  EXPECT_THAT(error_of(BlockLayout::make(one, {TestRegion(size, 64, 32).region()})), HasSubstr("multiple of 64"));
  const auto layer = [&](MemoryKind kind) { return TestRegion(layer_size, 64, 0, kind).region(); };
  EXPECT_THAT(error_of(BlockLayout::make(
                  three, {layer(MemoryKind::kSystem), layer(MemoryKind::kPinned), layer(MemoryKind::kSystem)})),
              HasSubstr("region 1 is of kind pinned and region 0 of kind system"));
  RegionFacts facts;
  facts.kind = MemoryKind::kDevice;
  facts.size = layer_size;
  std::vector<RegionPtr> devices;
  for (const int device : {0, 0, 1}) {
    facts.device = device;
    facts.base += 1U << 20U;
    devices.push_back(std::make_shared<Region>(facts, nullptr));
  }
  EXPECT_THAT(error_of(BlockLayout::make(three, devices)), HasSubstr("region 2 is of device 1"));
}

TEST(BlockLayoutDeathTest, AnAddressIsOfARowThatTheLayoutHas) {
  const TestLayout made = TestLayout::make({kShape, Arrangement::kLayersKvNhd, kBlocks, 1});
  const BlockLayout& layout = *made.layout();
  (void)layout.address(kBlocks - 1, kShape.layers - 1, kShape.kv - 1, kShape.page_size - 1, kShape.heads - 1);
  constexpr const char* kMessage = "block, layer, K/V, token and head of an address are within the layout";
  EXPECT_DEATH((void)layout.address(kBlocks, 0, 0, 0, 0), kMessage);
  EXPECT_DEATH((void)layout.address(0, kShape.layers, 0, 0, 0), kMessage);
  EXPECT_DEATH((void)layout.address(0, 0, kShape.kv, 0, 0), kMessage);
  EXPECT_DEATH((void)layout.address(0, 0, 0, kShape.page_size, 0), kMessage);
  EXPECT_DEATH((void)layout.address(0, 0, 0, 0, kShape.heads), kMessage);
  EXPECT_DEATH((void)layout.address(0xFFFFFFFF, 0, 0, 0, 0), kMessage);
}

TEST(BlockLayoutTest, RefusesOneRegionForTwoLayers) {
  const BlockLayout::Options options{kShape, Arrangement::kLayersKvNhd, kBlocks, 1};
  const std::uint64_t size = BlockLayout::region_sizes(options)->front();
  const RegionPtr one = TestRegion(size).region();
  const RegionPtr two = TestRegion(size).region();
  EXPECT_THAT(error_of(BlockLayout::make(options, {one, two, one})), HasSubstr("overlap"));
}

}  // namespace
}  // namespace cairn
