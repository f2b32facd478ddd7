#include "cairn/sim/sim_table.h"

#include <gtest/gtest.h>

namespace cairn::sim::internal {
namespace {

struct Number {
  std::uint32_t value = 0;
  [[nodiscard]] bool vacant() const { return value == 0; }
};

TEST(SimTableTest, KeysOfBlocksSpreadAndComeBack) {
  SimTable<BlockKey, Number> table;
  const auto key = [](std::uint32_t i) {
    return BlockKey::make_checked(i % 300, SequenceHash{i / 300}, SequenceHash{i});
  };
  for (std::uint32_t i = 0; i < 30'000; ++i) {
    ASSERT_TRUE(table.insert(key(i), {i + 1}).second);
  }
  for (std::uint32_t i = 0; i < 30'000; i += 2) {
    ASSERT_EQ(table.erase(key(i)).value, i + 1);
  }
  for (std::uint32_t i = 0; i < 30'000; ++i) {
    ASSERT_EQ(table.contains(key(i)), i % 2 == 1) << i;
  }
}

}  // namespace
}  // namespace cairn::sim::internal
