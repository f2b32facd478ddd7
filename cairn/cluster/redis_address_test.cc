#include "cairn/cluster/redis_address.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace cairn {
namespace {

TEST(RedisAddressTest, PartsAreRead) {
  EXPECT_EQ(*RedisAddress::parse("redis://cache"), (RedisAddress{.host = "cache"}));
  EXPECT_EQ(*RedisAddress::parse("rediss://10.0.0.7:6380/2"),
            (RedisAddress{.host = "10.0.0.7", .port = 6380, .database = 2, .has_tls = true}));
  EXPECT_EQ(*RedisAddress::parse("redis://[::1]:7000"), (RedisAddress{.host = "::1", .port = 7000}));
  EXPECT_EQ(*RedisAddress::parse("redis://[::1]/"), (RedisAddress{.host = "::1"}));
}

TEST(RedisAddressTest, ItIsPrintedAsItIsRead) {
  for (const char* url : {"redis://cache:6379", "rediss://10.0.0.7:6380/2", "redis://[::1]:7000"}) {
    EXPECT_EQ(RedisAddress::parse(url)->to_string(), url);
  }
}

TEST(RedisAddressTest, MistakesAreExplained) {
  for (const char* url :
       {"", "redis:", "http://a", "redis://", "redis://:6379", "redis://a:", "redis://a:0", "redis://a:70000",
        "redis://a:x", "redis://a/x", "redis://[::1", "redis://[::1]x", "redis://a b"}) {
    const auto parsed = RedisAddress::parse(url);
    ASSERT_FALSE(parsed.has_value()) << url;
    EXPECT_THAT(parsed.error().message, ::testing::HasSubstr("redis://10.0.0.7:6379")) << url;
  }
  const auto secret = RedisAddress::parse("redis://user:open@host");
  ASSERT_FALSE(secret.has_value());
  EXPECT_THAT(secret.error().message, ::testing::HasSubstr("remote.password_file"));
  EXPECT_THAT(secret.error().message, ::testing::Not(::testing::HasSubstr("open")));
}

}  // namespace
}  // namespace cairn
