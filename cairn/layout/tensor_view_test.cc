#include "cairn/layout/block_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cairn/layout/layout_testing.h"

namespace cairn {
namespace {

using ::testing::HasSubstr;
using testing::TestLayout;
using enum TensorAxis;

// The strides of a tensor as it is allocated: without gaps, in the order of its sizes.
std::vector<std::int64_t> dense_strides(const std::vector<std::uint64_t>& sizes) {
  std::vector<std::int64_t> strides(sizes.size());
  std::int64_t next = 1;
  for (std::size_t i = sizes.size(); i-- > 0;) {
    strides[i] = next;
    next *= static_cast<std::int64_t>(sizes[i]);
  }
  return strides;
}

TensorView dense(const std::vector<TensorAxis>& axes, const std::vector<std::uint64_t>& sizes,
                 std::uint32_t region = 0) {
  TensorView view = *make_tensor_view(axes, sizes, dense_strides(sizes));
  view.region = region;
  return view;
}

std::string error_of(const std::vector<TensorView>& tensors, const TensorOptions& options = {16, 0}) {
  Result<TensorPlaces> places = places_of(tensors, options);
  return places ? std::string("accepted") : places.error().message;
}

// The layout that a named arrangement gives for the same tensors.
std::vector<LayerPlace> arranged(const KvShape& shape, Arrangement arrangement, std::uint32_t blocks) {
  const TestLayout made = TestLayout::make({shape, arrangement, blocks, 1});
  return {made.layout()->layers().begin(), made.layout()->layers().end()};
}

TEST(TensorViewTest, VllmTensorsOfBothKinds) {
  const KvShape shape{2, 2, 16, 4, 64, 16};
  const auto kv_first = places_of(std::vector{dense({kKv, kBlock, kToken, kHead, kElement}, {2, 7, 16, 4, 64}, 0),
                                              dense({kKv, kBlock, kToken, kHead, kElement}, {2, 7, 16, 4, 64}, 1)},
                                  {16, 0});
  ASSERT_TRUE(kv_first);
  EXPECT_EQ(kv_first->shape, shape);
  EXPECT_EQ(kv_first->blocks, 7U);
  EXPECT_EQ(kv_first->layers, arranged(shape, Arrangement::kLayersKvNhd, 7));
  const auto block_first = places_of(std::vector{dense({kBlock, kKv, kHead, kToken, kElement}, {7, 2, 4, 16, 64}, 0),
                                                 dense({kBlock, kKv, kHead, kToken, kElement}, {7, 2, 4, 16, 64}, 1)},
                                     {16, 0});
  ASSERT_TRUE(block_first);
  EXPECT_EQ(block_first->layers, arranged(shape, Arrangement::kLayersBlockHnd, 7));
}

// An NHD shape over HND memory: PyTorch permutes strides, not sizes.
TEST(TensorViewTest, ReadsPermutedStrides) {
  const std::vector<TensorAxis> axes = {kKv, kBlock, kToken, kHead, kElement};
  const auto places = places_of(std::vector{*make_tensor_view(axes, std::vector<std::uint64_t>{2, 7, 16, 4, 64},
                                                              std::vector<std::int64_t>{7 * 4096, 4096, 64, 1024, 1})},
                                {16, 0});
  ASSERT_TRUE(places);
  EXPECT_EQ(places->layers, arranged({1, 2, 16, 4, 64, 16}, Arrangement::kLayersKvHnd, 7));
}

TEST(TensorViewTest, TensorsOfAllLayers) {
  const auto vllm =
      places_of(std::vector{dense({kBlock, kLayer, kKv, kToken, kHead, kElement}, {3, 5, 2, 8, 2, 32})}, {8, 0});
  ASSERT_TRUE(vllm);
  EXPECT_EQ(vllm->shape, (KvShape{5, 2, 8, 2, 32, 8}));
  EXPECT_EQ(vllm->layers, arranged(vllm->shape, Arrangement::kContiguousNhd, 3));
  const auto trtllm =
      places_of(std::vector{dense({kBlock, kLayer, kKv, kHead, kToken, kElement}, {3, 5, 2, 2, 8, 32})}, {8, 0});
  ASSERT_TRUE(trtllm);
  EXPECT_EQ(trtllm->layers, arranged(trtllm->shape, Arrangement::kContiguousHnd, 3));
}

TEST(TensorViewTest, MlaHasNeitherHeadsNorValues) {
  const auto places = places_of(std::vector{dense({kBlock, kToken, kElement}, {9, 64, 576})}, {16, 0});
  ASSERT_TRUE(places);
  EXPECT_EQ(places->shape, (KvShape{1, 1, 64, 1, 576, 16}));
  EXPECT_EQ(places->layers[0], (LayerPlace{0, 0, 64 * 1152, 0, 1152, 0}));
}

TEST(TensorViewTest, SglangPoolsHaveFlatTokensAndKeysApartFromValues) {
  std::vector<TensorView> pools;
  for (std::uint32_t region = 0; region < 4; ++region) {  // K and V of layer 0, of layer 1
    pools.push_back(dense({kFlatToken, kHead, kElement}, {64, 2, 32}, region));
  }
  const auto places = places_of(pools, {16, 16});
  ASSERT_TRUE(places);
  EXPECT_EQ(places->shape, (KvShape{4, 1, 16, 2, 32, 16}));
  EXPECT_EQ(places->blocks, 4U);
  EXPECT_EQ(places->layers[3], (LayerPlace{3, 0, 16 * 128, 0, 128, 64}));
  // The rows have the same numbers as if K and V were one tensor.
  const KvShape together{2, 2, 16, 2, 32, 16};
  EXPECT_EQ(places->shape.row(3, 0, 5, 1), together.row(1, 1, 5, 1));
  EXPECT_EQ(places->shape.block_bytes(), together.block_bytes());
}

TEST(TensorViewTest, StatesAreElementsOfSeveralAxes) {
  const auto places = places_of(std::vector{dense({kBlock, kElement, kElement, kElement}, {11, 4, 8, 16})}, {32, 0});
  ASSERT_TRUE(places);
  EXPECT_EQ(places->shape, (KvShape{1, 1, 1, 1, 4 * 8 * 16, 32}));
  EXPECT_EQ(places->layers[0].block_step, 2048U);
}

TEST(TensorViewTest, FourBitElementsAndPaddedHeads) {
  const std::vector<TensorAxis> axes = {kBlock, kKv, kToken, kHead, kElement};
  const auto places = places_of(std::vector{*make_tensor_view(axes, std::vector<std::uint64_t>{2, 2, 4, 2, 6},
                                                              std::vector<std::int64_t>{128, 64, 16, 8, 1})},
                                {4, 0});
  ASSERT_TRUE(places);
  EXPECT_EQ(places->shape.row_bytes(), 3U);
  EXPECT_EQ(places->layers[0], (LayerPlace{0, 0, 64, 32, 8, 4}));
}

TEST(TensorViewTest, OffsetsAndSizesOfOneAreTakenAsTheyAre) {
  TensorView view = *make_tensor_view(std::vector{kBlock, kKv, kHead, kElement}, std::vector<std::uint64_t>{4, 1, 1, 8},
                                      std::vector<std::int64_t>{8, -77, 123456789, 1});
  view.offset = 40;
  view.region = 2;
  const auto places = places_of(std::vector{view}, {64, 0});
  ASSERT_TRUE(places);
  EXPECT_EQ(places->layers[0], (LayerPlace{2, 40, 64, 0, 0, 0}));
}

TEST(TensorViewTest, MakesALayout) {
  const auto places =
      places_of(std::vector{dense({kBlock, kLayer, kKv, kToken, kHead, kElement}, {3, 2, 2, 4, 2, 8})}, {16, 0});
  ASSERT_TRUE(places);
  const testing::TestRegion memory(3 * places->shape.block_bytes());
  EXPECT_TRUE(BlockLayout::from_places(places->shape, places->blocks, places->layers, {memory.region()}));
  const testing::TestRegion less(3 * places->shape.block_bytes() - 1);
  EXPECT_FALSE(BlockLayout::from_places(places->shape, places->blocks, places->layers, {less.region()}));
}

TEST(TensorViewTest, RefusesTensorsThatAreNoBlocks) {
  EXPECT_THAT(error_of({}), HasSubstr("no tensors"));
  EXPECT_THAT(error_of({dense({kBlock, kToken}, {4, 4})}), HasSubstr("tensor 0: the tensor has no kElement axis"));
  EXPECT_THAT(error_of({dense({kToken, kElement}, {4, 4})}), HasSubstr("neither a kBlock nor a kFlatToken axis"));
  EXPECT_THAT(error_of({dense({kBlock, kBlock, kElement}, {4, 4, 4})}), HasSubstr("axis 0 (block) is named twice"));
  EXPECT_THAT(error_of({dense({kBlock, kFlatToken, kElement}, {4, 4, 4})}, {16, 4}),
              HasSubstr("give one or the other"));
  EXPECT_THAT(error_of({dense({kFlatToken, kElement}, {30, 4})}, {16, 16}), HasSubstr("30 tokens"));
  EXPECT_THAT(error_of({dense({kFlatToken, kElement}, {32, 4})}, {16, 0}), HasSubstr("not a multiple of page_size 0"));
  EXPECT_THAT(error_of({dense({kBlock, kElement}, {0, 4})}), HasSubstr("axis 0 (block) has the size 0"));
  EXPECT_THAT(error_of({dense({kBlock, kElement}, {std::uint64_t{1} << 32U, 4})}), HasSubstr("4294967296"));
  EXPECT_THAT(error_of({dense({kBlock, kKv, kElement}, {4, 3, 4})}), HasSubstr("tensor 0: kv is 3"));
  EXPECT_THAT(error_of({dense({kBlock, kElement}, {4, 4})}, {0, 0}), HasSubstr("elements of 0 bits"));
  const auto strided = [&](std::vector<std::int64_t> strides, std::uint32_t bits = 16) {
    return error_of(
        {*make_tensor_view(std::vector{kBlock, kToken, kElement}, std::vector<std::uint64_t>{4, 4, 8}, strides)},
        {bits, 0});
  };
  EXPECT_EQ(strided({32, 8, 1}), "accepted");
  EXPECT_THAT(strided({32, 8, 2}), HasSubstr("axis 2 (element) has the stride 2, not 1"));
  EXPECT_THAT(strided({32, -8, 1}), HasSubstr("axis 1 (token) has the stride -8"));
  EXPECT_THAT(strided({33, 8, 1}, 4), HasSubstr("33 elements of 4 bits, which is not whole bytes"));
  EXPECT_THAT(strided({std::int64_t{1} << 61U, 8, 1}), HasSubstr("beyond 2^64 bits"));
  EXPECT_THAT(error_of({dense({kBlock, kElement}, {4, 4}), dense({kBlock, kElement}, {4, 8})}),
              HasSubstr("tensor 1 has 4 blocks of kv 1 x 1 tokens x 1 heads x 8 elements and tensor 0"));
  EXPECT_THAT(error_of({dense({kBlock, kElement}, {4, 4}), dense({kBlock, kElement}, {5, 4})}), HasSubstr("5 blocks"));
  EXPECT_FALSE(
      make_tensor_view(std::vector{kBlock, kElement}, std::vector<std::uint64_t>{4}, std::vector<std::int64_t>{4, 1}));
  TensorView far = *make_tensor_view(std::vector{kLayer, kBlock, kElement}, std::vector<std::uint64_t>{4, 4, 8},
                                     std::vector<std::int64_t>{std::int64_t{1} << 59U, 8, 1});
  far.offset = ~std::uint64_t{0} - 10;
  EXPECT_THAT(error_of({far}), HasSubstr("begins beyond 2^64"));
}

TEST(TensorViewTest, NamesAxes) {
  EXPECT_EQ(to_string(kBlock), "block");
  EXPECT_EQ(to_string(kLayer), "layer");
  EXPECT_EQ(to_string(kKv), "kv");
  EXPECT_EQ(to_string(kToken), "token");
  EXPECT_EQ(to_string(kFlatToken), "flat_token");
  EXPECT_EQ(to_string(kHead), "head");
  EXPECT_EQ(to_string(kElement), "element");
}

}  // namespace
}  // namespace cairn
