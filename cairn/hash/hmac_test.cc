#include "cairn/hash/hmac.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

namespace cairn {
namespace {

std::string hmac_of(std::string_view key, std::string_view message) {
  return hmac_sha256(std::as_bytes(std::span(key)), std::as_bytes(std::span(message))).to_hex();
}

// The test cases of RFC 4231; the fifth is of a shortened digest.
TEST(HmacTest, Rfc4231) {
  EXPECT_EQ(hmac_of(std::string(20, '\x0b'), "Hi There"),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  EXPECT_EQ(hmac_of("Jefe", "what do ya want for nothing?"),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(hmac_of(std::string(20, '\xaa'), std::string(50, '\xdd')),
            "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe");
  std::string counting;
  for (char c = 1; c <= 25; ++c) counting.push_back(c);
  EXPECT_EQ(hmac_of(counting, std::string(50, '\xcd')),
            "82558a389a443c0ea4cc819899f2083a85f0faa3e578f8077a2e3ff46729665b");
  EXPECT_EQ(hmac_of(std::string(20, '\x0c'), "Test With Truncation").substr(0, 32), "a3b6167473100ee06e0c796c2955552b");
  EXPECT_EQ(hmac_of(std::string(131, '\xaa'), "Test Using Larger Than Block-Size Key - Hash Key First"),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
  EXPECT_EQ(hmac_of(std::string(131, '\xaa'),
                    "This is a test using a larger than block-size key and a larger than block-size data. The key "
                    "needs to be hashed before being used by the HMAC algorithm."),
            "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2");
}

TEST(HmacTest, AKeyOfOneBlockIsTakenAsItIs) {
  EXPECT_NE(hmac_of(std::string(64, 'k'), "x"), hmac_of(std::string(63, 'k'), "x"));
  EXPECT_NE(hmac_of(std::string(64, 'k'), "x"), hmac_of(std::string(65, 'k'), "x"));
  EXPECT_EQ(hmac_of("k", "x"), hmac_of(std::string("k\0", 2), "x")) << "keys are filled up with zeros";
}

TEST(HmacTest, KeyAndMessageMayBeEmpty) {
  EXPECT_EQ(hmac_sha256({}, {}).to_hex(), "b613679a0814d9ec772f95d778c35fc5ff1697c493715653c6c712144292c5ad");
}

// The first test case of RFC 5869; its output is cut to 32 bytes.
TEST(HmacTest, HkdfAsRfc5869) {
  const std::string secret(22, '\x0b');
  std::string salt;
  std::string info;
  for (int i = 0; i <= 12; ++i) salt.push_back(static_cast<char>(i));
  for (int i = 0xf0; i <= 0xf9; ++i) info.push_back(static_cast<char>(i));
  const auto bytes = [](const std::string& text) { return std::as_bytes(std::span(text)); };
  EXPECT_EQ(hkdf_sha256(bytes(secret), bytes(salt), bytes(info)).to_hex(),
            "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf");
}

TEST(HmacTest, ComparesEveryByte) {
  Digest one;
  one.bytes.fill(std::byte{7});
  EXPECT_TRUE(same_digest(one, one));
  for (std::size_t i = 0; i < one.bytes.size(); ++i) {
    Digest other = one;
    other.bytes[i] ^= std::byte{0x80};
    EXPECT_FALSE(same_digest(one, other)) << "byte " << i;
  }
}

}  // namespace
}  // namespace cairn
