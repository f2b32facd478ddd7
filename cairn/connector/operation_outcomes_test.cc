#include "cairn/connector/operation_outcomes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "cairn/base/byte_stream.h"
#include "cairn/hash/hash_bytes.h"

namespace cairn {
namespace {

using ::testing::HasSubstr;
using Bytes = std::vector<std::byte>;

OperationOutcomes random_outcomes(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto id = [&] { return OperationId{.slot = random(), .number = static_cast<std::uint32_t>(random())}; };
  OperationOutcomes outcomes;
  for (std::uint64_t i = random() % 5; i > 0; --i)
    outcomes.loads.push_back({id(), static_cast<std::uint32_t>(random())});
  for (std::uint64_t i = random() % 5; i > 0; --i) outcomes.saves.push_back(id());
  outcomes.finished_before = random() % 2 * random();
  for (std::uint64_t i = random() % 5; i > 0; --i) outcomes.in_flight.push_back(id());
  return outcomes;
}

Bytes sealed_again(Bytes bytes) {
  bytes.resize(bytes.size() - 8);
  ByteWriter(bytes).put(hash_bytes(bytes, 0));
  return bytes;
}

TEST(OperationOutcomesTest, ComesBack) {
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    const OperationOutcomes outcomes = random_outcomes(seed);
    const Result<OperationOutcomes> decoded = OperationOutcomes::decode(outcomes.encode());
    ASSERT_TRUE(decoded.has_value()) << "seed " << seed;
    EXPECT_EQ(*decoded, outcomes) << "seed " << seed;
  }
}

TEST(OperationOutcomesTest, IsAsDocumented) {
  const OperationOutcomes outcomes{.loads = {{{.slot = 1, .number = 2}, 3}},
                                   .saves = {{.slot = 4, .number = 5}},
                                   .finished_before = 6,
                                   .in_flight = {{.slot = 7, .number = 8}}};
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
  EXPECT_EQ(outcomes.encode(), expected);
}

TEST(OperationOutcomesTest, RefusesEveryTruncationAndFlippedBit) {
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    const Bytes bytes = random_outcomes(seed).encode();
    for (std::size_t count = 0; count < bytes.size(); ++count) {
      const Result<OperationOutcomes> decoded = OperationOutcomes::decode(std::span(bytes).first(count));
      ASSERT_FALSE(decoded.has_value()) << "seed " << seed << ", " << count << " bytes";
      ASSERT_EQ(decoded.error().code, ErrorCode::kCorrupt);
    }
    for (std::size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
      Bytes flipped = bytes;
      flipped[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
      ASSERT_FALSE(OperationOutcomes::decode(flipped).has_value()) << "seed " << seed << ", bit " << bit;
    }
    Bytes longer = bytes;
    longer.push_back({});
    EXPECT_FALSE(OperationOutcomes::decode(longer).has_value());
  }
}

TEST(OperationOutcomesTest, RefusesCountsThatDoNotAddUp) {
  const Bytes good =
      OperationOutcomes{.loads = {{{}, 3}}, .saves = {{}}, .in_flight = {{.slot = 9, .number = 9}}}.encode();
  ASSERT_TRUE(OperationOutcomes::decode(sealed_again(good)).has_value());
  for (const std::size_t count : {8U, 28U, 52U}) {
    for (const int value : {0, 2, 255}) {
      Bytes other = good;
      other[count] = static_cast<std::byte>(value);
      const Result<OperationOutcomes> decoded = OperationOutcomes::decode(sealed_again(other));
      ASSERT_FALSE(decoded.has_value()) << count << ": " << value;
      EXPECT_THAT(decoded.error().message, HasSubstr("do not add up"));
    }
  }
}

TEST(OperationOutcomesTest, RefusesAnotherVersionByName) {
  Bytes other = OperationOutcomes().encode();
  other[4] = std::byte{7};
  const Result<OperationOutcomes> decoded = OperationOutcomes::decode(sealed_again(other));
  ASSERT_FALSE(decoded.has_value());
  EXPECT_THAT(decoded.error().message, HasSubstr("version 7, but this program reads version 2"));
}

}  // namespace
}  // namespace cairn
