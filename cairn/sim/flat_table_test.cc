#include "cairn/sim/flat_table.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <map>
#include <utility>
#include <vector>

namespace cairn::sim::internal {
namespace {

struct Number {
  std::uint32_t value = 0;
  [[nodiscard]] bool vacant() const { return value == 0; }
};

RC_GTEST_PROP(FlatTableTest, IsAMap, (std::vector<std::pair<std::uint8_t, std::uint8_t>> steps)) {
  FlatTable<std::uint64_t, Number> table;
  std::map<std::uint64_t, std::uint32_t> model;
  for (const auto& [key, value] : steps) {
    if (value % 3 == 0) {
      const std::uint32_t expected = model.contains(key) ? model[key] : 0;
      RC_ASSERT(table.erase(key).value == expected);
      model.erase(key);
    } else {
      const auto [found, made] = table.insert(key, {value});
      RC_ASSERT(made == model.emplace(key, value).second);
      RC_ASSERT(found->value == model[key]);
    }
    RC_ASSERT(table.size() == model.size());
  }
  for (std::uint64_t key = 0; key < 256; ++key) {
    const Number* found = table.find(key);
    RC_ASSERT((found != nullptr) == model.contains(key));
    RC_ASSERT((found == nullptr || found->value == model[key]));
  }
}

TEST(FlatTableTest, KeysOfBlocksSpreadAndComeBack) {
  FlatTable<BlockKey, Number> table;
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
