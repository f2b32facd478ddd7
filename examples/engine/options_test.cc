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
  EXPECT_EQ(options->engine.ranks, RankGrid(4));
  EXPECT_EQ(options->engine.workload.seed, 77U);
  EXPECT_TRUE(options->json);
  EXPECT_FALSE(options->rank);
  EXPECT_TRUE(options->engine.processes) << "several ranks are processes";
  EXPECT_FALSE(options->engine.has_tiers());
}

TEST(OptionsTest, ReadsAGridOfRanks) {
  const auto options = parse_options(std::vector{"--tensor", "2", "--pipeline", "3", "--model", "mla"});
  ASSERT_TRUE(options);
  EXPECT_EQ(options->engine.ranks, RankGrid(2, 3));
  EXPECT_EQ(options->engine.model, EngineModel::kMla);
  EXPECT_THAT(refusal({"--model", "gpt"}), testing::HasSubstr("few-heads"));
}

TEST(OptionsTest, ReadsTiers) {
  const auto options = parse_options(
      std::vector{"--host-blocks", "30", "--disk", "/d/kv", "--load", "in-step", "--faults", "0.25", "--restart"});
  ASSERT_TRUE(options) << options.error().message;
  EXPECT_TRUE(options->engine.has_tiers());
  EXPECT_EQ(options->engine.host_blocks, 30U);
  EXPECT_EQ(options->engine.disk, "/d/kv");
  EXPECT_EQ(options->engine.load, LoadMode::kInStep);
  EXPECT_EQ(options->engine.faults, 0.25);
  EXPECT_TRUE(options->restart);
  const auto bytes = parse_options(std::vector{"--host-size", "8000000000", "--disk-size", "9000000000"});
  ASSERT_TRUE(bytes) << bytes.error().message;
  EXPECT_TRUE(bytes->engine.has_tiers());
  EXPECT_EQ(bytes->engine.host_size, 8'000'000'000U);
  EXPECT_EQ(bytes->engine.disk_size, 9'000'000'000U);
}

TEST(OptionsTest, SaysWhatIsWrong) {
  EXPECT_THAT(refusal({"--rancs", "4"}), testing::HasSubstr("no option --rancs"));
  EXPECT_THAT(refusal({"--ranks"}), testing::HasSubstr("wants a value"));
  EXPECT_THAT(refusal({"--ranks", "5"}), testing::HasSubstr("from 1 to 4"));
  EXPECT_THAT(refusal({"--ranks", "3"}), testing::HasSubstr("1, 2 or 4"));
  EXPECT_THAT(refusal({"--load", "soon"}), testing::HasSubstr("async or in-step"));
  EXPECT_THAT(refusal({"--disk", "/d", "--faults", "2"}), testing::HasSubstr("from 0 to 1"));
  EXPECT_THAT(refusal({"--faults", "0.1"}), testing::HasSubstr("--host-size or --disk"));
  EXPECT_THAT(refusal({"--restart"}), testing::HasSubstr("--disk PATH"));
  EXPECT_THAT(refusal({"--requests", "many"}), testing::HasSubstr("whole number"));
}

TEST(OptionsTest, HelpNamesEveryOption) {
  for (const char* name : {"--requests",      "--turns",       "--seed",        "--model",
                           "--ranks",         "--tensor",      "--pipeline",    "--processes",
                           "--device-blocks", "--step-tokens", "--drop-device", "--host-blocks",
                           "--disk",          "--disk-blocks", "--load",        "--in-step-save-blocks",
                           "--faults",        "--restart",     "--json",        "--help",
                           "--host-size",     "--disk-size"}) {
    EXPECT_THAT(help_text(), testing::HasSubstr(name));
  }
}

}  // namespace
}  // namespace cairn::engine
