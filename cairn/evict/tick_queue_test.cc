// TickQueue against std::set: ticks pushed in any order are popped in order.
#include "cairn/evict/tick_queue.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "cairn/evict/fake_blocks_testing.h"

namespace cairn {
namespace {

constexpr ClassRange kAll{0, 1};

void push(TickQueue& queue, BlockId block_id, std::uint64_t tick) {
  queue.set_tick(block_id, tick);
  queue.push(block_id);
}

BlockId pop_one(TickQueue& queue, ClassRange classes, const Veto& veto) {
  BlockId block_id = kNoBlock;
  return queue.pop(classes, veto, {&block_id, 1}) == 1 ? block_id : kNoBlock;
}

std::vector<BlockId> pop_all(TickQueue& queue) {
  std::vector<BlockId> out;
  for (BlockId block_id = pop_one(queue, kAll, {}); block_id != kNoBlock; block_id = pop_one(queue, kAll, {})) {
    out.push_back(block_id);
  }
  return out;
}

TEST(TickQueueTest, EachTickIsLaterThanTheLast) {
  const FakeBlocks fake(1);
  TickQueue queue = *TickQueue::create(fake.view());
  const std::uint64_t first = queue.next_tick();
  EXPECT_GT(first, 0U);
  EXPECT_GT(queue.next_tick(), first);
}

TEST(TickQueueTest, ATickStaysWithItsBlock) {
  const FakeBlocks fake(2);
  TickQueue queue = *TickQueue::create(fake.view());
  constexpr std::uint64_t kLate = (std::uint64_t{3} << 32) + 1;
  EXPECT_EQ(queue.tick(BlockId{0}), 0U);
  push(queue, BlockId{0}, kLate);
  EXPECT_EQ(queue.tick(BlockId{0}), kLate);
  queue.erase(BlockId{0});
  EXPECT_EQ(queue.tick(BlockId{0}), kLate);
  EXPECT_EQ(queue.tick(BlockId{1}), 0U);
}

TEST(TickQueueTest, TicksBeyond32BitsKeepTheirOrder) {
  const FakeBlocks fake(3);
  TickQueue queue = *TickQueue::create(fake.view());
  push(queue, BlockId{0}, std::uint64_t{1} << 32);
  push(queue, BlockId{1}, 0xFFFFFFFF);
  push(queue, BlockId{2}, (std::uint64_t{1} << 32) + 1);
  EXPECT_EQ(pop_all(queue), block_ids({1, 0, 2}));
}

TEST(TickQueueTest, OldTicksGoBetweenTheNewOnes) {
  const FakeBlocks fake(6);
  TickQueue queue = *TickQueue::create(fake.view());
  const std::array<std::uint64_t, 6> ticks{10, 20, 5, 30, 15, 25};
  for (std::uint32_t n = 0; n < ticks.size(); ++n) {
    push(queue, BlockId{n}, ticks[n]);
  }
  EXPECT_EQ(queue.size(), 6U);
  EXPECT_EQ(pop_all(queue), block_ids({2, 0, 4, 1, 5, 3}));
  EXPECT_EQ(queue.size(), 0U);
}

TEST(TickQueueTest, VetoedOldTicksKeepTheirPlaces) {
  const FakeBlocks fake(6);
  TickQueue queue = *TickQueue::create(fake.view());
  push(queue, BlockId{0}, 100);
  for (std::uint32_t n = 1; n < 6; ++n) {
    push(queue, BlockId{n}, 60 - 10 * n);
  }
  const auto from_three_on = [](BlockId block_id) { return index_of(block_id) >= 3; };
  EXPECT_EQ(pop_one(queue, kAll, from_three_on), BlockId{2});
  EXPECT_EQ(pop_one(queue, kAll, [](BlockId) { return true; }), kNoBlock);
  EXPECT_EQ(queue.size(), 5U);
  for (const std::uint32_t n : {0U, 1U, 3U, 4U, 5U}) {
    EXPECT_TRUE(queue.contains(BlockId{n}));
  }
  EXPECT_EQ(pop_all(queue), block_ids({5, 4, 3, 1, 0}));
}

// Old ticks, erasures from anywhere and vetoes, in proportions that make the share of old ticks large or small.
class TickQueueStress : public ::testing::TestWithParam<std::uint32_t> {};

TEST_P(TickQueueStress, AgreesWithAnOrderedSet) {
  constexpr std::uint32_t kBlocks = 400;
  constexpr std::uint32_t kClasses = 3;
  const std::uint32_t old_percent = GetParam();
  FakeBlocks fake(kBlocks, kClasses);
  TickQueue queue = *TickQueue::create(fake.view());
  std::array<std::set<std::pair<std::uint64_t, BlockId>>, kClasses> expected;
  std::mt19937 random(1337 + old_percent);
  const auto below = [&random](std::uint32_t limit) { return static_cast<std::uint32_t>(random() % limit); };

  for (std::uint32_t step = 0; step < 60'000; ++step) {
    const BlockId block_id{below(kBlocks)};
    // Grows for a while, then shrinks for a while.
    const bool growing = (step / 2'000) % 2 == 0;
    if (!queue.contains(block_id)) {
      if (growing || below(4) == 0) {
        if (queue.tick(block_id) == 0 || below(100) >= old_percent) {
          queue.set_tick(block_id, queue.next_tick());
        }
        fake.set_class(block_id, below(kClasses));
        queue.push(block_id);
        expected[fake.class_of(block_id)].emplace(queue.tick(block_id), block_id);
      }
    } else if (below(3) == 0) {
      queue.erase(block_id);
      ASSERT_EQ(expected[fake.class_of(block_id)].erase({queue.tick(block_id), block_id}), 1U);
    }
    if (!growing || below(4) == 0) {
      const std::uint32_t first = below(kClasses);
      const std::uint32_t last = first + below(kClasses + 1 - first);
      const std::uint32_t vetoed = below(3);  // a third of the blocks, or none
      const auto veto = [vetoed](BlockId s) { return vetoed != 0 && index_of(s) % 3 == vetoed; };
      BlockId next = kNoBlock;
      for (std::uint32_t lane = first; lane < last && next == kNoBlock; ++lane) {
        for (const auto& [tick, candidate] : expected[lane]) {
          if (!veto(candidate)) {
            next = candidate;
            expected[lane].erase({tick, candidate});
            break;
          }
        }
      }
      ASSERT_EQ(pop_one(queue, {first, last}, vetoed == 0 ? Veto{} : Veto{veto}), next) << "step " << step;
      ASSERT_TRUE(next == kNoBlock || !queue.contains(next));
    }
    ASSERT_EQ(queue.size(), expected[0].size() + expected[1].size() + expected[2].size());
  }
}

INSTANTIATE_TEST_SUITE_P(OldTicks, TickQueueStress, ::testing::Values(0U, 10U, 60U, 100U));

#ifndef NDEBUG
class TickQueueDeathTest : public ::testing::Test {
 protected:
  FakeBlocks fake_{2};
  TickQueue queue_ = *TickQueue::create(fake_.view());
};

TEST_F(TickQueueDeathTest, ABlockIsQueuedOnce) {
  push(queue_, BlockId{0}, 1);
  EXPECT_DEATH(queue_.push(BlockId{0}), "broken invariant");
}

TEST_F(TickQueueDeathTest, TheTickOfAQueuedBlockDoesNotChange) {
  push(queue_, BlockId{0}, 1);
  EXPECT_DEATH(queue_.set_tick(BlockId{0}, 2), "broken invariant");
}

TEST_F(TickQueueDeathTest, OnlyAQueuedBlockIsErased) {
  EXPECT_DEATH(queue_.erase(BlockId{0}), "broken invariant");
  push(queue_, BlockId{0}, 2);
  push(queue_, BlockId{1}, 1);  // among the old ones
  queue_.erase(BlockId{1});
  EXPECT_DEATH(queue_.erase(BlockId{1}), "broken invariant");
}
#endif

// Batches of several classes, pushed together, popped together, and erased in the same order, the opposite one or mixed,
// do what one call for each block does.
TEST(TickQueueTest, BatchesEqualSingles) {
  constexpr std::uint32_t kBlocks = 40;
  for (std::uint32_t seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    FakeBlocks fake(kBlocks, 3);
    std::vector<BlockId> idle;
    for (std::uint32_t n = 0; n < kBlocks; ++n) {
      fake.set_class(BlockId{n}, random() % 8 == 0 ? random() % 3 : 1);
      idle.push_back(BlockId{n});
    }
    TickQueue batched = *TickQueue::create(fake.view());
    TickQueue single = *TickQueue::create(fake.view());
    std::vector<BlockId> queued;
    for (int step = 0; step < 60; ++step) {
      std::vector<BlockId>& from = random() % 2 == 0 ? idle : queued;
      std::vector<BlockId>& to = &from == &idle ? queued : idle;
      if (random() % 4 == 0) {
        std::shuffle(from.begin(), from.end(), random);
      }
      std::vector<BlockId> batch(from.end() - static_cast<std::ptrdiff_t>(random() % (from.size() + 1)), from.end());
      from.resize(from.size() - batch.size());
      if (random() % 2 == 0) {
        std::reverse(batch.begin(), batch.end());
      }
      if (&from == &idle) {
        batched.push_newest(batch);
        for (const BlockId block_id : batch) {
          push(single, block_id, single.next_tick());
        }
      } else {
        batched.erase(batch);
        for (const BlockId block_id : batch) {
          single.erase(block_id);
        }
      }
      to.insert(to.end(), batch.begin(), batch.end());
      ASSERT_EQ(batched.size(), single.size());
    }
    while (single.size() > 0) {
      std::vector<BlockId> popped(1 + random() % 7);
      popped.resize(batched.pop({0, 3}, {}, popped));
      for (const BlockId block_id : popped) {
        ASSERT_EQ(block_id, pop_one(single, {0, 3}, {})) << "seed " << seed;
      }
      ASSERT_EQ(batched.size(), single.size());
    }
  }
}

}  // namespace
}  // namespace cairn
