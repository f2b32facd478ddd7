#include "cairn/evict/request_ending.h"

#include <gtest/gtest.h>

namespace cairn {
namespace {

TEST(RequestEndingTest, EveryEndingHasANameThatIsParsed) {
  for (const RequestEnding ending : kAllEndings) {
    EXPECT_EQ(parse_ending(to_string(ending)), ending);
  }
}

TEST(RequestEndingTest, KnowsTheNamesOfEngines) {
  EXPECT_EQ(parse_ending("tool_calls"), RequestEnding::kToolCall);
  EXPECT_EQ(parse_ending("tool_use"), RequestEnding::kToolCall);
  EXPECT_EQ(parse_ending("stop"), RequestEnding::kEndOfTurn);
  EXPECT_EQ(parse_ending("end_turn"), RequestEnding::kEndOfTurn);
  EXPECT_EQ(parse_ending("max_tokens"), RequestEnding::kLength);
  EXPECT_EQ(parse_ending("cancelled"), RequestEnding::kAbort);
  EXPECT_EQ(parse_ending("Stop"), std::nullopt);
  EXPECT_EQ(parse_ending(""), std::nullopt);
}

}  // namespace
}  // namespace cairn
