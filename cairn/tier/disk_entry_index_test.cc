#include "cairn/tier/disk_entry_index.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

namespace cairn {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

BlockKey key(std::uint64_t number) { return BlockKey::make_checked(0, SequenceHash{number}, SequenceHash{0}); }

std::vector<BlockId> block_ids_of(const DiskEntryIndex& index, const BlockKey& key) {
  std::vector<BlockId> block_ids;
  index.block_ids_of(key, block_ids);
  return block_ids;
}

TEST(DiskEntryIndexTest, FindsEveryBlockOfAKey) {
  DiskEntryIndex index(8, 1);
  index.set(BlockId{3}, key(7));
  index.set(BlockId{5}, key(7));
  index.set(BlockId{4}, key(8));
  index.set_unnamed(BlockId{6});
  EXPECT_THAT(block_ids_of(index, key(7)), UnorderedElementsAre(BlockId{3}, BlockId{5}));
  EXPECT_TRUE(index.has(BlockId{6}));
  EXPECT_FALSE(index.has(BlockId{7}));
  index.set(BlockId{3}, key(8));  // written again
  index.clear(BlockId{4});
  EXPECT_THAT(block_ids_of(index, key(7)), ElementsAre(BlockId{5}));
  EXPECT_THAT(block_ids_of(index, key(8)), ElementsAre(BlockId{3}));
  EXPECT_THAT(block_ids_of(index, key(9)), IsEmpty());
}

TEST(DiskEntryIndexTest, AgreesWithAMapThroughRandomChanges) {
  constexpr std::uint32_t kBlocks = 50;
  std::mt19937 random(3);
  DiskEntryIndex index(kBlocks, 99);
  std::map<std::uint32_t, std::uint64_t> model;
  for (int step = 0; step < 20'000; ++step) {
    const auto block_id = static_cast<std::uint32_t>(random() % kBlocks);
    const std::uint64_t number = random() % 20;
    switch (random() % 3) {
      case 0:
        index.clear(BlockId{block_id});
        model.erase(block_id);
        break;
      case 1:
        index.set(BlockId{block_id}, key(number));
        model[block_id] = number;
        break;
      default: {
        std::vector<BlockId> expected;
        for (const auto& [at, held] : model) {
          if (held == number) {
            expected.push_back(BlockId{at});
          }
        }
        EXPECT_THAT(block_ids_of(index, key(number)), ::testing::UnorderedElementsAreArray(expected));
      }
    }
  }
}

}  // namespace
}  // namespace cairn
