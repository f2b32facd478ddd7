#include "cairn/evict/tiny_lfu.h"

#include <gtest/gtest.h>

#include <cstdint>

#include "cairn/evict/fake_blocks_testing.h"

namespace cairn {
namespace {

BlockKey key(std::uint64_t n) { return root_key(n * 0x9E3779B97F4A7C15U + 1); }

TEST(TinyLfuTest, CountsUpToSixteen) {
  TinyLfu sketch = *TinyLfu::create(1'000);
  EXPECT_EQ(sketch.estimate(key(1)), 0U);
  for (std::uint32_t uses = 1; uses <= 40; ++uses) {
    EXPECT_EQ(sketch.add(key(1)), std::min(uses, 16U));
    EXPECT_EQ(sketch.estimate(key(1)), std::min(uses, 16U));
  }
  EXPECT_EQ(sketch.estimate(key(2)), 0U);
}

TEST(TinyLfuTest, KeysSeenOnceDoNotRaiseOthers) {
  TinyLfu sketch = *TinyLfu::create(1'000);
  for (std::uint64_t n = 0; n < 3'000; ++n) {
    sketch.add(key(n));
  }
  std::uint32_t wrong = 0;
  for (std::uint64_t n = 100'000; n < 101'000; ++n) {
    wrong += sketch.estimate(key(n)) > 1 ? 1 : 0;
  }
  EXPECT_LT(wrong, 20U);
}

// The sketch that this one is measured against uses one counter in sixteen, and then reads several times too high.
TEST(TinyLfuTest, TellsHotKeysFromColdOnes) {
  TinyLfu sketch = *TinyLfu::create(2'000);
  for (int round = 0; round < 8; ++round) {
    for (std::uint64_t n = 0; n < 1'000; ++n) {
      sketch.add(key(n));
    }
  }
  for (std::uint64_t n = 1'000; n < 6'000; ++n) {
    sketch.add(key(n));
    sketch.add(key(n));
  }
  std::uint32_t too_high = 0;
  for (std::uint64_t n = 1'000; n < 6'000; ++n) {
    too_high += sketch.estimate(key(n)) > 4 ? 1 : 0;
  }
  EXPECT_LT(too_high, 100U);
  for (std::uint64_t n = 0; n < 1'000; ++n) {
    EXPECT_GE(sketch.estimate(key(n)), 8U);
  }
}

TEST(TinyLfuTest, HalvesAfterTenUsesABlock) {
  TinyLfu sketch = *TinyLfu::create(100);
  for (int i = 0; i < 9; ++i) {
    sketch.add(key(1));
  }
  for (std::uint64_t n = 0; n < 990; ++n) {
    sketch.add(key(2));
  }
  EXPECT_EQ(sketch.estimate(key(1)), 9U);
  sketch.add(key(2));
  EXPECT_EQ(sketch.estimate(key(1)), 4U);  // eight in the sketch are four, the one at the door is none
}

TEST(TinyLfuTest, WorksForAPoolOfNoBlocks) {
  TinyLfu sketch = *TinyLfu::create(0);
  EXPECT_GT(sketch.add(key(1)), 0U);
}

}  // namespace
}  // namespace cairn
