#include "cairn/connector/operation_notice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "cairn/base/byte_stream.h"
#include "cairn/hash/hash_bytes.h"

namespace cairn {
namespace {

using ::testing::HasSubstr;
using Bytes = std::vector<std::byte>;

OperationNotice random_notice(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto id = [&] { return OperationId{.slot = random(), .number = static_cast<std::uint32_t>(random())}; };
  OperationNotice notice;
  for (std::uint64_t i = random() % 5; i > 0; --i) notice.loads.push_back({id(), static_cast<std::uint32_t>(random())});
  for (std::uint64_t i = random() % 5; i > 0; --i) notice.saves.push_back(id());
  notice.over_before = random() % 2 * random();
  for (std::uint64_t i = random() % 5; i > 0; --i) notice.under_way.push_back(id());
  return notice;
}

Bytes sealed_again(Bytes bytes) {
  bytes.resize(bytes.size() - 8);
  ByteWriter(bytes).put(hash_bytes(bytes, 0));
  return bytes;
}

TEST(OperationNoticeTest, ComesBack) {
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    const OperationNotice notice = random_notice(seed);
    const Result<OperationNotice> decoded = OperationNotice::decode(notice.encode());
    ASSERT_TRUE(decoded.has_value()) << "seed " << seed;
    EXPECT_EQ(*decoded, notice) << "seed " << seed;
  }
}

TEST(OperationNoticeTest, IsAsDocumented) {
  const OperationNotice notice{.loads = {{{.slot = 1, .number = 2}, 3}},
                               .saves = {{.slot = 4, .number = 5}},
                               .over_before = 6,
                               .under_way = {{.slot = 7, .number = 8}}};
  Bytes expected;
  ByteWriter out(expected);
  out.raw(std::as_bytes(std::span("CRNO", 4)));
  out.put(std::uint16_t{2});
  out.put(std::uint16_t{0});
  out.put(std::uint32_t{1});
  out.put(std::uint64_t{1});
  out.put(std::uint32_t{2});
  out.put(std::uint32_t{3});
  out.put(std::uint32_t{1});
  out.put(std::uint64_t{4});
  out.put(std::uint32_t{5});
  out.put(std::uint64_t{6});
  out.put(std::uint32_t{1});
  out.put(std::uint64_t{7});
  out.put(std::uint32_t{8});
  out.put(hash_bytes(expected, 0));
  EXPECT_EQ(notice.encode(), expected);
}

TEST(OperationNoticeTest, RefusesEveryTruncationAndFlippedBit) {
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    const Bytes bytes = random_notice(seed).encode();
    for (std::size_t count = 0; count < bytes.size(); ++count) {
      const Result<OperationNotice> decoded = OperationNotice::decode(std::span(bytes).first(count));
      ASSERT_FALSE(decoded.has_value()) << "seed " << seed << ", " << count << " bytes";
      ASSERT_EQ(decoded.error().code, ErrorCode::kCorrupt);
    }
    for (std::size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
      Bytes flipped = bytes;
      flipped[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
      ASSERT_FALSE(OperationNotice::decode(flipped).has_value()) << "seed " << seed << ", bit " << bit;
    }
    Bytes longer = bytes;
    longer.push_back({});
    EXPECT_FALSE(OperationNotice::decode(longer).has_value());
  }
}

TEST(OperationNoticeTest, RefusesCountsThatDoNotAddUp) {
  const Bytes good =
      OperationNotice{.loads = {{{}, 3}}, .saves = {{}}, .under_way = {{.slot = 9, .number = 9}}}.encode();
  ASSERT_TRUE(OperationNotice::decode(sealed_again(good)).has_value());
  for (const std::size_t count : {8U, 28U, 52U}) {
    for (const int value : {0, 2, 255}) {
      Bytes other = good;
      other[count] = static_cast<std::byte>(value);
      const Result<OperationNotice> decoded = OperationNotice::decode(sealed_again(other));
      ASSERT_FALSE(decoded.has_value()) << count << ": " << value;
      EXPECT_THAT(decoded.error().message, HasSubstr("do not add up"));
    }
  }
}

TEST(OperationNoticeTest, RefusesAnotherVersionByName) {
  Bytes other = OperationNotice().encode();
  other[4] = std::byte{7};
  const Result<OperationNotice> decoded = OperationNotice::decode(sealed_again(other));
  ASSERT_FALSE(decoded.has_value());
  EXPECT_THAT(decoded.error().message, HasSubstr("is of version 7, this program reads version 2"));
}

}  // namespace
}  // namespace cairn
