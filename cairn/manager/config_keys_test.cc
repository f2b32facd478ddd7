#include "cairn/manager/config_keys.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <set>

#include "cairn/base/str_cat.h"
#include "cairn/manager/config_testing.h"

namespace cairn {
namespace {

using ::testing::HasSubstr;

TEST(ConfigKeysTest, NamesAndVariablesAreUnique) {
  std::set<std::string> names;
  std::set<std::string> variables;
  for (const ConfigKey& key : config_keys()) {
    EXPECT_TRUE(names.insert(key.name).second) << key.name;
    EXPECT_TRUE(variables.insert(key.variable()).second) << key.variable();
    EXPECT_FALSE(key.help.empty()) << key.name;
    EXPECT_FALSE(key.values.empty()) << key.name;
    EXPECT_EQ(find_key(key.name), &key);
  }
}

TEST(ConfigKeysTest, NamesOfAKey) {
  const ConfigKey& mode = *find_key("offload.host.mode");
  EXPECT_EQ(mode.section(), "offload.host");
  EXPECT_EQ(mode.short_name(), "mode");
  EXPECT_EQ(mode.variable(), "CAIRN_OFFLOAD_HOST_MODE");
  EXPECT_EQ(find_key("block_size")->section(), "");
  EXPECT_EQ(find_key("block_size")->variable(), "CAIRN_BLOCK_SIZE");
  EXPECT_EQ(find_key("host"), nullptr);
}

// Finds two keys for one field: the later one would undo the earlier.
TEST(ConfigKeysTest, EveryKeyIsAPlaceOfItsOwn) {
  const ManagerConfig usual;
  for (const ConfigKey& changed : config_keys()) {
    ManagerConfig config;
    ASSERT_TRUE(set_key(config, changed, other_value(changed)));
    for (const ConfigKey& key : config_keys()) {
      EXPECT_EQ(key.print(config) != key.print(usual), &key == &changed) << changed.name << " and " << key.name;
    }
  }
}

TEST(ConfigKeysTest, AKeyTakesWhatItPrints) {
  for (const ManagerConfig& from : {ManagerConfig(), changed_config()}) {
    ManagerConfig to;
    for (const ConfigKey& key : config_keys()) {
      EXPECT_TRUE(set_key(to, key, key.print(from))) << key.name;
    }
    EXPECT_EQ(values_of(to), values_of(from));
  }
}

TEST(ConfigKeysTest, ValuesThatAKeyDoesNotTakeChangeNothing) {
  for (const ConfigKey& key : config_keys()) {
    ManagerConfig config;
    const Status status = set_key(config, key, "no\nvalue");
    ASSERT_FALSE(status) << key.name;
    EXPECT_THAT(status.error().message, HasSubstr(str_cat(key.name, key.is_secret ? " is a text of 8" : " is '")));
    EXPECT_THAT(status.error().message, HasSubstr(str_cat("expected ", key.values)));
    EXPECT_EQ(values_of(config), values_of(ManagerConfig()));
  }
}

TEST(ConfigKeysTest, ASecretIsNotShown) {
  ManagerConfig config;
  const std::string digits(64, '7');
  ASSERT_TRUE(config.set("model.secret", digits));
  EXPECT_THAT(config.to_toml(), ::testing::Not(HasSubstr(digits)));
  EXPECT_THAT(config.to_toml(), HasSubstr("# secret is set, but not shown\n"));
  ASSERT_TRUE(config.set("http.token", "a-token-of-some-length"));
  EXPECT_THAT(config.to_toml(), ::testing::Not(HasSubstr("a-token-of-some-length")));
  const Status mistyped = config.set("model.secret", digits + "7");
  ASSERT_FALSE(mistyped);
  EXPECT_EQ(mistyped.error().message, "model.secret is a text of 65 characters; expected 64 hexadecimal digits");
}

TEST(ConfigKeysTest, NumbersAndFlagsAreWrittenWithoutQuotes) {
  EXPECT_TRUE(find_key("block_size")->is_bare("16"));
  EXPECT_TRUE(find_key("offload.host.low_water")->is_bare("1e-05"));
  EXPECT_TRUE(find_key("disk.direct")->is_bare("true"));
  EXPECT_TRUE(find_key("host.size")->is_bare("0"));
  EXPECT_FALSE(find_key("host.size")->is_bare("64GiB"));
  EXPECT_FALSE(find_key("model.name")->is_bare("16"));
  EXPECT_FALSE(find_key("worker_id")->is_bare("18446744073709551615")) << "more than a file's integers hold";
}

TEST(ConfigKeysTest, SuggestsWhatIsNear) {
  EXPECT_EQ(unknown_key("host.sise").error().message, "unknown key host.sise; did you mean host.size?");
  EXPECT_EQ(unknown_key("blocksize").error().message, "unknown key blocksize; did you mean block_size?");
  EXPECT_EQ(unknown_key("entirely_else").error().message,
            "unknown key entirely_else; run `cairn config` to list all keys");
  EXPECT_THAT(unknown_key(std::string(10'000, 'x')).error().message, HasSubstr("`cairn config`"));
}

TEST(ConfigKeysTest, ElementTypes) {
  EXPECT_EQ(element_bits("f32"), 32U);
  EXPECT_EQ(element_bits("bf16"), 16U);
  EXPECT_EQ(element_bits("fp8_e5m2"), 8U);
  EXPECT_EQ(element_bits("nvfp4"), 4U);
  EXPECT_EQ(element_bits("f64"), std::nullopt);
}

// In a table a bar is written as "\|".
std::string cell(std::string text) {
  for (std::size_t at = 0; (at = text.find('|', at)) != std::string::npos; at += 2) {
    text.insert(at, 1, '\\');
  }
  return text;
}

std::string document() {
  std::ifstream file(CAIRN_DOCS "/configuration.md");
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

TEST(ConfigKeysTest, TheDocumentHasEveryKeyAsItIs) {
  std::string table = "| key | default | may be | what it is |\n|---|---|---|---|\n";
  const ManagerConfig usual;
  for (const ConfigKey& key : config_keys()) {
    const std::string value = key.print(usual);
    table += str_cat("| `", key.name, "` | ", value.empty() ? "" : str_cat("`", value, "`"), " | ", cell(key.values),
                     " | ", cell(key.help), " |\n");
  }
  const std::string text = document();
  EXPECT_TRUE(text.ends_with(table)) << "docs/configuration.md is stale: its table should be\n\n" << table;
}

TEST(ConfigKeysTest, TheDocumentsExamplesCanBeUsed) {
  const std::string text = document();
  int examples = 0;
  constexpr std::string_view kBegin = "```toml\n";
  for (std::size_t at = 0; (at = text.find(kBegin, at)) != std::string::npos; ++examples) {
    at += kBegin.size();
    const Result<ManagerConfig> config =
        ManagerConfig::from_toml(text.substr(at, text.find("```", at) - at), "example");
    ASSERT_TRUE(config) << config.error().message;
    const Status valid = config->validate();
    EXPECT_TRUE(valid) << valid.error().message;
  }
  EXPECT_EQ(examples, 2);
}

}  // namespace
}  // namespace cairn
