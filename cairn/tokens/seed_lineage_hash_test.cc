#include "cairn/tokens/seed_lineage_hash.h"

#include <gtest/gtest.h>

namespace cairn {
namespace {

SeedLineageHash hash_at(std::uint64_t position, std::uint64_t current, std::uint64_t parent) {
  return *SeedLineageHash::make(position, SequenceHash{current}, SequenceHash{parent});
}

TEST(SeedLineageHashTest, PacksTheRecordedVectors) {
  struct Vector {
    std::uint64_t position;
    std::uint64_t current;
    std::optional<SequenceHash> parent;
    std::uint64_t high;
    std::uint64_t low;
  };
  constexpr std::uint64_t first = 14643705804678351452U;
  constexpr std::uint64_t second = 4945711292740353085U;
  constexpr std::uint64_t third = 12583592247330656132U;
  const Vector vectors[] = {
      {0, first, std::nullopt, 0x0000000000000000, 0x0338e4d7fb2dca5c},
      {1, second, SequenceHash{first}, 0x0059c726bfd96e52, 0xe4a2b2379d6d3c3d},
      {2, third, SequenceHash{second}, 0x00a51591bceb69e1, 0xeea1e67a6c80cf84},
      {100, 0x1234567890ABCDEF, SequenceHash{0xFEDCBA9876543210}, 0x1936e5d4c3b2a190, 0x8234567890abcdef},
      {255, 0x1234567890ABCDEF, SequenceHash{0xFEDCBA9876543210}, 0x3ff6e5d4c3b2a190, 0x8034567890abcdef},
      {256, 0xABCDEF0123456789, SequenceHash{0x1234567890ABCDEF}, 0x40401a2b3c4855e6, 0xf7cdef0123456789},
      {65536, 0x5555666677778888, SequenceHash{0x1111222233334444}, 0x804000091111999a, 0x2225666677778888},
  };
  for (const Vector& v : vectors) {
    const SeedLineageHash hash = *SeedLineageHash::make(v.position, SequenceHash{v.current}, v.parent);
    EXPECT_EQ(hash.high_word(), v.high) << "position " << v.position;
    EXPECT_EQ(hash.low_word(), v.low) << "position " << v.position;
    EXPECT_EQ(hash.position(), v.position);
  }
}

TEST(SeedLineageHashTest, ParentsAreKnownAcrossModes) {
  constexpr std::uint64_t parent = 0xFEDCBA9876543210;
  for (const std::uint64_t position : {0U, 7U, 254U, 255U, 256U, 65534U, 65535U, 65536U, (1U << 24) - 2}) {
    const SeedLineageHash child = hash_at(position + 1, 5, parent);
    EXPECT_TRUE(hash_at(position, parent, 3).is_parent_of(child)) << "position " << position;
    EXPECT_FALSE(hash_at(position, parent ^ 1, 3).is_parent_of(child)) << "position " << position;
    EXPECT_FALSE(child.is_parent_of(child));
  }
}

TEST(SeedLineageHashTest, HoldsPositionsOf24BitsAndNoMore) {
  EXPECT_EQ(hash_at(SeedLineageHash::kMaxPosition, 1, 2).position(), SeedLineageHash::kMaxPosition);
  const Result<SeedLineageHash> beyond =
      SeedLineageHash::make(SeedLineageHash::kMaxPosition + 1, SequenceHash{1}, SequenceHash{2});
  ASSERT_FALSE(beyond);
  EXPECT_EQ(beyond.error().code, ErrorCode::kOutOfRange);
}

}  // namespace
}  // namespace cairn
