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

std::vector<SlotId> slots_of(const DiskEntryIndex& index, const BlockKey& key) {
  std::vector<SlotId> slots;
  index.slots_of(key, slots);
  return slots;
}

TEST(DiskEntryIndexTest, FindsEverySlotOfAKey) {
  DiskEntryIndex index(8, 1);
  index.set(SlotId{3}, key(7));
  index.set(SlotId{5}, key(7));
  index.set(SlotId{4}, key(8));
  index.set_unnamed(SlotId{6});
  EXPECT_THAT(slots_of(index, key(7)), UnorderedElementsAre(SlotId{3}, SlotId{5}));
  EXPECT_TRUE(index.has(SlotId{6}));
  EXPECT_FALSE(index.has(SlotId{7}));
  index.set(SlotId{3}, key(8));  // written again
  index.clear(SlotId{4});
  EXPECT_THAT(slots_of(index, key(7)), ElementsAre(SlotId{5}));
  EXPECT_THAT(slots_of(index, key(8)), ElementsAre(SlotId{3}));
  EXPECT_THAT(slots_of(index, key(9)), IsEmpty());
}

TEST(DiskEntryIndexTest, AgreesWithAMapThroughRandomChanges) {
  constexpr std::uint32_t kSlots = 50;
  std::mt19937 random(3);
  DiskEntryIndex index(kSlots, 99);
  std::map<std::uint32_t, std::uint64_t> model;
  for (int step = 0; step < 20'000; ++step) {
    const auto slot = static_cast<std::uint32_t>(random() % kSlots);
    const std::uint64_t number = random() % 20;
    switch (random() % 3) {
      case 0:
        index.clear(SlotId{slot});
        model.erase(slot);
        break;
      case 1:
        index.set(SlotId{slot}, key(number));
        model[slot] = number;
        break;
      default: {
        std::vector<SlotId> expected;
        for (const auto& [at, held] : model) {
          if (held == number) {
            expected.push_back(SlotId{at});
          }
        }
        EXPECT_THAT(slots_of(index, key(number)), ::testing::UnorderedElementsAreArray(expected));
      }
    }
  }
}

}  // namespace
}  // namespace cairn
