#include "cairn/wire/combined_checksum.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace cairn {
namespace {

using Parts = std::vector<BlockSums>;

TEST(CombinedChecksumTest, DependsOnEveryPartOnTheirOrderAndOnTheSalt) {
  const Parts all[] = {{},       {{0, 0}},         {{1, 0}},         {{0, 1}},         {{0, 0}, {0, 0}},
                       {{1, 2}}, {{1, 2}, {3, 4}}, {{3, 4}, {1, 2}}, {{1, 2}, {3, 5}}, {{1, 2}, {3, 4}, {0, 0}}};
  std::set<std::uint64_t> seen;
  for (const Parts& parts : all) {
    for (const std::uint64_t salt : {0, 1, 2}) {
      const BlockSums sums = combine(parts, salt);
      EXPECT_EQ(sums.words, 0U);
      EXPECT_TRUE(seen.insert(sums.products).second);
    }
  }
}

// Disks hold checksums that were made of these.
TEST(CombinedChecksumTest, KeepsItsValues) {
  EXPECT_EQ(combine(Parts{{1, 2}, {3, 4}}, 5).products, 17345415553869690964U);
}

}  // namespace
}  // namespace cairn
