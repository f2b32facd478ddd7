// The planner of loads: no pools, threads or clocks.
#include "cairn/onboard/onboard_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <vector>

namespace cairn {
namespace {

using Part = LoadPlan::Part;
using Kind = LoadPlan::Part::Kind;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr CacheLevel kDevice = CacheLevel::kG1;
constexpr CacheLevel kHost = CacheLevel::kG2;
constexpr CacheLevel kDisk = CacheLevel::kG3;
constexpr LoadLinks kAllLinks{
    .host_to_device = true, .disk_to_device = true, .disk_to_host = true, .through_host = true};
constexpr LoadLinks kStraight{.host_to_device = true, .disk_to_device = true, .disk_to_host = true};

Part from_host(std::uint32_t first, std::uint32_t count) {
  return {.first = first, .count = count, .from = kHost, .kind = Kind::kCopied, .link = LoadLink::kHostToDevice};
}
Part from_disk(std::uint32_t first, std::uint32_t count, LoadLink link, bool through_host) {
  return {
      .first = first, .count = count, .from = kDisk, .kind = Kind::kCopied, .link = link, .through_host = through_host};
}

TEST(LoadPlanTest, EachTierHasItsLink) {
  const std::vector<KeyRun> runs = {{2, kDevice}, {3, kHost}, {5, kDisk}};
  const LoadPlan plan = plan_load({.first = 4, .max_part_blocks = 2}, runs, kAllLinks, {});
  EXPECT_THAT(plan.parts,
              ElementsAre(Part{.first = 4, .count = 2, .from = kDevice, .kind = Kind::kPresent}, from_host(6, 3),
                          from_disk(9, 2, LoadLink::kDiskToHost, true), from_disk(11, 2, LoadLink::kDiskToHost, true),
                          from_disk(13, 1, LoadLink::kDiskToHost, true)));
  EXPECT_EQ(plan.found, 14U);
  EXPECT_EQ(plan.end, 14U);
  EXPECT_EQ(plan.blocks_to_bring(), 8U);
}

TEST(LoadPlanTest, DiskGoesStraightUnlessBothLinksThroughTheHostCanBeUsed) {
  const std::vector<KeyRun> runs = {{5, kDisk}};
  const LoadPlanRequest request{.max_part_blocks = 2};
  EXPECT_THAT(plan_load(request, runs, kStraight, {}).parts,
              ElementsAre(from_disk(0, 5, LoadLink::kDiskToDevice, false)));
  LoadLinks without_host = kAllLinks;
  without_host.host_to_device = false;
  EXPECT_THAT(plan_load(request, runs, without_host, {}).parts,
              ElementsAre(from_disk(0, 5, LoadLink::kDiskToDevice, false)));
  EXPECT_TRUE(without_host.reads_disk());
  without_host.disk_to_device = false;
  EXPECT_FALSE(without_host.reads_disk());
}

TEST(LoadPlanTest, APrefixEndsAtTheFirstHoleAndOtherLoadsDoNot) {
  const std::vector<KeyRun> runs = {{2, kHost}, {1, std::nullopt}, {2, kHost}};
  const LoadPlan prefix = plan_load({}, runs, kAllLinks, {});
  EXPECT_THAT(prefix.parts, ElementsAre(from_host(0, 2)));
  EXPECT_EQ(prefix.found, 2U);
  const LoadPlan all = plan_load({.is_prefix = false}, runs, kAllLinks, {});
  EXPECT_THAT(all.parts, ElementsAre(from_host(0, 2), from_host(3, 2)));
  EXPECT_EQ(all.found, 5U);
  EXPECT_THAT(plan_load({}, {}, kAllLinks, {}).parts, IsEmpty());
}

TEST(LoadPlanTest, KeysThatAreInFlightAreJoined) {
  const std::vector<KeyRun> runs = {{2, kDisk, kDevice}, {3, kDisk, kHost}, {1, kHost}};
  const LoadPlan plan = plan_load({}, runs, kAllLinks, {});
  EXPECT_THAT(plan.parts,
              ElementsAre(Part{.first = 0, .count = 2, .from = kDisk, .kind = Kind::kJoined, .joined_at = kDevice},
                          Part{.first = 2, .count = 3, .from = kDisk, .kind = Kind::kJoined, .joined_at = kHost},
                          from_host(5, 1)));
}

TEST(LoadPlanTest, APrefetchStopsInTheHost) {
  const std::vector<KeyRun> runs = {{1, kDevice}, {1, kHost}, {3, kDisk}};
  const LoadPlan plan = plan_load({.is_prefix = false, .is_prefetch = true, .max_part_blocks = 2}, runs, kAllLinks, {});
  EXPECT_THAT(plan.parts, ElementsAre(Part{.first = 0, .count = 1, .from = kDevice, .kind = Kind::kPresent},
                                      Part{.first = 1, .count = 1, .from = kHost, .kind = Kind::kPresent},
                                      from_disk(2, 2, LoadLink::kDiskToHost, false),
                                      from_disk(4, 1, LoadLink::kDiskToHost, false)));
  EXPECT_EQ(plan.blocks_to_bring(), 3U);
}

TEST(LoadPlanTest, LoadsNoMoreThanAllowed) {
  const std::vector<KeyRun> runs = {{2, kHost}, {4, kDevice}, {3, kHost}};
  LoadPlan plan = plan_load({.max_blocks = 3}, runs, kAllLinks, {});
  EXPECT_EQ(plan.end, 7U) << "what is on the device is not loaded";
  EXPECT_EQ(plan.found, 9U);
  EXPECT_EQ(plan.parts.back(), from_host(6, 1));
  plan = plan_load({.max_blocks = 9}, runs, kAllLinks, {});
  EXPECT_EQ(plan.end, 9U);
}

// Loading is worth it as long as a block is loaded faster than computed.
class Asked final : public LoadCostModel {
 public:
  [[nodiscard]] std::uint32_t worth_loading(const LoadQuestion& question) const override {
    runs.assign(question.runs.begin(), question.runs.end());
    first_token = question.first_token;
    return answer;
  }
  std::uint32_t answer = 0;
  mutable std::vector<LoadRun> runs;
  mutable std::uint32_t first_token = 0;
};

TEST(LoadPlanTest, EndsWhereComputingIsFaster) {
  Asked model;
  model.answer = 3;
  LoadCosts costs{.model = &model, .block_bytes = 100, .block_size = 16, .first_token = 32};
  costs.speeds[index_of(LoadLink::kHostToDevice)] = {.bytes_per_second = 50, .bytes_ahead = 7};
  costs.speeds[index_of(LoadLink::kDiskToHost)] = {.bytes_per_second = 20, .bytes_ahead = 8};
  const std::vector<KeyRun> runs = {{1, kDevice}, {4, kHost}, {2, kDisk}, {1, kDisk, kDevice}};
  const LoadPlan plan = plan_load({.max_part_blocks = 8}, runs, kAllLinks, costs);
  EXPECT_EQ(plan.found, 8U);
  EXPECT_EQ(plan.end, 3U);
  EXPECT_EQ(plan.not_worth_it, 5U);
  EXPECT_THAT(plan.parts,
              ElementsAre(Part{.first = 0, .count = 1, .from = kDevice, .kind = Kind::kPresent}, from_host(1, 2)));
  ASSERT_EQ(model.runs.size(), 4U);
  EXPECT_EQ(model.first_token, 32U);
  EXPECT_EQ(model.runs[0].block_bytes, 0U);
  EXPECT_EQ(model.runs[1].bytes_per_second, 50);
  EXPECT_EQ(model.runs[1].bytes_ahead, 7U);
  EXPECT_EQ(model.runs[1].block_bytes, 100U);
  EXPECT_EQ(model.runs[2].bytes_per_second, 20) << "the slower of its two links";
  EXPECT_EQ(model.runs[2].bytes_ahead, 8U);
  EXPECT_EQ(model.runs[3].block_bytes, 0U) << "joined: its bytes are in flight already";
  costs.speeds[index_of(LoadLink::kDiskToHost)] = {};
  EXPECT_EQ(worth_loading(runs, kAllLinks, costs), 3U);
  EXPECT_EQ(model.runs[2].bytes_per_second, 0);
  EXPECT_EQ(model.runs[2].probe_blocks, kProbeBytes / 100) << "a disk of unknown speed is measured";
  costs.speeds[index_of(LoadLink::kDiskToDevice)] = {.bytes_per_second = 30};
  EXPECT_EQ(worth_loading(runs, kStraight, costs), 3U);
  EXPECT_EQ(model.runs[2].bytes_per_second, 30);
  model.answer = 99;
  EXPECT_EQ(worth_loading(runs, kAllLinks, costs), 8U);
  costs.model = nullptr;
  EXPECT_EQ(plan_load({}, runs, kAllLinks, costs).end, 8U);
}

// For all runs, the parts cover the keys that were found, in order and without gaps in a prefix.
TEST(LoadPlanTest, PartsCoverWhatWasFound) {
  std::mt19937_64 random(1);
  const auto below = [&random](std::uint32_t n) { return static_cast<std::uint32_t>(random() % n); };
  Asked model;
  for (int round = 0; round < 2000; ++round) {
    const LoadPlanRequest request{.first = below(5),
                                  .is_prefix = below(2) == 0,
                                  .is_prefetch = below(4) == 0,
                                  .max_blocks = below(2) * below(12),
                                  .max_part_blocks = 1 + below(4)};
    std::vector<KeyRun> runs(below(6));
    for (KeyRun& run : runs) {
      run.blocks = 1 + below(6);
      if (below(4) > 0) {
        run.tier = std::vector{kDevice, kHost, kDisk}[below(3)];
        run.joined_at = below(5) == 0 ? std::optional(kDevice) : std::nullopt;
      }
    }
    model.answer = below(12);
    const LoadPlan plan = plan_load(request, runs, kAllLinks, {.model = below(2) == 0 ? &model : nullptr});
    ASSERT_LE(plan.end, plan.found);
    std::uint32_t next = request.first;
    for (const Part& part : plan.parts) {
      ASSERT_GT(part.count, 0U);
      ASSERT_GE(part.first, next);
      ASSERT_TRUE(!request.is_prefix || part.first == next) << "no hole";
      if (part.link == LoadLink::kDiskToHost) {
        ASSERT_LE(part.count, request.max_part_blocks);
      }
      next = part.first + part.count;
    }
    ASSERT_LE(next, plan.end);
    ASSERT_TRUE(!request.is_prefix || next == plan.end);
  }
}

}  // namespace
}  // namespace cairn
