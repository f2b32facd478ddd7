#include "cairn/cluster/redis_slots.h"

#include <gtest/gtest.h>

namespace cairn {
namespace {

// As the specification of Redis Cluster says.
TEST(RedisSlotsTest, SlotsAreThoseOfRedis) {
  EXPECT_EQ(redis_slot("123456789"), 0x31C3);
  EXPECT_EQ(redis_slot("{user1000}.following"), redis_slot("user1000"));
  EXPECT_EQ(redis_slot("foo{}{bar}"), redis_slot("foo{}{bar}"));
  EXPECT_NE(redis_slot("foo{}{bar}"), redis_slot("bar"));
  EXPECT_EQ(redis_slot("foo{{bar}}zap"), redis_slot("{bar"));
}

TEST(RedisSlotsTest, RedirectionsAreRead) {
  const auto moved = parse_redirection("MOVED 3999 127.0.0.1:6381");
  ASSERT_TRUE(moved.has_value());
  EXPECT_TRUE(moved->is_moved);
  EXPECT_EQ(moved->slot, 3999);
  EXPECT_EQ(moved->node, (RedisNodeName{"127.0.0.1", 6381}));
  const auto ask = parse_redirection("ASK 0 ::1:7000");
  ASSERT_TRUE(ask.has_value());
  EXPECT_FALSE(ask->is_moved);
  EXPECT_EQ(ask->node, (RedisNodeName{"::1", 7000}));
  for (const char* text : {"ERR x", "MOVED", "MOVED 1", "MOVED 16384 a:1", "MOVED x a:1", "MOVED 1 a:0",
                           "MOVED 1 a:99999", "MOVED :1 2"}) {
    EXPECT_FALSE(parse_redirection(text).has_value()) << text;
  }
}

TEST(RedisSlotsTest, MapsAreRead) {
  const RespValue reply = (**decode_resp("*2\r\n*3\r\n:0\r\n:99\r\n*2\r\n$1\r\na\r\n:1\r\n*4\r\n:100\r\n:16383\r\n*"
                                         "3\r\n$0\r\n\r\n:2\r\n$1\r\nx\r\n*2\r\n$1\r\nb\r\n:3\r\n"))
                              .value;
  const auto ranges = parse_slots(reply);
  ASSERT_TRUE(ranges.has_value());
  ASSERT_EQ(ranges->size(), 2U);
  EXPECT_EQ((*ranges)[0].primary, (RedisNodeName{"a", 1}));
  EXPECT_EQ((*ranges)[1].first, 100);
  EXPECT_EQ((*ranges)[1].primary, (RedisNodeName{"", 2}));
  for (const char* text :
       {"+OK\r\n", "*1\r\n:1\r\n", "*1\r\n*3\r\n:5\r\n:4\r\n*2\r\n$1\r\na\r\n:1\r\n",
        "*1\r\n*3\r\n:0\r\n:16384\r\n*2\r\n$1\r\na\r\n:1\r\n", "*1\r\n*3\r\n:0\r\n:1\r\n*1\r\n$1\r\na\r\n"}) {
    EXPECT_FALSE(parse_slots((**decode_resp(text)).value).has_value()) << text;
  }
}

}  // namespace
}  // namespace cairn
