#include "cairn/tokens/hash_bytes.h"

#include <gtest/gtest.h>

#include <array>

#include "cairn/tokens/hashes.h"

namespace cairn {
namespace {

TEST(HashBytesTest, IsTheHashOfBlocks) {
  const std::array<Token, 4> tokens{1, 2, 3, 4};
  EXPECT_EQ(hash_bytes(std::as_bytes(std::span(tokens)), 0), 8052976908588476977U);
  EXPECT_EQ(hash_bytes(std::as_bytes(std::span(tokens)), 1337), value_of(hash_block(tokens, kNoSalt)));
}

TEST(HashBytesTest, NothingHasAHash) {
  EXPECT_EQ(hash_bytes({}, 0), 0x2D06800538D394C2U);
  EXPECT_NE(hash_bytes({}, 1), hash_bytes({}, 0));
}

}  // namespace
}  // namespace cairn
