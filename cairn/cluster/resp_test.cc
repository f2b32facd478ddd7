#include "cairn/cluster/resp.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace cairn {
namespace {

TEST(RespTest, ACommandIsAnArrayOfArguments) {
  std::string text;
  append_resp_command(text, {"GET", "a\r\nb"});
  EXPECT_EQ(text, "*2\r\n$3\r\nGET\r\n$4\r\na\r\nb\r\n");
}

TEST(RespTest, HeadsAreReadWhenTheyAreComplete) {
  EXPECT_FALSE((*read_resp_head("+O")).has_value());
  EXPECT_FALSE((*read_resp_head("+OK\r")).has_value());
  const RespHead ok = **read_resp_head("+OK\r\n+more");
  EXPECT_EQ(ok.kind, RespHead::Kind::kStatus);
  EXPECT_EQ(ok.text, "OK");
  EXPECT_EQ(ok.bytes, 5U);
  EXPECT_EQ((**read_resp_head("$-1\r\n")).number, -1);
  EXPECT_EQ((**read_resp_head(":-7\r\n")).number, -7);
}

TEST(RespTest, WhatNoServerSendsIsCorrupt) {
  for (const std::string text :
       {"\r\n", "?x\r\n", "$\r\n", "$1x\r\n", "$-2\r\n", "$999999999999\r\n", "*-5\r\n", ":\r\n"}) {
    const auto head = read_resp_head(text);
    ASSERT_FALSE(head.has_value()) << text;
    EXPECT_EQ(head.error().code, ErrorCode::kCorrupt);
  }
  EXPECT_FALSE(read_resp_head(std::string(kLongestRespLine, '+')).has_value());
}

TEST(RespTest, NestedValuesAreDecodedFromAnyPrefixOn) {
  const std::string text = "*3\r\n:1\r\n$2\r\nab\r\n*2\r\n+x\r\n$-1\r\n";
  for (std::size_t size = 0; size < text.size(); ++size) {
    const auto part = decode_resp(text.substr(0, size));
    ASSERT_TRUE(part.has_value());
    EXPECT_FALSE(part->has_value()) << size;
  }
  const DecodedResp decoded = **decode_resp(text + "rest");
  EXPECT_EQ(decoded.bytes, text.size());
  ASSERT_EQ(decoded.value.elements.size(), 3U);
  EXPECT_EQ(decoded.value.elements[1].text, "ab");
  EXPECT_TRUE(decoded.value.elements[2].elements[1].is_null);
}

TEST(RespTest, LimitsHold) {
  EXPECT_FALSE(decode_resp("$100\r\n", {.bytes = 99}).has_value());
  EXPECT_FALSE(decode_resp("*3\r\n:1\r\n:2\r\n:3\r\n", {.elements = 3}).has_value());
  std::string deep;
  for (int i = 0; i < 20; ++i) {
    deep += "*1\r\n";
  }
  EXPECT_FALSE(decode_resp(deep).has_value());
  EXPECT_FALSE(decode_resp("$2\r\nabcd").has_value());
}

}  // namespace
}  // namespace cairn
