// What the conformance suite does not cover of a bounce executor: its ring, and copies into or out of it that fail.
#include "cairn/transfer/bounce_executor.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <thread>

#include "cairn/transfer/executor_conformance_testing.h"
#include "cairn/transfer/file_executor.h"
#include "cairn/transfer/file_testing.h"
#include "cairn/transfer/host_executor.h"
#include "cairn/transfer/transfer_testing.h"

namespace cairn {
namespace {

using ::testing::AllOf;
using testing::FileLayout;
using testing::FileMode;
using ::testing::HasSubstr;
using testing::plan_between;
using testing::same_blocks;
using testing::TestLayout;
using testing::TestRegion;

constexpr std::uint64_t kBlock = 8192;

BlockLayout::Options blocks_of(std::uint32_t count) {
  return {.shape = {.layers = 2, .kv = 2, .page_size = 8, .heads = 2, .head_size = 64, .element_bits = 16},
          .blocks = count,
          .alignment = 4096};
}

std::unique_ptr<BounceExecutor> make(const Clock& clock, TransferExecutor& one, TransferExecutor& other,
                                     std::uint32_t places) {
  Result<std::unique_ptr<BounceExecutor>> made = BounceExecutor::make(
      clock, one, other, {.ring = TestRegion(places * kBlock, 4096).region(), .block_bytes = kBlock, .transfers = 8});
  EXPECT_TRUE(made) << made.error().to_string();
  return *std::move(made);
}

struct Reported {
  std::promise<TransferOutcome> done;
  std::promise<void> settled;
  std::atomic<bool> is_settled{false};
};

void submit(TransferExecutor& executor, Reported& reported, const CopyPlanPtr& plan, std::uint32_t blocks,
            TimePoint deadline = TimePoint::max()) {
  Transfer transfer;
  transfer.plan = plan;
  transfer.blocks = same_blocks(blocks);
  transfer.deadline = deadline;
  transfer.done = [&reported](TransferOutcome&& outcome) { reported.done.set_value(std::move(outcome)); };
  transfer.settled = [&reported] {
    reported.is_settled = true;
    reported.settled.set_value();
  };
  const Result<TransferId> accepted = executor.submit(std::move(transfer));
  ASSERT_TRUE(accepted) << accepted.error().to_string();
}

TransferOutcome run(TransferExecutor& executor, const CopyPlanPtr& plan, std::uint32_t blocks) {
  Reported reported;
  submit(executor, reported, plan, blocks);
  reported.settled.get_future().wait();
  return reported.done.get_future().get();
}

// Passes transfers on, and changes a byte of block 1 once it is copied.
class Meddler final : public TransferExecutor {
 public:
  explicit Meddler(TransferExecutor& inner) : inner_(inner) {}
  [[nodiscard]] Result<TransferId> submit(Transfer&& transfer) override {
    const CopyPlanPtr plan = transfer.plan;
    const std::uint32_t place = transfer.blocks[1].pair.destination;
    transfer.done = [plan, place, done = std::move(transfer.done)](TransferOutcome&& outcome) {
      const BlockLayout::Address at = plan->destination().address(place, 1, 0, 3, 1);
      plan->destination().regions()[at.region]->base()[at.offset] ^= std::byte{4};
      done(std::move(outcome));
    };
    return inner_.submit(std::move(transfer));
  }
  void cancel(TransferId transfer) override { inner_.cancel(transfer); }
  void check_deadlines() override { inner_.check_deadlines(); }
  [[nodiscard]] bool can_move(const CopyPlan& plan) const override { return inner_.can_move(plan); }
  [[nodiscard]] ExecutorLoad load() const override { return inner_.load(); }
  [[nodiscard]] std::string describe() const override { return inner_.describe(); }

 private:
  TransferExecutor& inner_;
};

// Accepts all transfers to a file, and keeps them until the test ends them.
class Held final : public TransferExecutor {
 public:
  explicit Held(const Clock& clock) : ledger_(clock, 8) {}
  [[nodiscard]] Result<TransferId> submit(Transfer&& transfer) override { return ledger_.accept(std::move(transfer)); }
  void cancel(TransferId transfer) override { ledger_.cancel(transfer); }
  void check_deadlines() override { ledger_.check_deadlines(); }
  [[nodiscard]] bool can_move(const CopyPlan& plan) const override {
    return plan.destination().kind() == MemoryKind::kFile;
  }
  [[nodiscard]] ExecutorLoad load() const override { return ledger_.load(); }
  [[nodiscard]] std::string describe() const override { return "held"; }
  TransferLedger& ledger() { return ledger_; }

 private:
  TransferLedger ledger_;
};

TEST(BounceExecutorTest, ChecksItsRing) {
  HostExecutor host(steady_clock(), {.threads = 1});
  const auto refused = [&host](const RegionPtr& ring, std::uint64_t block_bytes) {
    return BounceExecutor::make(steady_clock(), host, host, {.ring = ring, .block_bytes = block_bytes}).error();
  };
  EXPECT_THAT(refused(nullptr, kBlock).message, HasSubstr("host memory"));
  EXPECT_THAT(refused(TestRegion(kBlock, 4096, 0, MemoryKind::kDevice).region(), kBlock).message,
              HasSubstr("host memory"));
  EXPECT_THAT(refused(TestRegion(kBlock, 4096).region(), kBlock + 1).message, HasSubstr("hold one block at least"));
  EXPECT_THAT(refused(TestRegion(kBlock, 4096).region(), 0).message, HasSubstr("hold one block at least"));

  const auto bounce = make(steady_clock(), host, host, 2);
  BlockLayout::Options large = blocks_of(2);
  large.shape.layers = 4;
  const TestLayout from = TestLayout::make(large);
  const TestLayout to = TestLayout::make(large);
  Transfer transfer;
  transfer.plan = plan_between(from.layout(), to.layout());
  transfer.blocks = same_blocks(1);
  transfer.done = [](TransferOutcome&&) {};
  EXPECT_THAT(bounce->submit(std::move(transfer)).error().message,
              AllOf(HasSubstr("blocks of 16384 bytes"), HasSubstr("places of 8192")));
  EXPECT_THAT(bounce->describe(), HasSubstr("through 2 blocks of 8192 bytes of system memory"));
}

TEST(BounceExecutorTest, BlocksThatFailGiveTheirPlacesBack) {
  HostExecutor host(steady_clock(), {.threads = 1});
  const std::unique_ptr<FileExecutor> files = *FileExecutor::make(steady_clock(), {.in_flight = 2});
  const auto bounce = make(steady_clock(), host, *files, 3);
  const TestLayout memory = TestLayout::make(blocks_of(20));
  const int full = open("/dev/full", O_RDWR | O_CLOEXEC);
  const auto region = std::make_shared<const Region>(
      RegionFacts{.kind = MemoryKind::kFile, .size = 20 * kBlock, .alignment = 4096, .file = full},
      [full] { close(full); });
  const TransferOutcome failed =
      run(*bounce, plan_between(memory.layout(), *BlockLayout::make(blocks_of(20), {region})), 20);
  for (const BlockOutcome& block : failed.blocks) {
    EXPECT_EQ(block.state, BlockState::kFailed);
  }
  EXPECT_THAT(failed.error, HasSubstr("No space left"));

  // A file that is too short: its blocks fail on their first hop.
  const FileLayout file(blocks_of(20), FileMode::kBuffered);
  ASSERT_EQ(ftruncate(file.file(0).descriptor(), 15 * kBlock), 0);
  const TransferOutcome read = run(*bounce, plan_between(file.layout(), memory.layout()), 20);
  for (std::uint32_t i = 0; i < 20; ++i) {
    EXPECT_EQ(read.blocks[i].state, i < 15 ? BlockState::kDone : BlockState::kFailed) << i;
  }
  EXPECT_TRUE(run(*bounce, plan_between(memory.layout(), file.layout()), 20).all_done());
  EXPECT_EQ(bounce->load().transfers, 0U);
}

TEST(BounceExecutorTest, ABlockThatChangesInTheRingFails) {
  HostExecutor host(steady_clock(), {.threads = 1});
  Meddler meddler(host);
  const std::unique_ptr<FileExecutor> files = *FileExecutor::make(steady_clock(), {.in_flight = 2});
  const auto bounce = make(steady_clock(), meddler, *files, 16);
  const TestLayout memory = TestLayout::make(blocks_of(4));
  const FileLayout file(blocks_of(4), FileMode::kBuffered);
  const TransferOutcome outcome = run(*bounce, plan_between(memory.layout(), file.layout()), 4);
  for (std::uint32_t i = 0; i < 4; ++i) {
    EXPECT_EQ(outcome.blocks[i].state, i == 1 ? BlockState::kFailed : BlockState::kDone) << i;
  }
  EXPECT_THAT(outcome.error, HasSubstr("changed in the bounce ring"));
}

TEST(BounceExecutorTest, PlacesOfALateHopAreNotUsedAgainUntilItHasSettled) {
  ManualClock clock;
  HostExecutor host(clock, {.threads = 1});
  Held held(clock);
  const auto bounce = make(clock, host, held, 2);
  const TestLayout memory = TestLayout::make(blocks_of(4));
  const FileLayout file(blocks_of(4), FileMode::kBuffered);
  const CopyPlanPtr plan = plan_between(memory.layout(), file.layout());

  // A ring of two places has hops of one block: both are on their second one, and begin.
  Reported late;
  submit(*bounce, late, plan, 2, TimePoint(1000));
  const std::shared_ptr<ActiveTransfer> first = held.ledger().take();
  const std::shared_ptr<ActiveTransfer> second = held.ledger().take();
  ASSERT_TRUE(first->begin(0));
  ASSERT_TRUE(second->begin(0));
  clock.advance(Duration(1000));
  bounce->check_deadlines();
  const TransferOutcome outcome = late.done.get_future().get();
  EXPECT_EQ(outcome.blocks[0].state, BlockState::kExpired);
  EXPECT_EQ(outcome.blocks[1].state, BlockState::kExpired);

  // The next transfer waits for a place, although the others have expired.
  Reported next;
  submit(*bounce, next, plan, 1);
  EXPECT_EQ(host.load().transfers, 0U);
  EXPECT_FALSE(late.is_settled);
  first->finish(0, {});
  const std::shared_ptr<ActiveTransfer> third = held.ledger().take();
  EXPECT_EQ(third->transfer().blocks[0].pair.source, first->transfer().blocks[0].pair.source)
      << "only the free place is used";
  EXPECT_FALSE(late.is_settled) << "the other place is still in use";
  second->finish(0, {});
  late.settled.get_future().wait();
  ASSERT_TRUE(third->begin(0));
  third->fail(0, "the disk is gone");
  next.settled.get_future().wait();
  EXPECT_THAT(next.done.get_future().get().error, HasSubstr("the disk is gone"));
}

TEST(BounceExecutorTest, HopsOverlap) {
  HostExecutor host(steady_clock(), {.threads = 1});
  Held held(steady_clock());
  const auto bounce = make(steady_clock(), host, held, 4);
  const TestLayout memory = TestLayout::make(blocks_of(12));
  const FileLayout file(blocks_of(12), FileMode::kBuffered);
  Reported reported;
  submit(*bounce, reported, plan_between(memory.layout(), file.layout()), 12);
  // The file executor ends nothing, and blocks are copied into the ring until it is full.
  std::vector<std::shared_ptr<ActiveTransfer>> out;
  for (int i = 0; i < 4; ++i) {
    out.push_back(held.ledger().take());
  }
  EXPECT_EQ(held.ledger().try_take(), nullptr) << "four places, four blocks";
  for (int i = 0; i < 12; ++i) {
    ASSERT_TRUE(out.front()->begin(0));
    out.front()->fail(0, "enough");
    out.erase(out.begin());
    if (i < 8) {
      out.push_back(held.ledger().take());
    }
  }
  reported.settled.get_future().wait();
  EXPECT_EQ(reported.done.get_future().get().blocks.size(), 12U);
}

}  // namespace
}  // namespace cairn
