#include "cairn/tokens/block_key.h"

#include <gtest/gtest.h>

#include <cstdint>

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

struct Words {
  std::uint64_t high;
  std::uint64_t low;
  [[nodiscard]] constexpr std::uint64_t high_word() const { return high; }
  [[nodiscard]] constexpr std::uint64_t low_word() const { return low; }
};

// Sketches of recorded simulations depend on these values.
TEST(KeySeedTest, HashesForSketchesNeverChange) {
  EXPECT_EQ(hash_of(Words{1, 2}, KeySeed{}), 0xCE9987A8598840F3U);
  EXPECT_EQ(hash_of(Words{1, 2}, KeySeed::from(7)), 0xA76300FF6A7ED766U);
}

}  // namespace
}  // namespace cairn
