#include "cairn/cli/hitrate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>

namespace cairn::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;

std::string write_trace() {
  std::string path = ::testing::TempDir() + "hitrate.jsonl";
  std::ofstream(path) << "{\"hash_ids\":[1,2]}\n{\"hash_ids\":[1,2]}\nbroken\n";
  return path;
}

TEST(HitrateTest, WritesATableAndNamesWhatItLeftOut) {
  std::ostringstream out;
  std::ostringstream log;
  ASSERT_TRUE(run_hitrate({.traces = {write_trace()}, .policies = {"lru", "opt"}, .capacities = {"2", "50%"}},
                          {.out = out, .log = log}));
  EXPECT_THAT(out.str(), HasSubstr("2 requests, 4 blocks requested, 2 of them distinct"));
  EXPECT_THAT(out.str(), HasSubstr("lru              0.5000   0.2500"));
  EXPECT_THAT(log.str(), MatchesRegex("[^\r\033]*left out 1 bad rows; the first is line 3[^\r\033]*"));
}

TEST(HitrateTest, SizesAreInBlocksTokensAndBytes) {
  std::ostringstream out;
  std::ostringstream log;
  ASSERT_TRUE(run_hitrate({.traces = {write_trace()},
                           .policies = {"lru"},
                           .capacities = {"2GB", "2500000"},
                           .block_size = 500,
                           .kv_bytes = 1000},
                          {.out = out, .log = log}));
  EXPECT_THAT(out.str(), HasSubstr("sizes: blocks of 500 tokens, with 1,000 bytes of KV a token\n"
                                   "capacity            2GB  2500000\n"
                                   "blocks             4000  2500000\n"
                                   "M tokens           2.00  1250.00\n"
                                   "GB                  2.0   1250.0\n"));
  EXPECT_FALSE(run_hitrate({.traces = {write_trace()}, .capacities = {"1B"}}, {.out = out, .log = log}));
  EXPECT_FALSE(run_hitrate({.traces = {write_trace()}, .capacities = {"xGB"}}, {.out = out, .log = log}));
  EXPECT_FALSE(run_hitrate({.traces = {write_trace()}, .kv_bytes = 0}, {.out = out, .log = log}));
}

TEST(HitrateTest, ShowsProgressOnlyOnATerminal) {
  const std::string path = ::testing::TempDir() + "hitrate_good.jsonl";
  std::ofstream(path) << "{\"hash_ids\":[1,2]}\n";
  const HitrateOptions options{.traces = {path}, .policies = {"lru"}, .capacities = {"2"}};
  std::ostringstream out;
  std::ostringstream log;
  ASSERT_TRUE(run_hitrate(options, {.out = out, .log = log}));
  EXPECT_EQ(log.str(), "");
  ASSERT_TRUE(run_hitrate(options, {.out = out, .log = log, .log_is_a_terminal = true}));
  EXPECT_THAT(log.str(), HasSubstr("1 of 1 runs"));
}

TEST(HitrateTest, WritesRowsForPrograms) {
  std::ostringstream out;
  std::ostringstream log;
  const std::string path = write_trace();
  ASSERT_TRUE(
      run_hitrate({.traces = {path}, .policies = {"lru"}, .capacities = {"2"}, .json = "-"}, {.out = out, .log = log}));
  EXPECT_EQ(out.str(), "{\"block_size\":512,\"kv_bytes\":147456,\"rows\":[\n{\"trace\":\"" + path +
                           "\",\"policy\":\"lru\",\"capacity\":\"2\",\"blocks\":2,\"tokens\":1024,"
                           "\"bytes\":150994944,\"hit_ratio\":0.5,"
                           "\"byte_hit_ratio\":0.5,\"request_hit_ratio\":0.5,\"written_per_hit\":0,\"requests\":2,"
                           "\"block_requests\":4,\"block_hits\":2,\"evicted\":0}\n]}\n");
}

TEST(HitrateTest, WritesAPageForPeople) {
  std::ostringstream out;
  std::ostringstream log;
  const std::string html = ::testing::TempDir() + "hitrate.html";
  ASSERT_TRUE(run_hitrate({.traces = {write_trace()}, .policies = {"lru"}, .html = html, .command = "cairn x"},
                          {.out = out, .log = log}));
  std::ostringstream page;
  page << std::ifstream(html).rdbuf();
  EXPECT_THAT(page.str(), HasSubstr("Hit ratio over capacity"));
  EXPECT_THAT(page.str(), HasSubstr("<code>cairn x</code>"));
  EXPECT_TRUE(page.str().ends_with("</html>\n"));
}

TEST(HitrateTest, WritesATableAndJsonOfLowerTiers) {
  std::ostringstream out;
  std::ostringstream log;
  HitrateOptions options{.traces = {write_trace()},
                         .policies = {"lru", "opt"},
                         .capacities = {"1"},
                         .tiers = {"50%", "3"},
                         .admit = "all"};
  ASSERT_TRUE(run_hitrate(options, {.out = out, .log = log}));
  EXPECT_THAT(out.str(), HasSubstr("of those, the part that the tier of 50% served"));
  EXPECT_THAT(out.str(), HasSubstr("blocks written to lower tiers for a block hit"));
  options.json = "-";
  options.hints = true;
  std::ostringstream json;
  ASSERT_TRUE(run_hitrate(options, {.out = json, .log = log}));
  EXPECT_THAT(json.str(), HasSubstr(",\"hints\":true,\"tiers\":[{\"capacity\":\"1\",\"blocks\":1,\"tokens\":512,"
                                    "\"bytes\":75497472,\"hits\":"));
  EXPECT_THAT(json.str(), HasSubstr("{\"capacity\":\"50%\",\"blocks\":1,\"tokens\":512,"));
  EXPECT_THAT(json.str(), HasSubstr("\"verdicts\":{\"admitted\":"));
}

TEST(HitrateTest, SaysWhatIsWrongWithTheOptions) {
  std::ostringstream out;
  std::ostringstream log;
  EXPECT_FALSE(run_hitrate({}, {.out = out, .log = log}));
  EXPECT_FALSE(run_hitrate({.traces = {"/no/such/file"}}, {.out = out, .log = log}));
  EXPECT_FALSE(run_hitrate({.traces = {write_trace()}, .policies = {"best"}}, {.out = out, .log = log}));
  EXPECT_FALSE(run_hitrate({.traces = {write_trace()}, .capacities = {"all"}}, {.out = out, .log = log}));
  EXPECT_FALSE(run_hitrate({.traces = {write_trace()}, .tiers = {"0"}}, {.out = out, .log = log}));
  EXPECT_FALSE(run_hitrate({.traces = {write_trace()}, .admit = "some"}, {.out = out, .log = log}));
  EXPECT_FALSE(run_hitrate({.traces = {write_trace()}, .endings = true}, {.out = out, .log = log}));
  EXPECT_FALSE(run_hitrate({.traces = {write_trace()}, .json = "/no/such/folder/rows"}, {.out = out, .log = log}));
  EXPECT_FALSE(run_hitrate({.traces = {write_trace()}, .html = "/no/such/folder/page"}, {.out = out, .log = log}));
}

}  // namespace
}  // namespace cairn::cli
