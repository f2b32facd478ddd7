#include "cairn/connector/request_id.h"

#include <gtest/gtest.h>

#include <unordered_set>

namespace cairn {
namespace {

TEST(RequestIdTest, HoldsATextOrANumber) {
  EXPECT_EQ(RequestId("cmpl-1"), RequestId(std::string("cmpl-1")));
  EXPECT_EQ(RequestId(7U), RequestId(std::uint64_t{7}));
  EXPECT_NE(RequestId("cmpl-1"), RequestId("cmpl-2"));
  EXPECT_NE(RequestId(7U), RequestId(8U));
}

TEST(RequestIdTest, ANumberIsNotItsText) {
  EXPECT_NE(RequestId(7U), RequestId("7"));
  const std::unordered_set<RequestId> both = {7U, "7", 7U};
  EXPECT_EQ(both.size(), 2);
  EXPECT_EQ(RequestId(7U).to_string(), "7");
  EXPECT_EQ(RequestId("7").to_string(), "\"7\"");
}

TEST(RequestIdTest, SaysWhatItIs) {
  EXPECT_EQ(*RequestId(7U).number(), 7U);
  EXPECT_EQ(RequestId(7U).text(), nullptr);
  EXPECT_EQ(*RequestId("a").text(), "a");
  EXPECT_EQ(RequestId("a").number(), nullptr);
}

}  // namespace
}  // namespace cairn
