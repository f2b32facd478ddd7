#include "cairn/rank/rank_routes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "cairn/rank/active_rank_transfer.h"
#include "cairn/rank/rank_testing.h"

namespace cairn {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

constexpr CacheLevel kDevice = CacheLevel::kG1;
constexpr CacheLevel kHost = CacheLevel::kG2;

class RankRoutesTest : public ::testing::Test {
 protected:
  std::unique_ptr<RankRoutes> routes_of(const LayoutGroups& device) {
    const std::uint32_t layers = device.groups().model_layers();
    ManagerConfig config = testing::rank_config(folder_.in("disk"));
    config.model.layers = layers;
    config.model.heads = device.groups().groups().front().shape.heads;
    return *RankRoutes::make(config, device.groups(), *RankMemory::make(config, device, {.layers = layers}),
                             steady_clock(), {});
  }
  static LayoutGroups model_of(std::uint32_t layers, std::uint32_t heads = testing::kRankShape.heads) {
    KvShape shape = testing::kRankShape;
    shape.layers = layers;
    shape.heads = heads;
    std::vector<std::uint32_t> all(layers);
    std::iota(all.begin(), all.end(), 0U);
    return testing::device_groups({{"all", shape, all}}, layers);
  }
  // How many layers each part has. Checks that all layers come once, in order.
  static std::vector<std::uint32_t> parts(std::span<const GroupRoute> routes) {
    std::vector<std::uint32_t> counts;
    std::uint32_t next = 0;
    for (const GroupRoute& route : routes) {
      EXPECT_EQ(route.first_layer, next);
      next += route.layers;
      counts.push_back(route.layers);
    }
    return counts;
  }

  TestFolder folder_;
};

TEST_F(RankRoutesTest, LoadsTheFirstLayerAloneThenSeveralAndFewAtTheEnd) {
  const auto routes = routes_of(model_of(36));
  EXPECT_THAT(parts(routes->by_layer(kHost, kDevice)), ElementsAre(1, 2, 4, 8, 10, 5, 3, 1, 1, 1));
}

TEST_F(RankRoutesTest, LoadsLayersOfASmallModelOneByOne) {
  const auto routes = routes_of(model_of(3));
  EXPECT_THAT(parts(routes->by_layer(kHost, kDevice)), ElementsAre(1, 1, 1));
}

TEST_F(RankRoutesTest, LargeLayersAreNotLoadedTogether) {
  const std::uint64_t layer_bytes = testing::kRankShape.block_bytes() / testing::kRankShape.layers;
  const auto times = static_cast<std::uint32_t>((std::uint64_t{300} << 10) / layer_bytes);
  const auto routes = routes_of(model_of(9, times * testing::kRankShape.heads));
  EXPECT_THAT(parts(routes->by_layer(kHost, kDevice)), Each(1U));
}

TEST_F(RankRoutesTest, LayersOfDifferentGroupsAreNotLoadedTogether) {
  const auto routes = routes_of(testing::two_groups());
  EXPECT_THAT(parts(routes->by_layer(kHost, kDevice)), ElementsAre(1, 1, 1));
}

TEST_F(RankRoutesTest, SavesLayersAsTheyAreComputed) {
  const auto routes = routes_of(model_of(36));
  EXPECT_THAT(parts(routes->by_layer(kDevice, kHost)), Each(1U));
}

// The first layers of other transfers come before the last ones of this one.
TEST_F(RankRoutesTest, FewLayersOfATransferAreInFlightAtOnce) {
  const auto routes = routes_of(model_of(36));
  RankTransfer message{.id = TransferId{5}, .from = kHost, .to = kDevice, .pairs = {{0, 1}}, .tags = {{}}};
  ActiveRankTransfer transfer(std::move(message), LeaderId{1, 1}, 3, TimePoint::max());
  transfer.use_whole(routes->whole(kHost, kDevice), 0);
  transfer.use_layers(routes->by_layer(kHost, kDevice));
  const auto begin = [&] {
    const ActiveRankTransfer::Part part = transfer.next_part();
    transfer.begun(TransferId{part.route}, TimePoint(0));
    return part;
  };
  const auto end = [&](const ActiveRankTransfer::Part& part) {
    TransferOutcome outcome;
    outcome.blocks.resize(1);
    transfer.ended(part, outcome, TimePoint(0));
  };
  const auto one = begin();
  ASSERT_TRUE(transfer.may_begin_part(4)) << "1 and 2 layers";
  const auto two = begin();
  EXPECT_FALSE(transfer.may_begin_part(4)) << "4 more";
  end(one);
  ASSERT_TRUE(transfer.may_begin_part(4)) << "2 and 4 layers: never one part alone";
  const auto three = begin();
  EXPECT_FALSE(transfer.may_begin_part(4));
  end(two);
  EXPECT_TRUE(transfer.may_begin_part(4));
  end(three);
}

}  // namespace
}  // namespace cairn
