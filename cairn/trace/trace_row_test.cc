#include "cairn/trace/trace_row.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace cairn::trace {
namespace {

using ::testing::ElementsAre;

TEST(TraceRowTest, ReadsWhatItKnowsAndPassesOverTheRest) {
  TraceRow row;
  ASSERT_TRUE(parse_trace_row(R"( {"timestamp": 1.5, "x": {"a": [1, "}\"", null, {}], "b": true}, "input_length":700,)"
                              R"("hash_ids" : [ 3,18446744073709551615 ], "session_id":"s"} )",
                              row));
  EXPECT_EQ(row.timestamp_ms, 1.5);
  EXPECT_EQ(row.input_tokens, 700U);
  EXPECT_THAT(row.hash_ids, ElementsAre(3U, 18446744073709551615U));
  ASSERT_TRUE(parse_trace_row(R"({"created_time":7,"input_tokens":9,"hash_ids":[0]})", row));
  EXPECT_EQ(row.timestamp_ms, 7);
  EXPECT_EQ(row.input_tokens, 9U);
  EXPECT_THAT(row.hash_ids, ElementsAre(0U));
  EXPECT_TRUE(row.session.empty());
}

TEST(TraceRowTest, ReadsAnswersAndSessions) {
  TraceRow row;
  ASSERT_TRUE(parse_trace_row(R"({"hash_ids":[1],"output_length":42,"session_id":"a b","delay":2.5})", row));
  EXPECT_EQ(row.output_tokens, 42U);
  EXPECT_EQ(row.session, "a b");
  EXPECT_EQ(row.delay_ms, 2.5);
  ASSERT_TRUE(parse_trace_row(R"({"hash_ids":[1],"session_id":7,"output_tokens":3})", row));
  EXPECT_EQ(row.session, "7");
  EXPECT_EQ(row.output_tokens, 3U);
  EXPECT_FALSE(row.delay_ms.has_value());
  EXPECT_FALSE(parse_trace_row(R"({"hash_ids":[1],"delay":-1})", row));
  EXPECT_FALSE(parse_trace_row(R"({"hash_ids":[1],"session_id":{}})", row));
}

TEST(TraceRowTest, ReadsHowARequestEnded) {
  TraceRow row;
  ASSERT_TRUE(parse_trace_row(R"({"hash_ids":[1],"ending":"tool_call"})", row));
  EXPECT_EQ(row.ending, "tool_call");
  ASSERT_TRUE(parse_trace_row(R"({"finish_reason":"stop","hash_ids":[1]})", row));
  EXPECT_EQ(row.ending, "stop");
  for (const std::string other : {"", R"(,"ending":null)", R"(,"stop_reason":128009)"}) {
    ASSERT_TRUE(parse_trace_row(R"({"hash_ids":[1])" + other + "}", row)) << other;
    EXPECT_EQ(row.ending, "");
  }
}

TEST(TraceRowTest, SaysWhatIsWrongWithARow) {
  TraceRow row;
  for (const std::string line :
       {"", "[]", "{", "{}", "{\"hash_ids\":[]}", "{\"hash_ids\":[1,]}", "{\"hash_ids\":[-1]}", "{\"hash_ids\":[1.5]}",
        "{\"hash_ids\":[1]", "{\"hash_ids\":[1]} x", "{\"hash_ids\":[18446744073709551616]}", "{hash_ids:[1]}",
        "{\"hash_ids\":[1],\"timestamp\":\"now\"}", "{\"hash_ids\":[1],\"timestamp\":nan}", "{\"hash_ids\":[1],\"a\":}",
        "{\"hash_ids\":[1],\"a\":\"", "{\"hash_ids\":[1],\"a\":\"\\", "{\"hash_ids\":[1],\"a\":tru}"}) {
    EXPECT_FALSE(parse_trace_row(line, row)) << line;
  }
  EXPECT_FALSE(parse_trace_row("{\"hash_ids\":[1],\"a\":" + std::string(100'000, '['), row));
  EXPECT_EQ(parse_trace_row("{\"hash_ids\":[1],\"timestamp\":\"now\"}", row).error().message,
            "no usable value of 'timestamp' at column 29");
}

}  // namespace
}  // namespace cairn::trace
