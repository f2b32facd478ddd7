#include "cairn/layout/layer_groups.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cairn/layout/layout_testing.h"

namespace cairn {
namespace {

using ::testing::HasSubstr;
using testing::TestLayout;

constexpr KvShape kFull{2, 2, 16, 4, 64, 16};
constexpr KvShape kWindow{3, 2, 16, 4, 64, 16};
constexpr KvShape kState{1, 1, 1, 1, 4096, 32};

std::vector<LayerGroup> hybrid() {
  return {{"full", kFull, {0, 4}}, {"window", kWindow, {5, 1, 3}}, {"state", kState, {2}}};
}

std::string error_of(std::uint32_t model_layers, std::vector<LayerGroup> groups) {
  Result<LayerGroups> made = LayerGroups::make(model_layers, std::move(groups));
  return made ? std::string("accepted") : made.error().message;
}

TEST(LayerGroupsTest, SaysWhereALayerIs) {
  const Result<LayerGroups> made = LayerGroups::make(6, hybrid());
  ASSERT_TRUE(made);
  EXPECT_EQ(made->model_layers(), 6U);
  EXPECT_EQ(made->spot(0), (LayerGroups::Spot{0, 0, 1}));
  EXPECT_EQ(made->spot(1), (LayerGroups::Spot{1, 1, 1}));
  EXPECT_EQ(made->spot(2), (LayerGroups::Spot{2, 0, 1}));
  EXPECT_EQ(made->spot(3), (LayerGroups::Spot{1, 2, 1}));
  EXPECT_EQ(made->spot(4), (LayerGroups::Spot{0, 1, 1}));
  EXPECT_EQ(made->spot(5), (LayerGroups::Spot{1, 0, 1}));
  EXPECT_EQ(made->find("window"), 1U);
  EXPECT_EQ(made->find("mla"), std::nullopt);
  EXPECT_EQ(made->groups()[2].shape.block_bytes(), 16384U);
}

// K and V in tensors of their own: two layers of the shape for each of the model.
TEST(LayerGroupsTest, ALayerMayBeSeveralOfTheShape) {
  const Result<LayerGroups> made = LayerGroups::make(3, {{"apart", {6, 1, 16, 4, 64, 16}, {0, 1, 2}}});
  ASSERT_TRUE(made);
  EXPECT_EQ(made->spot(2), (LayerGroups::Spot{0, 4, 2}));
}

TEST(LayerGroupsTest, EachLayerIsInExactlyOneGroup) {
  EXPECT_EQ(error_of(6, hybrid()), "accepted");
  EXPECT_THAT(error_of(7, hybrid()), HasSubstr("layer 6 of 7 is in no group"));
  EXPECT_THAT(error_of(5, hybrid()), HasSubstr("group 'window' has layer 5; the model has 5"));
  auto twice = hybrid();
  twice[2].layers = {4};
  EXPECT_THAT(error_of(6, twice), HasSubstr("layer 4 is in group 'full' and again in 'state'"));
  auto in_one = hybrid();
  in_one[1].layers = {1, 3, 1};
  EXPECT_THAT(error_of(6, in_one), HasSubstr("layer 1 is in group 'window' and again in 'window'"));
}

TEST(LayerGroupsTest, RefusesInvalidGroups) {
  EXPECT_THAT(error_of(0, {}), HasSubstr("a model of 0 layers"));
  EXPECT_THAT(error_of(~0U, {}), HasSubstr("a model of 4294967295 layers"));
  EXPECT_THAT(error_of(1, {}), HasSubstr("layer 0 of 1 is in no group"));
  EXPECT_THAT(error_of(1, {{"", kState, {0}}}), HasSubstr("group 0 has no name"));
  EXPECT_THAT(error_of(2, {{"a", kState, {0}}, {"a", kState, {1}}}), HasSubstr("two groups are called 'a'"));
  EXPECT_THAT(error_of(2, {{"a", kState, {0, 1}}}), HasSubstr("'a' has 2 layers and a shape of 1"));
  EXPECT_THAT(error_of(2, {{"a", kState, {}}}), HasSubstr("'a' has 0 layers"));
  EXPECT_THAT(error_of(2, {{"a", KvShape{2, 2, 0, 4, 64, 16}, {0, 1}}}),
              HasSubstr("group 'a': a block of page_size 0"));
}

TEST(LayoutGroupsTest, HasALayoutForEachGroup) {
  const LayerGroups groups = *LayerGroups::make(6, hybrid());
  const TestLayout full = TestLayout::make({kFull, Arrangement::kLayersKvNhd, 4, 1});
  const TestLayout window = TestLayout::make({kWindow, Arrangement::kContiguousNhd, 2, 1});
  const TestLayout state = TestLayout::make({kState, Arrangement::kContiguousNhd, 8, 4096});
  const Result<LayoutGroups> made = LayoutGroups::make(groups, {full.layout(), window.layout(), state.layout()});
  ASSERT_TRUE(made);
  EXPECT_EQ(made->total_bytes(), 4 * kFull.block_bytes() + 2 * kWindow.block_bytes() + 8 * kState.block_bytes());
  EXPECT_EQ(made->layouts()[made->groups().spot(3).group], window.layout());

  const auto message = [&](std::vector<BlockLayoutPtr> layouts) {
    return LayoutGroups::make(groups, std::move(layouts)).error().message;
  };
  EXPECT_THAT(message({full.layout(), window.layout()}), HasSubstr("3 groups and 2 layouts"));
  EXPECT_THAT(message({full.layout(), nullptr, state.layout()}), HasSubstr("the layout of group 'window' is null"));
  EXPECT_THAT(message({full.layout(), state.layout(), window.layout()}), HasSubstr("the layout of group 'window' has"));
}

}  // namespace
}  // namespace cairn
