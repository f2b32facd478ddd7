#include "cairn/base/flat_table.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <map>
#include <memory>
#include <utility>
#include <vector>

namespace cairn {
namespace {

struct Number {
  std::uint32_t value = 0;
};

template <std::uint32_t kPercent>
struct NumberTraits {
  static std::uint64_t hash(std::uint64_t key) { return key * 0x9E3779B97F4A7C15U; }
  static bool is_vacant(std::uint64_t /*key*/, const Number& number) { return number.value == 0; }
  static constexpr std::uint32_t kMaxPercent = kPercent;
};

// Every key in one place: all entries are neighbours.
struct CrowdedTraits : NumberTraits<90> {
  static std::uint64_t hash(std::uint64_t key) { return key << 63; }
};

template <typename Traits>
class FlatTableTest : public ::testing::Test {};
using AllTraits = ::testing::Types<NumberTraits<50>, NumberTraits<90>, CrowdedTraits>;
TYPED_TEST_SUITE(FlatTableTest, AllTraits);

TYPED_TEST(FlatTableTest, IsAMap) {
  const auto behaves = [](const std::vector<std::pair<std::uint8_t, std::uint8_t>>& steps) {
    FlatTable<std::uint64_t, Number, TypeParam> table;
    std::map<std::uint64_t, std::uint32_t> model;
    for (const auto& [key, value] : steps) {
      if (value % 4 == 0) {
        const std::uint32_t expected = model.contains(key) ? model[key] : 0;
        RC_ASSERT(table.erase(key).value == expected);
        model.erase(key);
      } else if (value % 4 == 1) {
        const bool is_odd = model.contains(key) && model[key] % 2 == 1;
        RC_ASSERT(table.erase_if(key, [](const Number& n) { return n.value % 2 == 1; }) == model.contains(key));
        if (is_odd) {
          model.erase(key);
        }
      } else {
        const auto [found, made] = table.insert(key, {value});
        RC_ASSERT(made == model.emplace(key, value).second);
        RC_ASSERT(found->value == model[key]);
      }
      RC_ASSERT(table.size() == model.size());
    }
    for (std::uint64_t key = 0; key < 256; ++key) {
      const Number* const found = std::as_const(table).find(key);
      RC_ASSERT((found != nullptr) == model.contains(key));
      RC_ASSERT(table.contains(key) == model.contains(key));
      RC_ASSERT((found == nullptr || found->value == model[key]));
    }
    std::map<std::uint64_t, std::uint32_t> seen;
    table.for_each([&](std::uint64_t key, const Number& number) { seen.emplace(key, number.value); });
    RC_ASSERT(seen == model);
    table.clear();
    RC_ASSERT(table.size() == 0U);
    RC_ASSERT((steps.empty() || !table.contains(steps.front().first)));
  };
  EXPECT_TRUE(rc::check(behaves));
}

TYPED_TEST(FlatTableTest, PointersStayValidWithinWhatWasReserved) {
  FlatTable<std::uint64_t, Number, TypeParam> table;
  table.reserve(100);
  const Number* const first = table.insert(0, {1}).first;
  for (std::uint32_t key = 1; key < 100; ++key) {
    ASSERT_TRUE(table.insert(key, {key + 1}).second);
  }
  EXPECT_EQ(table.find(0), first);
  EXPECT_EQ(first->value, 1U);
}

struct OwnerTraits {
  static std::uint64_t hash(std::uint64_t key) { return key * 0x9E3779B97F4A7C15U; }
  static bool is_vacant(std::uint64_t /*key*/, const std::shared_ptr<int>& value) { return value == nullptr; }
  static constexpr std::uint32_t kMaxPercent = 75;
};

TEST(FlatTableOwnerTest, FreesWhatItErases) {
  const auto owned = std::make_shared<int>(7);
  {
    FlatTable<std::uint64_t, std::shared_ptr<int>, OwnerTraits> table;
    for (std::uint64_t key = 0; key < 1000; ++key) {
      table.insert(key, owned);
    }
    EXPECT_EQ(owned.use_count(), 1001);
    for (std::uint64_t key = 0; key < 1000; key += 2) {
      EXPECT_EQ(table.erase(key), owned);
    }
    EXPECT_EQ(owned.use_count(), 501);
  }
  EXPECT_EQ(owned.use_count(), 1);
}

}  // namespace
}  // namespace cairn
