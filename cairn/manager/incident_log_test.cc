#include "cairn/manager/incident_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cairn/base/str_cat.h"

namespace cairn {
namespace {

using ::testing::ElementsAre;

TEST(IncidentLogTest, KeepsTheLatestAndCountsAll) {
  ManualClock clock;
  std::vector<std::string> reported;
  IncidentLog log(clock, [&reported](const Incident& incident) { reported.push_back(incident.text); });
  for (int i = 0; i < 100; ++i) {
    log.add(Incident::Kind::kTierOut, CacheLevel::kG3, str_cat(i));
  }
  ManagerStatus status;
  log.add_to(status);
  EXPECT_EQ(status.incident_count, 100U);
  ASSERT_EQ(status.incidents.size(), 64U);
  EXPECT_EQ(status.incidents.front().text, "36");
  EXPECT_EQ(status.incidents.back().text, "99");
  EXPECT_EQ(status.incidents.back().when, clock.now());
  EXPECT_EQ(reported.size(), 100U);
}

TEST(IncidentLogTest, ReportsNothingAfterTheLastIncident) {
  ManualClock clock;
  std::vector<std::string> reported;
  IncidentLog log(clock, [&reported](const Incident& incident) { reported.push_back(incident.text); });
  log.add(Incident::Kind::kTierOut, CacheLevel::kG3, "first");
  log.close({.kind = Incident::Kind::kShutdownTimedOut, .text = "last"});
  log.add(Incident::Kind::kTierBack, CacheLevel::kG3, "late");
  EXPECT_THAT(reported, ElementsAre("first", "last"));
  EXPECT_EQ(log.count(), 2U) << "the last one is not in the log: nobody can read its status";
}

}  // namespace
}  // namespace cairn
