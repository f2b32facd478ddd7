#include "cairn/server/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "cairn/base/clock.h"

namespace cairn {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::SizeIs;

class LogTest : public ::testing::Test {
 protected:
  Log make(LogLevel level, LogFormat format = LogFormat::kText) {
    return Log(
        {.level = level, .format = format}, [this](std::string_view line) { lines_.emplace_back(line); }, clock_);
  }

  ManualClock clock_;
  std::vector<std::string> lines_;
};

TEST_F(LogTest, WritesALineForPeople) {
  Log log = make(LogLevel::kInfo);
  log.write({.kind = Incident::Kind::kTierOut, .level = CacheLevel::kG3, .text = "write failed"});
  ASSERT_THAT(lines_, SizeIs(1));
  EXPECT_THAT(lines_[0], MatchesRegex("[0-9]+-[0-9]+-[0-9]+T[0-9:]+\\.[0-9]+Z warning: write failed .*\n"));
  EXPECT_THAT(lines_[0], EndsWith(" (kind=\"tier out\" tier=\"G3\")\n"));
}

TEST_F(LogTest, WritesOneJsonObjectALineWhateverTheText) {
  Log log = make(LogLevel::kInfo, LogFormat::kJson);
  log.write(LogLevel::kError, "a \"quoted\"\ntext", {{"path", "/v1/reset"}});
  ASSERT_THAT(lines_, SizeIs(1));
  EXPECT_EQ(lines_[0].find('\n'), lines_[0].size() - 1);
  const nlohmann::json line = nlohmann::json::parse(lines_[0]);
  EXPECT_EQ(line["level"], "error");
  EXPECT_EQ(line["message"], "a \"quoted\"\ntext");
  EXPECT_EQ(line["path"], "/v1/reset");
}

TEST_F(LogTest, ATextWithLineBreaksCannotForgeALine) {
  Log log = make(LogLevel::kInfo);
  log.write(LogLevel::kInfo, "one\n2026-01-01T00:00:00.000Z error: two");
  ASSERT_THAT(lines_, SizeIs(1));
  EXPECT_EQ(lines_[0].find('\n'), lines_[0].size() - 1);
}

TEST_F(LogTest, LeavesOutWhatIsBelowItsLevel) {
  Log log = make(LogLevel::kWarning);
  log.write(LogLevel::kInfo, "info");
  EXPECT_THAT(lines_, SizeIs(0));
  log.write(LogLevel::kError, "error");
  EXPECT_THAT(lines_, SizeIs(1));
  log.set_level(LogLevel::kOff);
  log.write(LogLevel::kError, "error");
  EXPECT_THAT(lines_, SizeIs(1));
  log.set_level(LogLevel::kInfo);
  log.write(LogLevel::kInfo, "info");
  EXPECT_THAT(lines_, SizeIs(2));
}

TEST_F(LogTest, AFloodIsCutAndCounted) {
  Log log = make(LogLevel::kInfo);
  for (int i = 0; i < 100; ++i) {
    log.write(LogLevel::kInfo, "again");
  }
  EXPECT_THAT(lines_, SizeIs(20));
  clock_.advance(std::chrono::seconds(1));
  log.write(LogLevel::kInfo, "later");
  ASSERT_THAT(lines_, SizeIs(21));
  EXPECT_THAT(lines_.back(), HasSubstr("left_out=\"80\""));
  log.write(LogLevel::kInfo, "later");
  EXPECT_EQ(lines_.back().find("left_out"), std::string::npos);
}

}  // namespace
}  // namespace cairn
