// The hot path allocates nothing (design, rule 10): every operator new of this program is counted.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "cairn/pool/pool_testing.h"

namespace {

std::atomic<std::uint64_t> g_allocations{0};  // relaxed: only its value matters

void* counted(std::size_t bytes) {
  g_allocations.fetch_add(1, std::memory_order_relaxed);
  void* memory = std::malloc(bytes == 0 ? 1 : bytes);
  if (memory == nullptr) {
    std::abort();
  }
  return memory;
}

}  // namespace

void* operator new(std::size_t bytes) { return counted(bytes); }
void* operator new[](std::size_t bytes) { return counted(bytes); }
// Without them the sanitizer's own forms allocate what the next functions free.
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept { return counted(bytes); }
void* operator new[](std::size_t bytes, const std::nothrow_t&) noexcept { return counted(bytes); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }

namespace cairn::testing {
namespace {

std::uint64_t allocations() { return g_allocations.load(std::memory_order_relaxed); }

TEST(AllocationCountTest, CountsWhatIsAllocated) {
  const std::uint64_t before = allocations();
  const auto one = std::make_unique<int>(1);
  EXPECT_EQ(allocations(), before + 1);
}

class QuietObserver final : public PoolObserver {
  void on_registered(CacheLevel, std::span<const ResidentBlock>, std::span<const Token>) override {}
  void on_removed(CacheLevel, std::span<const BlockKey>) override {}
  void on_cleared(CacheLevel) override {}
  void on_matched(CacheLevel, std::span<const BlockKey>) override {}
};

class HotPathTest : public ::testing::TestWithParam<PolicyKind> {
 protected:
  static constexpr std::uint32_t kCapacity = 200;

  // Runs it until the pool is warm, then counts.
  static std::uint64_t allocations_of(const auto& run) {
    for (std::uint64_t round = 0; round < 400; ++round) {
      run(round % 20);
    }
    const std::uint64_t before = allocations();
    for (std::uint64_t round = 0; round < 40; ++round) {
      run(round % 20);
    }
    return allocations() - before;
  }

  HotPathTest() {
    for (std::uint64_t name = 0; name < 20; ++name) {
      chains_.push_back(chain(name, 20 + name));
    }
  }

  QuietObserver observer_;
  ManualClock clock_;
  std::vector<Keys> chains_;
  std::unique_ptr<BlockPool> pool_ = make_pool(
      kCapacity,
      {.policy = GetParam(), .time_to_live = true, .hints = true, .clock = &clock_, .observers = {&observer_}});
};

TEST_P(HotPathTest, MatchAllocateCompleteRegisterReleaseAllocateNothing) {
  EXPECT_EQ(allocations_of([this](std::uint64_t name) {
              const Keys& keys = chains_[name];
              ImmutableBlocks held = pool_->match_prefix(keys);
              const std::span<const BlockKey> rest = std::span(keys).subspan(held.size());
              MutableBlocks blocks = *pool_->allocate(static_cast<std::uint32_t>(rest.size()));
              CompleteBlocks complete = *std::move(blocks).complete({.keys = rest});
              ASSERT_TRUE(held.append(*std::move(complete).register_blocks()));
              ASSERT_EQ(held.size(), keys.size());
            }),
            0U);
  EXPECT_GT(pool_->stats().evicted, 0U);
}

TEST_P(HotPathTest, SharingPinningSplittingAndTimeAllocateNothing) {
  EXPECT_EQ(allocations_of([this](std::uint64_t name) {
              const Keys& keys = chains_[name];
              MutableBlocks blocks = *pool_->allocate(static_cast<std::uint32_t>(keys.size()));
              MutableBlocks front = blocks.take_front(3);
              ASSERT_TRUE(front.append(std::move(blocks)));
              CompleteBlocks complete = *std::move(front).complete({.keys = keys});
              ImmutableBlocks held =
                  *std::move(complete).register_blocks({.time_to_live = std::chrono::milliseconds(2)});
              const ImmutableBlocks shared = held.share(5);
              const PinnedBlocks pinned = held.pin();
              held.release_tail(7);
              ASSERT_TRUE(pool_->hint(keys, {.kind = RetentionHint::Kind::kReturns, .in = std::chrono::seconds(name)}));
              clock_.advance(std::chrono::milliseconds(1));
              ASSERT_TRUE(pool_->contains(keys[0]));
              ASSERT_GT(pool_->counts().active, 0U);
              (void)pool_->reset(std::span(keys).first(2));
            }),
            0U);
  EXPECT_GT(pool_->stats().expired, 0U);
}

TEST_P(HotPathTest, AScanAllocatesNothing) {
  cache(*pool_, chains_[0]);
  EXPECT_EQ(allocations_of([this](std::uint64_t name) { (void)pool_->scan(chains_[name]); }), 0U);
}

TEST_P(HotPathTest, RegisteringBlocksOfSeveralSequencesAllocatesNothing) {
  const Keys mixed = joined(chains_[0], chains_[1]);
  EXPECT_EQ(allocations_of([&](std::uint64_t) { cache(*pool_, mixed); }), 0U);
}

INSTANTIATE_TEST_SUITE_P(Policies, HotPathTest, ::testing::ValuesIn(kAllPolicies));

}  // namespace
}  // namespace cairn::testing
