#include "cairn/transfer/tensor_parallel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "cairn/layout/layout_testing.h"
#include "cairn/transfer/copy_plan_testing.h"
#include "cairn/transfer/row_sums.h"

namespace cairn {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::rows_of_boxes;
using testing::TestLayout;

constexpr std::uint32_t kBlocks = 3;

// The ranks of one split, each in a random layout.
struct Split {
  std::vector<TestLayout> ranks;
  std::vector<BlockLayoutPtr> layouts;
};

Split split(KvShape shape, std::uint32_t ranks, std::mt19937_64& random) {
  Split made;
  shape.heads = std::max(1U, shape.heads / ranks);
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    made.ranks.push_back(TestLayout::random(shape, kBlocks, random));
    made.ranks.back().fill(random());
    made.layouts.push_back(made.ranks.back().layout());
  }
  return made;
}

void move(const Split& from, const Split& to, const std::vector<RankPlan>& plans, const BlockPair& pair) {
  std::vector<Copy> copies;
  for (const RankPlan& plan : plans) {
    plan.plan->expand(std::span(&pair, 1), 100, copies);
    apply(copies, from.ranks[plan.source_rank], to.ranks[plan.destination_rank]);
  }
}

// Writes a block of the whole into the ranks, replicas alike, by the rule of head r x heads / ranks.
void deal(const TestLayout& whole, const Split& to, std::uint32_t block) {
  for (std::size_t rank = 0; rank < to.ranks.size(); ++rank) {
    const std::uint64_t first = rank * whole.shape().heads / to.ranks.size();
    to.ranks[rank].for_each_row([&](std::uint32_t layer, std::uint32_t kv, std::uint32_t token, std::uint32_t head) {
      const auto from = whole.row(block, layer, kv, token, static_cast<std::uint32_t>(first) + head);
      std::memcpy(to.ranks[rank].row(block, layer, kv, token, head).data(), from.data(), from.size());
    });
  }
}

TEST(TensorParallelTest, DealsHeads) {
  EXPECT_EQ(*share_of(3, 4, 8), (HeadShare{6, 2, 0}));
  EXPECT_EQ(*share_of(0, 1, 8), (HeadShare{0, 8, 0}));
  EXPECT_EQ(*share_of(5, 8, 2), (HeadShare{1, 1, 1, 4}));
  EXPECT_EQ(*share_of(7, 8, 1), (HeadShare{0, 1, 7, 8}));
  EXPECT_THAT(share_of(0, 4, 6).error().message, HasSubstr("6 heads cannot be dealt to 4 ranks"));
  EXPECT_THAT(share_of(0, 4, 0).error().message, HasSubstr("0 heads"));
  EXPECT_THAT(share_of(4, 4, 8).error().message, HasSubstr("rank 4 of 4"));
  EXPECT_FALSE(share_of(0, 0, 8));
}

TEST(TensorParallelTest, FromKRanksToMAndBack) {
  std::mt19937_64 random(11);
  const std::uint32_t counts[] = {1, 2, 4, 8};
  for (const std::uint32_t heads : {1U, 2U, 4U, 8U}) {
    for (const std::uint32_t k : counts) {
      for (const std::uint32_t m : counts) {
        SCOPED_TRACE(::testing::Message() << heads << " heads, " << k << " ranks to " << m);
        const KvShape shape{2, heads == 1 ? 1U : 2U, 3, heads, 5, 8};
        TestLayout whole = TestLayout::random(shape, kBlocks, random);
        whole.fill(random());
        Split from = split(shape, k, random);
        Split to = split(shape, m, random);
        Split back = split(shape, k, random);
        deal(whole, from, 1);
        const auto there = plan_ranks(from.layouts, to.layouts, {heads});
        const auto home = plan_ranks(to.layouts, back.layouts, {heads});
        ASSERT_TRUE(there);
        ASSERT_TRUE(home);
        move(from, to, *there, {1, 2});
        move(to, back, *home, {2, 0});
        for (std::uint32_t rank = 0; rank < m; ++rank) {
          EXPECT_TRUE(to.ranks[rank].untouched_but({2}));
        }
        Split expected = split(shape, m, random);
        deal(whole, expected, 1);
        for (std::uint32_t rank = 0; rank < m; ++rank) {
          EXPECT_TRUE(to.ranks[rank].holds(2, expected.ranks[rank], 1));
        }
        for (std::uint32_t rank = 0; rank < k; ++rank) {
          EXPECT_TRUE(back.ranks[rank].holds(0, from.ranks[rank], 1));
          EXPECT_TRUE(back.ranks[rank].untouched_but({0}));
        }
      }
    }
  }
}

// The rows of the plans of replica 0 are those of the block, each once, by the numbers of the whole.
TEST(TensorParallelTest, PartsAddUpToTheBlock) {
  std::mt19937_64 random(5);
  for (const std::uint32_t heads : {1U, 2U, 6U}) {
    for (const std::uint32_t k : {1U, 2U, 6U}) {
      for (const std::uint32_t m : {1U, 2U, 6U}) {
        const KvShape shape{2, 2, 3, heads, 4, 16};
        const Split from = split(shape, k, random);
        const Split to = split(shape, m, random);
        const auto plans = plan_ranks(from.layouts, to.layouts, {heads});
        ASSERT_TRUE(plans);
        std::map<std::uint64_t, int> times;
        for (const RankPlan& plan : *plans) {
          EXPECT_EQ(plan.plan->whole_block_bytes(), shape.block_bytes());
          for (const testing::RowCopy& row : rows_of_boxes(*plan.plan, {0, 0})) {
            times[row.row] += plan.replica == 0 ? 1 : 0;
          }
        }
        EXPECT_EQ(times.size(), shape.rows());
        for (const auto& [row, count] : times) {
          EXPECT_EQ(count, 1) << "row " << row;
        }
      }
    }
  }
}

// The sums of the parts of replica 0 of any grid, in any layouts, are those of the whole block.
TEST(TensorParallelTest, SumsDoNotDependOnTheGrid) {
  std::mt19937_64 random(6);
  const KvShape shape{5, 2, 3, 4, 8, 16};
  TestLayout whole = TestLayout::random(shape, kBlocks, random);
  TestLayout copy = TestLayout::random(shape, kBlocks, random);
  whole.fill(random());
  const BlockSums expected = sum_block(**CopyPlan::make(whole.layout(), copy.layout()), PlanSide::kSource, 1);
  for (const RankGrid grid : {RankGrid(1), RankGrid(4), RankGrid(8), RankGrid(2, 2), RankGrid(8, 5), RankGrid(1, 3)}) {
    BlockSums sums;
    for (std::uint32_t rank = 0; rank < grid.count(); ++rank) {
      const RankShare share = *RankShare::make(grid, rank, shape);
      TestLayout device = TestLayout::random(share.shape(shape), kBlocks, random);
      TestLayout host = TestLayout::random(share.shape(shape), kBlocks, random);
      device.for_each_row([&](std::uint32_t layer, std::uint32_t kv, std::uint32_t token, std::uint32_t head) {
        const auto from = whole.row(1, share.layers.first + layer, kv, token, share.heads.first_head + head);
        std::memcpy(device.row(1, layer, kv, token, head).data(), from.data(), from.size());
      });
      const CopyPlanPtr plan = *CopyPlan::make(device.layout(), host.layout(),
                                               {.whole_head = share.heads.first_head,
                                                .whole_heads = shape.heads,
                                                .whole_layer = share.layers.first,
                                                .whole_layers = shape.layers});
      EXPECT_EQ(plan->whole_block_bytes(), shape.block_bytes());
      if (share.heads.replica == 0) {
        sums += sum_block(*plan, PlanSide::kSource, 1);
      }
    }
    EXPECT_EQ(sums, expected) << grid.to_string();
  }
}

std::vector<std::pair<std::uint32_t, std::uint32_t>> ranks_of(const std::vector<RankPlan>& plans) {
  std::vector<std::pair<std::uint32_t, std::uint32_t>> ranks;
  for (const RankPlan& plan : plans) {
    ranks.emplace_back(plan.source_rank, plan.destination_rank);
  }
  return ranks;
}

TEST(TensorParallelTest, ReadsTheNearestReplica) {
  std::mt19937_64 random(3);
  const KvShape mla{2, 1, 4, 1, 16, 16};
  const Split four = split(mla, 4, random);
  const Split same = split(mla, 4, random);
  const Split two = split(mla, 2, random);
  const Split one = split(mla, 1, random);
  EXPECT_THAT(ranks_of(*plan_ranks(four.layouts, same.layouts, {1})),
              ElementsAre(std::pair(0, 0), std::pair(1, 1), std::pair(2, 2), std::pair(3, 3)));
  EXPECT_THAT(ranks_of(*plan_ranks(four.layouts, two.layouts, {1})), ElementsAre(std::pair(0, 0), std::pair(2, 1)));
  EXPECT_THAT(ranks_of(*plan_ranks(two.layouts, four.layouts, {1})),
              ElementsAre(std::pair(0, 0), std::pair(0, 1), std::pair(1, 2), std::pair(1, 3)));
  EXPECT_THAT(ranks_of(*plan_ranks(four.layouts, one.layouts, {1})), ElementsAre(std::pair(0, 0)));
}

TEST(TensorParallelTest, MovesSomeLayers) {
  std::mt19937_64 random(4);
  const KvShape shape{4, 2, 4, 4, 16, 16};
  const Split from = split(shape, 2, random);
  const Split to = split(shape, 4, random);
  const auto plans = plan_ranks(from.layouts, to.layouts, {4, 1, 2});
  ASSERT_TRUE(plans);
  for (const RankPlan& plan : *plans) {
    EXPECT_EQ(plan.plan->bytes_per_block(), shape.block_bytes() / 4 / 2);
  }
}

TEST(TensorParallelTest, RefusesSplitsThatDoNotFit) {
  std::mt19937_64 random(9);
  const KvShape shape{2, 2, 4, 4, 16, 16};
  const Split two = split(shape, 2, random);
  const Split four = split(shape, 4, random);
  const auto message = [](const auto& from, const auto& to, const TensorParallelOptions& options) {
    const auto plans = plan_ranks(from, to, options);
    return plans ? std::string("accepted") : plans.error().message;
  };
  EXPECT_EQ(message(two.layouts, four.layouts, {4}), "accepted");
  EXPECT_THAT(message(two.layouts, four.layouts, {8}),
              HasSubstr("source rank 0 has 2 heads; one of 2 ranks has 4 of 8"));
  EXPECT_THAT(message(two.layouts, four.layouts, {0}), HasSubstr("0 heads cannot be dealt"));
  EXPECT_THAT(message(std::vector<BlockLayoutPtr>{}, four.layouts, {4}), HasSubstr("no source ranks"));
  EXPECT_THAT(message(two.layouts, std::vector<BlockLayoutPtr>{}, {4}), HasSubstr("no destination ranks"));
  EXPECT_THAT(message(std::vector<BlockLayoutPtr>{two.layouts[0], nullptr}, four.layouts, {4}),
              HasSubstr("source rank 1 is null"));
  EXPECT_THAT(message(two.layouts, four.layouts, {4, 2, 0}), HasSubstr("from source rank 0 to destination rank 0: "));
  KvShape other = shape;
  other.page_size = 8;
  const Split bigger = split(other, 4, random);
  EXPECT_THAT(message(two.layouts, bigger.layouts, {4}), HasSubstr("page_size 4 and the destination 8"));
}

}  // namespace
}  // namespace cairn
