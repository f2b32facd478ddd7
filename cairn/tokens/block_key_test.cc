#include "cairn/tokens/block_key.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cstdint>
#include <set>
#include <vector>

namespace cairn {
namespace {

constexpr SequenceHash kFirst{14643705804678351452U};
constexpr SequenceHash kSecond{4945711292740353085U};
constexpr SequenceHash kThird{12583592247330656132U};

struct Vector {
  std::uint32_t position;
  std::uint64_t current;
  std::uint64_t parent;
  std::uint64_t high;
  std::uint64_t low;
};

BlockKey key_at(std::uint64_t position, std::uint64_t current, std::uint64_t parent) {
  return *BlockKey::make(position, SequenceHash{current}, SequenceHash{parent});
}

std::uint64_t position_near_a_boundary() {
  const auto center = *rc::gen::element<std::uint64_t>(0, 1U << 8, 1U << 16, BlockKey::kMaxPosition);
  const auto before = *rc::gen::inRange<std::uint64_t>(0, 4);
  return center < before ? center : center - before;
}

TEST(BlockKeyTest, PacksTheRecordedVectors) {
  const Vector vectors[] = {
      {0, value_of(kFirst), 0, 0x0032ce3935fecb72, 0x9700000000000000},
      {1, value_of(kSecond), value_of(kFirst), 0x005128ac8de75b4f, 0x0f78e4d7fb2dca5c},
      {2, value_of(kThird), value_of(kSecond), 0x00aba8799e9b2033, 0xe122b2379d6d3c3d},
      {100, 0x1234567890ABCDEF, 0xFEDCBA9876543210, 0x19048d159e242af3, 0x7bdcba9876543210},
      {255, 0x1234567890ABCDEF, 0xFEDCBA9876543210, 0x3fc48d159e242af3, 0x7bdcba9876543210},
      {256, 0xABCDEF0123456789, 0x1234567890ABCDEF, 0x40402af37bc048d1, 0x59e2567890abcdef},
      {65536, 0x5555666677778888, 0x1111222233334444, 0x804000155559999d, 0xdde2222233334444},
  };
  for (const Vector& v : vectors) {
    const BlockKey key = key_at(v.position, v.current, v.parent);
    EXPECT_EQ(key.high_word(), v.high) << "position " << v.position;
    EXPECT_EQ(key.low_word(), v.low) << "position " << v.position;
    EXPECT_EQ(key.position(), v.position);
    EXPECT_EQ(value_of(key.sequence_hash()), v.current);
  }
}

TEST(BlockKeyTest, HoldsPositionsOf24BitsAndNoMore) {
  EXPECT_EQ(key_at(BlockKey::kMaxPosition, 7, 5).position(), BlockKey::kMaxPosition);
  const Result<BlockKey> beyond = BlockKey::make(BlockKey::kMaxPosition + 1, SequenceHash{7}, SequenceHash{5});
  ASSERT_FALSE(beyond);
  EXPECT_EQ(beyond.error().code, ErrorCode::kOutOfRange);
  EXPECT_NE(beyond.error().message.find("16777216"), std::string::npos);
  const Result<BlockKey> child = key_at(BlockKey::kMaxPosition, 7, 5).extend(BlockHash{1});
  ASSERT_FALSE(child);
  EXPECT_EQ(child.error().code, ErrorCode::kOutOfRange);
}

TEST(BlockKeyTest, ParentBitsShrinkAsPositionsGrow) {
  const std::uint64_t all = ~std::uint64_t{0};
  EXPECT_EQ(key_at(255, 1, all).parent_fragment(), (std::uint64_t{1} << 54) - 1);
  EXPECT_EQ(key_at(256, 1, all).parent_fragment(), (std::uint64_t{1} << 46) - 1);
  EXPECT_EQ(key_at(65535, 1, all).parent_fragment(), (std::uint64_t{1} << 46) - 1);
  EXPECT_EQ(key_at(65536, 1, all).parent_fragment(), (std::uint64_t{1} << 38) - 1);
  EXPECT_EQ(key_at(0, 1, all).parent_fragment(), 0U);
}

RC_GTEST_PROP(BlockKeyProperty, ExtendIsMakeWithTheChainedHash, (std::uint64_t current, std::uint64_t parent)) {
  const std::uint64_t position = std::min<std::uint64_t>(position_near_a_boundary(), BlockKey::kMaxPosition - 1);
  const BlockHash child{*rc::gen::arbitrary<std::uint64_t>()};
  const BlockKey key = key_at(position, current, parent);
  const BlockKey next = *key.extend(child);
  RC_ASSERT(next == key_at(position + 1, value_of(chain_hash(SequenceHash{current}, child)), current));
  RC_ASSERT(key.is_parent_of(next));
  RC_ASSERT(!next.is_parent_of(key));
  RC_ASSERT(next.parent_fragment() == key.fragment_for_child());
  RC_ASSERT(!key_at(position, current ^ 1, parent).is_parent_of(next));
}

RC_GTEST_PROP(BlockKeyProperty, BytesAndTextComeBack, (std::uint64_t current, std::uint64_t parent)) {
  const BlockKey key = key_at(position_near_a_boundary(), current, parent);
  const std::array<std::byte, 16> bytes = key.to_bytes();
  RC_ASSERT(*BlockKey::from_bytes(bytes) == key);
  RC_ASSERT(*BlockKey::parse(key.to_string()) == key);
}

RC_GTEST_PROP(BlockKeyProperty, BytesThatDecodeEncodeToThemselves, (std::array<std::uint8_t, 16> raw)) {
  const std::span<const std::byte> bytes = std::as_bytes(std::span(raw));
  const Result<BlockKey> key = BlockKey::from_bytes(bytes);
  RC_PRE(key.has_value());
  RC_ASSERT(std::ranges::equal(key->to_bytes(), bytes));
  RC_ASSERT(key->position() == 0 ||
            *BlockKey::make(key->position(), key->sequence_hash(), SequenceHash{key->parent_fragment()}) == *key);
  RC_ASSERT(*BlockKey::parse(key->to_string()) == *key);
}

TEST(BlockKeyTest, BytesAreMostSignificantFirst) {
  const std::array<std::byte, 16> bytes = key_at(1, value_of(kSecond), value_of(kFirst)).to_bytes();
  EXPECT_EQ(bytes[1], std::byte{0x51});
  EXPECT_EQ(bytes[15], std::byte{0x5c});
}

TEST(BlockKeyTest, RejectsBytesThatMakeCouldNotMake) {
  const auto code_of = [](std::array<std::uint8_t, 16> raw) {
    const Result<BlockKey> key = BlockKey::from_bytes(std::as_bytes(std::span(raw)));
    return key ? std::optional<ErrorCode>() : key.error().code;
  };
  EXPECT_EQ(code_of({0xc0}), ErrorCode::kCorrupt) << "mode 3";
  EXPECT_EQ(code_of({0x40, 0x3f, 0xc0}), ErrorCode::kCorrupt) << "mode 1 for position 255";
  EXPECT_EQ(code_of({0x80, 0x3f, 0xff, 0xc0}), ErrorCode::kCorrupt) << "mode 2 for position 65535";
  EXPECT_EQ(code_of({0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}), std::nullopt) << "a wide root";
  EXPECT_EQ(code_of({0, 0x40, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}), std::nullopt) << "position 1 may have one";
  const std::array<std::byte, 17> bytes{};
  EXPECT_EQ(BlockKey::from_bytes(std::span(bytes).first<15>()).error().code, ErrorCode::kCorrupt);
  EXPECT_EQ(BlockKey::from_bytes(bytes).error().code, ErrorCode::kCorrupt);
  EXPECT_EQ(BlockKey::from_bytes({}).error().code, ErrorCode::kCorrupt);
}

TEST(BlockKeyTest, TextIsPositionHashAndParent) {
  EXPECT_EQ(BlockKey::root(kFirst)->to_string(), "0:azWbh91idkf");
  EXPECT_EQ(key_at(1, value_of(kSecond), value_of(kFirst)).to_string(), "1:CUrLYDFnmBa:13A3sGnbCSf");
  EXPECT_EQ(BlockKey().to_string(), "0:11111111");
  EXPECT_EQ(key_at(3, 255, 256).to_string(), "3:11111115Q:1111115R");
  EXPECT_EQ(key_at(0, ~std::uint64_t{0}, 0).to_string(), "0:jpXCZedGfVQ");
}

TEST(BlockKeyTest, AWideRootHoldsFurtherBitsAndNoParent) {
  const BlockKey plain = *BlockKey::root(kFirst);
  const BlockKey wide = BlockKey::wide_root(kFirst, ~std::uint64_t{0});
  EXPECT_EQ(wide.position(), 0U);
  EXPECT_EQ(wide.sequence_hash(), kFirst);
  EXPECT_EQ(wide.parent_fragment(), 0U);
  EXPECT_EQ(wide.low_word() ^ plain.low_word(), (std::uint64_t{1} << 54) - 1);
  EXPECT_EQ(wide.high_word(), plain.high_word());
  EXPECT_NE(wide, plain);
  EXPECT_EQ(BlockKey::wide_root(kFirst, 0), plain);
  EXPECT_EQ(*BlockKey::from_bytes(wide.to_bytes()), wide);
  EXPECT_EQ(BlockKey::wide_root(kFirst, 255).to_string(), "0:azWbh91idkf:11111115Q");
  EXPECT_EQ(*BlockKey::parse("0:azWbh91idkf:11111115Q"), BlockKey::wide_root(kFirst, 255));
  EXPECT_EQ(wide.fragment_for_child(), plain.fragment_for_child()) << "a child knows its parent by the sequence hash";
}

TEST(BlockKeyTest, ParseTakesOnlyWhatToStringWrites) {
  const char* const bad[] = {"",
                             "0",
                             ":azWbh91idkf",
                             "0:",
                             "00:azWbh91idkf",
                             "01:CUrLYDFnmBa:13A3sGnbCSf",
                             "+1:CUrLYDFnmBa:13A3sGnbCSf",
                             "-1:CUrLYDFnmBa:13A3sGnbCSf",
                             " 0:azWbh91idkf",
                             "0:azWbh91idkf ",
                             "0:azWbh91idkf:11111111",
                             "1:CUrLYDFnmBa",
                             "1:CUrLYDFnmBa:",
                             "1:CUrLYDFnmBa:13A3sGnbCSf:",
                             "1:CUrLYDFnmBa:azWbh91idkf",
                             "16777216:CUrLYDFnmBa:11111111",
                             "99999999999:CUrLYDFnmBa:11111111",
                             "0:azWbh91idk0",
                             "0:1azWbh91idkf",
                             "0:111111111",
                             "0:1111111",
                             "0:jpXCZedGfVR",
                             "0:zzzzzzzzzzzzzzzz"};
  for (const char* text : bad) {
    const Result<BlockKey> key = BlockKey::parse(text);
    ASSERT_FALSE(key) << text;
    EXPECT_EQ(key.error().code, ErrorCode::kCorrupt) << text;
  }
}

TEST(BlockKeyTest, SortsByPositionThenHash) {
  std::vector<BlockKey> keys = {key_at(65536, 1, 1), key_at(1, 2, 9), key_at(256, 1, 1),
                                key_at(0, 99, 0),    key_at(1, 1, 9), key_at(1, 2, 3)};
  std::sort(keys.begin(), keys.end());
  EXPECT_EQ(keys, (std::vector<BlockKey>{key_at(0, 99, 0), key_at(1, 1, 9), key_at(1, 2, 3), key_at(1, 2, 9),
                                         key_at(256, 1, 1), key_at(65536, 1, 1)}));
}

// Keys whose words XOR to the same number, which all had one std::hash before it was seeded.
TEST(BlockKeyTest, KeysThatWereMadeToCollideDoNot) {
  constexpr std::size_t kKeys = 10'000;
  std::set<std::size_t> hashes;
  for (std::uint64_t i = 0; i < kKeys; ++i) {
    // Position 1, mode 0: high = 1 << 54 | hash >> 10, low = hash << 54 | fragment.
    const std::uint64_t hash = i << 10;  // no bits in the low word
    const std::uint64_t fragment = i;    // cancels the hash bits of the high word
    const BlockKey key = BlockKey::make_checked(1, SequenceHash{hash}, SequenceHash{fragment});
    ASSERT_EQ(key.high_word() ^ key.low_word(), std::uint64_t{1} << 54);
    hashes.insert(std::hash<BlockKey>()(key));
  }
  EXPECT_EQ(hashes.size(), kKeys);
}

}  // namespace
}  // namespace cairn
