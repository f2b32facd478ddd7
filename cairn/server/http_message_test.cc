#include "cairn/server/http_message.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace cairn {
namespace {

using ::testing::HasSubstr;

TEST(HttpAddress, ReadsWhatPeopleWrite) {
  const struct {
    const char* text;
    const char* read;
    bool is_loopback;
  } cases[] = {{"127.0.0.1:9470", "127.0.0.1:9470", true}, {"localhost:80", "127.0.0.1:80", true},
               {":9470", "127.0.0.1:9470", true},          {"[::1]:9470", "[::1]:9470", true},
               {"0.0.0.0:9470", "0.0.0.0:9470", false},    {"[::]:1", "[::]:1", false},
               {"127.200.0.1:0", "127.200.0.1:0", true},   {"10.0.0.7:65535", "10.0.0.7:65535", false}};
  for (const auto& one : cases) {
    const Result<HttpAddress> address = HttpAddress::parse(one.text);
    ASSERT_TRUE(address) << one.text;
    EXPECT_EQ(address->to_string(), one.read);
    EXPECT_EQ(address->is_loopback(), one.is_loopback) << one.text;
  }
}

TEST(HttpAddress, RefusesTheRestAndShowsAnExample) {
  for (const char* const text : {"", "9470", "127.0.0.1", "127.0.0.1:", "127.0.0.1:65536", "127.0.0.1:-1", "host:80",
                                 "127.0.0.1:80x", "::1:80", "[::1:80", "[127.0.0.1]:80", "1.2.3:80"}) {
    const Result<HttpAddress> address = HttpAddress::parse(text);
    ASSERT_FALSE(address) << text;
    EXPECT_THAT(address.error().message, HasSubstr("such as 127.0.0.1:9470"));
  }
}

}  // namespace
}  // namespace cairn
