#include "cairn/transfer/part_sizes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace cairn {
namespace {

using gpu::PartSizes;
using ::testing::ElementsAre;

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

// The parts of one transfer, in MiB. The first one is of an idle lane if `is_idle`.
std::vector<std::uint64_t> parts_of(PartSizes& sizes, std::uint64_t mib, PartSizes::Work work) {
  std::vector<std::uint64_t> parts;
  for (work.rest = mib * kMiB; work.rest > 0; work.is_idle = false) {
    const std::uint64_t bytes = std::min(sizes.next(work), work.rest);
    parts.push_back(bytes / kMiB);
    work.rest -= bytes;
  }
  return parts;
}

TEST(PartSizesTest, StagedPartsGrowAndShrink) {
  PartSizes sizes(32 * kMiB);
  EXPECT_THAT(parts_of(sizes, 128, {.is_staged = true, .is_idle = true}),
              ElementsAre(2, 4, 8, 16, 32, 32, 17, 8, 4, 2, 2, 0));
}

TEST(PartSizesTest, ATransferThatIsFollowedDoesNotShrink) {
  PartSizes sizes(32 * kMiB);
  EXPECT_THAT(parts_of(sizes, 64, {.is_staged = true, .is_idle = true, .is_followed = true}),
              ElementsAre(2, 4, 8, 16, 32, 2));
  EXPECT_THAT(parts_of(sizes, 64, {.is_staged = true, .is_followed = true}), ElementsAre(32, 32)) << "the lane is busy";
  EXPECT_THAT(parts_of(sizes, 16, {.is_staged = true}), ElementsAre(8, 4, 2, 2)) << "the last transfer";
}

TEST(PartSizesTest, PartsThatAreNotStagedAreLarge) {
  PartSizes sizes(32 * kMiB);
  EXPECT_THAT(parts_of(sizes, 80, {.is_idle = true}), ElementsAre(32, 32, 16));
}

TEST(PartSizesTest, NoPartIsLargerThanTheStagingMemory) {
  PartSizes sizes(kMiB);
  EXPECT_THAT(parts_of(sizes, 3, {.is_staged = true, .is_idle = true}), ElementsAre(1, 1, 1));
}

}  // namespace
}  // namespace cairn
