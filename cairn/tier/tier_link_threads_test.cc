// Links whose executors have their own threads, used by several threads at once.
#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "cairn/tier/tier_link.h"
#include "cairn/tier/tier_testing.h"
#include "cairn/transfer/file_executor.h"
#include "cairn/transfer/host_executor.h"

namespace cairn {
namespace {

using testing::chain;
using testing::Keys;

constexpr std::uint32_t kThreads = 4;
constexpr std::uint32_t kRounds = 24;
constexpr std::uint32_t kBlocks = 4;

class TierLinkThreadsTest : public ::testing::Test {
 protected:
  TierLinkThreadsTest() {
    file_executor_ = *FileExecutor::make(steady_clock(), {});
    to_host_ = *TierLink::make(*device_, *host_, *host_executor_, steady_clock());
    to_disk_ = *TierLink::make(*host_, *disk_, *file_executor_, steady_clock());
    from_disk_ = *TierLink::make(*disk_, *host_, *file_executor_, steady_clock());
  }
  void end_executors() {
    host_executor_.reset();
    file_executor_.reset();
  }
  void TearDown() override { end_executors(); }

  // From the device to the host and on to the disk; waits for the end.
  void carry_down(const Keys& keys) {
    const ImmutableBlocks computed = testing::compute(*device_, keys);
    std::promise<bool> outcome;
    const auto further = [&](LinkOutcome&& on_host) {
      if (!on_host.error.empty()) {
        outcome.set_value(false);
        return;
      }
      const auto id = to_disk_->submit(
          {.source = CopySource(on_host.blocks.pin()),
           .targets = *disk_->pool()->allocate(kBlocks),
           .done = [&](LinkOutcome&& on_disk) { outcome.set_value(on_disk.blocks.size() == kBlocks); }});
      EXPECT_TRUE(id.has_value());
    };
    ASSERT_TRUE(to_host_->submit(
        {.source = CopySource(computed.pin()), .targets = *host_->pool()->allocate(kBlocks), .done = further}));
    EXPECT_TRUE(outcome.get_future().get());
  }
  void carry_up(const Keys& keys) {
    host_->reset(keys);
    std::promise<LinkOutcome> promise;
    ASSERT_TRUE(from_disk_->submit({.source = CopySource(disk_->pool()->hold(keys)),
                                    .targets = *host_->pool()->allocate(kBlocks),
                                    .done = [&](LinkOutcome&& outcome) { promise.set_value(std::move(outcome)); }}));
    const LinkOutcome outcome = promise.get_future().get();
    ASSERT_EQ(outcome.error, "");
    ASSERT_EQ(outcome.blocks.size(), kBlocks);
    for (std::uint32_t i = 0; i < kBlocks; ++i) {
      EXPECT_TRUE(testing::holds(*host_, outcome.blocks.block_ids()[i], keys[i]));
    }
  }
  // With a deadline that has passed, or cancelled at once: the transfer always ends.
  void carry_in_vain(const Keys& keys, bool cancel) {
    std::promise<void> over;
    const auto id = from_disk_->submit(
        {.source = CopySource(disk_->pool()->hold(keys)),
         .targets = *host_->pool()->allocate(kBlocks),
         .deadline = cancel ? TimePoint::max() : steady_clock().now() + std::chrono::microseconds(30),
         .done = [&](LinkOutcome&& outcome) {
           EXPECT_EQ(outcome.states.size(), kBlocks);
           over.set_value();
         }});
    if (!id) {
      EXPECT_EQ(id.error().error.code, ErrorCode::kUnavailable);  // too many were late
      return;
    }
    if (cancel) {
      from_disk_->cancel(*id);
    }
    over.get_future().get();
  }

  testing::TestFolder folder_;
  std::unique_ptr<Tier> device_ =
      testing::make_tier(testing::memory_options(CacheLevel::kG1, Arrangement::kLayersKvNhd, 64, steady_clock()));
  std::unique_ptr<Tier> host_ =
      testing::make_tier(testing::memory_options(CacheLevel::kG2, Arrangement::kContiguousHnd, 64, steady_clock()));
  std::unique_ptr<Tier> disk_ =
      testing::make_tier(testing::disk_options(folder_ / "blocks.cairn", kThreads* kRounds* kBlocks, steady_clock()));
  std::unique_ptr<TierLink> to_host_;
  std::unique_ptr<TierLink> to_disk_;
  std::unique_ptr<TierLink> from_disk_;
  std::unique_ptr<HostExecutor> host_executor_ =
      std::make_unique<HostExecutor>(steady_clock(), HostExecutor::Options{.threads = 2});
  std::unique_ptr<FileExecutor> file_executor_;
};

TEST_F(TierLinkThreadsTest, BlocksGoDownAndUpByRealExecutorsWhileOthersDo) {
  std::vector<std::thread> threads;
  for (std::uint32_t thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([this, thread] {
      for (std::uint32_t round = 0; round < kRounds; ++round) {
        const Keys keys = chain(thread * 1000 + round, kBlocks);
        carry_down(keys);
        carry_up(keys);
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  end_executors();
  EXPECT_EQ(disk_->pool()->counts().inactive, kThreads * kRounds * kBlocks);
  for (const Tier* tier : {device_.get(), host_.get(), disk_.get()}) {
    tier->pool()->check_invariants();
    EXPECT_EQ(tier->pool()->counts().active, 0U);
    EXPECT_EQ(tier->pool()->counts().pinned, 0U);
  }
  EXPECT_EQ(to_disk_->meter().totals().blocks, kThreads * kRounds * kBlocks);
  EXPECT_EQ(from_disk_->meter().totals().blocks_in_flight, 0U);
}

TEST_F(TierLinkThreadsTest, LateAndCancelledCopiesComeToAnEnd) {
  const Keys keys = chain(7, kBlocks);
  carry_down(keys);
  std::vector<std::thread> threads;
  for (std::uint32_t thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([this, thread, &keys] {
      for (std::uint32_t round = 0; round < kRounds; ++round) {
        carry_in_vain(keys, (thread + round) % 2 == 0);
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  end_executors();
  const LinkTotals totals = from_disk_->meter().totals();
  EXPECT_EQ(totals.blocks + totals.expired + totals.cancelled, totals.copies * kBlocks);
  EXPECT_EQ(totals.quarantined, 0U);
  EXPECT_EQ(host_->pool()->counts().active, 0U);
  EXPECT_EQ(host_->pool()->counts().quarantined, 0U);
  EXPECT_EQ(disk_->pool()->counts().pinned, 0U);
  host_->pool()->check_invariants();
}

}  // namespace
}  // namespace cairn
