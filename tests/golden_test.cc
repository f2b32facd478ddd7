// Recorded runs: `cairn ops` in the seed profile answers each script exactly as recorded.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "cairn/cli/ops.h"
#include "tests/test_data_testing.h"

namespace cairn {
namespace {

constexpr std::string_view kScriptEnding = ".ops.jsonl";

std::vector<std::filesystem::path> scripts_in(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> scripts;
  if (std::filesystem::is_directory(folder)) {
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      if (entry.path().filename().string().ends_with(kScriptEnding)) {
        scripts.push_back(entry.path());
      }
    }
  }
  std::ranges::sort(scripts);
  return scripts;
}

std::string content_of(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  EXPECT_TRUE(in) << path;
  return {std::istreambuf_iterator<char>(in), {}};
}

// The first line in which two texts differ, for a readable message.
std::string first_difference(const std::string& actual, const std::string& expected) {
  std::istringstream left(actual);
  std::istringstream right(expected);
  std::string a;
  std::string b;
  while (true) {
    const bool more_left = static_cast<bool>(std::getline(left, a));
    const bool more_right = static_cast<bool>(std::getline(right, b));
    if (a != b || !more_left || !more_right) {
      return (more_left ? a : "(nothing)") + "\n  instead of\n" + (more_right ? b : "(nothing)");
    }
  }
}

void expect_recorded_answers(const std::filesystem::path& script) {
  std::string name = script.string();
  name.replace(name.size() - kScriptEnding.size(), kScriptEnding.size(), ".expected.jsonl");
  const std::string expected = content_of(name);
  std::ifstream in(script);
  std::ostringstream out;
  const Status status = cli::run_ops({.profile = sim::Profile::kSeed}, in, out);
  ASSERT_TRUE(status) << script << ": " << status.error().message;
  EXPECT_TRUE(out.str() == expected) << script << "\n" << first_difference(out.str(), expected);
}

TEST(GoldenTest, EveryRecordedScriptOfTheRepository) {
  const std::vector<std::filesystem::path> scripts = scripts_in(CAIRN_GOLDENS);
  ASSERT_FALSE(scripts.empty());
  for (const std::filesystem::path& script : scripts) {
    expect_recorded_answers(script);
  }
}

TEST(GoldenTest, EveryRecordedScriptOfTheTestData) {
  const auto folder = test_data("golden");
  if (!folder) {
    GTEST_SKIP() << kNoTestData;
  }
  const std::vector<std::filesystem::path> scripts = scripts_in(*folder);
  ASSERT_FALSE(scripts.empty()) << *folder;
  for (const std::filesystem::path& script : scripts) {
    expect_recorded_answers(script);
  }
}

// The answers differ from the recorded ones, but no line of a script may be malformed.
TEST(GoldenTest, TheStrictProfileAnswersEveryLineToo) {
  for (const std::filesystem::path& script : scripts_in(CAIRN_GOLDENS)) {
    std::ifstream in(script);
    std::ostringstream out;
    const Status status = cli::run_ops({.profile = sim::Profile::kStrict}, in, out);
    ASSERT_TRUE(status) << script << ": " << status.error().message;
    EXPECT_EQ(std::ranges::count(out.str(), '\n'), std::ranges::count(content_of(script), '\n')) << script;
  }
}

}  // namespace
}  // namespace cairn
