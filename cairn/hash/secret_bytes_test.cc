#include "cairn/hash/secret_bytes.h"

#include <gtest/gtest.h>

#include <array>

namespace cairn::internal {
namespace {

using Secret = std::array<std::byte, 32>;

TEST(SecretBytesTest, RandomBytesFillTheWholeSpanAndDiffer) {
  Secret one{};
  Secret other{};
  fill_random(one);
  fill_random(other);
  EXPECT_NE(one, other);
  EXPECT_NE(one, Secret{});
  fill_random({});
}

TEST(SecretBytesTest, ComparesEveryByteAndTheSize) {
  Secret one;
  one.fill(std::byte{7});
  EXPECT_TRUE(same_secret(one, one));
  EXPECT_TRUE(same_secret({}, {}));
  EXPECT_FALSE(same_secret(one, std::span(one).first(31)));
  for (std::size_t i = 0; i < one.size(); ++i) {
    Secret other = one;
    other[i] ^= std::byte{0x80};
    EXPECT_FALSE(same_secret(one, other)) << "byte " << i;
  }
}

TEST(SecretBytesTest, ErasesAllBytes) {
  Secret secret;
  secret.fill(std::byte{7});
  erase_secret(secret);
  EXPECT_EQ(secret, Secret{});
}

}  // namespace
}  // namespace cairn::internal
