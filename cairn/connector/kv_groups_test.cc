#include "cairn/connector/kv_groups.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "cairn/connector/worker_testing.h"
#include "cairn/layout/block_pattern.h"

namespace cairn {
namespace {

using ::testing::AllOf;
using testing::engine_group;
using testing::EngineTensors;
using ::testing::HasSubstr;
using testing::kAllTensorKinds;
using testing::layer_names;
using testing::TensorKind;
using enum TensorAxis;

std::string error_of(const std::vector<KvGroup>& groups, const std::vector<std::string>& layers) {
  const Result<LayoutGroups> made = make_kv_groups(groups, layers);
  return made ? std::string("accepted") : made.error().message;
}

// The error of one invalid group of three layers.
std::string error_of_spoiled(TensorKind kind, const std::function<void(KvGroup&)>& spoil) {
  EngineTensors memory;
  KvGroup group = engine_group(memory, kind, {});
  spoil(group);
  return error_of({group}, layer_names(3));
}

TEST(KvGroupsTest, EveryKindOfTensorsIsRead) {
  for (const TensorKind kind : kAllTensorKinds) {
    SCOPED_TRACE(static_cast<int>(kind));
    EngineTensors memory;
    const Result<LayoutGroups> made = make_kv_groups(std::vector{engine_group(memory, kind, {})}, layer_names(3));
    ASSERT_TRUE(made) << made.error().message;
    const BlockLayout& layout = *made->layouts().front();
    EXPECT_EQ(layout.blocks(), 8U);
    EXPECT_EQ(layout.shape().page_size, 4U);
    EXPECT_EQ(layout.shape().block_bytes(), (kind == TensorKind::kMla ? 1U : 2U) * 3 * 4 * 2 * 8 * 2);
    EXPECT_EQ(made->groups().spot(2).layers, kind == TensorKind::kKAndVApart ? 2U : 1U);
  }
}

// K of token 5 is at the same address in the engine's tensor and in the layout.
TEST(KvGroupsTest, KAndVOfALayerAreNextToEachOther) {
  EngineTensors memory;
  const KvGroup group = engine_group(memory, TensorKind::kKAndVApart, {});
  const Result<LayoutGroups> made = make_kv_groups(std::vector{group}, layer_names(3));
  ASSERT_TRUE(made);
  const BlockLayout& layout = *made->layouts().front();
  EXPECT_EQ(layout.shape().kv, 1U);
  EXPECT_EQ(layout.shape().layers, 6U);
  for (std::uint32_t i = 0; i < 6; ++i) {
    EXPECT_EQ(layout.regions()[layout.layers()[i].region]->base(), group.tensors[i].base);
  }
}

// Blocks of a group do not overlap, and all of their bytes are in the tensors.
TEST(KvGroupsTest, BlocksLieWhereTheTensorsSay) {
  for (const TensorKind kind : kAllTensorKinds) {
    SCOPED_TRACE(static_cast<int>(kind));
    EngineTensors memory;
    const Result<LayoutGroups> made = make_kv_groups(std::vector{engine_group(memory, kind, {})}, layer_names(3));
    ASSERT_TRUE(made);
    const BlockLayout& layout = *made->layouts().front();
    for (std::uint32_t block = 0; block < layout.blocks(); ++block) {
      write_pattern(layout, block, 100 + block);
    }
    for (std::uint32_t block = 0; block < layout.blocks(); ++block) {
      EXPECT_EQ(find_stranger(layout, block, 100 + block), std::nullopt);
    }
  }
}

TEST(KvGroupsTest, LayersAreNumberedInTheOrderOfTheModel) {
  EngineTensors memory;
  KvGroup full = engine_group(memory, TensorKind::kKvFirst, {.layers = 2}, "full");
  full.layers = {"a.3", "a.0"};
  KvGroup window = engine_group(memory, TensorKind::kMla, {.layers = 2, .page = 16}, "window");
  window.layers = {"a.1", "a.2"};
  const Result<LayoutGroups> made =
      make_kv_groups(std::vector{full, window}, std::vector<std::string>{"a.0", "a.1", "a.2", "a.3"});
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_EQ(made->groups().spot(0), (LayerGroups::Spot{0, 1, 1}));
  EXPECT_EQ(made->groups().spot(1), (LayerGroups::Spot{1, 0, 1}));
  EXPECT_EQ(made->groups().spot(2), (LayerGroups::Spot{1, 1, 1}));
  EXPECT_EQ(made->groups().spot(3), (LayerGroups::Spot{0, 0, 1}));
}

TEST(KvGroupsTest, GroupsMayLieOnDifferentGpus) {
  EngineTensors memory;
  std::vector<KvGroup> groups = {engine_group(memory, TensorKind::kKvFirst, {.layers = 2}, "first", 0),
                                 engine_group(memory, TensorKind::kKvFirst, {.layers = 2}, "second", 2)};
  for (std::size_t i = 0; i < groups.size(); ++i) {
    for (KvTensor& tensor : groups[i].tensors) {
      tensor.kind = MemoryKind::kDevice;
      tensor.device = static_cast<int>(i);
    }
  }
  const Result<LayoutGroups> made = make_kv_groups(groups, layer_names(4));
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_EQ(made->layouts()[0]->device(), 0);
  EXPECT_EQ(made->layouts()[1]->device(), 1);
  groups[0].tensors[1].device = 1;
  EXPECT_THAT(error_of(groups, layer_names(4)), HasSubstr("group 'first'"));
}

TEST(KvGroupsTest, NumbersOfTensorsThatFitNoLayersAreRefused) {
  EXPECT_EQ(error_of({}, {}), "no tensor groups given; pass a group for every layer");
  EXPECT_EQ(error_of_spoiled(TensorKind::kKvFirst, [](KvGroup& group) { group.layers.clear(); }),
            "group 'full' has no layers; name them");
  EXPECT_EQ(error_of_spoiled(TensorKind::kKvFirst, [](KvGroup& group) { group.tensors.pop_back(); }),
            "group 'full' has 3 layers and 2 tensors; give one for each layer, or two (K and V), or one for all");
  EXPECT_EQ(error_of_spoiled(TensorKind::kAllInOne, [](KvGroup& group) { group.layers.pop_back(); }),
            "group 'full', the tensor of all layers: it has 3 layers, and the group has 2");
  EXPECT_EQ(error_of_spoiled(TensorKind::kKvFirst, [](KvGroup& group) { group.page_size = 0; }),
            "group 'full' has a page size of 0");
}

TEST(KvGroupsTest, TensorsOfAnotherKindThanTheirNumberSaysAreRefused) {
  EngineTensors memory;
  // One tensor with K and one with V of all layers, not one tensor for each layer.
  const KvGroup apart = {.name = "full",
                         .layers = layer_names(2),
                         .tensors = {memory.add({kLayer, kBlock, kToken, kHead, kElement}, {2, 8, 4, 2, 8}),
                                     memory.add({kLayer, kBlock, kToken, kHead, kElement}, {2, 8, 4, 2, 8})},
                         .element_bits = 16,
                         .page_size = 4};
  EXPECT_THAT(error_of({apart}, layer_names(2)),
              AllOf(HasSubstr("group 'full', layer 'layer.0'"), HasSubstr("it has an axis of layers")));
  KvGroup twice = engine_group(memory, TensorKind::kKvFirst, {.layers = 2});
  twice.layers.pop_back();
  EXPECT_THAT(error_of({twice}, layer_names(1)),
              AllOf(HasSubstr("group 'full', K of layer 'layer.0'"), HasSubstr("it has K and V")));
}

TEST(KvGroupsTest, ABadTensorIsNamedByItsLayer) {
  EXPECT_THAT(error_of_spoiled(TensorKind::kKvFirst, [](KvGroup& group) { group.tensors[1].base = nullptr; }),
              AllOf(HasSubstr("group 'full', layer 'layer.1'"), HasSubstr("without an address")));
  EXPECT_THAT(error_of_spoiled(TensorKind::kKvFirst, [](KvGroup& group) { group.tensors[2].bytes -= 1; }),
              AllOf(HasSubstr("group 'full', layer 'layer.2'"), HasSubstr("ends at byte")));
  EXPECT_THAT(error_of_spoiled(TensorKind::kKvFirst, [](KvGroup& group) { group.tensors[2].strides.pop_back(); }),
              AllOf(HasSubstr("group 'full', layer 'layer.2'"), HasSubstr("4 strides")));
  EXPECT_THAT(error_of_spoiled(TensorKind::kKvFirst, [](KvGroup& group) { group.tensors[1].strides[4] = 2; }),
              AllOf(HasSubstr("group 'full', layer 'layer.1'"), HasSubstr("contiguous")));
  EXPECT_THAT(error_of_spoiled(TensorKind::kKAndVApart, [](KvGroup& group) { group.tensors[3].sizes[2] = 4; }),
              AllOf(HasSubstr("group 'full', V of layer 'layer.1'"), HasSubstr("tensors that differ")));
  EXPECT_THAT(error_of_spoiled(TensorKind::kKvFirst, [](KvGroup& group) { group.page_size = 16; }),
              AllOf(HasSubstr("group 'full', layer 'layer.0'"), HasSubstr("4 tokens"), HasSubstr("page size is 16")));
  EXPECT_THAT(error_of_spoiled(TensorKind::kKAndVApart, [](KvGroup& group) { group.page_size = 5; }),
              AllOf(HasSubstr("group 'full', K of layer 'layer.0'"), HasSubstr("not a multiple of page_size 5")));
  EXPECT_THAT(error_of_spoiled(TensorKind::kKvFirst, [](KvGroup& group) { group.element_bits = 0; }),
              HasSubstr("group 'full', layer 'layer.0'"));
}

TEST(KvGroupsTest, TensorsThatLieInEachOtherAreRefused) {
  EXPECT_THAT(
      error_of_spoiled(TensorKind::kKvFirst, [](KvGroup& group) { group.tensors[2].base = group.tensors[0].base; }),
      AllOf(HasSubstr("group 'full'"), HasSubstr("overlap")));
}

TEST(KvGroupsTest, LayersThatDoNotFitTheModelAreRefused) {
  EngineTensors memory;
  const KvGroup group = engine_group(memory, TensorKind::kKvFirst, {});
  EXPECT_EQ(error_of({group}, {"layer.0", "layer.1", "layer.0"}), "two layers of the model are called 'layer.0'");
  EXPECT_THAT(error_of({group}, layer_names(2)),
              HasSubstr("group 'full', layer 'layer.2': the model has no such layer"));
  EXPECT_EQ(error_of({group}, layer_names(4)), "layer 'layer.3' of the model is in no group");
  const KvGroup again = engine_group(memory, TensorKind::kKvFirst, {.layers = 1}, "again", 1);
  EXPECT_EQ(error_of({group, again}, layer_names(3)), "layer 'layer.1' is in group 'full' and again in group 'again'");
}

TEST(KvGroupsTest, GroupsHaveTheSameBlocks) {
  EngineTensors memory;
  EXPECT_EQ(error_of({engine_group(memory, TensorKind::kKvFirst, {.layers = 1}, "full", 0),
                      engine_group(memory, TensorKind::kKvFirst, {.layers = 1, .blocks = 9}, "window", 1)},
                     layer_names(2)),
            "group 'window' has 9 blocks and group 'full' has 8; blocks have the same numbers in all groups");
  EXPECT_THAT(error_of({engine_group(memory, TensorKind::kKvFirst, {.layers = 1}, "full", 0),
                        engine_group(memory, TensorKind::kKvFirst, {.layers = 1}, "full", 1)},
                       layer_names(2)),
              HasSubstr("two groups are called 'full'"));
}

// A state has no tokens: the page size of the group does not apply to it.
TEST(KvGroupsTest, AStateIsABlockOfItsOwn) {
  EngineTensors memory;
  const KvGroup state = {.name = "state",
                         .layers = layer_names(1),
                         .tensors = {memory.add({kBlock, kElement, kElement}, {8, 3, 5})},
                         .element_bits = 16,
                         .page_size = 16};
  const Result<LayoutGroups> made = make_kv_groups(std::vector{state}, layer_names(1));
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_EQ(made->layouts().front()->shape().block_bytes(), 30U);
}

}  // namespace
}  // namespace cairn
