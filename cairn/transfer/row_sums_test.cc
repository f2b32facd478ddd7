#include "cairn/transfer/row_sums.h"

#include <gtest/gtest.h>

#include <random>

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

}  // namespace
}  // namespace cairn
