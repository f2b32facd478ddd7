// A small pool used by many threads at once. Each block has a plain word of memory that its mutable holder writes and
// its immutable holders read: a block that is reused while it is held shows as a wrong word, and under TSan as a race.
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <random>
#include <thread>
#include <vector>

#include "cairn/pool/pool_testing.h"

namespace cairn::testing {
namespace {

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr int kRounds = 1500;
#else
constexpr int kRounds = 15'000;
#endif
constexpr std::uint32_t kThreads = 6;

class PoolThreadsTest : public ::testing::TestWithParam<PolicyKind> {
 protected:
  static constexpr std::uint32_t kCapacity = 24;

  std::unique_ptr<BlockPool> make(BlockPoolOptions options = {}) {
    options.policy = GetParam();
    return make_pool(kCapacity, options);
  }

  static std::uint64_t contents_of(const BlockKey& key) { return value_of(key.sequence_hash()) ^ key.low_word(); }

  // The blocks hold what their keys say.
  void read(const auto& blocks) {
    for (std::uint32_t i = 0; i < blocks.size(); ++i) {
      if (memory_[index_of(blocks.block_ids()[i])] != contents_of(blocks.key(i))) {
        wrong_.fetch_add(1, std::memory_order_relaxed);
      }
    }
  }

  // Fills, completes and registers as many of the keys as there is room for.
  ImmutableBlocks write(BlockPool& pool, std::span<const BlockKey> keys) {
    Result<MutableBlocks> blocks = pool.allocate(static_cast<std::uint32_t>(keys.size()));
    if (!blocks) {
      return {};
    }
    for (std::uint32_t i = 0; i < blocks->size(); ++i) {
      memory_[index_of(blocks->block_ids()[i])] = contents_of(keys[i]);
    }
    CompleteBlocks complete = *(*std::move(blocks)).complete({.keys = keys});
    ImmutableBlocks held = *std::move(complete).register_blocks();
    read(held);
    return held;
  }

  // Each thread runs its own job, all together, for as many rounds.
  void run(BlockPool& pool, const std::vector<std::function<void(std::mt19937&)>>& jobs, int rounds = kRounds) {
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      threads.emplace_back([&, i] {
        std::mt19937 random(static_cast<std::uint32_t>(i));
        for (int round = 0; round < rounds; ++round) {
          jobs[i](random);
          if (round % 500 == 0) {
            pool.check_invariants();
          }
        }
      });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
    pool.check_invariants();
    EXPECT_EQ(wrong_.load(std::memory_order_relaxed), 0U) << "blocks that did not hold what their keys say";
    const PoolCounts counts = pool.counts();
    EXPECT_EQ(counts.active, 0U);
    EXPECT_EQ(counts.pinned, 0U);
    EXPECT_EQ(counts.free + counts.inactive + counts.quarantined, counts.total);
  }

  std::vector<std::uint64_t> memory_ = std::vector<std::uint64_t>(kCapacity);
  std::atomic<std::uint64_t> wrong_{0};  // relaxed: read after the threads have ended
};

TEST_P(PoolThreadsTest, UpgradeRacesWithEviction) {
  const auto pool = make();
  const Keys keys = chain(1, 6);
  std::atomic<std::uint64_t> upgraded{0};  // relaxed: read after the threads have ended
  const WeakBlocks weak = write(*pool, keys).downgrade();
  const auto upgrade = [&](std::mt19937&) {
    if (const std::optional<ImmutableBlocks> blocks = weak.upgrade()) {
      EXPECT_EQ(blocks->size(), 6U);
      read(*blocks);
      upgraded.fetch_add(1, std::memory_order_relaxed);
    }
  };
  const auto evict = [&](std::mt19937& random) { (void)write(*pool, chain(2 + random() % 5, 1 + random() % 12)); };
  const auto restore = [&](std::mt19937&) { (void)write(*pool, keys); };
  run(*pool, {upgrade, upgrade, evict, evict, restore});
  // Whether the threads found it depends on the scheduler; here it is resident.
  const ImmutableBlocks there = write(*pool, keys);
  EXPECT_TRUE(weak.upgrade().has_value()) << upgraded.load(std::memory_order_relaxed) << " times before";
}

TEST_P(PoolThreadsTest, ReleaseRacesWithMatch) {
  const auto pool = make();
  const Keys keys = chain(1, 8);
  (void)write(*pool, keys);
  // Nothing is evicted here: every match finds all blocks, also while the last reference is dropped.
  const auto match = [&](std::mt19937& random) {
    const std::size_t count = 1 + random() % 8;
    ImmutableBlocks held = pool->match_prefix(std::span(keys).first(count));
    EXPECT_EQ(held.size(), count);
    read(held);
    held.release_tail(static_cast<std::uint32_t>(count / 2));
    read(held);
  };
  run(*pool, std::vector<std::function<void(std::mt19937&)>>(kThreads, match));
  EXPECT_EQ(pool->counts().inactive, 8U);
  EXPECT_EQ(pool->stats().evicted, 0U);
}

TEST_P(PoolThreadsTest, RegistrationsOfTheSameKeyRace) {
  for (const Duplicates duplicates : {Duplicates::kReject, Duplicates::kAllow}) {
    const auto pool = make({.duplicates = duplicates});
    const auto work = [&](std::mt19937& random) {
      const Keys keys = chain(random() % 2, 1 + random() % 4);
      const ImmutableBlocks held = write(*pool, keys);
      const ImmutableBlocks found = pool->match_prefix(keys);
      EXPECT_GE(found.size(), held.size());
      read(found);
      if (random() % 4 == 0) {
        (void)pool->reset_inactive();
      }
    };
    run(*pool, std::vector<std::function<void(std::mt19937&)>>(kThreads, work));
    const PoolStats stats = pool->stats();
    EXPECT_GT(duplicates == Duplicates::kReject ? stats.deduplicated : stats.duplicated, 0U);
    EXPECT_LE(pool->counts().registered, 8U);
  }
}

TEST_P(PoolThreadsTest, ResetOnReleaseRacesWithMatch) {
  const auto pool = make();
  const Keys keys = chain(1, 4);
  const auto work = [&](std::mt19937& random) {
    ImmutableBlocks held = pool->match_prefix(keys);
    if (held.size() < keys.size()) {
      held = write(*pool, keys);
    }
    read(held);
    held.reset_on_release(random() % 2 == 0);
  };
  run(*pool, std::vector<std::function<void(std::mt19937&)>>(kThreads, work));
}

// Blocks are copied ahead while others allocate: nothing waits, and a claimed block does not change until it is
// released.
TEST_P(PoolThreadsTest, ClaimsRaceWithAllocation) {
  std::atomic<std::uint32_t> low{0};  // relaxed: a count, read after the threads have ended
  const auto pool = make({.low_water = 6, .when_low = [&] { low.fetch_add(1, std::memory_order_relaxed); }});
  std::atomic<std::uint64_t> claimed_blocks{0};  // relaxed: the same
  const auto work = [&](std::mt19937& random) {
    const Keys keys = chain(random() % 12, 1 + random() % 4);
    const ImmutableBlocks found = pool->match_prefix(keys);
    read(found);
    (void)write(*pool, std::span(keys).subspan(found.size()));
  };
  const auto copy = [&](std::mt19937& random) {
    ImmutableBlocks claimed = pool->claim_victims(pool->wanted_victims());
    claimed_blocks.fetch_add(claimed.size(), std::memory_order_relaxed);
    read(claimed);
    if (random() % 8 != 0) {
      std::move(claimed).release_as_victims();
    }
  };
  const auto peek = [&](std::mt19937& random) {
    const Keys keys = chain(random() % 12, 4);
    const PinnedBlocks held = pool->hold(keys);
    read(held);
    if (random() % 16 == 0) {
      (void)pool->discard(keys);
      read(held);
    }
  };
  const auto lend = [&](std::mt19937& random) {
    const BorrowedBlocks loan = pool->borrow(chain(random() % 12, 4));
    const std::vector<BlockFacts> facts = loan.facts();
    for (std::uint32_t i = 0; i < loan.size(); ++i) {
      if (memory_[index_of(loan.block_ids()[i])] != contents_of(facts[i].block.key)) {
        wrong_.fetch_add(1, std::memory_order_relaxed);
      }
    }
  };
  run(*pool, {work, work, work, copy, peek, lend});
  EXPECT_GT(low.load(std::memory_order_relaxed), 0U);
  // The claiming thread may have ended before there was anything to claim: then it is resident now.
  EXPECT_GT(claimed_blocks.load(std::memory_order_relaxed) + pool->claim_victims(1).size(), 0U);
}

// Everything at once.
TEST_P(PoolThreadsTest, AllOperationsTogether) {
  ManualClock clock;
  const auto pool = make({.time_to_live = true, .clock = &clock});
  const auto work = [&](std::mt19937& random) {
    const Keys trunk = chain(random() % 3, 3);
    const Keys keys = joined(trunk, chain(10 + random() % 3, random() % 4, trunk));
    ImmutableBlocks held = pool->match_prefix(keys);
    read(held);
    const std::span<const BlockKey> rest = std::span(keys).subspan(held.size());
    ImmutableBlocks more = write(*pool, rest);
    EXPECT_TRUE(held.append(std::move(more)));
    read(held);
    switch (random() % 11) {
      case 9:
        pool->raise_fence(*pool->plan_fence());
        read(held);
        pool->lower_fence();
        (void)pool->reclaim(3);
        break;
      case 0: {
        const ImmutableBlocks shared = held.share(2);
        held = ImmutableBlocks();
        read(shared);
        break;
      }
      case 1: {
        const PinnedBlocks pinned = held.pin();
        held = ImmutableBlocks();
        read(pinned);
        break;
      }
      case 2: {
        const WeakBlocks weak = held.downgrade();
        held = ImmutableBlocks();
        if (const std::optional<ImmutableBlocks> again = weak.upgrade()) {
          read(*again);
        }
        break;
      }
      case 3:
        EXPECT_TRUE(held.set_retention(
            {.priority = static_cast<std::uint32_t>(random() % 100), .time_to_live = std::chrono::milliseconds(2)}));
        clock.advance(std::chrono::milliseconds(1));
        break;
      case 4:
        (void)pool->reset(keys);
        break;
      case 5:
        (void)pool->reset_inactive();
        break;
      case 6: {
        const ScatteredMatch match = pool->match_scattered(keys);
        read(match.blocks);
        break;
      }
      case 7:
        if (Result<MutableBlocks> blocks = pool->allocate(2)) {
          (*std::move(blocks)).quarantine().release_proven_finished();
        }
        break;
      case 8: {
        std::vector<ResidentBlock> resident;
        EXPECT_EQ(pool->list_resident(0, kCapacity, resident), kCapacity);
        break;
      }
      default: {
        const PoolCounts counts = pool->counts();
        EXPECT_EQ(counts.free + counts.inactive + counts.active + counts.quarantined, counts.total);
      }
    }
  };
  run(*pool, std::vector<std::function<void(std::mt19937&)>>(kThreads, work));
}

INSTANTIATE_TEST_SUITE_P(Policies, PoolThreadsTest, ::testing::ValuesIn(kAllPolicies), [](const auto& test) {
  std::string name(to_string(test.param));
  std::erase(name, '-');
  return name;
});

}  // namespace
}  // namespace cairn::testing
