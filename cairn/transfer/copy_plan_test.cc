#include "cairn/transfer/copy_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cairn/layout/layout_testing.h"
#include "cairn/transfer/copy_plan_testing.h"

namespace cairn {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::TestLayout;

constexpr KvShape kShape{3, 2, 4, 2, 8, 16};  // rows of 16 bytes, planes of 128, blocks of 768
constexpr std::uint64_t kAnySize = ~std::uint64_t{0};

TestLayout layout(Arrangement arrangement, std::uint32_t blocks = 8, std::uint64_t alignment = 1) {
  return TestLayout::make({kShape, arrangement, blocks, alignment});
}

std::vector<Copy> expand(const CopyPlan& plan, std::vector<BlockPair> pairs, std::uint64_t max_bytes = kAnySize) {
  std::vector<Copy> copies;
  EXPECT_TRUE(plan.check(pairs));
  plan.expand(pairs, max_bytes, copies);
  return copies;
}

TEST(CopyPlanTest, ContiguousBlocksAreOneCopyAndMergeWithTheNext) {
  const TestLayout from = layout(Arrangement::kContiguousNhd);
  const TestLayout to = layout(Arrangement::kContiguousNhd);
  const CopyPlanPtr plan = *CopyPlan::make(from.layout(), to.layout());
  EXPECT_EQ(plan->boxes().size(), 1U);
  EXPECT_EQ(plan->runs_per_block(), 1U);
  EXPECT_EQ(plan->bytes_per_block(), 768U);
  EXPECT_TRUE(plan->is_whole());
  EXPECT_THAT(expand(*plan, {{1, 4}, {2, 5}, {4, 6}, {5, 1}}),
              ElementsAre(Copy{0, 0, 768, 4 * 768, 2 * 768, 0, 2}, Copy{0, 0, 4 * 768, 6 * 768, 768, 2, 1},
                          Copy{0, 0, 5 * 768, 768, 768, 3, 1}));
}

TEST(CopyPlanTest, CopiesAreCutAtTheLargestSize) {
  const TestLayout from = layout(Arrangement::kContiguousNhd);
  const TestLayout to = layout(Arrangement::kContiguousNhd);
  const CopyPlanPtr plan = *CopyPlan::make(from.layout(), to.layout());
  EXPECT_THAT(expand(*plan, {{0, 0}, {1, 1}}, 1000),
              ElementsAre(Copy{0, 0, 0, 0, 1000, 0, 2}, Copy{0, 0, 1000, 1000, 536, 1, 1}));
  EXPECT_THAT(expand(*plan, {{3, 0}}, 500),
              ElementsAre(Copy{0, 0, 2304, 0, 500, 0, 1}, Copy{0, 0, 2804, 500, 268, 0, 1}));
}

TEST(CopyPlanTest, AlignedBlocksDoNotMerge) {
  const TestLayout from = layout(Arrangement::kContiguousNhd, 8, 1024);
  const TestLayout to = layout(Arrangement::kContiguousNhd);
  EXPECT_EQ(expand(**CopyPlan::make(from.layout(), to.layout()), {{0, 0}, {1, 1}}).size(), 2U);
}

TEST(CopyPlanTest, LayersWithRegionsOfTheirOwnAreBoxesOfTheirOwn) {
  const TestLayout from = layout(Arrangement::kLayersKvNhd);
  const TestLayout to = layout(Arrangement::kContiguousNhd);
  const CopyPlanPtr plan = *CopyPlan::make(from.layout(), to.layout());
  EXPECT_EQ(plan->boxes().size(), 3U);
  EXPECT_EQ(plan->runs_per_block(), 6U);
  EXPECT_EQ(plan->boxes()[1].run_bytes, 128U);
  EXPECT_EQ(plan->boxes()[1].first_row, kShape.row(1, 0, 0, 0));
  EXPECT_THAT(expand(*plan, {{5, 2}}),
              ElementsAre(Copy{0, 0, 5 * 128, 1536, 128, 0, 1}, Copy{0, 0, 13 * 128, 1664, 128, 0, 1},
                          Copy{1, 0, 5 * 128, 1792, 128, 0, 1}, Copy{1, 0, 13 * 128, 1920, 128, 0, 1},
                          Copy{2, 0, 5 * 128, 2048, 128, 0, 1}, Copy{2, 0, 13 * 128, 2176, 128, 0, 1}));
}

TEST(CopyPlanTest, KeysAndValuesOfAdjacentBlocksMergeEachForItself) {
  const TestLayout from = layout(Arrangement::kLayersKvNhd);
  const TestLayout to = layout(Arrangement::kLayersKvNhd, 16);
  const CopyPlanPtr plan = *CopyPlan::make(from.layout(), to.layout(), {.first_layer = 1, .layers = 1});
  EXPECT_FALSE(plan->is_whole());
  EXPECT_THAT(expand(*plan, {{2, 3}, {3, 4}, {4, 5}}),
              ElementsAre(Copy{1, 1, 2 * 128, 3 * 128, 384, 0, 3}, Copy{1, 1, 10 * 128, 19 * 128, 384, 0, 3}));
  EXPECT_THAT(expand(*plan, {{2, 3}, {3, 4}, {4, 5}}, 256),
              ElementsAre(Copy{1, 1, 2 * 128, 3 * 128, 256, 0, 2}, Copy{1, 1, 10 * 128, 19 * 128, 256, 0, 2},
                          Copy{1, 1, 4 * 128, 5 * 128, 128, 2, 1}, Copy{1, 1, 12 * 128, 21 * 128, 128, 2, 1}));
}

TEST(CopyPlanTest, HeadsAndTokensSwapRowByRow) {
  const TestLayout from = layout(Arrangement::kContiguousNhd);
  const TestLayout to = layout(Arrangement::kContiguousHnd);
  const CopyPlanPtr plan = *CopyPlan::make(from.layout(), to.layout());
  ASSERT_EQ(plan->boxes().size(), 1U);
  EXPECT_EQ(plan->boxes()[0].run_bytes, 16U);
  EXPECT_EQ(plan->boxes()[0].run_levels, 0U);
  EXPECT_EQ(plan->boxes()[0].levels[0].count, 4U);  // tokens are innermost in the destination
  EXPECT_EQ(plan->boxes()[0].levels[0].row_step, 2U);
  EXPECT_EQ(plan->runs_per_block(), kShape.rows());
}

TEST(CopyPlanTest, EveryPairOfArrangementsRoundTrips) {
  for (const Arrangement one : kAllArrangements) {
    for (const Arrangement other : kAllArrangements) {
      TestLayout from = layout(one);
      TestLayout to = layout(other, 6, 64);
      TestLayout back = layout(one, 8, 32);
      from.fill(1);
      to.fill(2);
      back.fill(3);
      apply(expand(**CopyPlan::make(from.layout(), to.layout()), {{1, 5}, {2, 0}, {3, 1}}), from, to);
      EXPECT_TRUE(to.holds(5, from, 1)) << to_string(one) << " to " << to_string(other);
      EXPECT_TRUE(to.holds(0, from, 2));
      EXPECT_TRUE(to.holds(1, from, 3));
      EXPECT_TRUE(to.untouched_but({0, 1, 5}));
      apply(expand(**CopyPlan::make(to.layout(), back.layout()), {{5, 7}, {0, 6}}), to, back);
      EXPECT_TRUE(back.holds(7, from, 1));
      EXPECT_TRUE(back.holds(6, from, 2));
      EXPECT_TRUE(back.untouched_but({6, 7}));
    }
  }
}

TEST(CopyPlanTest, ChecksPairs) {
  const TestLayout from = layout(Arrangement::kContiguousNhd, 8);
  const TestLayout to = layout(Arrangement::kContiguousNhd, 4);
  const CopyPlanPtr plan = *CopyPlan::make(from.layout(), to.layout());
  const auto message = [&](const CopyPlan& of, std::vector<BlockPair> pairs) {
    const Status status = of.check(pairs);
    return status ? std::string("accepted") : status.error().message;
  };
  EXPECT_EQ(message(*plan, {}), "accepted");
  EXPECT_EQ(message(*plan, {{7, 3}, {7, 0}}), "accepted");
  EXPECT_THAT(message(*plan, {{0, 0}, {8, 1}}), HasSubstr("pair 1: source block 8; the source has 8"));
  EXPECT_THAT(message(*plan, {{0, 4}}), HasSubstr("pair 0: destination block 4; the destination has 4"));
  EXPECT_THAT(message(*plan, {{0, 1}, {1, 1}}), HasSubstr("destination block 1 is written twice"));
  EXPECT_THAT(message(*plan, {{0, 2}, {1, 1}, {2, 2}}), HasSubstr("destination block 2 is written twice"));
  const CopyPlanPtr within = *CopyPlan::make(from.layout(), from.layout());
  EXPECT_EQ(message(*within, {{0, 1}, {2, 3}}), "accepted");
  EXPECT_THAT(message(*within, {{0, 1}, {1, 2}}), HasSubstr("block 1 is read and written"));
  EXPECT_THAT(message(*within, {{3, 3}}), HasSubstr("block 3 is read and written"));
}

TEST(CopyPlanTest, FindsADoubleInAShortListOfALargeLayout) {
  const KvShape tiny{1, 1, 1, 1, 1, 8};
  const TestLayout from = TestLayout::make({tiny, Arrangement::kContiguousNhd, 4, 1});
  const TestLayout to = TestLayout::make({tiny, Arrangement::kContiguousNhd, 1U << 16U, 1});
  const CopyPlanPtr plan = *CopyPlan::make(from.layout(), to.layout());
  EXPECT_TRUE(plan->check(std::vector<BlockPair>{{0, 9}, {1, 7}, {2, 8}}));
  EXPECT_FALSE(plan->check(std::vector<BlockPair>{{0, 9}, {1, 7}, {2, 9}}));
}

TEST(CopyPlanTest, RefusesWhatDoesNotFit) {
  const TestLayout base = layout(Arrangement::kContiguousNhd);
  const auto message = [&](auto change, const BlockPart& part = {}) {
    KvShape shape = kShape;
    change(shape);
    const TestLayout other = TestLayout::make({shape, Arrangement::kContiguousNhd, 8, 1});
    Result<CopyPlanPtr> plan = CopyPlan::make(base.layout(), other.layout(), part);
    return plan ? std::string("accepted") : plan.error().message;
  };
  const auto same = [](KvShape&) {};
  EXPECT_THAT(message([](KvShape& s) { s.layers = 4; }), HasSubstr("layers 3 and the destination 4"));
  EXPECT_THAT(message([](KvShape& s) { s.kv = 1; }), HasSubstr("kv 2 and the destination 1"));
  EXPECT_THAT(message([](KvShape& s) { s.page_size = 8; }), HasSubstr("page_size 4 and the destination 8"));
  EXPECT_THAT(message([](KvShape& s) { s.head_size = 4; }), HasSubstr("head_size 8 and the destination 4"));
  EXPECT_THAT(message([](KvShape& s) { s.element_bits = 8; }), HasSubstr("element_bits 16 and the destination 8"));
  EXPECT_THAT(message([](KvShape& s) { s.heads = 1; }), HasSubstr("the destination has 1"));
  EXPECT_EQ(message([](KvShape& s) { s.heads = 1; }, {.heads = 1}), "accepted");
  EXPECT_THAT(message(same, {.first_layer = 3}), HasSubstr("layers 3"));
  EXPECT_THAT(message(same, {.first_layer = 2, .layers = 2}), HasSubstr("a block has 3"));
  EXPECT_THAT(message(same, {.first_layer = 1, .layers = ~0U}), HasSubstr("a block has 3"));
  EXPECT_THAT(message(same, {.source_head = 2}), HasSubstr("source head 2"));
  EXPECT_THAT(message(same, {.source_head = 1, .heads = 2}), HasSubstr("the source has 2"));
  EXPECT_THAT(message(same, {.destination_head = 1}), HasSubstr("from destination head 1"));
  EXPECT_THAT(message(same, {.whole_head = 1}), HasSubstr("without whole_heads"));
  EXPECT_THAT(message(same, {.whole_head = 1, .whole_heads = 2}), HasSubstr("the whole has 2"));
  EXPECT_THAT(message(same, {.whole_heads = 1U << 31U}), HasSubstr("2^32 words"));
  EXPECT_THAT(message(same, {.whole_layer = 1}), HasSubstr("without whole_layers"));
  EXPECT_THAT(message(same, {.whole_layer = 1, .whole_layers = 3}), HasSubstr("the whole has 3"));
  EXPECT_FALSE(CopyPlan::make(nullptr, base.layout()));
  EXPECT_FALSE(CopyPlan::make(base.layout(), nullptr));
}

TEST(CopyPlanTest, RefusesTwoArrangementsOfOneMemory) {
  const TestLayout one = layout(Arrangement::kContiguousNhd);
  Result<BlockLayoutPtr> other =
      BlockLayout::make({kShape, Arrangement::kContiguousHnd, 8, 1}, {one.regions()[0].region()});
  ASSERT_TRUE(other);
  Result<CopyPlanPtr> plan = CopyPlan::make(one.layout(), *other);
  ASSERT_FALSE(plan);
  EXPECT_THAT(plan.error().message, HasSubstr("same memory"));
}

}  // namespace
}  // namespace cairn
