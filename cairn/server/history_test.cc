#include "cairn/server/history.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include <nlohmann/json.hpp>

namespace cairn {
namespace {

using nlohmann::json;
using ::testing::Contains;
using ::testing::SizeIs;

ManagerStatus status_at(int seconds) {
  ManagerStatus status;
  status.uptime = std::chrono::seconds(seconds);
  status.tiers.push_back({.level = CacheLevel::kG2, .counts = {.total = 10, .free = 4, .active = 1}});
  status.links.push_back({.from = CacheLevel::kG2, .to = CacheLevel::kG3, .totals = {.bytes = 100}});
  status.onboard.hits[index_of(CacheLevel::kG2)] = 7;
  return status;
}

TEST(History, ASampleHasANumberForEachColumn) {
  History history;
  history.add(status_at(2), {.count = 3, .sum = 0.5});
  const json read = json::parse(history.to_json(-1));
  ASSERT_THAT(read["rows"], SizeIs(1));
  ASSERT_EQ(read["rows"][0].size(), read["columns"].size());
  const auto value = [&](const char* name) {
    const auto& columns = read["columns"];
    const auto found = std::find(columns.begin(), columns.end(), name);
    EXPECT_NE(found, columns.end()) << name;
    return read["rows"][0][static_cast<std::size_t>(found - columns.begin())].get<double>();
  };
  EXPECT_EQ(value("seconds"), 2);
  EXPECT_EQ(value("G2.used"), 6);
  EXPECT_EQ(value("G2.hits"), 7);
  EXPECT_EQ(value("G2-G3.bytes"), 100);
  EXPECT_EQ(value("loads"), 3);
  EXPECT_EQ(value("load_seconds"), 0.5);
  EXPECT_EQ(value("tokens.asked"), 0);
}

TEST(History, GivesWhatIsLaterAndForgetsTheOldest) {
  History history;
  for (int i = 0; i < static_cast<int>(History::kSamples) + 10; ++i) {
    history.add(status_at(i), {});
  }
  EXPECT_EQ(history.size(), History::kSamples);
  EXPECT_EQ(json::parse(history.to_json(-1))["rows"][0][0], 10);
  EXPECT_THAT(json::parse(history.to_json(History::kSamples + 7))["rows"], SizeIs(2));
  EXPECT_THAT(json::parse(history.to_json(1e9))["rows"], SizeIs(0));
}

}  // namespace
}  // namespace cairn
