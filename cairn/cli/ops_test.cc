#include "cairn/cli/ops.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>
#include <string>

#include "cairn/base/str_cat.h"
namespace cairn::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

const std::string kConfig = R"({"op":"config","capacity":3,"block_size":2,"eviction":"lru"})"
                            "\n";
const std::string kConfigAnswer = R"({"active":0,"events":[],"inactive":0,"line":1,"refs":0,"result":null})"
                                  "\n";

struct Outcome {
  std::string answers;
  std::string error;  // empty: none
};

Outcome run(const std::string& script, sim::Profile profile = sim::Profile::kSeed) {
  std::istringstream in(script);
  std::ostringstream out;
  const Status status = run_ops({.profile = profile}, in, out);
  return {out.str(), status ? "" : status.error().message};
}

// The answer to the last line, after the config.
std::string last_answer(const std::string& lines, sim::Profile profile = sim::Profile::kSeed) {
  const Outcome outcome = run(kConfig + lines, profile);
  EXPECT_EQ(outcome.error, "");
  const std::string& answers = outcome.answers;
  const std::size_t begin = answers.rfind('\n', answers.size() - 2) + 1;
  return answers.substr(begin, answers.size() - begin - 1);
}

TEST(OpsTest, AnEmptyScriptHasNoAnswers) {
  const Outcome outcome = run("");
  EXPECT_EQ(outcome.answers, "");
  EXPECT_EQ(outcome.error, "");
}

TEST(OpsTest, AnswersHaveTheResultTheEventsAndTheCounts) {
  EXPECT_EQ(last_answer(R"({"op":"new","seq":"a","tokens":[1,2,3,4,5]})"),
            R"({"active":0,"events":[],"inactive":0,"line":2,"refs":0,"result":{"blocks":3}})");
  EXPECT_THAT(last_answer(R"({"op":"new","seq":"a","tokens":[1,2,3]})"
                          "\n"
                          R"({"op":"alloc","seq":"a","tokens":100})"),
              ::testing::MatchesRegex(R"(\{"active":2,"events":\[\{"stored":\{"blocks":\[\[([0-9]+),([0-9]+)\]\],)"
                                      R"("parent":null\}\}\],"inactive":0,"line":3,"refs":2,)"
                                      R"("result":\{"got":2,"wanted":2\}\})"));
}

TEST(OpsTest, ANumberUpTo64BitsIsFine) {
  EXPECT_THAT(last_answer(R"({"op":"new","seq":"a","tokens":[4294967295],"max_output":18446744073709551615})"
                          "\n"
                          R"({"op":"alloc","seq":"a","tokens":18446744073709551615})"),
              HasSubstr(R"("got":1,"wanted":1)"));
}

TEST(OpsTest, AShortAllocKeepsWhatItGotInTheSeedProfileOnly) {
  const std::string script =
      "{\"op\":\"new\",\"seq\":\"a\",\"tokens\":[1,2,3,4,5,6,7,8]}\n{\"op\":\"alloc\",\"seq\":\"a\",\"tokens\":8}";
  EXPECT_THAT(last_answer(script), HasSubstr(R"("refs":3,"result":{"got":3,"wanted":4})"));
  EXPECT_THAT(last_answer(script, sim::Profile::kStrict), HasSubstr(R"("refs":0,"result":{"got":0,"wanted":4})"));
}

TEST(OpsTest, PushIsSkippedOrUndoneWhereThereIsNoRoom) {
  const std::string script = "{\"op\":\"new\",\"seq\":\"a\",\"tokens\":[1,2,3,4,5,6]}\n";
  EXPECT_THAT(last_answer(script + R"({"op":"push","seq":"a","token":7})"), HasSubstr(R"({"push":"skipped"})"));
  EXPECT_THAT(last_answer(script +
                          "{\"op\":\"alloc\",\"seq\":\"a\",\"tokens\":6}\n{\"op\":\"push\",\"seq\":\"a\",\"token\":7}"),
              HasSubstr(R"({"push":"full"})"));
}

TEST(OpsTest, IndicesThatAreNoFullBlocksAreLeftOut) {
  const std::string script = "{\"op\":\"new\",\"seq\":\"a\",\"tokens\":[1,2,3]}\n";
  EXPECT_THAT(last_answer(script + R"({"op":"use","seq":"a","blocks":[7,0,1,18446744073709551615,0]})"),
              HasSubstr(R"("refs":2,"result":{"got":2,"wanted":2})"));
  EXPECT_THAT(last_answer(script + R"({"op":"use","seq":"a","blocks":[1]})"), HasSubstr(R"({"got":0,"wanted":0})"));
  EXPECT_THAT(last_answer(script + R"({"op":"deref","seq":"a","blocks":[0,1,2]})"), HasSubstr(R"({"released":0})"));
}

TEST(OpsTest, AFreedNameCanBeUsedAgain) {
  EXPECT_THAT(last_answer("{\"op\":\"new\",\"seq\":\"a\",\"tokens\":[]}\n{\"op\":\"free\",\"seq\":\"a\"}\n"
                          "{\"op\":\"new\",\"seq\":\"a\",\"tokens\":[1]}"),
              HasSubstr(R"({"blocks":1})"));
}

TEST(OpsTest, AMalformedLineIsNamedAndNotAnswered) {
  const std::string sequence = "{\"op\":\"new\",\"seq\":\"a\",\"tokens\":[1]}\n";
  for (const std::string line : {
           "",
           "{",
           "[]",
           "7",
           "null",
           "{}",
           R"({"op":7})",
           R"({"op":"stop"})",
           "{\"op\":\"\xff\"}",
           R"({"op":"config","capacity":3,"block_size":2,"eviction":"lru"})",
           R"({"op":"alloc"})",
           R"({"op":"alloc","seq":"b","tokens":1})",
           R"({"op":"alloc","seq":1,"tokens":1})",
           R"({"op":"alloc","seq":"a"})",
           R"({"op":"alloc","seq":"a","tokens":-1})",
           R"({"op":"alloc","seq":"a","tokens":1.5})",
           R"({"op":"alloc","seq":"a","tokens":18446744073709551616})",
           R"({"op":"alloc","seq":"a","tokens":"1"})",
           R"({"op":"push","seq":"a"})",
           R"({"op":"push","seq":"a","token":4294967296})",
           R"({"op":"use","seq":"a"})",
           R"({"op":"use","seq":"a","blocks":0})",
           R"({"op":"use","seq":"a","blocks":[-1]})",
           R"({"op":"deref","seq":"a","blocks":[[0]]})",
           R"({"op":"new","seq":"a","tokens":[1]})",
           R"({"op":"new","seq":"b"})",
           R"({"op":"new","seq":"b","tokens":[4294967296]})",
           R"({"op":"new","seq":"b","tokens":[1],"max_output":null})",
           R"({"op":"free"})",
           R"({"op":"cost","seq":"a"} x)",
       }) {
    const Outcome outcome = run(str_cat(kConfig, sequence, line, "\n", R"({"op":"cost","seq":"a"})"));
    EXPECT_THAT(outcome.error, StartsWith("line 3: ")) << line;
    EXPECT_EQ(outcome.answers, kConfigAnswer +
                                   R"({"active":0,"events":[],"inactive":0,"line":2,"refs":0,"result":{"blocks":1}})"
                                   "\n")
        << line;
  }
}

TEST(OpsTest, AnInvalidConfigIsRefused) {
  for (const std::string config : {
           R"({"op":"new","seq":"a","tokens":[1]})",
           R"({"op":"config","capacity":0,"block_size":2,"eviction":"lru"})",
           R"({"op":"config","capacity":-5,"block_size":2,"eviction":"lru"})",
           R"({"op":"config","capacity":4294967295,"block_size":2,"eviction":"lru"})",
           R"({"op":"config","capacity":4294967296,"block_size":2,"eviction":"lru"})",
           R"({"op":"config","capacity":1e30,"block_size":2,"eviction":"lru"})",
           R"({"op":"config","capacity":5,"block_size":0,"eviction":"lru"})",
           R"({"op":"config","capacity":5,"block_size":1,"eviction":"lru"})",
           R"({"op":"config","capacity":5,"block_size":2,"eviction":"random"})",
           R"({"op":"config","capacity":5,"block_size":2})",
           R"({"op":"config","block_size":2,"eviction":"lru"})",
       }) {
    const Outcome outcome = run(config);
    EXPECT_THAT(outcome.error, StartsWith("line 1: ")) << config;
    EXPECT_EQ(outcome.answers, "") << config;
  }
}

}  // namespace
}  // namespace cairn::cli
