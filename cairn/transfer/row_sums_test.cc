#include "cairn/transfer/row_sums.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "cairn/layout/rank_grid.h"
#include "cairn/transfer/block_walk.h"
#include "cairn/transfer/transfer_testing.h"

namespace cairn {
namespace {

using testing::plan_between;
using testing::TestLayout;

KvShape random_shape(std::mt19937& random) {
  const std::uint32_t bits[] = {4, 8, 16, 32};
  KvShape shape{.layers = static_cast<std::uint32_t>(1 + random() % 4),
                .kv = static_cast<std::uint32_t>(1 + random() % 2),
                .page_size = static_cast<std::uint32_t>(1 + random() % 5),
                .heads = static_cast<std::uint32_t>(1 + random() % 4),
                .head_size = static_cast<std::uint32_t>(2 * (1 + random() % 20)),
                .element_bits = bits[random() % 4]};
  if (random() % 6 == 0) {
    shape = {.layers = 1,
             .kv = 1,
             .page_size = 2,
             .heads = 2,
             .head_size = 12'000,
             .element_bits = 8};  // long enough to be cut inside
  }
  return shape;
}

// Row by row, by their numbers, padded: the definition.
BlockSums naive_sums(const TestLayout& layout, std::uint32_t block) {
  const KvShape& shape = layout.shape();
  BlockSums sums;
  layout.for_each_row([&](std::uint32_t layer, std::uint32_t k_or_v, std::uint32_t token, std::uint32_t head) {
    sums += sum_words(layout.row(block, layer, k_or_v, token, head),
                      shape.row(layer, k_or_v, token, head) * ((shape.row_bytes() + 7) / 8));
  });
  return sums;
}

TEST(RowSumsTest, AreThoseOfTheDefinitionOnBothSidesOfEveryPlan) {
  std::mt19937 random(1);
  for (int round = 0; round < 80; ++round) {
    SCOPED_TRACE(round);
    const KvShape shape = random_shape(random);
    TestLayout source = TestLayout::make({shape, kAllArrangements[random() % 6], 3, 1});
    TestLayout destination = TestLayout::make({shape, kAllArrangements[random() % 6], 3, 64});
    source.fill(random());
    destination.fill(random());
    const CopyPlanPtr plan = plan_between(source.layout(), destination.layout());
    ASSERT_EQ(sum_block(*plan, PlanSide::kSource, 2), naive_sums(source, 2));
    ASSERT_EQ(sum_block(*plan, PlanSide::kDestination, 1), naive_sums(destination, 1));

    BlockSums of_runs;
    for (const CopyPlan::Box& box : plan->boxes()) {
      for (std::uint64_t run = 0; run < box.runs; ++run) {
        std::uint64_t at = box.source_offset + 2 * box.source_block_step;
        std::uint64_t index = run;
        for (std::size_t i = box.run_levels; i < box.levels.size(); ++i) {
          at += index % box.levels[i].count * box.levels[i].source_step;
          index /= box.levels[i].count;
        }
        of_runs += sum_run(*plan, box, run, source.regions()[box.source_region].bytes().data() + at);
      }
    }
    ASSERT_EQ(of_runs, naive_sums(source, 2));
  }
}

TEST(BlockWalkTest, CopiesEveryByteOnceHoweverItIsCut) {
  std::mt19937 random(2);
  for (int round = 0; round < 80; ++round) {
    SCOPED_TRACE(round);
    const KvShape shape = random_shape(random);
    TestLayout source = TestLayout::make({shape, kAllArrangements[random() % 6], 3, 64});
    TestLayout destination = TestLayout::make({shape, kAllArrangements[random() % 6], 3, 1});
    source.fill(random());
    destination.fill(random());
    const CopyPlanPtr plan = plan_between(source.layout(), destination.layout());
    const BlockWalk walk(*plan);
    ASSERT_EQ(walk.bytes(), plan->bytes_per_block());
    const std::uint64_t step = 1 + walk.bytes() / 40 + random() % walk.bytes();
    const Stores stores = random() % 2 == 0 ? Stores::kCached : Stores::kStreaming;
    BlockSums sums;
    std::uint64_t begin = 0;
    for (std::uint64_t at = step; begin < walk.bytes(); at += step) {
      const std::uint64_t end = walk.cut(at);
      ASSERT_GE(end, begin);
      ASSERT_LE(end, at);
      if (round % 3 == 0) {
        walk.copy({2, 1}, begin, end, stores);
      } else {
        sums += walk.copy_and_sum({2, 1}, begin, end, stores);
      }
      begin = end;
    }
    ASSERT_TRUE(destination.holds(1, source, 2));
    ASSERT_TRUE(destination.untouched_but({1}));
    ASSERT_EQ(sums, round % 3 == 0 ? BlockSums{} : naive_sums(source, 2));
  }
}

// The sums of the parts of replica 0 of any grid, in any layouts, are those of the whole block.
TEST(RowSumsTest, DoNotDependOnTheGrid) {
  std::mt19937_64 random(6);
  const KvShape shape{5, 2, 3, 4, 8, 16};
  TestLayout whole = TestLayout::random(shape, 2, random);
  TestLayout copy = TestLayout::random(shape, 2, random);
  whole.fill(random());
  const BlockSums expected = sum_block(**CopyPlan::make(whole.layout(), copy.layout()), PlanSide::kSource, 1);
  for (const RankGrid grid : {RankGrid(1), RankGrid(4), RankGrid(8), RankGrid(2, 2), RankGrid(8, 5), RankGrid(1, 3)}) {
    BlockSums sums;
    for (std::uint32_t rank = 0; rank < grid.count(); ++rank) {
      const RankShare share = *RankShare::make(grid, rank, shape);
      TestLayout device = TestLayout::random(share.shape(shape), 2, random);
      TestLayout host = TestLayout::random(share.shape(shape), 2, random);
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

}  // namespace
}  // namespace cairn
