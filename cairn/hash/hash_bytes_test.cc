#include "cairn/hash/hash_bytes.h"

#include <gtest/gtest.h>

#include <array>

namespace cairn {
namespace {

TEST(HashBytesTest, IsXxh3) {
  const std::array<std::uint32_t, 4> words{1, 2, 3, 4};
  EXPECT_EQ(hash_bytes(std::as_bytes(std::span(words)), 0), 8052976908588476977U);
}

TEST(HashBytesTest, NothingHasAHash) {
  EXPECT_EQ(hash_bytes({}, 0), 0x2D06800538D394C2U);
  EXPECT_NE(hash_bytes({}, 1), hash_bytes({}, 0));
}

}  // namespace
}  // namespace cairn
