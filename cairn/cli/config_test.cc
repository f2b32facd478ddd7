#include "cairn/cli/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace cairn::cli {
namespace {

using ::testing::HasSubstr;

class ConfigCommandTest : public ::testing::Test {
 protected:
  ConfigCommandTest() {
    std::ofstream(file_)
        << "block_size = 32\n[model]\nlayers = 2\nheads = 2\nhead_size = 64\n[host]\nsize = \"1GiB\"\n";
  }
  ~ConfigCommandTest() override { std::filesystem::remove(file_); }

  static std::string output_of(const ConfigOptions& options) {
    std::ostringstream out;
    const Status status = run_config(options, out);
    EXPECT_TRUE(status) << status.error().message;
    return out.str();
  }
  static std::string error_of(const ConfigOptions& options) {
    std::ostringstream out;
    const Status status = run_config(options, out);
    EXPECT_EQ(out.str(), "");
    return status ? "none" : status.error().message;
  }

  const std::string file_ = ::testing::TempDir() + "cairn_config_command_test.toml";
};

TEST_F(ConfigCommandTest, TheLaterGoesOverTheEarlier) {
  const std::string text =
      output_of({.sources = {.file = file_,
                             .environment = {{"CAIRN_BLOCK_SIZE", "64"}, {"CAIRN_HOST_SIZE", "2GiB"}},
                             .settings = {"host.size=3GiB", "disk.path=a=b", "disk.blocks=9"}}});
  const Result<ManagerConfig> config = ManagerConfig::from_toml(text, "output");
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->model.layers, 2U);
  EXPECT_EQ(config->block_size, 64U);
  EXPECT_EQ(config->host.size, std::uint64_t{3} << 30U);
  EXPECT_EQ(config->disk.path, "a=b");
}

TEST_F(ConfigCommandTest, WritesTheDefaultsToBeginWith) {
  EXPECT_EQ(output_of({.sources = {.environment = {{"PATH", "/bin"}}}}), ManagerConfig().to_toml());
}

TEST_F(ConfigCommandTest, WritesJson) {
  const auto json = nlohmann::json::parse(output_of({.sources = {.file = file_}, .json = true}));
  EXPECT_EQ(json["block_size"], 32);
  EXPECT_EQ(json["host"]["size"], "1GiB");
  EXPECT_EQ(json["host"]["leaves_first"], true);
  EXPECT_EQ(json["offload"]["host"]["low_water"], 0.05);
  EXPECT_EQ(json["offload"]["disk"]["mode"], "ahead");
}

TEST_F(ConfigCommandTest, SaysWhatIsWrong) {
  EXPECT_THAT(error_of({.sources = {.file = file_ + ".not"}}), HasSubstr("cannot open"));
  EXPECT_THAT(error_of({.sources = {.file = file_, .environment = {{"CAIRN_HOST_SISE", "1"}}}}),
              HasSubstr("CAIRN_HOST_SIZE?"));
  EXPECT_THAT(error_of({.sources = {.file = file_, .settings = {"host.size"}}}),
              HasSubstr("--set host.size has no value"));
  EXPECT_THAT(error_of({.sources = {.file = file_, .settings = {"hosts.size=1"}}}),
              HasSubstr("--set hosts.size: unknown key hosts.size; did you mean host.size?"));
  EXPECT_THAT(error_of({.sources = {.file = file_, .settings = {"host.blocks=1"}}}),
              HasSubstr("host.blocks and host.size"));
  EXPECT_THAT(error_of({.sources = {.settings = {"block_size=32"}}}), HasSubstr("there is no tier"));
}

TEST_F(ConfigCommandTest, ListsAllMistakesAtOnce) {
  const std::string all = error_of({.sources = {.file = file_,
                                                .environment = {{"CAIRN_BLOCK_SIZE", "none"}},
                                                .settings = {"host.policy=mru", "disk.size=900PB"}}});
  EXPECT_THAT(all, HasSubstr("3 mistakes"));
  EXPECT_THAT(all, HasSubstr("CAIRN_BLOCK_SIZE"));
  EXPECT_THAT(all, HasSubstr("host.policy is 'mru'"));
  EXPECT_THAT(all, HasSubstr("disk.path is empty"));
  EXPECT_THAT(error_of({.sources = {.file = file_, .settings = {"host.size=900PB"}}}),
              HasSubstr("host.size is 900PB, more than"));
}

}  // namespace
}  // namespace cairn::cli
