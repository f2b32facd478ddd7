#include "cairn/transfer/fault_executor.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <map>
#include <optional>

#include "cairn/transfer/block_walk.h"
#include "cairn/transfer/row_sums.h"
#include "cairn/transfer/transfer_testing.h"

namespace cairn {
namespace {

using std::chrono::milliseconds;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::plan_between;
using testing::same_blocks;
using testing::TestLayout;

// Copies on request, on the caller's thread, as a simulation does.
class SteppedExecutor final : public TransferExecutor {
 public:
  SteppedExecutor(const Clock& clock, std::size_t limit)
      : ledger_(clock, limit, TransferLedger::Callbacks::kOnRequest) {}
  ~SteppedExecutor() override { ledger_.close(); }

  Result<TransferId> submit(Transfer&& transfer) override { return ledger_.accept(std::move(transfer)); }
  void cancel(TransferId transfer) override { ledger_.cancel(transfer); }
  void check_deadlines() override { ledger_.check_deadlines(); }
  [[nodiscard]] bool can_move(const CopyPlan& plan) const override {
    return plan.source().regions().front()->is_host();
  }
  [[nodiscard]] ExecutorLoad load() const override { return ledger_.load(); }
  [[nodiscard]] std::string describe() const override { return "steps"; }

  // Carries out submitted transfers and runs their callbacks; returns whether there were any.
  bool step() {
    bool any = false;
    while (const auto active = ledger_.try_take()) {
      const Transfer& transfer = active->transfer();
      const BlockWalk walk(*transfer.plan);
      for (std::uint32_t block = 0; block < transfer.blocks.size(); ++block) {
        if (active->begin(block)) {
          active->finish(block, walk.copy_and_sum(transfer.blocks[block].pair, 0, walk.bytes(), Stores::kCached));
        }
      }
      any = true;
    }
    return ledger_.run_callbacks() || any;
  }

 private:
  TransferLedger ledger_;
};

class FaultExecutorTest : public ::testing::Test {
 protected:
  static constexpr std::uint32_t kBlocks = 40;

  void make(std::vector<FaultRule> rules, Duration delay = Duration(0), std::size_t limit = 8, std::uint64_t seed = 1) {
    auto inside = std::make_unique<SteppedExecutor>(clock_, limit);
    inside_ = inside.get();
    executor_ = std::make_unique<FaultExecutor>(clock_, std::move(inside),
                                                FaultOptions{.rules = std::move(rules),
                                                             .seed = seed,
                                                             .delay = delay,
                                                             .callbacks = TransferLedger::Callbacks::kOnRequest});
  }
  // Blocks `first` and those after it, each to itself.
  TransferId submit(std::uint32_t first, std::uint32_t count, Verify verify = Verify::kMake,
                    TimePoint deadline = TimePoint::max()) {
    Transfer transfer{.plan = plan_, .verify = verify, .deadline = deadline};
    for (std::uint32_t i = first; i < first + count; ++i) {
      const BlockTag tag{i, 9};
      transfer.blocks.push_back(
          {.pair = {i, i},
           .tag = tag,
           .expected = finish(sum_block(*plan_, PlanSide::kSource, i), plan_->whole_block_bytes(), tag)});
    }
    const std::size_t name = outcomes_.size();
    outcomes_.emplace_back();
    settled_.push_back(false);
    transfer.done = [this, name](TransferOutcome&& outcome) { outcomes_[name] = std::move(outcome); };
    transfer.settled = [this, name] { settled_[name] = true; };
    const Result<TransferId> id = executor_->submit(std::move(transfer));
    EXPECT_TRUE(id.has_value()) << (id.has_value() ? "" : id.error().to_string());
    return id.has_value() ? *id : TransferId{};
  }
  void run() {
    for (bool more = true; more;) {
      const bool inside = inside_->step();
      more = executor_->run_callbacks() || inside;
    }
  }
  std::vector<BlockState> states(std::size_t name = 0) {
    std::vector<BlockState> all;
    for (const BlockOutcome& block : outcomes_.at(name)->blocks) {
      all.push_back(block.state);
    }
    return all;
  }
  bool arrived(std::uint32_t block) { return destination_.holds(block, source_, block); }

  FaultExecutorTest() {
    source_.fill(1);
    destination_.fill(2);
  }

  const BlockLayout::Options options_{
      .shape = {.layers = 4, .kv = 2, .page_size = 2, .heads = 2, .head_size = 16, .element_bits = 16},
      .arrangement = Arrangement::kLayersKvNhd,
      .blocks = kBlocks};
  TestLayout source_ = TestLayout::make(options_);
  TestLayout destination_ = TestLayout::make(options_);
  CopyPlanPtr plan_ = plan_between(source_.layout(), destination_.layout());
  ManualClock clock_;
  std::vector<std::optional<TransferOutcome>> outcomes_;
  std::vector<bool> settled_;
  SteppedExecutor* inside_ = nullptr;
  std::unique_ptr<FaultExecutor> executor_;
};

TEST_F(FaultExecutorTest, WithoutRulesNothingHappens) {
  make({});
  submit(0, 6, Verify::kCheck);
  run();
  EXPECT_THAT(states(), Each(BlockState::kDone));
  EXPECT_TRUE(settled_[0]);
  EXPECT_TRUE(arrived(5));
  EXPECT_EQ(executor_->describe(), "faults by 0 rules and seed 1 around steps");
}

TEST_F(FaultExecutorTest, FailsTheNth) {
  make({{.fault = Fault::kFail, .at = 3}});
  submit(0, 2);
  submit(2, 2);
  run();
  EXPECT_THAT(states(0), ElementsAre(BlockState::kDone, BlockState::kDone));
  EXPECT_THAT(states(1), ElementsAre(BlockState::kFailed, BlockState::kDone));
  EXPECT_EQ(outcomes_[1]->error, "block 0 of 2 (2 to 2) failed: injected: fail");
  EXPECT_TRUE(destination_.untouched_but({0, 1, 3}));
  EXPECT_EQ(executor_->struck(Fault::kFail), 1U);
  EXPECT_EQ(executor_->struck(Fault::kHang), 0U);
}

TEST_F(FaultExecutorTest, StrikesEverySoManyThAndTheFirstRuleCounts) {
  make({{.fault = Fault::kFail, .at = 2, .every = 3}, {.fault = Fault::kShort, .at = 1, .every = 1}});
  const Fault expected[] = {Fault::kShort, Fault::kFail, Fault::kShort, Fault::kShort, Fault::kFail, Fault::kShort};
  for (std::uint64_t number = 1; number <= 6; ++number) {
    EXPECT_EQ(executor_->fault_of(number), expected[number - 1]) << number;
  }
}

TEST_F(FaultExecutorTest, ChanceComesFromTheSeedAlone) {
  const auto struck_by = [&](std::uint64_t seed) {
    make({{.fault = Fault::kFail, .chance = 0.25}}, Duration(0), 8, seed);
    std::vector<std::uint64_t> numbers;
    for (std::uint64_t number = 1; number <= 2000; ++number) {
      if (executor_->fault_of(number) == Fault::kFail) {
        numbers.push_back(number);
      }
    }
    return numbers;
  };
  const std::vector<std::uint64_t> first = struck_by(7);
  EXPECT_EQ(struck_by(7), first);
  EXPECT_NE(struck_by(8), first);
  EXPECT_NEAR(static_cast<double>(first.size()), 500, 80);
  make({{.fault = Fault::kFail, .chance = 1}});
  EXPECT_EQ(executor_->fault_of(1), Fault::kFail);
}

TEST_F(FaultExecutorTest, AShortCopyWritesAPartAndFails) {
  make({{.fault = Fault::kShort, .at = 2}});
  submit(0, 3, Verify::kCheck);
  run();
  EXPECT_THAT(states(), ElementsAre(BlockState::kDone, BlockState::kFailed, BlockState::kDone));
  EXPECT_THAT(outcomes_[0]->error, HasSubstr("short, half of it was copied"));
  EXPECT_FALSE(arrived(1));
  EXPECT_FALSE(destination_.untouched_but({0, 2}));
  EXPECT_TRUE(destination_.untouched_but({0, 1, 2}));
}

TEST_F(FaultExecutorTest, AShortCopyOfWhatHasNoHalvesCopiesNothing) {
  make({{.fault = Fault::kShort, .at = 1}});
  bool failed = false;
  ASSERT_TRUE(executor_
                  ->submit({.plan = testing::small_plan(),
                            .blocks = same_blocks(1),
                            .done = [&](TransferOutcome&& outcome) { failed = !outcome.all_done(); }})
                  .has_value());
  run();
  EXPECT_TRUE(failed);
}

TEST_F(FaultExecutorTest, CorruptionAfterTheCopyIsFoundByALaterCheck) {
  make({{.fault = Fault::kCorrupt, .at = 2}});
  submit(0, 3, Verify::kCheck);
  run();
  EXPECT_THAT(states(), Each(BlockState::kDone));
  EXPECT_TRUE(arrived(0));
  EXPECT_FALSE(arrived(1));
  EXPECT_TRUE(destination_.untouched_but({0, 1, 2}));
  // The checksum that was made when copying down is expected when copying up.
  const Checksum made = outcomes_[0]->blocks[1].checksum;
  EXPECT_NE(finish(sum_block(*plan_, PlanSide::kDestination, 1), plan_->whole_block_bytes(), {1, 9}), made);
}

TEST_F(FaultExecutorTest, CorruptionInFlightIsAMismatchAndChangesTheDestination) {
  make({{.fault = Fault::kCorruptInFlight, .at = 2}});
  submit(0, 3, Verify::kCheck);
  run();
  EXPECT_THAT(states(), ElementsAre(BlockState::kDone, BlockState::kMismatch, BlockState::kDone));
  EXPECT_FALSE(arrived(1));
  make({{.fault = Fault::kCorruptInFlight, .at = 1}});
  submit(5, 1, Verify::kMake);  // nobody compares: done, with a checksum that is not the source's
  run();
  EXPECT_THAT(states(1), ElementsAre(BlockState::kDone));
  EXPECT_NE(outcomes_[1]->blocks[0].checksum,
            finish(sum_block(*plan_, PlanSide::kSource, 5), plan_->whole_block_bytes(), {5, 9}));
}

TEST_F(FaultExecutorTest, ADelayedBlockBeginsByTheClock) {
  make({{.fault = Fault::kDelay, .at = 2}}, milliseconds(10));
  submit(0, 3);
  run();
  EXPECT_FALSE(outcomes_[0].has_value());
  EXPECT_TRUE(destination_.untouched_but({0, 2}));
  clock_.advance(milliseconds(9));
  executor_->check_deadlines();
  run();
  EXPECT_FALSE(outcomes_[0].has_value());
  clock_.advance(milliseconds(1));
  executor_->check_deadlines();
  run();
  EXPECT_THAT(states(), Each(BlockState::kDone));
  EXPECT_TRUE(arrived(1));
}

TEST_F(FaultExecutorTest, ADelayedBlockCanBeCancelledAndExpiresUntouched) {
  make({{.fault = Fault::kDelay, .at = 1, .every = 1}}, milliseconds(10));
  const TransferId id = submit(0, 1);
  submit(1, 1, Verify::kMake, TimePoint(milliseconds(5)));
  executor_->cancel(id);
  clock_.advance(milliseconds(20));
  executor_->check_deadlines();
  run();
  EXPECT_THAT(states(0), ElementsAre(BlockState::kCancelled));
  EXPECT_THAT(states(1), ElementsAre(BlockState::kExpired));
  EXPECT_TRUE(settled_[0] && settled_[1]);
  EXPECT_TRUE(destination_.untouched_but({}));
}

TEST_F(FaultExecutorTest, WhatHangsExpiresButSettlesOnlyWithItsLateCopy) {
  make({{.fault = Fault::kHang, .at = 2}});
  submit(0, 3, Verify::kMake, TimePoint(milliseconds(5)));
  run();
  EXPECT_FALSE(outcomes_[0].has_value());
  clock_.advance(milliseconds(5));
  executor_->check_deadlines();
  run();
  EXPECT_THAT(states(), ElementsAre(BlockState::kDone, BlockState::kExpired, BlockState::kDone));
  EXPECT_FALSE(settled_[0]);  // its memory may still be written
  EXPECT_EQ(executor_->load().transfers, 1U);
  EXPECT_FALSE(arrived(1));
  executor_->release();
  run();
  EXPECT_TRUE(settled_[0]);
  EXPECT_TRUE(arrived(1));  // a late write, as promised
  EXPECT_EQ(executor_->load().transfers, 0U);
}

TEST_F(FaultExecutorTest, WhatHangsWithoutADeadlineIsDoneWhenReleased) {
  make({{.fault = Fault::kHang, .at = 1}});
  const TransferId id = submit(0, 1, Verify::kCheck);
  executor_->cancel(id);  // it has begun
  run();
  EXPECT_FALSE(outcomes_[0].has_value());
  executor_->release();
  run();
  EXPECT_THAT(states(), ElementsAre(BlockState::kDone));
}

TEST_F(FaultExecutorTest, WhatIsLostEndsWithTheExecutor) {
  make({{.fault = Fault::kLose, .at = 1}, {.fault = Fault::kHang, .at = 2}});
  submit(0, 2);
  submit(2, 1, Verify::kMake, TimePoint(milliseconds(1)));
  executor_->release();  // the second one only
  run();
  EXPECT_FALSE(outcomes_[0].has_value());
  EXPECT_TRUE(arrived(1));
  executor_.reset();
  EXPECT_THAT(states(0), ElementsAre(BlockState::kFailed, BlockState::kDone));
  EXPECT_THAT(outcomes_[0]->error, HasSubstr("injected: lose"));
  EXPECT_FALSE(arrived(0));
}

TEST_F(FaultExecutorTest, SplitTransfersWaitForRoomInside) {
  // Each block goes inside alone, and there are two places.
  make({{.fault = Fault::kCorrupt, .at = 1, .every = 1}}, Duration(0), 2);
  submit(0, 10);
  const TransferId id = submit(10, 10);
  executor_->cancel(id);  // none of them has found a place
  run();
  EXPECT_THAT(states(0), Each(BlockState::kDone));
  EXPECT_THAT(states(1), Each(BlockState::kCancelled));
  EXPECT_EQ(executor_->load().transfers, 0U);
  EXPECT_EQ(executor_->struck(Fault::kCorrupt), 20U);
}

TEST_F(FaultExecutorTest, CancellingReachesInside) {
  make({});
  const TransferId id = submit(0, 4);
  executor_->cancel(id);
  run();
  EXPECT_THAT(states(), Each(BlockState::kCancelled));
  EXPECT_TRUE(destination_.untouched_but({}));
}

TEST_F(FaultExecutorTest, DestructionCancelsWhatWaitsForRoom) {
  make({{.fault = Fault::kCorrupt, .at = 1, .every = 1}}, Duration(0), 2);
  submit(0, 5);
  executor_.reset();
  EXPECT_THAT(states(0), Each(BlockState::kCancelled));
  EXPECT_TRUE(settled_[0]);
}

TEST_F(FaultExecutorTest, TheSameSeedGivesTheSameHistory) {
  std::vector<std::vector<BlockState>> histories;
  std::vector<std::vector<std::byte>> contents;
  for (int run_number = 0; run_number < 2; ++run_number) {
    destination_.fill(2);
    outcomes_.clear();
    settled_.clear();
    make({{.fault = Fault::kFail, .chance = 0.1},
          {.fault = Fault::kShort, .chance = 0.1},
          {.fault = Fault::kDelay, .chance = 0.1},
          {.fault = Fault::kCorrupt, .chance = 0.1},
          {.fault = Fault::kCorruptInFlight, .chance = 0.1}},
         milliseconds(3), 8, 42);
    for (std::uint32_t first = 0; first < kBlocks; first += 8) {
      submit(first, 8, Verify::kCheck);
      run();
      clock_.advance(milliseconds(3));
      executor_->check_deadlines();
      run();
    }
    std::vector<BlockState>& history = histories.emplace_back();
    for (std::size_t i = 0; i < outcomes_.size(); ++i) {
      const std::vector<BlockState> some = states(i);
      history.insert(history.end(), some.begin(), some.end());
    }
    for (std::uint32_t block = 0; block < kBlocks; ++block) {
      const std::vector<std::byte> rows = destination_.gather(block);
      contents.resize(static_cast<std::size_t>(run_number) + 1);
      contents.back().insert(contents.back().end(), rows.begin(), rows.end());
    }
  }
  EXPECT_EQ(histories[0], histories[1]);
  EXPECT_EQ(contents[0], contents[1]);
  EXPECT_THAT(histories[0], ::testing::Contains(BlockState::kFailed));
  EXPECT_THAT(histories[0], ::testing::Contains(BlockState::kMismatch));
  EXPECT_THAT(histories[0], ::testing::Contains(BlockState::kDone));
}

TEST_F(FaultExecutorTest, FlipsBytesOfFilesAndAsksForHelpWithDevices) {
  std::FILE* file = std::tmpfile();
  ASSERT_NE(file, nullptr);
  const int descriptor = fileno(file);
  ASSERT_EQ(ftruncate(descriptor, 64 * 8), 0);
  const BlockLayout::Options small{
      .shape = {.layers = 1, .kv = 2, .page_size = 2, .heads = 1, .head_size = 8, .element_bits = 16}, .blocks = 8};
  const auto layout_in = [&](MemoryKind kind) {
    RegionFacts facts{.kind = kind, .size = 64 * 8, .alignment = 4096};
    facts.file = kind == MemoryKind::kFile ? descriptor : kNoFile;
    return *BlockLayout::make(small, {std::make_shared<const Region>(facts, nullptr)});
  };
  // An executor that says it wrote, so that only the flip is seen.
  class Pretender final : public TransferExecutor {
   public:
    Result<TransferId> submit(Transfer&& transfer) override {
      Transfer taken = std::move(transfer);
      taken.done({.blocks = std::vector<BlockOutcome>(taken.blocks.size()), .error = {}});
      taken.settled();
      return TransferId{1};
    }
    void cancel(TransferId /*transfer*/) override {}
    void check_deadlines() override {}
    [[nodiscard]] bool can_move(const CopyPlan& /*plan*/) const override { return true; }
    [[nodiscard]] ExecutorLoad load() const override { return {.limit = 4}; }
    [[nodiscard]] std::string describe() const override { return "pretends"; }
  };
  const auto outcome_of = [&](MemoryKind kind, const FaultOptions& options) {
    FaultExecutor executor(clock_, std::make_unique<Pretender>(), options);
    TransferOutcome reported;
    EXPECT_TRUE(executor
                    .submit({.plan = plan_between(TestLayout::make(small).layout(), layout_in(kind)),
                             .blocks = same_blocks(3),
                             .done = [&](TransferOutcome&& outcome) { reported = std::move(outcome); }})
                    .has_value());
    while (executor.run_callbacks()) {
    }
    return reported;
  };
  FaultOptions options{.rules = {{.fault = Fault::kCorrupt, .at = 2}},
                       .callbacks = TransferLedger::Callbacks::kOnRequest};
  EXPECT_TRUE(outcome_of(MemoryKind::kFile, options).all_done());
  std::vector<std::byte> bytes(64 * 8);
  ASSERT_EQ(pread(descriptor, bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
  EXPECT_EQ(std::count(bytes.begin(), bytes.end(), std::byte{0}), 64 * 8 - 1);
  EXPECT_EQ(std::count(bytes.begin() + 64, bytes.begin() + 128, std::byte{0}), 63);

  EXPECT_THAT(outcome_of(MemoryKind::kDevice, options).error, HasSubstr("give FaultOptions::flip"));
  int flips = 0;
  options.flip = [&](const Region& region, std::uint64_t offset) {
    EXPECT_EQ(region.kind(), MemoryKind::kDevice);
    EXPECT_EQ(offset / 64, 1U);
    ++flips;
    return Status();
  };
  EXPECT_TRUE(outcome_of(MemoryKind::kDevice, options).all_done());
  EXPECT_EQ(flips, 1);
  std::fclose(file);
}

}  // namespace
}  // namespace cairn
