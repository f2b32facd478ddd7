#include "cairn/tokens/key_seed.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <set>
#include <vector>

#include "cairn/tokens/block_key.h"

namespace cairn {
namespace {

TEST(KeySeedTest, RandomSeedsDifferAndThatOfTheProcessStays) {
  EXPECT_NE(KeySeed::random().first, KeySeed::random().first);
  EXPECT_EQ(KeySeed::of_process().first, KeySeed::of_process().first);
  EXPECT_EQ(KeySeed::from(7).second, KeySeed::from(7).second);
  EXPECT_NE(KeySeed::from(7).second, KeySeed::from(8).second);
}

TEST(KeySeedTest, MultipliersAreOdd) {
  for (const KeySeed& seed :
       {KeySeed{}, KeySeed::random(), KeySeed::from(0), KeySeed::from(1), KeySeed::of_process()}) {
    EXPECT_EQ(seed.first & seed.second & 1, 1U);
  }
}

// Keys whose words XOR to the same number, which all had one std::hash before it was seeded.
TEST(KeySeedTest, KeysThatWereMadeToCollideDoNot) {
  constexpr std::size_t kKeys = 10'000;
  std::set<std::size_t> hashes;
  for (std::uint64_t i = 0; i < kKeys; ++i) {
    // Position 1, mode 0: high = 1 << 54 | hash >> 10, low = hash << 54 | fragment.
    const std::uint64_t hash = i << 10;  // none of it in the low word
    const std::uint64_t fragment = i;    // undoes in the low word what the hash does in the high one
    const BlockKey key = BlockKey::make_checked(1, SequenceHash{hash}, SequenceHash{fragment});
    ASSERT_EQ(key.high_word() ^ key.low_word(), std::uint64_t{1} << 54);
    hashes.insert(std::hash<BlockKey>()(key));
  }
  EXPECT_EQ(hashes.size(), kKeys);
}

}  // namespace
}  // namespace cairn
