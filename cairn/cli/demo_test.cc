#include "cairn/cli/demo.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>
#include <string>

namespace cairn::cli {
namespace {

using ::testing::HasSubstr;

std::string output_of(const DemoOptions& options) {
  std::ostringstream out;
  const Status status = run_demo(options, out);
  EXPECT_TRUE(status) << status.error().to_string();
  return out.str();
}

TEST(DemoTest, TheSameSeedGivesTheSameRun) {
  const DemoOptions options{.json = true};
  EXPECT_EQ(output_of(options), output_of(options));
  EXPECT_NE(output_of(options), output_of({.seed = 2, .json = true}));
}

TEST(DemoTest, APoolThatHoldsEverythingEvictsNothing) {
  EXPECT_THAT(output_of({.blocks = 100'000, .json = true}), HasSubstr("\"removed\":0"));
}

TEST(DemoTest, EveryPolicyRunsInAPoolThatIsTooSmall) {
  for (const PolicyKind policy : kAllPolicies) {
    EXPECT_THAT(output_of({.policy = policy}), HasSubstr("knows the same"));
  }
}

TEST(DemoTest, SaysWhatToDoWhereThePoolIsTooSmallForOneChat) {
  std::ostringstream out;
  const Status status = run_demo({.blocks = 10}, out);
  ASSERT_FALSE(status);
  EXPECT_THAT(status.error().message, HasSubstr("--blocks"));
}

TEST(DemoTest, RefusesOptionsThatMakeNoSense) {
  std::ostringstream out;
  EXPECT_FALSE(run_demo({.chats = 0}, out));
  EXPECT_FALSE(run_demo({.blocks = 0}, out));
  EXPECT_FALSE(run_demo({.block_size = 0}, out));
}

}  // namespace
}  // namespace cairn::cli
