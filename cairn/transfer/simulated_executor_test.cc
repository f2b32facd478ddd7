#include "cairn/transfer/simulated_executor_testing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "cairn/transfer/fault_executor.h"
#include "cairn/transfer/file_testing.h"
#include "cairn/transfer/row_sums.h"
#include "cairn/transfer/transfer_testing.h"

namespace cairn {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
using testing::FileLayout;
using testing::FileMode;
using ::testing::HasSubstr;
using testing::plan_between;
using testing::same_blocks;
using testing::TestLayout;

constexpr KvShape kShape{.layers = 3, .kv = 2, .page_size = 2, .heads = 2, .head_size = 64, .element_bits = 16};
constexpr std::uint32_t kBlocks = 16;

struct Reported {
  std::optional<TransferOutcome> outcome;
  std::optional<TimePoint> done_at;
  std::optional<TimePoint> settled_at;

  [[nodiscard]] std::vector<BlockState> states() const {
    std::vector<BlockState> out;
    for (const BlockOutcome& block : outcome.value_or(TransferOutcome{}).blocks) {
      out.push_back(block.state);
    }
    return out;
  }
};

class SimulatedExecutorTest : public ::testing::Test {
 protected:
  SimulatedExecutorTest() {
    from_.fill(1);
    to_.fill(2);
  }

  // A block takes one second, and each transfer half a second before its first.
  static SimulatedExecutor::Options slow(std::size_t limit = 8) {
    return {
        .bytes_per_second = static_cast<double>(kShape.block_bytes()), .latency = milliseconds(500), .limit = limit};
  }
  Transfer transfer(std::vector<TransferBlock> blocks, Reported& reported, TimePoint deadline = TimePoint::max()) {
    return {.plan = plan_,
            .blocks = std::move(blocks),
            .deadline = deadline,
            .done =
                [this, &reported](TransferOutcome&& outcome) {
                  EXPECT_FALSE(reported.outcome) << "reported twice";
                  reported.outcome = std::move(outcome);
                  reported.done_at = clock_.now();
                },
            .settled =
                [this, &reported] {
                  EXPECT_TRUE(reported.outcome) << "settled before it was done";
                  EXPECT_FALSE(reported.settled_at) << "settled twice";
                  reported.settled_at = clock_.now();
                }};
  }
  // Moves the clock to each time that matters until nothing is left.
  void run_out(SimulatedExecutor& executor) {
    while (const std::optional<TimePoint> next = executor.next_time()) {
      if (*next > clock_.now()) {
        clock_.advance(*next - clock_.now());
      }
      executor.run();
    }
    EXPECT_FALSE(executor.run());
  }
  [[nodiscard]] Checksum checksum(std::uint32_t block, const BlockTag& tag) const {
    return finish(sum_block(*plan_, PlanSide::kSource, block), kShape.block_bytes(), tag);
  }

  ManualClock clock_;
  TestLayout from_ = TestLayout::make({kShape, Arrangement::kContiguousNhd, kBlocks, 1});
  TestLayout to_ = TestLayout::make({kShape, Arrangement::kLayersKvHnd, kBlocks, 1});
  CopyPlanPtr plan_ = plan_between(from_.layout(), to_.layout());
};

constexpr BlockState kDone = BlockState::kDone;
constexpr BlockState kExpired = BlockState::kExpired;
constexpr BlockState kCancelled = BlockState::kCancelled;

TEST_F(SimulatedExecutorTest, CopiesOneTransferAfterTheOtherInItsTime) {
  SimulatedExecutor executor(clock_, slow());
  Reported first;
  Reported second;
  ASSERT_TRUE(executor.submit(transfer({{.pair = {0, 5}}, {.pair = {1, 6}}}, first)));
  ASSERT_TRUE(executor.submit(transfer({{.pair = {2, 7}}}, second)));
  EXPECT_EQ(executor.load().transfers, 2U);
  EXPECT_EQ(executor.load().blocks, 3U);
  EXPECT_FALSE(executor.run());
  EXPECT_EQ(executor.next_time(), TimePoint(milliseconds(1500)));
  clock_.advance(milliseconds(1499));
  EXPECT_FALSE(executor.run());
  EXPECT_TRUE(to_.untouched_but({})) << "a copy is made at its end";
  clock_.advance(milliseconds(1));
  EXPECT_TRUE(executor.run());
  EXPECT_TRUE(to_.holds(5, from_, 0));
  EXPECT_TRUE(to_.untouched_but({5}));
  EXPECT_FALSE(first.outcome);
  run_out(executor);
  EXPECT_EQ(first.done_at, TimePoint(milliseconds(2500)));
  EXPECT_EQ(second.done_at, TimePoint(milliseconds(4000)));
  EXPECT_EQ(second.settled_at, TimePoint(milliseconds(4000)));
  EXPECT_TRUE(to_.holds(6, from_, 1));
  EXPECT_TRUE(to_.holds(7, from_, 2));
  EXPECT_TRUE(to_.untouched_but({5, 6, 7}));
  EXPECT_EQ(executor.load().transfers, 0U);
  EXPECT_EQ(executor.load().blocks, 0U);
}

TEST_F(SimulatedExecutorTest, AfterAPauseTimeCountsFromTheSubmission) {
  SimulatedExecutor executor(clock_, slow());
  Reported first;
  Reported second;
  ASSERT_TRUE(executor.submit(transfer({{.pair = {0, 0}}}, first)));
  clock_.advance(seconds(10));  // it ended long ago, and nothing was polled since
  ASSERT_TRUE(executor.submit(transfer({{.pair = {1, 1}}}, second)));
  EXPECT_TRUE(executor.run());
  EXPECT_TRUE(first.outcome);
  EXPECT_FALSE(second.outcome);
  run_out(executor);
  EXPECT_EQ(second.done_at, TimePoint(milliseconds(11500)));
}

TEST_F(SimulatedExecutorTest, MovesRandomPlansBetweenMemoryAndFilesByteForByteWithTheRightChecksums) {
  std::mt19937_64 random(11);
  SimulatedExecutor executor(clock_, {});
  for (int round = 0; round < 40; ++round) {
    SCOPED_TRACE(round);
    const KvShape shape{.layers = static_cast<std::uint32_t>(1 + random() % 4),
                        .kv = static_cast<std::uint32_t>(1 + random() % 2),
                        .page_size = static_cast<std::uint32_t>(1 + random() % 9),
                        .heads = static_cast<std::uint32_t>(1 + random() % 4),
                        .head_size = static_cast<std::uint32_t>(2 * (1 + random() % 100)),
                        .element_bits = 8};
    const auto options = [&](std::uint32_t arrangement) {
      return BlockLayout::Options{.shape = shape, .arrangement = kAllArrangements[arrangement % 6], .blocks = 4};
    };
    TestLayout from = TestLayout::make(options(random()));
    const FileLayout down(options(random()), FileMode::kBuffered);
    const FileLayout along(options(random()), FileMode::kBuffered);
    TestLayout to = TestLayout::make(options(random()));
    from.fill(random());
    to.fill(random());
    const CopyPlanPtr direct = plan_between(from.layout(), to.layout());
    const BlockTag tag{random(), random()};
    const Checksum expected = finish(sum_block(*direct, PlanSide::kSource, 2), shape.block_bytes(), tag);
    const auto move = [&](const BlockLayoutPtr& source, const BlockLayoutPtr& destination, BlockPair pair) {
      Reported reported;
      Transfer one = transfer({{.pair = pair, .tag = tag, .expected = expected}}, reported);
      one.plan = plan_between(source, destination);
      one.verify = round % 2 == 0 ? Verify::kCheck : Verify::kMake;
      ASSERT_TRUE(executor.submit(std::move(one)));
      run_out(executor);
      ASSERT_TRUE(reported.outcome && reported.outcome->all_done()) << reported.outcome->error;
      EXPECT_EQ(reported.outcome->blocks[0].checksum, expected);
    };
    move(from.layout(), down.layout(), {2, 1});
    move(down.layout(), along.layout(), {1, 3});
    move(along.layout(), to.layout(), {3, 0});
    EXPECT_TRUE(to.holds(0, from, 2));
    EXPECT_TRUE(to.untouched_but({0}));
    // The rows of one block are the file's only bytes that changed.
    std::uint64_t changed = 0;
    for (std::size_t file = 0; file < down.files(); ++file) {
      for (const std::byte byte : down.bytes(file)) {
        changed += byte == FileLayout::kGuard ? 0 : 1;
      }
    }
    EXPECT_LE(changed, shape.block_bytes());
    if (HasFailure()) {
      return;
    }
  }
}

TEST_F(SimulatedExecutorTest, AWrongChecksumIsAMismatchOfJustThatBlock) {
  SimulatedExecutor executor(clock_, {});
  Reported reported;
  Transfer checked = transfer(same_blocks(3), reported);
  checked.verify = Verify::kCheck;
  for (TransferBlock& block : checked.blocks) {
    block.expected = checksum(block.pair.source, block.tag);
  }
  from_.row(1, 0, 0, 0, 0)[0] ^= std::byte{1};
  ASSERT_TRUE(executor.submit(std::move(checked)));
  run_out(executor);
  EXPECT_THAT(reported.states(), ElementsAre(kDone, BlockState::kMismatch, kDone));
  EXPECT_THAT(reported.outcome->error, HasSubstr("block 1 of 3 (1 to 1) mismatch"));
}

TEST_F(SimulatedExecutorTest, AddsUpPartsOfABlock) {
  SimulatedExecutor executor(clock_, {});
  BlockSums sums;
  for (std::uint32_t layer = 0; layer < kShape.layers; ++layer) {
    Reported reported;
    Transfer part = transfer({{.pair = {4, 9}}}, reported);
    part.plan = plan_between(from_.layout(), to_.layout(), {.first_layer = layer, .layers = 1});
    ASSERT_TRUE(executor.submit(std::move(part)));
    run_out(executor);
    sums += reported.outcome->blocks[0].sums;
  }
  EXPECT_EQ(finish(sums, kShape.block_bytes(), {5, 6}), checksum(4, {5, 6}));
  EXPECT_TRUE(to_.holds(9, from_, 4));
}

TEST_F(SimulatedExecutorTest, RefusesWhatIsWrongAndLeavesItIntact) {
  SimulatedExecutor executor(clock_, slow(1));
  Reported reported;
  const auto expect_refused = [&](Transfer given, ErrorCode code) {
    const std::size_t blocks = given.blocks.size();
    const Result<TransferId> id = executor.submit(std::move(given));
    ASSERT_FALSE(id);
    EXPECT_EQ(id.error().code, code) << id.error().to_string();
    EXPECT_EQ(given.blocks.size(), blocks);
    EXPECT_TRUE(given.done && given.settled);
  };
  Transfer none = transfer({{.pair = {0, 0}}}, reported);
  none.plan = nullptr;
  expect_refused(std::move(none), ErrorCode::kInvalidArgument);
  expect_refused(transfer({{.pair = {0, kBlocks}}}, reported), ErrorCode::kInvalidArgument);
  expect_refused(transfer({{.pair = {0, 3}}, {.pair = {1, 3}}}, reported), ErrorCode::kInvalidArgument);
  const TestLayout device = TestLayout::make({kShape, Arrangement::kContiguousNhd, kBlocks, 1}, MemoryKind::kDevice);
  Transfer foreign = transfer({{.pair = {0, 0}}}, reported);
  foreign.plan = plan_between(device.layout(), to_.layout());
  EXPECT_FALSE(executor.can_move(*foreign.plan));
  expect_refused(std::move(foreign), ErrorCode::kInvalidArgument);
  EXPECT_EQ(executor.load().transfers, 0U);
  // Full, until the accepted transfer is reported.
  ASSERT_TRUE(executor.submit(transfer({{.pair = {0, 0}}}, reported)));
  EXPECT_FALSE(executor.run());
  Reported more;
  expect_refused(transfer({{.pair = {1, 1}}}, more), ErrorCode::kExhausted);
  EXPECT_EQ(executor.next_time(), TimePoint(milliseconds(1500))) << "a refused transfer has no time";
  run_out(executor);
  ASSERT_TRUE(executor.submit(transfer({{.pair = {1, 1}}}, more)));
  run_out(executor);
  EXPECT_TRUE(more.outcome->all_done());
}

TEST_F(SimulatedExecutorTest, ADeadlineOnTheWayLeavesWholeBlocksAndExpiredOnes) {
  for (const bool in_one_step : {false, true}) {
    SCOPED_TRACE(in_one_step);
    to_.fill(2);
    SimulatedExecutor executor(clock_, slow());
    const TimePoint start = clock_.now();
    Reported reported;
    Reported next;
    ASSERT_TRUE(executor.submit(transfer(same_blocks(4), reported, start + seconds(3))));
    ASSERT_TRUE(executor.submit(transfer({{.pair = {9, 9}}}, next)));
    if (in_one_step) {
      clock_.advance(seconds(20));
      EXPECT_TRUE(executor.run());
    } else {
      run_out(executor);
      EXPECT_EQ(reported.done_at, start + seconds(3));
      EXPECT_EQ(reported.settled_at, start + milliseconds(3500)) << "the third copy had begun";
      EXPECT_EQ(next.done_at, start + seconds(5));
    }
    EXPECT_THAT(reported.states(), ElementsAre(kDone, kDone, kExpired, kExpired));
    EXPECT_THAT(reported.outcome->error,
                HasSubstr("block 2 of 4 (2 to 2) expired: the deadline passed during its copy"));
    EXPECT_TRUE(to_.untouched_but({0, 1, 2, 9})) << "blocks that had not begun are not copied";
    EXPECT_TRUE(to_.holds(2, from_, 2)) << "a late copy writes";
    EXPECT_TRUE(next.outcome->all_done());
  }
}

TEST_F(SimulatedExecutorTest, WhatIsLateFromTheStartOrWaitsTooLongExpiresUntouched) {
  SimulatedExecutor executor(clock_, slow());
  clock_.advance(seconds(5));
  Reported late;
  Reported ahead;
  Reported waits;
  ASSERT_TRUE(executor.submit(transfer(same_blocks(2), late, TimePoint(seconds(5)))));
  ASSERT_TRUE(executor.submit(transfer({{.pair = {8, 8}}}, ahead)));
  ASSERT_TRUE(executor.submit(transfer({{.pair = {9, 9}}}, waits, TimePoint(seconds(6)))));
  run_out(executor);
  EXPECT_THAT(late.states(), ElementsAre(kExpired, kExpired));
  EXPECT_EQ(late.settled_at, TimePoint(seconds(5)));
  EXPECT_THAT(waits.states(), ElementsAre(kExpired));
  EXPECT_EQ(waits.settled_at, TimePoint(seconds(6)));
  EXPECT_TRUE(to_.untouched_but({8}));
}

TEST_F(SimulatedExecutorTest, CancelledBlocksAreUntouchedAndThoseBegunWhole) {
  SimulatedExecutor executor(clock_, slow());
  Reported begun;
  Reported waiting;
  const Result<TransferId> first = executor.submit(transfer(same_blocks(3), begun));
  const Result<TransferId> second = executor.submit(transfer({{.pair = {9, 9}}}, waiting));
  ASSERT_TRUE(first && second);
  clock_.advance(seconds(2));  // in the middle of the second block
  executor.cancel(*first);
  executor.cancel(*second);
  EXPECT_TRUE(executor.run());
  EXPECT_THAT(waiting.states(), ElementsAre(kCancelled));
  EXPECT_FALSE(begun.outcome) << "a copy is in flight";
  run_out(executor);
  executor.cancel(*first);  // it has ended: no effect
  EXPECT_THAT(begun.states(), ElementsAre(kDone, kDone, kCancelled));
  EXPECT_EQ(begun.settled_at, TimePoint(milliseconds(2500)));
  EXPECT_TRUE(to_.untouched_but({0, 1}));
  EXPECT_TRUE(to_.holds(1, from_, 1));
}

TEST_F(SimulatedExecutorTest, CallbacksSubmitTheNextTransferAndEmptyOnesAreReported) {
  SimulatedExecutor executor(clock_, slow(1));
  Reported last;
  Transfer first{.plan = plan_,
                 .done = [](TransferOutcome&& outcome) { EXPECT_TRUE(outcome.all_done()); },
                 .settled = [&] { EXPECT_TRUE(executor.submit(transfer({{.pair = {3, 3}}}, last))); }};
  ASSERT_TRUE(executor.submit(std::move(first)));
  run_out(executor);
  EXPECT_EQ(last.done_at, TimePoint(milliseconds(1500)));
}

TEST_F(SimulatedExecutorTest, AFileThatCannotBeReadOrWrittenFailsItsBlocks) {
  const BlockLayout::Options options{.shape = kShape, .blocks = kBlocks};
  const FileLayout sealed(options, FileMode::kReadOnly);
  const FileLayout cut(options, FileMode::kBuffered);
  ASSERT_EQ(ftruncate(cut.file(0).descriptor(), static_cast<off_t>(2 * kShape.block_bytes() + 8)), 0);
  SimulatedExecutor executor(clock_, {});
  Reported written;
  Transfer down = transfer({{.pair = {0, 0}}}, written);
  down.plan = plan_between(from_.layout(), sealed.layout());
  ASSERT_TRUE(executor.submit(std::move(down)));
  Reported read;
  Transfer up = transfer(same_blocks(3), read);
  up.plan = plan_between(cut.layout(), to_.layout());
  ASSERT_TRUE(executor.submit(std::move(up)));
  run_out(executor);
  EXPECT_THAT(written.states(), ElementsAre(BlockState::kFailed));
  EXPECT_THAT(written.outcome->error, HasSubstr("writing"));
  EXPECT_THAT(read.states(), ElementsAre(kDone, kDone, BlockState::kFailed));
  EXPECT_THAT(read.outcome->error, HasSubstr("the file ends before"));
}

TEST_F(SimulatedExecutorTest, DestructionCarriesOutWhatHasBegunAndTellsOfEverything) {
  Reported begun;
  Reported waiting;
  {
    SimulatedExecutor executor(clock_, slow());
    ASSERT_TRUE(executor.submit(transfer(same_blocks(2), begun)));
    Transfer second = transfer({{.pair = {9, 9}}}, waiting);
    second.settled = [&] {
      Reported never;
      const Result<TransferId> id = executor.submit(transfer({{.pair = {4, 4}}}, never));
      EXPECT_FALSE(id);
      EXPECT_EQ(id.error().code, ErrorCode::kFailedPrecondition);
    };
    ASSERT_TRUE(executor.submit(std::move(second)));
  }
  EXPECT_THAT(begun.states(), ElementsAre(kDone, kCancelled));
  EXPECT_TRUE(begun.settled_at);
  EXPECT_THAT(waiting.states(), ElementsAre(kCancelled));
  EXPECT_TRUE(to_.untouched_but({0}));
}

TEST_F(SimulatedExecutorTest, SaysHowItWorks) {
  EXPECT_EQ(SimulatedExecutor(clock_, {.bytes_per_second = 3e9, .latency = Duration(70)}).describe(),
            "simulated copies, 70 ns each and 3000 MB/s");
}

// With faults around it, in one loop.
class SimulatedFaultsTest : public SimulatedExecutorTest {
 protected:
  void make(std::vector<FaultRule> rules, Duration delay = Duration(0)) {
    auto inside = std::make_unique<SimulatedExecutor>(clock_, slow());
    inside_ = inside.get();
    fault_ = std::make_unique<FaultExecutor>(
        clock_, std::move(inside),
        FaultOptions{.rules = std::move(rules), .delay = delay, .callbacks = TransferLedger::Callbacks::kOnRequest});
  }
  // Until nothing is left to do at this time.
  void run_now() {
    for (bool any = true; any;) {
      inside_->run();
      fault_->check_deadlines();
      any = inside_->run();
      any = fault_->run_callbacks() || any;
    }
  }
  void run_for(Duration time) {
    run_now();
    for (const TimePoint end = clock_.now() + time; clock_.now() < end;) {
      clock_.advance(milliseconds(100));
      run_now();
    }
  }

  SimulatedExecutor* inside_ = nullptr;
  std::unique_ptr<FaultExecutor> fault_;
};

TEST_F(SimulatedFaultsTest, FailsCorruptsAndDelaysTheBlocksThatAreStruck) {
  make({{.fault = Fault::kFail, .at = 2}, {.fault = Fault::kCorrupt, .at = 3}, {.fault = Fault::kDelay, .at = 4}},
       seconds(30));
  Reported reported;
  ASSERT_TRUE(fault_->submit(transfer(same_blocks(5), reported)));
  run_for(seconds(29));
  EXPECT_FALSE(reported.outcome);
  run_for(seconds(10));
  EXPECT_THAT(reported.states(), ElementsAre(kDone, BlockState::kFailed, kDone, kDone, kDone));
  EXPECT_TRUE(reported.settled_at);
  EXPECT_EQ(reported.outcome->blocks[2].checksum, checksum(2, same_blocks(3)[2].tag))
      << "the checksum is of the source";
  EXPECT_FALSE(to_.holds(2, from_, 2));
  EXPECT_TRUE(to_.holds(3, from_, 3));
  EXPECT_TRUE(to_.untouched_but({0, 2, 3, 4}));
}

TEST_F(SimulatedFaultsTest, WhatHangsExpiresAndSettlesWhenItIsReleased) {
  make({{.fault = Fault::kHang, .at = 2}});
  Reported reported;
  ASSERT_TRUE(fault_->submit(transfer(same_blocks(3), reported, TimePoint(seconds(9)))));
  run_for(seconds(20));
  EXPECT_THAT(reported.states(), ElementsAre(kDone, kExpired, kDone));
  EXPECT_EQ(reported.done_at, TimePoint(seconds(9)));
  EXPECT_FALSE(reported.settled_at);
  EXPECT_EQ(fault_->load().transfers, 1U);
  EXPECT_TRUE(to_.untouched_but({0, 2}));
  fault_->release();
  run_for(seconds(2));
  EXPECT_TRUE(reported.settled_at);
  EXPECT_TRUE(to_.holds(1, from_, 1));
  EXPECT_EQ(fault_->load().transfers, 0U);
}

TEST_F(SimulatedFaultsTest, ADeadlineOnTheWayLeavesWholeBlocksAndExpiredOnes) {
  make({});
  Reported reported;
  ASSERT_TRUE(fault_->submit(transfer(same_blocks(4), reported, TimePoint(seconds(3)))));
  run_for(seconds(10));
  EXPECT_THAT(reported.states(), ElementsAre(kDone, kDone, kExpired, kExpired));
  EXPECT_EQ(reported.done_at, TimePoint(seconds(3)));
  EXPECT_EQ(reported.settled_at, TimePoint(milliseconds(3500)));
}

TEST_F(SimulatedFaultsTest, WhatIsLostNeverSettlesBeforeTheEnd) {
  make({{.fault = Fault::kLose, .at = 1}});
  Reported reported;
  ASSERT_TRUE(fault_->submit(transfer(same_blocks(2), reported, TimePoint(seconds(9)))));
  run_for(seconds(20));
  fault_->release();
  run_for(seconds(20));
  EXPECT_THAT(reported.states(), ElementsAre(kExpired, kDone));
  EXPECT_FALSE(reported.settled_at);
  fault_.reset();
  EXPECT_TRUE(reported.settled_at);
  EXPECT_TRUE(to_.untouched_but({1}));
}

TEST_F(SimulatedFaultsTest, DestructionEndsWhatIsInside) {
  make({{.fault = Fault::kHang, .at = 3}});
  Reported reported;
  ASSERT_TRUE(fault_->submit(transfer(same_blocks(3), reported)));
  fault_.reset();
  EXPECT_THAT(reported.states(), ElementsAre(kDone, kCancelled, BlockState::kFailed));
  EXPECT_TRUE(reported.settled_at);
}

}  // namespace
}  // namespace cairn
