#include "cairn/connector/iteration_metadata.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>

#include "cairn/base/byte_stream.h"
#include "cairn/connector/operation_testing.h"
#include "cairn/hash/hash_bytes.h"

namespace cairn {
namespace {

using testing::fenced_operation;
using testing::load_operation;
using testing::save_operation;

using ::testing::HasSubstr;
using Bytes = std::vector<std::byte>;

class Maker {
 public:
  explicit Maker(std::uint64_t seed) : random_(seed) {}
  IterationMetadata make() {
    IterationMetadata metadata;
    metadata.leader = {random_(), random_()};
    metadata.iteration = random_();
    for (std::uint64_t i = random_() % 4; i > 0; --i) {
      metadata.loads.push_back(load_operation(id(), request(), blocks(), random_() % 2 == 1));
    }
    for (std::uint64_t i = random_() % 4; i > 0; --i)
      metadata.saves.push_back(save_operation(id(), request(), blocks()));
    for (std::uint64_t i = random_() % 4; i > 0; --i) metadata.fences.push_back(fenced_operation(id(), blocks()));
    return metadata;
  }

 private:
  OperationId id() { return {.slot = random_(), .number = static_cast<std::uint32_t>(random_())}; }
  RequestId request() {
    if (random_() % 2 == 0) return {random_()};
    std::string text(random_() % 30, '\0');
    for (char& c : text) c = static_cast<char>(random_());
    return {text};
  }
  std::vector<BlockId> blocks() {
    std::vector<BlockId> blocks(random_() % 6);
    for (BlockId& block : blocks) block = BlockId{static_cast<std::uint32_t>(random_())};
    return blocks;
  }
  std::mt19937_64 random_;
};

Bytes encoded(const IterationMetadata& metadata) {
  Bytes bytes;
  metadata.encode(bytes);
  return bytes;
}

// Changed fields with a valid hash.
Bytes sealed_again(Bytes bytes) {
  bytes.resize(bytes.size() - 8);
  ByteWriter(bytes).put(hash_bytes(bytes, 0));
  return bytes;
}

ErrorCode code_of(const Bytes& bytes) {
  const Result<IterationMetadata> decoded = IterationMetadata::decode(bytes);
  EXPECT_FALSE(decoded.has_value());
  return decoded ? ErrorCode::kIo : decoded.error().code;
}

TEST(IterationMetadataTest, ComesBack) {
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    const IterationMetadata metadata = Maker(seed).make();
    const Result<IterationMetadata> decoded = IterationMetadata::decode(encoded(metadata));
    ASSERT_TRUE(decoded.has_value()) << "seed " << seed;
    EXPECT_EQ(*decoded, metadata) << "seed " << seed;
  }
}

TEST(IterationMetadataTest, WithoutTierWorkItIsSmall) { EXPECT_EQ(encoded({.iteration = 5}).size(), 52U); }

TEST(IterationMetadataTest, IsAsDocumented) {
  IterationMetadata metadata{.leader = {13, 14}, .iteration = 2};
  metadata.loads.push_back(load_operation({.slot = 3, .number = 4}, "r", {BlockId{5}}, true));
  metadata.saves.push_back(save_operation({.slot = 6, .number = 7}, 8U, {BlockId{9}, BlockId{10}}));
  metadata.fences.push_back(fenced_operation({.slot = 11, .number = 12}, {}));
  Bytes expected;
  ByteWriter out(expected);
  out.raw(std::as_bytes(std::span("CRNI", 4)));
  out.put(std::uint16_t{3});
  out.put(std::uint16_t{0});
  out.put(std::uint64_t{13});
  out.put(std::uint64_t{14});
  out.put(std::uint64_t{2});
  for (int i = 0; i < 3; ++i) out.put(std::uint32_t{1});
  const auto id = [&](std::uint64_t slot, std::uint32_t number) {
    out.put(slot);
    out.put(number);
  };
  id(3, 4);
  out.put(std::uint8_t{3});
  out.text("r");
  out.list(std::vector<BlockId>{BlockId{5}});
  id(6, 7);
  out.put(std::uint8_t{0});
  out.put(std::uint64_t{8});
  out.list(std::vector<BlockId>{BlockId{9}, BlockId{10}});
  id(11, 12);
  out.put(std::uint32_t{0});
  out.put(hash_bytes(expected, 0));
  EXPECT_EQ(encoded(metadata), expected);
}

TEST(IterationMetadataTest, UsesTheMemoryAgain) {
  Bytes bytes;
  IterationMetadata metadata{.iteration = 1};
  metadata.loads.push_back(load_operation({}, 1U, std::vector<BlockId>(100)));
  metadata.encode(bytes);
  const std::byte* const memory = bytes.data();
  const IterationMetadata next{.iteration = 2};
  next.encode(bytes);
  EXPECT_EQ(bytes.data(), memory);
  EXPECT_EQ(*IterationMetadata::decode(bytes), next);
}

TEST(IterationMetadataTest, RefusesEveryTruncationAndFlippedBit) {
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    const Bytes bytes = encoded(Maker(seed).make());
    for (std::size_t count = 0; count < bytes.size(); ++count) {
      const Result<IterationMetadata> decoded = IterationMetadata::decode(std::span(bytes).first(count));
      ASSERT_FALSE(decoded.has_value()) << "seed " << seed << ", " << count << " bytes";
      ASSERT_EQ(decoded.error().code, ErrorCode::kCorrupt);
    }
    for (std::size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
      Bytes flipped = bytes;
      flipped[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
      ASSERT_FALSE(IterationMetadata::decode(flipped).has_value()) << "seed " << seed << ", bit " << bit;
    }
    Bytes longer = bytes;
    longer.push_back({});
    EXPECT_FALSE(IterationMetadata::decode(longer).has_value());
  }
}

TEST(IterationMetadataTest, RefusesWhatDoesNotAddUpUnderAGoodHash) {
  IterationMetadata metadata{.iteration = 2};
  metadata.saves.push_back(save_operation({}, 8U, {BlockId{9}}));
  const Bytes good = encoded(metadata);
  ASSERT_TRUE(IterationMetadata::decode(sealed_again(good)).has_value());
  for (const std::size_t count : {32U, 36U, 40U}) {  // of loads, saves, fences
    Bytes more = good;
    more[count] = std::byte{2};
    EXPECT_EQ(code_of(sealed_again(more)), ErrorCode::kCorrupt) << count;
    for (std::size_t i = 0; i < 4; ++i) more[count + i] = std::byte{0xFF};
    EXPECT_EQ(code_of(sealed_again(more)), ErrorCode::kCorrupt) << count;
  }
  Bytes none = good;
  none[36] = std::byte{0};
  EXPECT_EQ(code_of(sealed_again(none)), ErrorCode::kCorrupt) << "bytes are left over";
  Bytes in_step = good;
  in_step[56] = std::byte{1};
  EXPECT_TRUE(IterationMetadata::decode(sealed_again(in_step))->saves[0]->in_step);
  Bytes unknown = good;
  unknown[56] = std::byte{4};
  EXPECT_EQ(code_of(sealed_again(unknown)), ErrorCode::kCorrupt) << "there is no such flag";
  Bytes flags = good;
  flags[6] = std::byte{1};
  EXPECT_EQ(code_of(sealed_again(flags)), ErrorCode::kCorrupt);
  Bytes magic = good;
  magic[0] = std::byte{'X'};
  EXPECT_EQ(code_of(sealed_again(magic)), ErrorCode::kCorrupt);
}

TEST(IterationMetadataTest, RefusesAnotherVersionByName) {
  Bytes other = encoded({.iteration = 1});
  other[4] = std::byte{1};
  const Result<IterationMetadata> decoded = IterationMetadata::decode(sealed_again(other));
  ASSERT_FALSE(decoded.has_value());
  EXPECT_THAT(decoded.error().message, HasSubstr("version 1, but this program reads version 3"));
}

}  // namespace
}  // namespace cairn
