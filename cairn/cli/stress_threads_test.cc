#include "cairn/cli/stress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include <atomic>
#include <sstream>

#include "cairn/memory/memory_testing.h"

namespace cairn::cli {
namespace {

using ::testing::HasSubstr;

class StressTest : public ::testing::Test {
 protected:
  [[nodiscard]] StressOptions options() const {
    StressOptions options{.config = stress_config(), .seconds = 0.4, .threads = 3, .sequences = 40, .longest = 12};
    options.config.device.blocks = 48;
    options.config.host.blocks = 64;
    options.config.disk.blocks = 256;
    options.config.disk.path = folder_.in("blocks");
    options.json = true;
    return options;
  }
  Result<StressEnd> run(const StressOptions& options) {
    out_.str("");
    return run_stress(options, {.out = out_, .log = log_, .stop = stop_});
  }
  [[nodiscard]] nlohmann::json report() const { return nlohmann::json::parse(out_.str()); }

  TestFolder folder_;
  std::ostringstream out_;
  std::ostringstream log_;
  std::atomic<bool> stop_{false};
};

TEST_F(StressTest, VerifiesWhatItReadsAndResumesFromWhatItLeft) {
  StressOptions traffic = options();
  traffic.config.offload_to_host.mode = OffloadMode::kOnRegistration;
  traffic.config.offload_to_disk.mode = OffloadMode::kOnRegistration;
  traffic.steady = true;
  ASSERT_EQ(*run(traffic), StressEnd::kGood);
  EXPECT_GT(report()["requests"], 0);
  EXPECT_GT(report()["blocks_verified"], 0);
  EXPECT_EQ(report()["wrong"], "");
  EXPECT_EQ(report()["drained"], true);
  EXPECT_EQ(report()["leaked"], 0);
  const int on_disk = report()["tiers"][2]["registered"];
  EXPECT_GT(on_disk, 0);

  StressOptions resume = options();
  resume.resume = true;
  resume.seconds = 0;
  ASSERT_EQ(*run(resume), StressEnd::kGood);
  // Evicted blocks are found too, if they were not overwritten.
  EXPECT_GE(report()["recovered"]["verified"], on_disk);
  EXPECT_EQ(report()["recovered"]["refused"], 0);
}

TEST_F(StressTest, EverythingAtOnceWithFaults) {
  StressOptions all = options();
  all.faults = 0.02;
  all.config.health.first_wait = std::chrono::milliseconds(20);
  all.config.onboard.deadline = std::chrono::milliseconds(200);
  ASSERT_EQ(*run(all), StressEnd::kGood) << out_.str();
  EXPECT_EQ(report()["drained"], true) << out_.str();
}

TEST_F(StressTest, SaysSoWhereThereIsNothingToVerify) {
  StressOptions none = options();
  none.config.disk.blocks = 0;
  none.config.disk.path.clear();
  none.resume = true;
  const Result<StressEnd> refused = run(none);
  ASSERT_FALSE(refused.has_value());
  EXPECT_THAT(refused.error().message, HasSubstr("disk"));
}

TEST_F(StressTest, ReportsForPeople) {
  StressOptions people = options();
  people.json = false;
  people.seconds = 0.1;
  ASSERT_EQ(*run(people), StressEnd::kGood);
  EXPECT_THAT(out_.str(), HasSubstr("no wrong byte"));
  EXPECT_THAT(out_.str(), HasSubstr("G1-G2"));
}

}  // namespace
}  // namespace cairn::cli
