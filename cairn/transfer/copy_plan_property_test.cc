// Plans between random layouts of random shapes, compared row by row.
#include <gtest/gtest.h>

#include <random>
#include <set>

#include "cairn/layout/layout_testing.h"
#include "cairn/transfer/copy_plan.h"
#include "cairn/transfer/copy_plan_testing.h"

namespace cairn {
namespace {

using testing::merge_rows;
using testing::RowCopy;
using testing::rows_of;
using testing::rows_of_boxes;
using testing::TestLayout;

constexpr std::uint64_t kAnySize = ~std::uint64_t{0};
constexpr std::uint64_t kSeeds = 500;

class Draw {
 public:
  explicit Draw(std::uint64_t seed) : random_(seed) {}

  std::mt19937_64& source() { return random_; }
  std::uint32_t up_to(std::uint64_t most) { return static_cast<std::uint32_t>(random_() % (most + 1)); }
  std::uint32_t from(std::uint32_t least, std::uint32_t most) { return least + up_to(most - least); }

  KvShape shape() {
    constexpr std::uint32_t kBits[] = {4, 5, 6, 8, 12, 16, 32, 64};
    KvShape shape{from(1, 4), from(1, 2), from(1, 4), from(1, 4), from(1, 9), kBits[up_to(7)]};
    while (!shape.validate()) {  // a row that does not end with a byte
      shape.head_size += 1;
    }
    return shape;
  }

  // Different destinations; often blocks that follow each other on both sides.
  std::vector<BlockPair> pairs(std::uint32_t sources, std::uint32_t destinations) {
    std::vector<BlockPair> made;
    std::set<std::uint32_t> written;
    for (std::uint32_t i = from(1, 6); i > 0; --i) {
      BlockPair pair{up_to(sources - 1), up_to(destinations - 1)};
      if (!made.empty() && up_to(3) != 0 && made.back().source + 1 < sources &&
          made.back().destination + 1 < destinations) {
        pair = {made.back().source + 1, made.back().destination + 1};
      }
      if (written.insert(pair.destination).second) {
        made.push_back(pair);
      }
    }
    return made;
  }

 private:
  std::mt19937_64 random_;
};

auto key(const RowCopy& row) {
  return std::tuple(row.row, row.from.region, row.from.offset, row.to.region, row.to.offset);
}

std::vector<decltype(key({}))> sorted_keys(const std::vector<RowCopy>& rows) {
  std::vector<decltype(key({}))> keys;
  for (const RowCopy& row : rows) {
    keys.push_back(key(row));
  }
  std::sort(keys.begin(), keys.end());
  return keys;
}

auto place(const Copy& copy) { return std::tuple(copy.destination_region, copy.destination_offset); }

void sort_by_place(std::vector<Copy>& copies) {
  std::sort(copies.begin(), copies.end(), [](const Copy& a, const Copy& b) { return place(a) < place(b); });
}

// The plan's boxes, and the copies it expands to, match the rows.
void expect_plan_matches_rows(const TestLayout& from, const TestLayout& to, const BlockPart& part,
                              const std::vector<BlockPair>& pairs, std::uint64_t max_bytes) {
  Result<CopyPlanPtr> made = CopyPlan::make(from.layout(), to.layout(), part);
  ASSERT_TRUE(made) << made.error().message;
  const CopyPlan& plan = **made;
  ASSERT_TRUE(plan.check(pairs));

  const std::vector<RowCopy> rows = rows_of(*from.layout(), *to.layout(), part, std::span(pairs).first(1));
  EXPECT_EQ(plan.bytes_per_block(), rows.size() * plan.row_bytes());
  EXPECT_EQ(sorted_keys(rows_of_boxes(plan, pairs[0])), sorted_keys(rows));
  std::uint64_t runs = 0;
  for (const CopyPlan::Box& box : plan.boxes()) {
    runs += box.runs;
    // The levels are ordered by the destination's steps, and the rows of a run are adjacent.
    std::uint64_t run_rows = 1;
    for (std::uint32_t i = 0; i < box.levels.size(); ++i) {
      const CopyPlan::Level& level = box.levels[i];
      if (i > 0 && level.count > 1) {
        EXPECT_GT(box.levels[i - 1].count, 1U);
        EXPECT_GE(level.destination_step, box.levels[i - 1].destination_step);
      }
      if (i < box.run_levels) {
        EXPECT_EQ(level.source_step, run_rows * plan.row_bytes());
        EXPECT_EQ(level.destination_step, run_rows * plan.row_bytes());
        run_rows *= level.count;
      }
    }
    EXPECT_EQ(box.run_bytes, run_rows * plan.row_bytes());
  }
  EXPECT_EQ(plan.runs_per_block(), runs);

  std::vector<Copy> copies;
  plan.expand(pairs, max_bytes, copies);
  EXPECT_TRUE(std::is_sorted(copies.begin(), copies.end(),
                             [](const Copy& a, const Copy& b) { return a.first_pair < b.first_pair; }));
  std::vector<Copy> expected =
      merge_rows(rows_of(*from.layout(), *to.layout(), part, pairs), pairs, plan.row_bytes(), max_bytes);
  sort_by_place(copies);
  sort_by_place(expected);
  EXPECT_EQ(copies, expected);
}

TEST(CopyPlanPropertyTest, MovesEveryByteAndNoOther) {
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    Draw draw(seed);
    const KvShape shape = draw.shape();
    TestLayout from = TestLayout::random(shape, draw.from(1, 6), draw.source());
    TestLayout to = TestLayout::random(shape, draw.from(1, 6), draw.source());
    TestLayout back = TestLayout::random(shape, to.layout()->blocks(), draw.source());
    from.fill(3 * seed);
    to.fill(3 * seed + 1);
    back.fill(3 * seed + 2);
    const std::vector<BlockPair> pairs = draw.pairs(from.layout()->blocks(), to.layout()->blocks());
    const std::uint64_t max_bytes = draw.up_to(1) == 0 ? kAnySize : draw.from(1, 300);
    expect_plan_matches_rows(from, to, {}, pairs, max_bytes);

    std::vector<Copy> copies;
    std::vector<std::uint32_t> written;
    std::vector<BlockPair> return_pairs;
    (*CopyPlan::make(from.layout(), to.layout()))->expand(pairs, max_bytes, copies);
    apply(copies, from, to);
    for (const BlockPair& pair : pairs) {
      EXPECT_TRUE(to.holds(pair.destination, from, pair.source));
      written.push_back(pair.destination);
      return_pairs.push_back({pair.destination, pair.destination});
    }
    EXPECT_TRUE(to.untouched_but(written));
    EXPECT_TRUE(from.untouched_but({}));

    (*CopyPlan::make(to.layout(), back.layout()))->expand(return_pairs, max_bytes, copies);
    apply(copies, to, back);
    for (const BlockPair& pair : pairs) {
      EXPECT_TRUE(back.holds(pair.destination, from, pair.source));
    }
    EXPECT_TRUE(back.untouched_but(written));
    if (HasFailure()) {
      return;  // one seed at a time
    }
  }
}

TEST(CopyPlanPropertyTest, MovesPartsOfBlocks) {
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    Draw draw(seed);
    const KvShape shape = draw.shape();
    KvShape other = shape;
    other.heads = draw.from(1, 5);
    const TestLayout from = TestLayout::random(shape, draw.from(1, 5), draw.source());
    TestLayout to = TestLayout::random(other, draw.from(1, 5), draw.source());
    to.fill(seed);
    BlockPart part;
    part.first_layer = draw.up_to(shape.layers - 1);
    part.layers = draw.up_to(shape.layers - part.first_layer);
    part.heads = draw.from(1, std::min(shape.heads, other.heads));
    part.source_head = draw.up_to(shape.heads - part.heads);
    part.destination_head = draw.up_to(other.heads - part.heads);
    if (draw.up_to(1) == 0) {
      part.whole_head = draw.up_to(3);
      part.whole_heads = part.whole_head + part.heads + draw.up_to(3);
    }
    if (draw.up_to(1) == 0) {
      part.whole_layer = draw.up_to(3);
      part.whole_layers = part.whole_layer + shape.layers + draw.up_to(3);
    }
    const std::vector<BlockPair> pairs = draw.pairs(from.layout()->blocks(), to.layout()->blocks());
    const std::uint64_t max_bytes = draw.up_to(1) == 0 ? kAnySize : draw.from(1, 300);
    expect_plan_matches_rows(from, to, part, pairs, max_bytes);

    // Exactly the bytes of these rows change, to those of the source.
    std::vector<Copy> copies;
    (*CopyPlan::make(from.layout(), to.layout(), part))->expand(pairs, max_bytes, copies);
    apply(copies, from, to);
    std::vector<std::vector<std::byte>> now;
    for (const testing::TestRegion& region : to.regions()) {
      now.emplace_back(region.bytes().begin(), region.bytes().end());
    }
    to.fill(seed);
    for (const RowCopy& row : rows_of(*from.layout(), *to.layout(), part, pairs)) {
      std::memcpy(to.regions()[row.to.region].bytes().data() + row.to.offset,
                  from.regions()[row.from.region].bytes().data() + row.from.offset, shape.row_bytes());
    }
    for (std::size_t i = 0; i < now.size(); ++i) {
      EXPECT_TRUE(std::ranges::equal(now[i], to.regions()[i].bytes()));
      EXPECT_TRUE(to.regions()[i].guards_intact());
    }
    if (HasFailure()) {
      return;
    }
  }
}

// Steps that do not nest are met in order by sorting: rows 0, 2, 4 and 3, 5, 7 of a block of 8, where 2 to 5 are one copy.
TEST(CopyPlanPropertyTest, StepsThatDoNotNestMergeAsWell) {
  const KvShape shape{1, 1, 3, 2, 4, 8};
  const LayerPlace interleaved{0, 0, 32, 0, 2 * 4, 3 * 4};
  TestLayout from = TestLayout::from_places(shape, 4, {interleaved}, {128});
  TestLayout to = TestLayout::from_places(shape, 4, {interleaved}, {128});
  from.fill(1);
  to.fill(2);
  const std::vector<BlockPair> pairs = {{0, 1}, {1, 2}, {3, 3}};
  expect_plan_matches_rows(from, to, {}, pairs, kAnySize);
  std::vector<Copy> copies;
  (*CopyPlan::make(from.layout(), to.layout()))->expand(pairs, kAnySize, copies);
  EXPECT_EQ(copies.size(), 8U);  // 7 of a block is adjacent to 0 of the next
  apply(copies, from, to);
  EXPECT_TRUE(to.holds(1, from, 0));
  EXPECT_TRUE(to.holds(2, from, 1));
  EXPECT_TRUE(to.holds(3, from, 3));
  EXPECT_TRUE(to.untouched_but({1, 2, 3}));
}

// Layers at uneven distances are boxes of their own; the last of a block is adjacent to the first of the next.
TEST(CopyPlanPropertyTest, BlocksOfSeveralBoxesMergeInEachRegion) {
  const KvShape shape{6, 2, 1, 1, 8, 8};
  std::vector<LayerPlace> layers;
  for (const std::uint32_t region : {0U, 1U}) {
    for (const std::uint64_t offset : {0U, 24U, 64U}) {
      layers.push_back({region, offset, 80, 8, 0, 0});
    }
  }
  const TestLayout from = TestLayout::from_places(shape, 4, layers, {320, 320});
  const TestLayout to = TestLayout::from_places(shape, 4, layers, {320, 320});
  const std::vector<BlockPair> pairs = {{0, 1}, {1, 2}, {2, 3}};
  expect_plan_matches_rows(from, to, {}, pairs, kAnySize);
  std::vector<Copy> copies;
  (*CopyPlan::make(from.layout(), to.layout()))->expand(pairs, kAnySize, copies);
  EXPECT_EQ(copies.size(), 2 * (3 * 3 - 2));
}

}  // namespace
}  // namespace cairn
