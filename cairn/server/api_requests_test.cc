#include "cairn/server/api_requests.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace cairn {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

TEST(ApiRequests, ALookupHasTokensOrKeys) {
  const Result<LookupBody> tokens = read_lookup(R"({"tokens":[1,2,4294967295],"salt":"s","lora_name":"l"})");
  ASSERT_TRUE(tokens);
  EXPECT_THAT(tokens->tokens, ElementsAre(1, 2, 4294967295U));
  EXPECT_EQ(tokens->salt, "s");
  EXPECT_EQ(tokens->lora_name, "l");
  const std::string key = BlockKey::root(SequenceHash{5}).value().to_string();
  const Result<LookupBody> keys = read_lookup("{\"keys\":[\"" + key + "\"]}");
  ASSERT_TRUE(keys) << keys.error().message;
  EXPECT_THAT(keys->keys, SizeIs(1));
  EXPECT_TRUE(read_lookup(R"({"tokens":[]})"));
}

TEST(ApiRequests, AWrongLookupIsRefusedWithoutShowingIt) {
  for (const char* const body :
       {"", "{}", "[]", "7", "{", R"({"tokens":7})", R"({"tokens":[-1]})", R"({"tokens":[4294967296]})",
        R"({"tokens":[1.5]})", R"({"tokens":["31337"]})", R"({"tokens":[1],"keys":[]})", R"({"keys":["31337"]})",
        R"({"keys":[31337]})", R"({"tokens":[1],"salt":7})", R"({"tokens":[1],"31337":1})"}) {
    const Result<LookupBody> read = read_lookup(body);
    ASSERT_FALSE(read) << body;
    EXPECT_EQ(read.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(read.error().message, Not(HasSubstr("31337"))) << "a prompt may be in an error that is logged";
  }
}

TEST(ApiRequests, DeepNestingIsRefused) {
  EXPECT_FALSE(read_lookup(std::string(500'000, '[')));
  EXPECT_FALSE(read_lookup("{\"tokens\":" + std::string(500'000, '[') + std::string(500'000, ']') + "}"));
}

TEST(ApiRequests, AResetNamesATierOrNone) {
  EXPECT_FALSE(read_reset("")->tier);
  EXPECT_FALSE(read_reset("{}")->tier);
  EXPECT_EQ(read_reset(R"({"tier":"host"})")->tier, CacheLevel::kG2);
  EXPECT_EQ(read_reset(R"({"tier":"G3"})")->tier, CacheLevel::kG3);
  // A mistake must not become a reset of everything.
  EXPECT_FALSE(read_reset(R"({"teir":"host"})"));
  EXPECT_FALSE(read_reset(R"({"tier":"hots"})"));
  EXPECT_FALSE(read_reset(R"({"tier":7})"));
  EXPECT_FALSE(read_reset(R"({"tier":""})"));
  EXPECT_FALSE(read_reset(R"({"tier":"host","keys":[]})"));
  EXPECT_FALSE(read_reset(R"({"keys":["00"]})"));
}

TEST(ApiRequests, OtherBodies) {
  EXPECT_EQ(read_generation(R"({"weights_generation":8})").value(), 8U);
  EXPECT_FALSE(read_generation("{}"));
  EXPECT_FALSE(read_generation(R"({"weights_generation":-8})"));
  const Result<LinkBody> link = read_link(R"({"from":"device","to":"G2"})");
  ASSERT_TRUE(link);
  EXPECT_EQ(link->from, CacheLevel::kG1);
  EXPECT_EQ(link->to, CacheLevel::kG2);
  EXPECT_FALSE(read_link(R"({"from":"device"})"));
  EXPECT_EQ(read_resize(R"({"blocks":5})")->blocks, 5U);
  EXPECT_EQ(read_resize(R"({"size":"1KiB"})")->bytes, 1024U);
  EXPECT_FALSE(read_resize(R"({"size":"1KiB","blocks":5})"));
  EXPECT_FALSE(read_resize("{}"));
  EXPECT_EQ(read_log_level(R"({"level":"warning"})").value(), LogLevel::kWarning);
  EXPECT_FALSE(read_log_level(R"({"level":"loud"})"));
  EXPECT_TRUE(read_nothing(" \n"));
  EXPECT_FALSE(read_nothing(R"({"seconds":1})"));
}

TEST(ApiRequests, QueriesAreDecodedAndStrict) {
  const auto query = read_query("limit=10&after=%37", {"limit", "after"});
  ASSERT_TRUE(query);
  EXPECT_EQ(number_in(*query, "limit", 1, 100).value(), 10U);
  EXPECT_EQ(number_in(*query, "after", 1, 100).value(), 7U);
  EXPECT_EQ(number_in(*query, "other", 3, 100).value(), 3U);
  EXPECT_FALSE(number_in(*query, "limit", 1, 9));
  EXPECT_THAT(read_query("", {}).value(), IsEmpty());
  EXPECT_THAT(read_query("&&", {}).value(), IsEmpty());
  for (const char* const wrong : {"limit=1&limit=2", "limti=1", "limit=%", "limit=%4", "limit=%zz", "%6"}) {
    EXPECT_FALSE(read_query(wrong, {"limit"})) << wrong;
  }
  EXPECT_EQ(parse_seconds("12.5"), 12.5);
  EXPECT_FALSE(parse_seconds("-1"));
  EXPECT_FALSE(parse_seconds("nan"));
}

}  // namespace
}  // namespace cairn
