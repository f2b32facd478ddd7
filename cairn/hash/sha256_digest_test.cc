#include "cairn/hash/sha256_digest.h"

#include <gtest/gtest.h>

#include "cairn/hash/sha256.h"

namespace cairn {
namespace {

constexpr std::string_view kAbc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

TEST(DigestTest, HexComesBack) {
  EXPECT_EQ(Digest::from_hex(kAbc)->to_hex(), kAbc);
  EXPECT_EQ(*Digest::from_hex("BA7816BF8F01CFEA414140DE5DAE2223B00361A396177A9CB410FF61F20015AD"),
            *Digest::from_hex(kAbc));
}

TEST(DigestTest, RejectsWhatIsNotHex) {
  EXPECT_EQ(Digest::from_hex("").error().code, ErrorCode::kCorrupt);
  EXPECT_EQ(Digest::from_hex(kAbc.substr(1)).error().code, ErrorCode::kCorrupt);
  std::string odd(kAbc);
  odd[7] = 'g';
  EXPECT_EQ(Digest::from_hex(odd).error().code, ErrorCode::kCorrupt);
}

TEST(Sha256Test, PiecesAreOneText) {
  internal::Sha256& hash = internal::Sha256::of_this_thread();
  for (int round = 0; round < 2; ++round) {
    hash.begin();
    hash.add(std::as_bytes(std::span(kAbc).first<0>()));
    hash.add(std::as_bytes(std::span("abc").first<1>()));
    hash.add(std::as_bytes(std::span("bc").first<2>()));
    EXPECT_EQ(hash.finish().to_hex(), kAbc);
  }
}

}  // namespace
}  // namespace cairn
