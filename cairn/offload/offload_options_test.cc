#include "cairn/offload/offload_request.h"

#include <gtest/gtest.h>

namespace cairn {
namespace {

TEST(OffloadOptionsTest, ModesHaveTheNamesOfConfigurations) {
  EXPECT_EQ(to_string(OffloadMode::kAhead), "ahead");
  EXPECT_EQ(to_string(OffloadMode::kOnRegistration), "write-through");
  EXPECT_EQ(to_string(OffloadMode::kOff), "off");
}

}  // namespace
}  // namespace cairn
