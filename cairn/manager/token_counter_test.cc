#include "cairn/manager/token_counter.h"

#include <gtest/gtest.h>

namespace cairn {
namespace {

constexpr TenantId kBatch{1};

TokenCounts prompt(std::uint64_t asked, std::uint64_t loaded) {
  return {.requests = 1, .asked = asked, .found_host = loaded, .loaded_host = loaded, .computed = asked - loaded};
}

RequestsConfig config(std::uint32_t requests, Duration time) {
  return {.tenants = {{.name = "batch"}}, .window_requests = requests, .window_time = time};
}

TEST(TokenCountsTest, EveryCountIsAddedAndSubtracted) {
  TokenCounts one;
  std::uint64_t next = 1;
  for (const auto& [name, count] : kTokenCounts) {
    one.*count = next++;
  }
  TokenCounts sum = one;
  sum += one;
  for (const auto& [name, count] : kTokenCounts) {
    EXPECT_EQ(sum.*count, 2 * one.*count) << name;
  }
  sum -= one;
  EXPECT_EQ(sum, one);
}

TEST(TokenCountsTest, CountsAddUpOrNot) {
  EXPECT_TRUE(TokenCounts().adds_up());
  EXPECT_EQ(TokenCounts().hit_rate(), 0);
  TokenCounts counts{.requests = 1,
                     .asked = 100,
                     .device = 10,
                     .found_host = 40,
                     .found_disk = 20,
                     .loaded_host = 30,
                     .too_slow = 20,
                     .failed = 6,
                     .skipped = 4,
                     .computed = 60};
  EXPECT_TRUE(counts.adds_up());
  EXPECT_EQ(counts.hit_rate(), 0.4);
  counts.computed = 61;
  EXPECT_FALSE(counts.adds_up());
  counts.computed = 60;
  counts.failed = 7;
  EXPECT_FALSE(counts.adds_up());
  counts.failed = 6;
  counts.lost = 1;
  EXPECT_FALSE(counts.adds_up());
}

TEST(TokenCounterTest, TenantsTogetherAreTheTotal) {
  TokenCounter counter(config(10, std::chrono::seconds(60)));
  counter.add(kDefaultTenant, 0, prompt(100, 40), TimePoint(0));
  const std::uint64_t number = counter.add(kBatch, 0, prompt(50, 0), TimePoint(0));
  counter.add(kBatch, number, {.saved = 48}, TimePoint(0));
  const TokenReport report = counter.report(TimePoint(0));
  ASSERT_EQ(report.tenants.size(), 2U);
  EXPECT_EQ(report.tenants[0].name, "");
  EXPECT_EQ(report.tenants[0].total, prompt(100, 40));
  EXPECT_EQ(report.tenants[1].name, "batch");
  EXPECT_EQ(report.tenants[1].total.asked, 50U);
  EXPECT_EQ(report.tenants[1].total.saved, 48U);
  EXPECT_EQ(report.total.asked, 150U);
  EXPECT_EQ(report.total.saved, 48U);
  EXPECT_EQ(report.total, report.last_requests);
  EXPECT_EQ(report.total, report.last_time);
  EXPECT_EQ(counter.total(kBatch), report.tenants[1].total);
}

TEST(TokenCounterTest, TheWindowOfRequestsHasTheLastOnesWithAllTheirCounts) {
  TokenCounter counter(config(3, std::chrono::seconds(60)));
  std::uint64_t numbers[5] = {};
  for (std::uint64_t i = 0; i < 5; ++i) {
    numbers[i] = counter.add(kDefaultTenant, 0, prompt(10 + i, i), TimePoint(0));
  }
  EXPECT_EQ(counter.last_requests().requests, 3U);
  EXPECT_EQ(counter.last_requests().asked, 12U + 13 + 14);
  EXPECT_EQ(counter.last_requests().loaded(), 2U + 3 + 4);
  counter.add(kDefaultTenant, numbers[1], {.saved = 100}, TimePoint(0));  // it has left the window
  EXPECT_EQ(counter.last_requests().saved, 0U);
  counter.add(kDefaultTenant, numbers[2], {.saved = 4}, TimePoint(0));
  counter.add(kDefaultTenant, numbers[4], {.saved = 8}, TimePoint(0));
  EXPECT_EQ(counter.last_requests().saved, 12U);
  counter.add(kDefaultTenant, 0, prompt(1, 0), TimePoint(0));
  EXPECT_EQ(counter.last_requests().saved, 8U) << "the oldest left with what was saved of it";
  EXPECT_EQ(counter.last_requests().asked, 13U + 14 + 1);
  counter.add(kDefaultTenant, 0, {.saved = 16}, TimePoint(0));  // of a request that never asked
  EXPECT_EQ(counter.last_requests().saved, 8U);
  EXPECT_EQ(counter.report(TimePoint(0)).total.saved, 128U);
}

TEST(TokenCounterTest, TheWindowOfTimeForgetsWhatIsOlder) {
  constexpr Duration kWindow = std::chrono::seconds(60);
  TokenCounter counter(config(10, kWindow));
  TimePoint now = std::chrono::hours(5);
  counter.add(kDefaultTenant, 0, prompt(10, 0), now);
  now += kWindow / 2;
  counter.add(kDefaultTenant, 0, prompt(7, 0), now);
  EXPECT_EQ(counter.last_time(now).asked, 17U);
  now += kWindow / 2 - std::chrono::seconds(2);
  EXPECT_EQ(counter.last_time(now).asked, 17U);
  now += std::chrono::seconds(3);
  EXPECT_EQ(counter.last_time(now).asked, 7U);
  now += kWindow;
  EXPECT_EQ(counter.last_time(now), TokenCounts());
  counter.add(kDefaultTenant, 0, prompt(3, 0), now);
  EXPECT_EQ(counter.last_time(now).asked, 3U) << "in the place of an old step";
  EXPECT_EQ(counter.last_requests().asked, 20U);
}

}  // namespace
}  // namespace cairn
