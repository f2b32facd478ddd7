#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "cairn/manager/config_testing.h"
#include "cairn/manager/manager_config.h"

namespace cairn {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

ManagerConfig read(std::string_view text) {
  const Result<ManagerConfig> config = ManagerConfig::from_toml(text, "cairn.toml");
  EXPECT_TRUE(config) << config.error().message;
  return config ? *config : ManagerConfig();
}

std::string error_of(std::string_view text) {
  const Result<ManagerConfig> config = ManagerConfig::from_toml(text, "cairn.toml");
  return config ? "none" : config.error().message;
}

TEST(ConfigTomlTest, ReadsSectionsAndValuesOfEveryKind) {
  const ManagerConfig config = read(R"(
block_size = 32
shutdown = "250ms"
[model]
name = "llama"
layers = 32
element_type = "fp8_e4m3"
[host]
size = "64GiB"
max_size = 1_000_000
policy = "lru"
leaves_first = false
numa_node = 1
[offload.host]
mode = "write-through"
low_water = "5%"
[offload.disk]
low_water = 0.25
[onboard]
prefill_tokens_per_second = 8000
)");
  EXPECT_EQ(config.block_size, 32U);
  EXPECT_EQ(config.shutdown, std::chrono::milliseconds(250));
  EXPECT_EQ(config.model.name, "llama");
  EXPECT_EQ(config.model.layers, 32U);
  EXPECT_EQ(config.model.element_type, "fp8_e4m3");
  EXPECT_EQ(config.host.size, std::uint64_t{64} << 30U);
  EXPECT_EQ(config.host.max_size, 1'000'000U);
  EXPECT_EQ(config.host.policy, PolicyKind::kLru);
  EXPECT_FALSE(config.host.leaves_first);
  EXPECT_EQ(config.host.numa_node, 1);
  EXPECT_EQ(config.offload_to_host.mode, OffloadMode::kOnRegistration);
  EXPECT_DOUBLE_EQ(config.offload_to_host.low_water, 0.05);
  EXPECT_EQ(config.offload_to_disk.low_water, 0.25);
  EXPECT_EQ(config.onboard.prefill_tokens_per_second, 8000);
  EXPECT_EQ(config.disk.in_flight, DiskConfig().in_flight) << "missing keys keep their value";
}

TEST(ConfigTomlTest, AnEmptyFileIsTheDefault) { EXPECT_EQ(values_of(read("")), values_of(ManagerConfig())); }

TEST(ConfigTomlTest, DottedKeysAndInlineTablesAreSectionsToo) {
  const ManagerConfig config = read("host.blocks = 3\nmodel = { layers = 2, heads = 4 }\n");
  EXPECT_EQ(config.host.blocks, 3U);
  EXPECT_EQ(config.model.heads, 4U);
}

TEST(ConfigTomlTest, WhatIsWrittenReadsBack) {
  for (ManagerConfig config : {ManagerConfig(), usable_config(), changed_config()}) {
    config.model.secret.clear();  // these are never written
    config.remote.password.clear();
    config.http.token.clear();
    EXPECT_EQ(values_of(read(config.to_toml())), values_of(config));
  }
  ManagerConfig extreme;
  extreme.worker_id = std::numeric_limits<std::uint64_t>::max();
  extreme.host.size = std::numeric_limits<std::uint64_t>::max();
  extreme.shutdown = Duration::max();
  extreme.onboard.prefill_tokens_per_second = 1e300;
  extreme.model.name = "16";
  extreme.model.tenant = "Größe \"C:\\\"";
  const ManagerConfig again = read(extreme.to_toml());
  EXPECT_EQ(values_of(again), values_of(extreme));
  EXPECT_EQ(again.worker_id, extreme.worker_id);
  EXPECT_EQ(again.model.tenant, extreme.model.tenant);
}

TEST(ConfigTomlTest, WritesEveryKeyWithItsHelp) {
  const std::string text = ManagerConfig().to_toml();
  EXPECT_THAT(text, HasSubstr("# Tokens in a block (a whole number, at least 1)\nblock_size = 16\n"));
  EXPECT_THAT(text, HasSubstr("\n[offload.host]\n# "));
  EXPECT_THAT(text, HasSubstr("\nmode = \"ahead\"\n"));
  for (const ConfigKey& key : config_keys()) {
    EXPECT_THAT(text, HasSubstr("# " + key.help + " (" + key.values + ")\n" + std::string(key.short_name()) + " = "));
  }
}

TEST(ConfigTomlTest, ErrorsNameFileLineAndKey) {
  EXPECT_EQ(error_of("\n[host]\nsise = 3\n"), "cairn.toml:3: unknown key host.sise; did you mean host.size?");
  EXPECT_EQ(
      error_of("[host]\nsize = \"lots\"\n"),
      "cairn.toml:2: host.size is 'lots'; expected a size such as 64GiB (in B, KB, MB, GB, TB, PB, KiB, MiB, GiB, TiB "
      "or PiB)");
  EXPECT_EQ(error_of("block_size = -1"), "cairn.toml:1: block_size is '-1'; expected a whole number, at least 1");
  EXPECT_EQ(error_of("block_size = 1.5"), "cairn.toml:1: block_size is '1.5'; expected a whole number, at least 1");
  EXPECT_EQ(
      error_of("[model]\nelement_type = \"f64\"\n"),
      "cairn.toml:2: model.element_type is 'f64'; expected f32, bf16, f16, fp8_e4m3, fp8_e5m2, int8, uint8, int4, "
      "nvfp4 or fp4");
  EXPECT_EQ(error_of("[hots]\nsize = 1\n"), "cairn.toml:1: unknown section [hots]; did you mean [host]?");
  EXPECT_EQ(error_of("[hots]\n"), "cairn.toml:1: unknown section [hots]; did you mean [host]?");
  EXPECT_EQ(error_of("[offload.hsot]\nbatch = 1\n"),
            "cairn.toml:1: unknown section [offload.hsot]; did you mean [offload.host]?");
  EXPECT_EQ(error_of("host = 5\n"), "cairn.toml:1: host is a section, not a key; write its keys below [host]");
  EXPECT_EQ(error_of("block_size = [16]\n"), "cairn.toml:1: block_size is a list; expected a whole number, at least 1");
  EXPECT_EQ(error_of("block_size = { a = 1 }\n"),
            "cairn.toml:1: block_size is a section; expected a whole number, at least 1");
  EXPECT_EQ(error_of("shutdown = 07:32:00\n"),
            "cairn.toml:1: shutdown is a date or time; expected a time such as 250ms (in ns, us, ms, s, m or h)");
  EXPECT_THAT(error_of("\"host.size\" = 1\n"), StartsWith("cairn.toml:1: unknown key \"host.size\""));
  EXPECT_THAT(error_of("[host]\n\nsize = \n"), StartsWith("cairn.toml:3: "));
  EXPECT_THAT(error_of("block_size = 1\nblock_size = 2\n"), StartsWith("cairn.toml:2: "));
  EXPECT_THAT(error_of("a = \"\xff\"\n"), StartsWith("cairn.toml:1: "));
  EXPECT_THAT(error_of("\n[!ost]\n"), StartsWith("cairn.toml:2: ")) << "an assertion in the TOML library";
}

TEST(ConfigTomlTest, LettersBeyondAscii) {
  EXPECT_EQ(read("# gr\u00f6\u00dfe\n[model]\nname = \"gr\u00f6\u00dfe \U0001F5FF\" # \u00e9\n").model.name,
            "gr\u00f6\u00dfe \U0001F5FF");
  EXPECT_EQ(read("[model]\nname = '\u00e9#'\ntenant = \"#\\\"\u00e9\"\n").model.name, "\u00e9#");
  EXPECT_EQ(read("[model]\nname = \"\"\"a \\\n  \u00e9\"\"\"\n").model.name, "a \u00e9")
      << "after an escaped line break";
  EXPECT_EQ(read("\xEF\xBB\xBF"
                 "block_size = 32\n")
                .block_size,
            32U)
      << "after a byte order mark";
  EXPECT_EQ(error_of("\n\ngr\u00f6\u00dfe = 1\n"),
            "cairn.toml:3: only strings and comments may have characters beyond ASCII; put the text in double quotes");
  EXPECT_THAT(error_of("[model]\nname = \"\xc3\"\n"), StartsWith("cairn.toml:2: "));
}

TEST(ConfigTomlTest, ListsAllMistakesInTheOrderOfTheFile) {
  EXPECT_EQ(error_of("[host]\nzzz = 1\naaa = 2\n[hots]\nx = 1\ny = 2\n"),
            "3 mistakes in the configuration:\n"
            "  cairn.toml:2: unknown key host.zzz; run `cairn config` to list all keys\n"
            "  cairn.toml:3: unknown key host.aaa; run `cairn config` to list all keys\n"
            "  cairn.toml:4: unknown section [hots]; did you mean [host]?");
}

TEST(ConfigTomlTest, ReadsFiles) {
  const std::filesystem::path path = std::filesystem::path(::testing::TempDir()) / "cairn_config_toml_test.toml";
  std::ofstream(path) << "[host]\nblocks = 9\n";
  const Result<ManagerConfig> config = ManagerConfig::from_file(path);
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->host.blocks, 9U);
  std::ofstream(path) << "[host]\nblocks = x\n";
  EXPECT_THAT(ManagerConfig::from_file(path).error().message, StartsWith(path.string() + ":2: "));
  std::filesystem::remove(path);
  const Result<ManagerConfig> missing = ManagerConfig::from_file(path);
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(missing.error().message, HasSubstr(path.string()));
  EXPECT_EQ(ManagerConfig::from_file(::testing::TempDir()).error().code, ErrorCode::kIo);
}

}  // namespace
}  // namespace cairn
