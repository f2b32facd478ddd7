#include "examples/engine/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace cairn::engine {
namespace {

std::string refusal(const std::vector<const char*>& arguments) {
  const auto options = parse_options(arguments);
  return options ? "" : options.error().message;
}

TEST(OptionsTest, ReadsValuesAndSwitches) {
  const auto options = parse_options(std::vector{"--ranks", "4", "--json", "--seed", "77"});
  ASSERT_TRUE(options);
  EXPECT_EQ(options->ranks, 4U);
  EXPECT_EQ(options->seed, 77U);
  EXPECT_TRUE(options->json);
  EXPECT_FALSE(options->rank);
}

TEST(OptionsTest, SaysWhatIsWrong) {
  EXPECT_THAT(refusal({"--rancs", "4"}), testing::HasSubstr("no option --rancs"));
  EXPECT_THAT(refusal({"--ranks"}), testing::HasSubstr("wants a value"));
  EXPECT_THAT(refusal({"--ranks", "5"}), testing::HasSubstr("from 1 to 4"));
  EXPECT_THAT(refusal({"--ranks", "3"}), testing::HasSubstr("1, 2 or 4"));
  EXPECT_THAT(refusal({"--requests", "many"}), testing::HasSubstr("whole number"));
}

TEST(OptionsTest, HelpNamesEveryOption) {
  for (const char* name : {"--requests", "--turns", "--seed", "--ranks", "--processes", "--device-blocks",
                           "--step-tokens", "--drop-device", "--json", "--help"}) {
    EXPECT_THAT(help_text(), testing::HasSubstr(name));
  }
}

}  // namespace
}  // namespace cairn::engine
