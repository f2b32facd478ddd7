#include "cairn/rank/active_rank_transfer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "cairn/rank/rank_testing.h"
#include "cairn/wire/combined_checksum.h"

namespace cairn {
namespace {

using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr CacheLevel kDevice = CacheLevel::kG1;
constexpr CacheLevel kHost = CacheLevel::kG2;

// Two groups of layers: the outer ones (layers 0 and 2) and the inner one (layer 1).
class ActiveRankTransferTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const LayoutGroups device = testing::two_groups();
    const ManagerConfig config = testing::rank_config(folder_.in("disk"));
    routes_ = *RankRoutes::make(config, device.groups(), *RankMemory::make(config, device, {.layers = 3}),
                                steady_clock(), {});
  }
  static ActiveRankTransfer load(std::uint32_t blocks) {
    RankTransfer message{.id = TransferId{5}, .from = kHost, .to = kDevice};
    for (std::uint32_t i = 0; i < blocks; ++i) {
      message.pairs.push_back({i, 10 + i});
      message.tags.push_back({.high = i, .low = 1});
    }
    return {std::move(message), LeaderId{1, 1}, 3, TimePoint::max()};
  }
  static TransferOutcome all_done(const ActiveRankTransfer::Part& part, std::uint64_t sum) {
    TransferOutcome outcome;
    outcome.blocks.resize(part.blocks.size(), {.sums = {.products = sum, .words = sum}});
    return outcome;
  }
  // Carries out one part.
  static void run(ActiveRankTransfer& transfer, std::uint64_t sum) {
    const ActiveRankTransfer::Part part = transfer.next_part();
    transfer.begun(TransferId{1}, TimePoint(0));
    transfer.ended(part, all_done(part, sum), TimePoint(0));
    transfer.settled();
  }

  TestFolder folder_;
  std::unique_ptr<RankRoutes> routes_;
};

TEST_F(ActiveRankTransferTest, HasOnePartForEachGroup) {
  ActiveRankTransfer transfer = load(2);
  transfer.use_whole(routes_->whole(kHost, kDevice), 0);
  EXPECT_EQ(transfer.device_block(1), 11U);
  const ActiveRankTransfer::Part first = transfer.next_part();
  EXPECT_THAT(first.blocks, ElementsAre(0, 1));
  const Transfer copy = transfer.transfer_of(first);
  EXPECT_EQ(copy.plan, routes_->whole(kHost, kDevice)[0].plan);
  EXPECT_EQ(copy.blocks.size(), 2U);
  transfer.begun(TransferId{1}, seconds(10));
  EXPECT_TRUE(transfer.has_parts_left());
  const ActiveRankTransfer::Part second = transfer.next_part();
  transfer.begun(TransferId{2}, seconds(11));
  EXPECT_FALSE(transfer.has_parts_left());
  EXPECT_EQ(transfer.parts_in_flight(), 2U);
  transfer.ended(second, all_done(second, 1), seconds(12));
  EXPECT_FALSE(transfer.has_outcome());
  transfer.ended(first, all_done(first, 1), seconds(14));
  EXPECT_TRUE(transfer.has_outcome());
  EXPECT_FALSE(transfer.is_settled());
  transfer.settled();
  transfer.settled();
  EXPECT_TRUE(transfer.is_settled());
  EXPECT_EQ(transfer.report().copied, seconds(4));
}

// As of an in-step save, whose layers come one after the other.
TEST_F(ActiveRankTransferTest, TheTimeBetweenPartsIsNotThatOfTheCopy) {
  ActiveRankTransfer transfer = load(1);
  transfer.use_whole(routes_->whole(kHost, kDevice), 0);
  for (const TimePoint begin : {seconds(10), seconds(30)}) {
    const ActiveRankTransfer::Part part = transfer.next_part();
    transfer.begun(TransferId{1}, begin);
    transfer.ended(part, all_done(part, 1), begin + seconds(2));
  }
  EXPECT_EQ(transfer.report().copied, seconds(4));
}

TEST_F(ActiveRankTransferTest, ABlockHasTheSameChecksumWholeAndLayerByLayer) {
  ActiveRankTransfer whole = load(1);
  whole.use_whole(routes_->whole(kHost, kDevice), 0);
  run(whole, 30);  // the outer group: layers 0 and 2 together
  run(whole, 7);
  ActiveRankTransfer layers = load(1);
  layers.use_whole(routes_->whole(kHost, kDevice), 0);
  layers.use_layers(routes_->by_layer(kHost, kDevice));
  EXPECT_TRUE(layers.is_by_layer());
  run(layers, 10);
  run(layers, 7);
  run(layers, 20);
  const RankTransferOutcome one = whole.report();
  const RankTransferOutcome other = layers.report();
  EXPECT_THAT(one.states, ElementsAre(BlockState::kDone));
  EXPECT_EQ(one, other);
  EXPECT_NE(one.sums[0], BlockSums{});
}

TEST_F(ActiveRankTransferTest, ABlockThatFailedIsInNoFurtherPartAndHasNoChecksum) {
  ActiveRankTransfer transfer = load(2);
  transfer.use_whole(routes_->whole(kHost, kDevice), 0);
  run(transfer, 1);
  EXPECT_TRUE(transfer.fail(0, BlockState::kExpired, "too late"));
  EXPECT_FALSE(transfer.fail(0, BlockState::kFailed, "again"));
  EXPECT_THAT(transfer.next_part().blocks, ElementsAre(1));
  run(transfer, 1);
  ASSERT_TRUE(transfer.has_outcome());
  const RankTransferOutcome outcome = transfer.report();
  EXPECT_TRUE(transfer.is_reported());
  EXPECT_THAT(outcome.states, ElementsAre(BlockState::kExpired, BlockState::kDone));
  EXPECT_EQ(outcome.sums[0], BlockSums{});
  EXPECT_NE(outcome.sums[1], BlockSums{});
  EXPECT_EQ(outcome.error, "too late");
}

TEST_F(ActiveRankTransferTest, HasItsOutcomeWhenNoBlockIsWell) {
  ActiveRankTransfer transfer = load(1);
  transfer.use_whole(routes_->whole(kHost, kDevice), 0);
  transfer.begun(TransferId{1}, seconds(10));
  EXPECT_FALSE(transfer.has_outcome());
  transfer.fail(0, BlockState::kFailed, "x");
  EXPECT_TRUE(transfer.has_outcome()) << "though a part is in flight";
  EXPECT_THAT(transfer.next_part().blocks, IsEmpty());
}

}  // namespace
}  // namespace cairn
