#include "cairn/tokens/key_hasher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>

namespace cairn {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

const std::string kDigits = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1F";

TEST(KeySecretTest, ReadsDigits) {
  const KeySecret secret = *KeySecret::from_hex(kDigits);
  for (std::size_t i = 0; i < KeySecret::kBytes; ++i) {
    EXPECT_EQ(secret.bytes()[i], static_cast<std::byte>(i));
  }
  EXPECT_EQ(secret, *KeySecret::from_hex(kDigits));
}

TEST(KeySecretTest, ABadTextIsNotShown) {
  const std::string almost = kDigits.substr(1);
  const Result<KeySecret> secret = KeySecret::from_hex(almost);
  ASSERT_FALSE(secret);
  EXPECT_EQ(secret.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(secret.error().message, Not(HasSubstr("0102030405")));
  EXPECT_THAT(secret.error().message, HasSubstr("63 characters"));
}

TEST(KeySecretTest, RandomOnesDiffer) {
  const KeySecret secret = KeySecret::random();
  EXPECT_NE(secret, KeySecret::random());
  EXPECT_EQ(secret, KeySecret(secret));
  EXPECT_TRUE(std::ranges::any_of(secret.bytes(), [](std::byte byte) { return byte != std::byte{0}; }));
}

TEST(KeySecretTest, ReadsFilesOfDigitsAndNothingElse) {
  const std::string path = ::testing::TempDir() + "/key_secret_test";
  const auto with = [&path](const std::string& text) {
    std::ofstream(path) << text;
    return KeySecret::from_file(path);
  };
  EXPECT_EQ(*with(kDigits), *KeySecret::from_hex(kDigits));
  EXPECT_EQ(*with("  " + kDigits + "\r\n"), *KeySecret::from_hex(kDigits));
  for (const std::string& text : {std::string(), std::string(" \n"), kDigits + "00", kDigits + " more",
                                  kDigits + std::string(400, ' ') + "x", std::string(5000, '0')}) {
    const Result<KeySecret> secret = with(text);
    ASSERT_FALSE(secret) << text;
    EXPECT_THAT(secret.error().message, HasSubstr(path));
    EXPECT_THAT(secret.error().message, Not(HasSubstr("0102030405")));
  }
  std::filesystem::remove(path);
  EXPECT_THAT(KeySecret::from_file(path).error().message, HasSubstr("No such file"));
  EXPECT_EQ(KeySecret::from_file(::testing::TempDir()).error().code, ErrorCode::kIo) << "a folder";
}

}  // namespace
}  // namespace cairn
