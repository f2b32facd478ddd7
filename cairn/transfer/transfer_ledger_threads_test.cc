#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <optional>
#include <thread>

#include "cairn/transfer/transfer_ledger.h"
#include "cairn/transfer/transfer_testing.h"

namespace cairn {
namespace {

using std::chrono::milliseconds;
using testing::same_blocks;
using testing::small_plan;

// Carries out transfers until the ledger is closed.
void work(TransferLedger& ledger) {
  while (const auto active = ledger.take()) {
    const auto count = static_cast<std::uint32_t>(active->transfer().blocks.size());
    for (std::uint32_t block = 0; block < count; ++block) {
      if (active->begin(block)) {
        block % 7 == 3 ? active->fail(block, "by rule") : active->finish(block, {});
      }
    }
  }
}

TEST(TransferLedgerThreadsTest, ManySubmittersWorkersAndCancelsTellEveryTransferOnce) {
  const CopyPlanPtr plan = small_plan();
  constexpr int kSubmitters = 3;
  constexpr int kEach = 300;
  std::atomic<int> done = 0;
  std::atomic<int> settled = 0;
  std::atomic<int> inside = 0;
  std::atomic<bool> overlapped = false;
  std::optional<TransferLedger> ledger(std::in_place, steady_clock(), 8);
  std::vector<std::thread> threads;
  threads.emplace_back([&] { work(*ledger); });
  threads.emplace_back([&] { work(*ledger); });
  std::vector<std::thread> submitters;
  for (int submitter = 0; submitter < kSubmitters; ++submitter) {
    submitters.emplace_back([&, submitter] {
      for (int i = 0; i < kEach; ++i) {
        Transfer transfer{
            .plan = plan,
            .blocks = same_blocks(static_cast<std::uint32_t>(i % 10)),
            .deadline = i % 5 == 0 ? steady_clock().now() + std::chrono::microseconds(i % 50) : TimePoint::max(),
            .done =
                [&, i](TransferOutcome&& outcome) {
                  overlapped = overlapped || inside.fetch_add(1) != 0;
                  EXPECT_EQ(outcome.blocks.size(), static_cast<std::size_t>(i % 10));
                  done.fetch_add(1);
                  inside.fetch_sub(1);
                },
            .settled =
                [&] {
                  overlapped = overlapped || inside.fetch_add(1) != 0;
                  settled.fetch_add(1);
                  inside.fetch_sub(1);
                }};
        while (true) {
          const Result<TransferId> id = ledger->accept(std::move(transfer));
          if (id.has_value()) {
            if ((i + submitter) % 4 == 0) {
              ledger->cancel(*id);
            }
            break;
          }
          ASSERT_EQ(id.error().code, ErrorCode::kExhausted);
          std::this_thread::yield();
        }
      }
    });
  }
  for (std::thread& each : submitters) {
    each.join();
  }
  ledger->close();
  for (std::thread& each : threads) {
    each.join();
  }
  ledger.reset();
  EXPECT_EQ(done.load(), kSubmitters * kEach);
  EXPECT_EQ(settled.load(), kSubmitters * kEach);
  EXPECT_FALSE(overlapped.load());
}

TEST(TransferLedgerThreadsTest, TheOwnThreadSeesDeadlinesInTime) {
  TransferLedger ledger(steady_clock(), 4);
  std::promise<BlockState> first;
  std::promise<BlockState> second;
  const auto submit = [&](std::promise<BlockState>& reported, milliseconds in) {
    Transfer transfer{.plan = small_plan(),
                      .blocks = same_blocks(1),
                      .deadline = steady_clock().now() + in,
                      .done = [&](TransferOutcome&& outcome) { reported.set_value(outcome.blocks[0].state); }};
    ASSERT_TRUE(ledger.accept(std::move(transfer)).has_value());
  };
  // The later one first, so that the thread must be woken for the earlier one.
  submit(second, milliseconds(60));
  submit(first, milliseconds(5));
  EXPECT_EQ(first.get_future().get(), BlockState::kExpired);
  EXPECT_EQ(second.get_future().get(), BlockState::kExpired);
}

TEST(TransferLedgerThreadsTest, CallbacksSubmitTheNextOne) {
  const CopyPlanPtr plan = small_plan();
  TransferLedger ledger(steady_clock(), 1);
  std::thread worker([&] { work(ledger); });
  std::promise<void> over;
  int left = 200;
  std::function<void()> submit = [&] {
    Transfer transfer{.plan = plan, .blocks = same_blocks(2), .done = [&](TransferOutcome&& /*outcome*/) {
                        if (--left == 0) {
                          over.set_value();
                        } else {
                          submit();
                        }
                      }};
    EXPECT_TRUE(ledger.accept(std::move(transfer)).has_value());
  };
  submit();
  over.get_future().get();
  ledger.close();
  worker.join();
}

TEST(TransferLedgerThreadsTest, DestructionWaitsForWhatHasBegun) {
  std::optional<TransferLedger> ledger(std::in_place, steady_clock(), 4);
  std::atomic<bool> over = false;
  std::atomic<bool> told_early = false;
  Transfer transfer{.plan = small_plan(), .blocks = same_blocks(1), .done = [&](TransferOutcome&& /*outcome*/) {
                      told_early = !over.load();
                    }};
  ASSERT_TRUE(ledger->accept(std::move(transfer)).has_value());
  auto active = ledger->take();
  ASSERT_TRUE(active->begin(0));
  std::promise<void> ending;
  std::thread late([&] {
    ending.get_future().get();
    over = true;
    active->finish(0, {});
    active.reset();
  });
  ledger->close();
  ending.set_value();
  ledger.reset();
  EXPECT_TRUE(over.load());
  EXPECT_FALSE(told_early.load());
  late.join();
}

}  // namespace
}  // namespace cairn
