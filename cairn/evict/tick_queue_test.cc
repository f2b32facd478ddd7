// TickQueue against std::set: whatever order ticks come in, they leave in their own.
#include "cairn/evict/tick_queue.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "cairn/evict/fake_slots.h"

namespace cairn {
namespace {

constexpr ClassRange kAll{0, 1};

void push(TickQueue& queue, SlotId slot, std::uint64_t tick) {
  queue.set_tick(slot, tick);
  queue.push(slot);
}

SlotId pop_one(TickQueue& queue, ClassRange classes, const Veto& veto) {
  SlotId slot = kNoSlot;
  return queue.pop(classes, veto, {&slot, 1}) == 1 ? slot : kNoSlot;
}

std::vector<SlotId> pop_all(TickQueue& queue) {
  std::vector<SlotId> out;
  for (SlotId slot = pop_one(queue, kAll, {}); slot != kNoSlot; slot = pop_one(queue, kAll, {})) {
    out.push_back(slot);
  }
  return out;
}

TEST(TickQueueTest, EachTickIsLaterThanTheLast) {
  const FakeSlots fake(1);
  TickQueue queue = *TickQueue::create(fake.view());
  const std::uint64_t first = queue.next_tick();
  EXPECT_GT(first, 0U);
  EXPECT_GT(queue.next_tick(), first);
}

TEST(TickQueueTest, ATickStaysWithItsSlot) {
  const FakeSlots fake(2);
  TickQueue queue = *TickQueue::create(fake.view());
  constexpr std::uint64_t kLate = (std::uint64_t{3} << 32) + 1;
  EXPECT_EQ(queue.tick(SlotId{0}), 0U);
  push(queue, SlotId{0}, kLate);
  EXPECT_EQ(queue.tick(SlotId{0}), kLate);
  queue.erase(SlotId{0});
  EXPECT_EQ(queue.tick(SlotId{0}), kLate);
  EXPECT_EQ(queue.tick(SlotId{1}), 0U);
}

TEST(TickQueueTest, TicksBeyond32BitsKeepTheirOrder) {
  const FakeSlots fake(3);
  TickQueue queue = *TickQueue::create(fake.view());
  push(queue, SlotId{0}, std::uint64_t{1} << 32);
  push(queue, SlotId{1}, 0xFFFFFFFF);
  push(queue, SlotId{2}, (std::uint64_t{1} << 32) + 1);
  EXPECT_EQ(pop_all(queue), slots({1, 0, 2}));
}

TEST(TickQueueTest, OldTicksGoBetweenTheNewOnes) {
  const FakeSlots fake(6);
  TickQueue queue = *TickQueue::create(fake.view());
  const std::array<std::uint64_t, 6> ticks{10, 20, 5, 30, 15, 25};
  for (std::uint32_t n = 0; n < ticks.size(); ++n) {
    push(queue, SlotId{n}, ticks[n]);
  }
  EXPECT_EQ(queue.size(), 6U);
  EXPECT_EQ(pop_all(queue), slots({2, 0, 4, 1, 5, 3}));
  EXPECT_EQ(queue.size(), 0U);
}

TEST(TickQueueTest, VetoedOldTicksKeepTheirPlaces) {
  const FakeSlots fake(6);
  TickQueue queue = *TickQueue::create(fake.view());
  push(queue, SlotId{0}, 100);
  for (std::uint32_t n = 1; n < 6; ++n) {
    push(queue, SlotId{n}, 60 - 10 * n);
  }
  const auto from_three_on = [](SlotId slot) { return index_of(slot) >= 3; };
  EXPECT_EQ(pop_one(queue, kAll, from_three_on), SlotId{2});
  EXPECT_EQ(pop_one(queue, kAll, [](SlotId) { return true; }), kNoSlot);
  EXPECT_EQ(queue.size(), 5U);
  for (const std::uint32_t n : {0U, 1U, 3U, 4U, 5U}) {
    EXPECT_TRUE(queue.contains(SlotId{n}));
  }
  EXPECT_EQ(pop_all(queue), slots({5, 4, 3, 1, 0}));
}

// Old ticks, erasures from anywhere and vetoes, in proportions that make the share of old ticks large or small.
class TickQueueStress : public ::testing::TestWithParam<std::uint32_t> {};

TEST_P(TickQueueStress, AgreesWithAnOrderedSet) {
  constexpr std::uint32_t kSlots = 400;
  constexpr std::uint32_t kClasses = 3;
  const std::uint32_t old_percent = GetParam();
  FakeSlots fake(kSlots, kClasses);
  TickQueue queue = *TickQueue::create(fake.view());
  std::array<std::set<std::pair<std::uint64_t, SlotId>>, kClasses> expected;
  std::mt19937 random(1337 + old_percent);
  const auto below = [&random](std::uint32_t limit) { return static_cast<std::uint32_t>(random() % limit); };

  for (std::uint32_t step = 0; step < 60'000; ++step) {
    const SlotId slot{below(kSlots)};
    // Grows for a while, then shrinks for a while.
    const bool growing = (step / 2'000) % 2 == 0;
    if (!queue.contains(slot)) {
      if (growing || below(4) == 0) {
        if (queue.tick(slot) == 0 || below(100) >= old_percent) {
          queue.set_tick(slot, queue.next_tick());
        }
        fake.set_class(slot, below(kClasses));
        queue.push(slot);
        expected[fake.class_of(slot)].emplace(queue.tick(slot), slot);
      }
    } else if (below(3) == 0) {
      queue.erase(slot);
      ASSERT_EQ(expected[fake.class_of(slot)].erase({queue.tick(slot), slot}), 1U);
    }
    if (!growing || below(4) == 0) {
      const std::uint32_t first = below(kClasses);
      const std::uint32_t last = first + below(kClasses + 1 - first);
      const std::uint32_t vetoed = below(3);  // a third of the slots, or none
      const auto veto = [vetoed](SlotId s) { return vetoed != 0 && index_of(s) % 3 == vetoed; };
      SlotId next = kNoSlot;
      for (std::uint32_t lane = first; lane < last && next == kNoSlot; ++lane) {
        for (const auto& [tick, candidate] : expected[lane]) {
          if (!veto(candidate)) {
            next = candidate;
            expected[lane].erase({tick, candidate});
            break;
          }
        }
      }
      ASSERT_EQ(pop_one(queue, {first, last}, vetoed == 0 ? Veto{} : Veto{veto}), next) << "step " << step;
      ASSERT_TRUE(next == kNoSlot || !queue.contains(next));
    }
    ASSERT_EQ(queue.size(), expected[0].size() + expected[1].size() + expected[2].size());
  }
}

INSTANTIATE_TEST_SUITE_P(OldTicks, TickQueueStress, ::testing::Values(0U, 10U, 60U, 100U));

#ifndef NDEBUG
class TickQueueDeathTest : public ::testing::Test {
 protected:
  FakeSlots fake_{2};
  TickQueue queue_ = *TickQueue::create(fake_.view());
};

TEST_F(TickQueueDeathTest, ASlotIsQueuedOnce) {
  push(queue_, SlotId{0}, 1);
  EXPECT_DEATH(queue_.push(SlotId{0}), "broken invariant");
}

TEST_F(TickQueueDeathTest, TheTickOfAQueuedSlotDoesNotChange) {
  push(queue_, SlotId{0}, 1);
  EXPECT_DEATH(queue_.set_tick(SlotId{0}, 2), "broken invariant");
}

TEST_F(TickQueueDeathTest, OnlyAQueuedSlotIsErased) {
  EXPECT_DEATH(queue_.erase(SlotId{0}), "broken invariant");
  push(queue_, SlotId{0}, 2);
  push(queue_, SlotId{1}, 1);  // among the old ones
  queue_.erase(SlotId{1});
  EXPECT_DEATH(queue_.erase(SlotId{1}), "broken invariant");
}
#endif

// Batches of several classes, pushed together, popped together, and erased in the same order, the opposite one or mixed,
// do what one call for each slot does.
TEST(TickQueueTest, BatchesEqualSingles) {
  constexpr std::uint32_t kSlots = 40;
  for (std::uint32_t seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    FakeSlots fake(kSlots, 3);
    std::vector<SlotId> idle;
    for (std::uint32_t n = 0; n < kSlots; ++n) {
      fake.set_class(SlotId{n}, random() % 8 == 0 ? random() % 3 : 1);
      idle.push_back(SlotId{n});
    }
    TickQueue batched = *TickQueue::create(fake.view());
    TickQueue single = *TickQueue::create(fake.view());
    std::vector<SlotId> queued;
    for (int step = 0; step < 60; ++step) {
      std::vector<SlotId>& from = random() % 2 == 0 ? idle : queued;
      std::vector<SlotId>& to = &from == &idle ? queued : idle;
      if (random() % 4 == 0) {
        std::shuffle(from.begin(), from.end(), random);
      }
      std::vector<SlotId> batch(from.end() - static_cast<std::ptrdiff_t>(random() % (from.size() + 1)), from.end());
      from.resize(from.size() - batch.size());
      if (random() % 2 == 0) {
        std::reverse(batch.begin(), batch.end());
      }
      if (&from == &idle) {
        batched.push_newest(batch);
        for (const SlotId slot : batch) {
          push(single, slot, single.next_tick());
        }
      } else {
        batched.erase(batch);
        for (const SlotId slot : batch) {
          single.erase(slot);
        }
      }
      to.insert(to.end(), batch.begin(), batch.end());
      ASSERT_EQ(batched.size(), single.size());
    }
    while (single.size() > 0) {
      std::vector<SlotId> popped(1 + random() % 7);
      popped.resize(batched.pop({0, 3}, {}, popped));
      for (const SlotId slot : popped) {
        ASSERT_EQ(slot, pop_one(single, {0, 3}, {})) << "seed " << seed;
      }
      ASSERT_EQ(batched.size(), single.size());
    }
  }
}

}  // namespace
}  // namespace cairn
