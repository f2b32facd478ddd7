#include "cairn/wire/rank_address.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace cairn {
namespace {

using ::testing::HasSubstr;

TEST(RankAddressTest, ComesBackFromItsText) {
  for (const char* text : {"unix:/run/cairn/leader.sock", "unix:here", "unix:/with:colon", "tcp:127.0.0.1:7070",
                           "tcp:leader.local:0", "tcp:[::1]:65535"}) {
    EXPECT_EQ(RankAddress::parse(text)->to_string(), text);
  }
  EXPECT_EQ(*RankAddress::parse("unix:/a"), RankAddress{RankAddress::Unix{"/a"}});
  EXPECT_EQ(*RankAddress::parse("tcp:[fe80::2]:9"), (RankAddress{RankAddress::Tcp{"fe80::2", 9}}));
}

TEST(RankAddressTest, RefusesWhatIsNone) {
  const auto why = [](std::string_view text) {
    const Result<RankAddress> result = RankAddress::parse(text);
    EXPECT_FALSE(result.has_value()) << text;
    return result ? std::string() : result.error().to_string();
  };
  EXPECT_THAT(why(""), HasSubstr("neither unix: nor tcp:"));
  EXPECT_THAT(why("udp:127.0.0.1:1"), HasSubstr("neither unix: nor tcp:"));
  EXPECT_THAT(why("unix:"), HasSubstr("the path is missing"));
  EXPECT_THAT(why(std::string("unix:/a\0b", 9)), HasSubstr("zero byte"));
  EXPECT_THAT(why("tcp:127.0.0.1"), HasSubstr("the port is missing"));
  EXPECT_THAT(why("tcp::80"), HasSubstr("the host is missing"));
  EXPECT_THAT(why("tcp:[]:80"), HasSubstr("the host is missing"));
  EXPECT_THAT(why("tcp:[::1:80"), HasSubstr("invalid host name"));
  EXPECT_THAT(why("tcp:::1:80"), HasSubstr("brackets"));
  for (const char* port : {"", "65536", "-1", "+1", " 1", "1 ", "0x1", "http"}) {
    EXPECT_THAT(why(std::string("tcp:host:") + port), HasSubstr("invalid port"));
  }
}

TEST(RankAddressTest, PathsAreAsLongAsSocketsTake) {
  EXPECT_TRUE(RankAddress::parse("unix:" + std::string(107, 'a')).has_value());
  const Result<RankAddress> longer = RankAddress::parse("unix:" + std::string(108, 'a'));
  ASSERT_FALSE(longer.has_value());
  EXPECT_EQ(longer.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(longer.error().message, HasSubstr("108 bytes, a Unix socket allows 107"));
}

}  // namespace
}  // namespace cairn
