// Outcomes of copies that are late, lost or cancelled, and of a tier that fails.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <string>
#include <utility>
#include <vector>

#include "cairn/tier/tier_link.h"
#include "cairn/tier/tier_testing.h"

namespace cairn {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::AllOf;
using testing::chain;
using testing::compute;
using testing::Copied;
using ::testing::Each;
using ::testing::ElementsAre;
using testing::expect_error;
using testing::fence;
using testing::first_of;
using ::testing::HasSubstr;
using testing::joined;
using testing::Keys;
using ::testing::SizeIs;

constexpr BlockState kDone = BlockState::kDone;
constexpr BlockState kFailed = BlockState::kFailed;
constexpr BlockState kExpired = BlockState::kExpired;
constexpr BlockState kCancelled = BlockState::kCancelled;

// While it exists, files cannot be written beyond their first bytes.
class NoMoreWrites {
 public:
  NoMoreWrites() : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    EXPECT_EQ(getrlimit(RLIMIT_FSIZE, &before_), 0);
    const rlimit none{.rlim_cur = 1, .rlim_max = before_.rlim_max};
    EXPECT_EQ(setrlimit(RLIMIT_FSIZE, &none), 0);
  }
  NoMoreWrites(const NoMoreWrites&) = delete;
  NoMoreWrites& operator=(const NoMoreWrites&) = delete;
  ~NoMoreWrites() {
    EXPECT_EQ(setrlimit(RLIMIT_FSIZE, &before_), 0);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_{};
  void (*handler_)(int);
};

// Reports which blocks failed, without an error text.
class SilentExecutor final : public TransferExecutor {
 public:
  explicit SilentExecutor(TransferExecutor& inside) : inside_(inside) {}

  [[nodiscard]] Result<TransferId> submit(Transfer&& transfer) override {
    transfer.done = [done = std::move(transfer.done)](TransferOutcome&& outcome) {
      outcome.error.clear();
      done(std::move(outcome));
    };
    return inside_.submit(std::move(transfer));
  }
  void cancel(TransferId transfer) override { inside_.cancel(transfer); }
  void check_deadlines() override { inside_.check_deadlines(); }
  [[nodiscard]] bool can_move(const CopyPlan& plan) const override { return inside_.can_move(plan); }
  [[nodiscard]] ExecutorLoad load() const override { return inside_.load(); }
  [[nodiscard]] std::string describe() const override { return "a silent executor"; }

 private:
  TransferExecutor& inside_;
};

class TierLinkFaultsTest : public testing::ThreeTiers {
 protected:
  void start_with_blocks(std::vector<FaultRule> rules, std::size_t limit = 16) {
    start(std::move(rules), limit);
    const ImmutableBlocks computed = compute(*host_, keys_);
  }
  const Keys keys_ = chain(1, 4);
};

TEST_F(TierLinkFaultsTest, LateTargetsAreQuarantinedAndTheSourcePinnedUntilTheCopyHasEnded) {
  start_with_blocks({{.fault = Fault::kHang, .at = 2}});
  {
    Copied down;
    ASSERT_TRUE(submit(*to_disk_, keys_, down, seconds(9)));
    run_for(milliseconds(8500));
    EXPECT_FALSE(down.outcome);
    run_for(milliseconds(500));
    EXPECT_EQ(down.done_at, seconds(9)) << "at the deadline, without waiting for the late one";
    EXPECT_THAT(down.states(), ElementsAre(kDone, kExpired, kDone, kDone));
    EXPECT_EQ(testing::keys_of(down.outcome->blocks), (Keys{keys_[0], keys_[2], keys_[3]}));
    EXPECT_THAT(down.outcome->error, HasSubstr("expired"));
  }
  PoolCounts counts = disk_->pool()->counts();
  EXPECT_EQ(counts.quarantined, 1U);
  EXPECT_EQ(counts.inactive, 3U);
  EXPECT_EQ(counts.free, kTierBlocks - 4);
  EXPECT_EQ(host_->pool()->counts().pinned, 4U);
  EXPECT_EQ(to_disk_->meter().totals().quarantined, 1U);
  EXPECT_EQ(to_disk_->meter().totals().expired, 1U);
  EXPECT_EQ(to_disk_->meter().totals().blocks_in_flight, 0U);
  run_for(seconds(100));
  EXPECT_EQ(disk_->pool()->counts().quarantined, 1U) << "it stays quarantined however long it takes";
  EXPECT_FALSE(disk_->pool()->allocate(kTierBlocks)) << "it cannot be allocated";
  faults_->release();
  run_for(seconds(2));
  EXPECT_EQ(to_disk_->meter().totals().quarantined, 0U);
  expect_at_rest(*disk_, 3);
  expect_at_rest(*host_, 4);
  EXPECT_FALSE(disk_->pool()->contains(keys_[1])) << "it was too late to be registered";
}

TEST_F(TierLinkFaultsTest, WhatIsNeverHeardOfStaysQuarantined) {
  start_with_blocks({{.fault = Fault::kLose, .at = 1}, {.fault = Fault::kLose, .at = 3}});
  {
    Copied down;
    ASSERT_TRUE(submit(*to_disk_, keys_, down, seconds(9)));
    run_for(seconds(50));
    EXPECT_THAT(down.states(), ElementsAre(kExpired, kDone, kExpired, kDone));
  }
  faults_->release();
  run_for(seconds(50));
  EXPECT_EQ(disk_->pool()->counts().quarantined, 2U);
  EXPECT_EQ(host_->pool()->counts().pinned, 4U);
  // Other blocks are copied as usual.
  const Keys others = chain(2, 3);
  {
    const ImmutableBlocks computed = compute(*host_, others);
  }
  copy(*to_disk_, others);
  EXPECT_EQ(disk_->pool()->counts().quarantined, 2U);
  faults_.reset();  // with the executor the last copy ends
  EXPECT_EQ(disk_->pool()->counts().quarantined, 0U);
  EXPECT_EQ(host_->pool()->counts().pinned, 0U);
}

// Copies with parts on several ranks; the test gives the ranks' answers by hand.
class HandExecutor final : public TransferExecutor {
 public:
  explicit HandExecutor(const Clock& clock) : ledger_(clock, 4, TransferLedger::Callbacks::kOnRequest) {}
  Result<TransferId> submit(Transfer&& transfer) override { return ledger_.accept(std::move(transfer)); }
  void cancel(TransferId transfer) override { ledger_.cancel(transfer); }
  void check_deadlines() override { ledger_.check_deadlines(); }
  bool can_move(const CopyPlan& /*plan*/) const override { return true; }
  ExecutorLoad load() const override { return ledger_.load(); }
  std::string describe() const override { return "by hand"; }

  std::shared_ptr<ActiveTransfer> take() { return ledger_.try_take(); }
  void run() {
    while (ledger_.run_callbacks()) {
    }
  }

 private:
  TransferLedger ledger_;
};

TEST_F(TierLinkFaultsTest, ABlockThatFailedInOnePartIsQuarantinedUntilAllPartsHaveEnded) {
  start_with_blocks({});
  HandExecutor executor(clock_);
  Result<std::unique_ptr<TierLink>> link = TierLink::make(*host_, *disk_, executor, clock_);
  ASSERT_TRUE(link.has_value());
  Copied down;
  ASSERT_TRUE(submit(**link, keys_, down));
  const std::shared_ptr<ActiveTransfer> active = executor.take();
  ASSERT_EQ(active->begin_run(0, 4), 4U);
  std::vector<BlockOutcome> outcomes(4, {.checksum = Checksum{7}});
  outcomes[1].state = kFailed;
  outcomes[2].state = BlockState::kMismatch;
  active->report_early(0, outcomes, "rank 1 is gone");
  executor.run();
  EXPECT_THAT(down.states(), ElementsAre(kDone, kFailed, BlockState::kMismatch, kDone));
  EXPECT_EQ(disk_->pool()->counts().quarantined, 2U) << "another rank may still write to them";
  EXPECT_EQ(host_->pool()->counts().pinned, 4U);
  active->release(0, 4);
  executor.run();
  EXPECT_EQ(disk_->pool()->counts().quarantined, 0U);
  EXPECT_EQ((*link)->meter().totals().quarantined, 0U);
  EXPECT_EQ(host_->pool()->counts().pinned, 0U);
}

TEST_F(TierLinkFaultsTest, ADeadlineInTheMiddleRegistersWhatArrivedBefore) {
  start_with_blocks({});
  {
    Copied down;
    ASSERT_TRUE(submit(*to_disk_, keys_, down, milliseconds(2500)));
    run_for(seconds(5));
    EXPECT_THAT(down.states(), ElementsAre(kDone, kDone, kExpired, kExpired));
    EXPECT_EQ(down.done_at, milliseconds(2500));
  }
  expect_at_rest(*disk_, 2);
  expect_at_rest(*host_, 4);
  restart();
  EXPECT_EQ(disk_->recovered().blocks, 2U);
}

TEST_F(TierLinkFaultsTest, WhatIsTakenBackRegistersWhatWasDoneBefore) {
  start_with_blocks({});
  {
    Copied down;
    const auto id = submit(*to_disk_, keys_, down);
    ASSERT_TRUE(id);
    run_for(milliseconds(1500));
    to_disk_->cancel(*id);
    run_for(seconds(3));
    EXPECT_THAT(down.states(), ElementsAre(kDone, kDone, kCancelled, kCancelled));
  }
  expect_at_rest(*disk_, 2);
  expect_at_rest(*host_, 4);
  EXPECT_EQ(to_disk_->meter().totals().cancelled, 2U);
  EXPECT_EQ(disk_->report(TierUse::kWriting).failures, 0U);
}

TEST_F(TierLinkFaultsTest, WhatIsDelayedOrCorruptedOnTheWayIsFoundByTheNextReader) {
  start_with_blocks({{.fault = Fault::kDelay, .at = 1}, {.fault = Fault::kCorrupt, .at = 2}});
  copy(*to_disk_, keys_);
  fence(*host_);
  {
    Copied up;
    ASSERT_TRUE(submit(*from_disk_, keys_, up));
    run_for(seconds(5));
    EXPECT_THAT(up.states(), ElementsAre(kDone, BlockState::kMismatch, kDone, kDone));
  }
  expect_at_rest(*host_, 3);
  expect_at_rest(*disk_, 3);
  expect_holds(*host_, {keys_[0], keys_[2], keys_[3]});
}

TEST_F(TierLinkFaultsTest, BytesThatChangeInFlightAreNotRegistered) {
  start_with_blocks({{.fault = Fault::kCorruptInFlight, .at = 6}});
  copy(*to_disk_, keys_);
  fence(*host_);
  Copied up;
  ASSERT_TRUE(submit(*from_disk_, keys_, up));
  run_for(seconds(5));
  EXPECT_THAT(up.states(), ElementsAre(kDone, BlockState::kMismatch, kDone, kDone));
  EXPECT_FALSE(host_->pool()->contains(keys_[1]));
}

TEST_F(TierLinkFaultsTest, AFileThatFailsIsLeftAloneUntilATrialSucceeds) {
  std::vector<TierChange> reported;
  disk_.reset();
  Tier::Options options = testing::disk_options(path_, kTierBlocks, clock_);
  options.on_change = [&](const TierChange& change) { reported.push_back(change); };
  disk_ = testing::make_tier(std::move(options));
  start_with_blocks({{.fault = Fault::kFail, .at = 1},
                     {.fault = Fault::kFail, .at = 2},
                     {.fault = Fault::kFail, .at = 3},
                     {.fault = Fault::kFail, .at = 4}});
  const auto fail_one = [&] {
    Copied down;
    ASSERT_TRUE(submit(*to_disk_, first_of(keys_, 1), down));
    run_now();
    EXPECT_THAT(down.states(), ElementsAre(kFailed));
  };
  fail_one();
  fail_one();
  EXPECT_TRUE(reported.empty());
  fail_one();
  ASSERT_EQ(reported.size(), 1U);
  EXPECT_EQ(reported[0].level, CacheLevel::kG3);
  EXPECT_EQ(reported[0].use, TierUse::kWriting);
  EXPECT_FALSE(reported[0].is_up);
  EXPECT_THAT(reported[0].reason, HasSubstr("injected: fail"));
  EXPECT_FALSE(to_disk_->is_up());
  EXPECT_FALSE(to_disk_->may_be_tried());
  EXPECT_TRUE(from_disk_->is_up()) << "reading was never tried";
  {
    Copied refused;
    auto result = submit(*to_disk_, first_of(keys_, 2), refused);
    ASSERT_FALSE(result);
    expect_error(result.error().error, ErrorCode::kUnavailable, "G3 is not written to: block 0 of 1");
    EXPECT_EQ(result.error().blocks.source.size(), 2U);
    EXPECT_EQ(result.error().blocks.targets.size(), 2U);
  }
  clock_.advance(seconds(1));
  EXPECT_FALSE(to_disk_->is_up());
  EXPECT_TRUE(to_disk_->may_be_tried());
  to_disk_->pause(true);
  EXPECT_FALSE(to_disk_->may_be_tried());
  to_disk_->pause(false);
  fail_one();  // the trial
  EXPECT_EQ(reported.size(), 1U);
  clock_.advance(seconds(1));
  {
    Copied early;
    EXPECT_FALSE(submit(*to_disk_, first_of(keys_, 1), early)) << "the wait has doubled";
  }
  clock_.advance(seconds(1));
  {
    Copied trial;
    ASSERT_TRUE(submit(*to_disk_, first_of(keys_, 1), trial));
    Copied second;
    EXPECT_FALSE(submit(*to_disk_, first_of(keys_, 1), second)) << "one trial at a time";
    run_for(seconds(2));
    EXPECT_THAT(trial.states(), ElementsAre(kDone));
  }
  ASSERT_EQ(reported.size(), 2U);
  EXPECT_TRUE(reported[1].is_up);
  EXPECT_TRUE(to_disk_->is_up());
  expect_at_rest(*disk_, 1);
  expect_at_rest(*host_, 4);
}

TEST_F(TierLinkFaultsTest, ReadingAndWritingAreTakenOutApart) {
  start_with_blocks(
      {{.fault = Fault::kFail, .at = 5}, {.fault = Fault::kFail, .at = 6}, {.fault = Fault::kShort, .at = 7}});
  copy(*to_disk_, keys_);
  host_->reset(first_of(keys_, 1));
  for (int i = 0; i < 3; ++i) {
    Copied up;
    ASSERT_TRUE(submit(*from_disk_, first_of(keys_, 1), up));
    run_for(milliseconds(500));
    EXPECT_THAT(up.states(), ElementsAre(kFailed));
  }
  EXPECT_FALSE(from_disk_->is_up());
  EXPECT_TRUE(to_disk_->is_up());
  EXPECT_TRUE(host_->is_up(TierUse::kWriting)) << "the host tier is not blamed for the file";
  EXPECT_TRUE(disk_->pool()->contains(keys_[0])) << "it was not read, so its bytes may be right";
  Copied up;
  const auto refused = submit(*from_disk_, first_of(keys_, 1), up);
  ASSERT_FALSE(refused);
  expect_error(refused.error().error, ErrorCode::kUnavailable, "G3 is out of use: ");
  clock_.advance(seconds(1));
  copy(*from_disk_, first_of(keys_, 1));
  EXPECT_TRUE(from_disk_->is_up());
  expect_holds(*host_, keys_);
}

TEST_F(TierLinkFaultsTest, ARefusalByAFullExecutorIsNoTrial) {
  start_with_blocks(
      {{.fault = Fault::kFail, .at = 1}, {.fault = Fault::kFail, .at = 2}, {.fault = Fault::kFail, .at = 3}}, 1);
  for (int i = 0; i < 3; ++i) {
    Copied down;
    ASSERT_TRUE(submit(*to_disk_, first_of(keys_, 1), down));
    run_now();
  }
  EXPECT_FALSE(to_disk_->is_up());
  clock_.advance(seconds(2));
  Copied other;
  ASSERT_TRUE(submit(*from_host_, keys_, other));
  {
    Copied refused;
    const auto full = submit(*to_disk_, first_of(keys_, 1), refused);
    ASSERT_FALSE(full);
    EXPECT_EQ(full.error().error.code, ErrorCode::kExhausted);
  }
  run_for(seconds(5));
  copy(*to_disk_, keys_);
  EXPECT_TRUE(to_disk_->is_up());
}

TEST_F(TierLinkFaultsTest, WhatFailedWithoutAWordIsNotRegistered) {
  start_with_blocks({{.fault = Fault::kFail, .at = 1, .every = 1}});
  SilentExecutor silent(*faults_);
  to_disk_ = *TierLink::make(*host_, *disk_, silent, clock_);
  {
    Copied down;
    ASSERT_TRUE(submit(*to_disk_, keys_, down));
    run_for(seconds(5));
    EXPECT_THAT(down.states(), AllOf(SizeIs(4), Each(kFailed)));
    EXPECT_TRUE(down.outcome->blocks.empty());
    EXPECT_THAT(down.outcome->error, HasSubstr("a silent executor did not copy every block"));
  }
  expect_at_rest(*disk_, 0);
  expect_at_rest(*host_, 4);
  EXPECT_EQ(disk_->report(TierUse::kWriting).failures, 1U);
  restart();
  EXPECT_EQ(disk_->recovered().blocks, 0U);
}

// Returns no checksums.
class UncheckedExecutor final : public TransferExecutor {
 public:
  explicit UncheckedExecutor(TransferExecutor& inside) : inside_(inside) {}

  [[nodiscard]] Result<TransferId> submit(Transfer&& transfer) override {
    transfer.done = [done = std::move(transfer.done)](TransferOutcome&& outcome) {
      outcome.blocks[1].checksum = kNoChecksum;
      done(std::move(outcome));
    };
    return inside_.submit(std::move(transfer));
  }
  void cancel(TransferId transfer) override { inside_.cancel(transfer); }
  void check_deadlines() override { inside_.check_deadlines(); }
  [[nodiscard]] bool can_move(const CopyPlan& plan) const override { return inside_.can_move(plan); }
  [[nodiscard]] ExecutorLoad load() const override { return inside_.load(); }
  [[nodiscard]] std::string describe() const override { return "an unchecked executor"; }

 private:
  TransferExecutor& inside_;
};

TEST_F(TierLinkFaultsTest, WhatHasNoChecksumIsNotRegistered) {
  start_with_blocks({});
  UncheckedExecutor unchecked(*faults_);
  to_disk_ = *TierLink::make(*host_, *disk_, unchecked, clock_);
  Copied down;
  ASSERT_TRUE(submit(*to_disk_, keys_, down));
  run_for(seconds(5));
  EXPECT_THAT(down.states(), ElementsAre(kDone, kFailed, kDone, kDone));
  EXPECT_THAT(down.outcome->error, HasSubstr("an unchecked executor made no checksum of block"));
  EXPECT_FALSE(disk_->pool()->contains(keys_[1]));
}

TEST_F(TierLinkFaultsTest, ADiskThatReturnsGarbageIsTakenOutAndComesBack) {
  start_with_blocks({});
  const Keys more = chain(2, 4);
  {
    const ImmutableBlocks computed = compute(*host_, more);
  }
  copy(*to_disk_, joined(keys_, more));
  fence(*host_);
  const auto read_garbage = [&](const BlockKey& key) {
    testing::damage(*disk_, block_id_of(*disk_, key));
    Copied up;
    ASSERT_TRUE(submit(*from_disk_, {key}, up));
    run_for(seconds(2));
    EXPECT_THAT(up.states(), ElementsAre(BlockState::kMismatch));
    EXPECT_FALSE(disk_->pool()->contains(key)) << "it is dropped";
  };
  read_garbage(keys_[0]);
  read_garbage(keys_[1]);
  EXPECT_TRUE(from_disk_->is_up());
  copy(*from_disk_, {more[0]});
  read_garbage(keys_[2]);
  EXPECT_TRUE(from_disk_->is_up()) << "one in between was right";
  read_garbage(keys_[3]);
  read_garbage(more[1]);
  EXPECT_FALSE(from_disk_->is_up());
  EXPECT_THAT(disk_->report(TierUse::kReading).reason, HasSubstr("other bytes than it was stored with"));
  EXPECT_TRUE(to_disk_->is_up()) << "it can be written";
  clock_.advance(seconds(1));
  read_garbage(more[2]);  // the trial
  EXPECT_FALSE(from_disk_->is_up());
  clock_.advance(seconds(2));
  copy(*from_disk_, {more[3]});
  EXPECT_TRUE(from_disk_->is_up());
}

TEST_F(TierLinkFaultsTest, LateCopiesCountAgainstTheTier) {
  start_with_blocks({{.fault = Fault::kHang, .at = 1, .every = 1}});
  for (int i = 0; i < 3; ++i) {
    Copied down;
    ASSERT_TRUE(submit(*to_disk_, first_of(keys_, 1), down, clock_.now() + seconds(1)));
    run_for(seconds(1));
    EXPECT_THAT(down.states(), ElementsAre(kExpired));
  }
  EXPECT_FALSE(disk_->is_up(TierUse::kWriting));
  EXPECT_TRUE(host_->is_up(TierUse::kReading)) << "it did not fail";
  EXPECT_EQ(disk_->pool()->counts().quarantined, 3U);
  faults_->release();
  run_for(seconds(4));
  expect_at_rest(*disk_, 0);
}

TEST_F(TierLinkFaultsTest, EntriesThatCannotBeWrittenRegisterNothingAndTakeTheFileOut) {
  start_with_blocks({});
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(to_disk_->is_up());
    Copied down;
    ASSERT_TRUE(submit(*to_disk_, keys_, down));
    for (int second = 0; second < 4; ++second) {
      clock_.advance(seconds(1));
      simulated_->run();
    }
    while (simulated_->run()) {
    }
    const NoMoreWrites full;  // the blocks are written, their entries are not
    run_now();
    EXPECT_THAT(down.states(), Each(kFailed));
    EXPECT_THAT(down.outcome->error, HasSubstr("blocks.cairn"));
    EXPECT_TRUE(down.outcome->blocks.empty());
  }
  EXPECT_FALSE(to_disk_->is_up());
  expect_at_rest(*disk_, 0);
  expect_at_rest(*host_, 4);
  EXPECT_EQ(to_disk_->meter().totals().blocks, 0U);
  EXPECT_EQ(to_disk_->meter().totals().failed, 12U);
  clock_.advance(seconds(2));
  copy(*to_disk_, keys_);
  EXPECT_TRUE(to_disk_->is_up());
  restart();
  EXPECT_EQ(disk_->recovered().blocks, 4U);
}

TEST_F(TierLinkFaultsTest, BlocksWhoseEntriesCannotBeErasedAreNotWritten) {
  start();
  const Keys many = chain(2, kTierBlocks);
  {
    const ImmutableBlocks computed = compute(*host_, many);
  }
  copy(*to_disk_, many);
  fence(*host_);
  {
    const ImmutableBlocks computed = compute(*host_, keys_);
  }
  {
    const NoMoreWrites full;
    Copied down;
    auto refused = submit(*to_disk_, keys_, down);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().error.code, ErrorCode::kIo);
    EXPECT_EQ(refused.error().blocks.targets.size(), 4U);
  }
  EXPECT_EQ(disk_->report(TierUse::kWriting).failures, 1U);
  restart();
  EXPECT_EQ(disk_->recovered().blocks, kTierBlocks);
  expect_holds(*disk_, many);
}

TEST_F(TierLinkFaultsTest, TheExecutorsEndReportsTransfersInFlight) {
  start_with_blocks({{.fault = Fault::kHang, .at = 4}});
  {
    Copied begun;
    Copied waiting;
    ASSERT_TRUE(submit(*to_disk_, keys_, begun));
    ASSERT_TRUE(submit(*from_host_, keys_, waiting));
    run_for(seconds(1));
    faults_.reset();
    EXPECT_THAT(begun.states(), ElementsAre(kDone, kDone, kCancelled, kFailed));
    EXPECT_THAT(waiting.states(), Each(kCancelled));
  }
  expect_at_rest(*disk_, 2);
  expect_at_rest(*host_, 4);
  expect_at_rest(*device_, 0);
}

}  // namespace
}  // namespace cairn
