#include "cairn/offload/offload_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <random>
#include <vector>

#include "cairn/pool/pool_testing.h"

namespace cairn::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Optional;

TEST(OffloadQueueTest, PriorityThenFrequencyThenDepthThenAge) {
  OffloadQueue queue(10);
  const Keys deep = chain(1, 3);
  const Keys other = chain(2, 1);
  const Keys third = chain(3, 1);
  const Keys fourth = chain(4, 1);
  for (const OffloadQueue::Block& block : std::vector<OffloadQueue::Block>{
           {deep[2], 50, 1}, {deep[0], 50, 1}, {other[0], 50, 1}, {third[0], 50, 9}, {fourth[0], 51, 0}}) {
    EXPECT_EQ(queue.push(block), std::nullopt);
  }
  EXPECT_THAT(queue.first(9), ElementsAre(fourth[0], third[0], deep[0], other[0], deep[2]));
  EXPECT_THAT(queue.first(2), ElementsAre(fourth[0], third[0]));
}

TEST(OffloadQueueTest, ShedsTheLeastValuableWhichMayBeTheNewOne) {
  OffloadQueue queue(2);
  const Keys keys = chain(1, 4);
  EXPECT_EQ(queue.push({keys[1], 50, 0}), std::nullopt);
  EXPECT_EQ(queue.push({keys[2], 50, 0}), std::nullopt);
  EXPECT_THAT(queue.push({keys[3], 50, 0}), Optional(keys[3]));
  EXPECT_THAT(queue.push({keys[0], 50, 0}), Optional(keys[2]));
  EXPECT_THAT(queue.first(4), ElementsAre(keys[0], keys[1]));
}

TEST(OffloadQueueTest, RaisesAndNeverLowers) {
  OffloadQueue queue(4);
  const Keys keys = chain(1, 2);
  (void)queue.push({keys[0], 50, 0});
  (void)queue.push({keys[1], 50, 0});
  queue.raise(keys[1], 60);
  queue.raise(keys[1], 10);
  EXPECT_THAT(queue.first(2), ElementsAre(keys[1], keys[0]));
  EXPECT_TRUE(queue.erase(keys[1]));
  EXPECT_FALSE(queue.erase(keys[1]));
  EXPECT_THAT(queue.first(2), ElementsAre(keys[0]));
}

TEST(OffloadQueueTest, UrgentOnesGoFirstAmongThoseOfTheirPriority) {
  OffloadQueue queue(5);
  const Keys keys = chain(1, 3);
  const Keys high = chain(2, 1);
  const Keys frequent = chain(3, 1);
  (void)queue.push({keys[0], 50, 0});
  (void)queue.push({keys[1], 50, 0, true});
  (void)queue.push({keys[2], 50, 0});
  (void)queue.push({high[0], 51, 0});
  (void)queue.push({frequent[0], 50, 9});
  queue.make_urgent(keys[2]);
  EXPECT_THAT(queue.first(5), ElementsAre(high[0], keys[1], keys[2], frequent[0], keys[0]));
}

// The same as a list that is sorted on every lookup.
class NaiveQueue {
 public:
  explicit NaiveQueue(std::size_t bound) : bound_(bound) {}

  std::optional<BlockKey> push(const OffloadQueue::Block& block) {
    blocks_.push_back(block);
    sort();
    if (blocks_.size() <= bound_) {
      return std::nullopt;
    }
    const BlockKey least = blocks_.back().key;
    blocks_.pop_back();
    erased(least);
    return least;
  }
  void raise(const BlockKey& key, std::uint32_t priority) {
    auto& block = *find(key);
    block.priority = std::max(block.priority, priority);
    sort();
  }
  bool erase(const BlockKey& key) {
    if (!contains(key)) {
      return false;
    }
    blocks_.erase(find(key));
    erased(key);
    return true;
  }
  bool contains(const BlockKey& key) { return find(key) != blocks_.end(); }
  Keys keys() const {
    Keys keys;
    std::ranges::transform(blocks_, std::back_inserter(keys), [](const auto& block) { return block.key; });
    return keys;
  }

 private:
  std::vector<OffloadQueue::Block>::iterator find(const BlockKey& key) {
    return std::ranges::find(blocks_, key, &OffloadQueue::Block::key);
  }
  void erased(const BlockKey& key) { std::erase(ages_, key); }
  void sort() {
    for (const auto& block : blocks_) {
      if (std::ranges::find(ages_, block.key) == ages_.end()) {
        ages_.push_back(block.key);
      }
    }
    std::ranges::sort(blocks_, [&](const auto& a, const auto& b) {
      if (a.priority != b.priority) return a.priority > b.priority;
      if (a.frequency != b.frequency) return a.frequency > b.frequency;
      if (a.key.position() != b.key.position()) return a.key.position() < b.key.position();
      return std::ranges::find(ages_, a.key) < std::ranges::find(ages_, b.key);
    });
  }

  std::size_t bound_;
  std::vector<OffloadQueue::Block> blocks_;
  Keys ages_;  // oldest first
};

TEST(OffloadQueueTest, IsWhatASortedListIs) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    std::mt19937_64 random(seed);
    const std::size_t bound = 1 + random() % 12;
    OffloadQueue queue(bound);
    NaiveQueue naive(bound);
    Keys keys;
    for (std::uint64_t name = 0; name < 6; ++name) {
      keys = joined(keys, chain(name, 4));
    }
    for (int step = 0; step < 300; ++step) {
      const BlockKey key = keys[random() % keys.size()];
      const auto priority = static_cast<std::uint32_t>(random() % 3);
      if (random() % 4 == 0) {
        ASSERT_EQ(queue.erase(key), naive.erase(key)) << "seed " << seed << " step " << step;
      } else if (naive.contains(key)) {
        queue.raise(key, priority);
        naive.raise(key, priority);
      } else {
        const OffloadQueue::Block block{key, priority, static_cast<std::uint32_t>(random() % 2)};
        ASSERT_EQ(queue.push(block), naive.push(block)) << "seed " << seed << " step " << step;
      }
      ASSERT_EQ(queue.first(keys.size()), naive.keys()) << "seed " << seed << " step " << step;
      ASSERT_EQ(queue.size(), naive.keys().size());
    }
  }
}

TEST(OffloadQueueTest, WithoutRoomGivesEverythingBack) {
  OffloadQueue queue(0);
  const Keys keys = chain(1, 1);
  EXPECT_THAT(queue.push({keys[0], 100, 9}), Optional(keys[0]));
  EXPECT_THAT(queue.first(1), IsEmpty());
}

}  // namespace
}  // namespace cairn::testing
