#include "cairn/wire/combined_checksum.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

namespace cairn {
namespace {

TEST(CombinedChecksumTest, DependsOnEveryPartAndOnTheirOrder) {
  const auto of = [](const std::vector<std::uint64_t>& sums) {
    std::vector<Checksum> all;
    for (const std::uint64_t sum : sums) {
      all.push_back(Checksum{sum});
    }
    return combine(all);
  };
  EXPECT_EQ(of({5, 6}), of({5, 6}));
  EXPECT_NE(of({5, 6}), of({6, 5}));
  EXPECT_NE(of({5, 6}), of({5, 7}));
  EXPECT_NE(of({5}), of({5, 0}));
  EXPECT_NE(of({5}), Checksum{5});
  EXPECT_NE(of({}), Checksum{});
}

}  // namespace
}  // namespace cairn
