// Possible results of the kernel and the outcomes of blocks: with a backend whose results the test chooses.
#include "cairn/transfer/file_transfers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <optional>

#include "cairn/transfer/file_testing.h"
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

constexpr std::uint64_t kBlock = 8192;
constexpr std::uint64_t kCopyBytes = std::uint64_t{1} << 16;

class ScriptedBackend final : public IoBackend {
 public:
  [[nodiscard]] std::uint32_t depth() const override { return 4; }
  [[nodiscard]] std::uint32_t add_file(int descriptor) override {
    descriptors[next_] = descriptor;
    return next_++;
  }
  void remove_file(std::uint32_t file) override { EXPECT_EQ(descriptors.erase(file), 1U); }
  void add_memory(std::byte* base, std::uint64_t bytes) override { EXPECT_TRUE(memory.emplace(base, bytes).second); }
  void remove_memory(const std::byte* base) override { EXPECT_EQ(memory.erase(base), 1U); }
  void queue(const IoRequest& request) override { queued.push_back(request); }
  void reap(std::vector<IoResult>& /*out*/, Duration /*wait*/) override {}
  void wake() override {}
  [[nodiscard]] std::string describe() const override { return "scripted"; }

  std::map<std::uint32_t, int> descriptors;
  std::map<const std::byte*, std::uint64_t> memory;
  std::deque<IoRequest> queued;

 private:
  std::uint32_t next_ = 0;
};

class FileTransfersTest : public ::testing::Test {
 protected:
  static BlockLayout::Options blocks_of(std::uint32_t count) {
    return {.shape = {.layers = 1, .kv = 2, .page_size = 16, .heads = 2, .head_size = 64, .element_bits = 16},
            .arrangement = Arrangement::kContiguousNhd,
            .blocks = count,
            .alignment = 4096};
  }

  ~FileTransfersTest() override {
    transfers_.reset();
    EXPECT_TRUE(backend_.descriptors.empty());
    EXPECT_TRUE(backend_.memory.empty());
  }

  void submit(CopyPlanPtr plan, std::uint32_t count, TimePoint deadline = TimePoint::max()) {
    Transfer transfer;
    transfer.plan = std::move(plan);
    transfer.blocks = same_blocks(count);
    transfer.verify = Verify::kOff;  // checksums need threads; file_executor_threads_test.cc tests them
    transfer.deadline = deadline;
    transfer.done = [this](TransferOutcome&& outcome) { outcome_ = std::move(outcome); };
    transfer.settled = [this] { settled_ = true; };
    const Result<TransferId> accepted = ledger_.accept(std::move(transfer));
    ASSERT_TRUE(accepted) << accepted.error().to_string();
    id_ = *accepted;
    transfers_->add(ledger_.try_take());
    transfers_->queue_requests();
  }

  // Ends the oldest request with this result; on success the bytes are copied.
  void answer(std::int32_t result) {
    ASSERT_FALSE(backend_.queued.empty());
    const IoRequest request = backend_.queued.front();
    backend_.queued.pop_front();
    if (result > 0) {
      const int descriptor = backend_.descriptors.at(request.file);
      const auto bytes = static_cast<std::size_t>(result);
      const auto offset = static_cast<off_t>(request.offset);
      EXPECT_EQ(request.operation == IoOperation::kRead ? pread(descriptor, request.memory, bytes, offset)
                                                        : pwrite(descriptor, request.memory, bytes, offset),
                result)
          << std::strerror(errno);
    }
    transfers_->handle({.token = request.token, .result = result});
    transfers_->queue_requests();
    ledger_.run_callbacks();
  }

  [[nodiscard]] std::string states() const {
    std::string out;
    for (const BlockOutcome& block : outcome_->blocks) {
      out += std::string(to_string(block.state)) + " ";
    }
    return out;
  }

  ManualClock clock_;
  TransferLedger ledger_{clock_, 8, TransferLedger::Callbacks::kOnRequest};
  WorkThreads workers_{1};
  ScriptedBackend backend_;
  std::unique_ptr<FileTransfers> transfers_ = std::make_unique<FileTransfers>(backend_, workers_, kCopyBytes);
  TransferId id_{};
  std::optional<TransferOutcome> outcome_;
  bool settled_ = false;
};

TEST_F(FileTransfersTest, ShortAnswersAreContinued) {
  TestLayout host = TestLayout::make(blocks_of(4));
  host.fill(1);
  const FileLayout file(blocks_of(4), FileMode::kBuffered);
  submit(plan_between(host.layout(), file.layout()), 4);
  ASSERT_EQ(backend_.queued.size(), 1U) << "four adjacent blocks are one copy";
  EXPECT_EQ(backend_.queued.front().bytes, 4 * kBlock);
  answer(1000);
  EXPECT_EQ(backend_.queued.front().offset, 1000U);
  EXPECT_EQ(backend_.queued.front().bytes, 4 * kBlock - 1000);
  answer(-EINTR);
  answer(-EAGAIN);
  answer(4 * kBlock - 1001);
  EXPECT_FALSE(outcome_.has_value());
  answer(1);
  ASSERT_TRUE(outcome_.has_value());
  EXPECT_TRUE(outcome_->all_done()) << outcome_->error;
  EXPECT_TRUE(settled_);
  EXPECT_EQ(std::memcmp(file.bytes(0).data(), host.regions()[0].bytes().data(), 4 * kBlock), 0);
}

TEST_F(FileTransfersTest, DirectRequestsAreContinuedWhereTheyAreAligned) {
  TestLayout host = TestLayout::make(blocks_of(2));
  const FileLayout file(blocks_of(2), FileMode::kDirect);
  if (!file.layout()->regions()[0]->is_direct()) {
    GTEST_SKIP() << "no direct I/O in " << file.file(0).path();
  }
  submit(plan_between(file.layout(), host.layout()), 2);
  // 5000 bytes were read; the rest begins at the page before.
  const IoRequest first = backend_.queued.front();
  transfers_->handle({.token = first.token, .result = 5000});
  EXPECT_EQ(backend_.queued.back().offset, 4096U);
  EXPECT_EQ(backend_.queued.back().memory, first.memory + 4096);
  backend_.queued.pop_front();
  answer(2 * kBlock - 4096);
  EXPECT_TRUE(outcome_->all_done()) << outcome_->error;
}

TEST_F(FileTransfersTest, WhatBringsNothingForeverFails) {
  const FileLayout file(blocks_of(1), FileMode::kBuffered);
  submit(plan_between(TestLayout::make(blocks_of(1)).layout(), file.layout()), 1);
  for (int i = 0; i < 1000 && !outcome_.has_value(); ++i) {
    answer(-EAGAIN);
  }
  ASSERT_TRUE(outcome_.has_value());
  EXPECT_EQ(states(), "failed ");
  EXPECT_THAT(outcome_->error, HasSubstr("Resource temporarily unavailable"));
}

TEST_F(FileTransfersTest, ACopyOfManyBlocksThatFailsIsDoneAgainBlockByBlock) {
  TestLayout host = TestLayout::make(blocks_of(6));
  host.fill(2);
  const FileLayout file(blocks_of(6), FileMode::kBuffered);
  submit(plan_between(host.layout(), file.layout()), 6);
  answer(kBlock + 100);  // one block and a little
  answer(-EIO);
  // Five blocks are left, the first of them in part; four requests fit.
  ASSERT_EQ(backend_.queued.size(), 4U);
  EXPECT_EQ(backend_.queued[0].offset, kBlock + 100);
  EXPECT_EQ(backend_.queued[0].bytes, kBlock - 100);
  EXPECT_EQ(backend_.queued[1].bytes, kBlock);
  answer(kBlock - 100);
  answer(-EIO);
  answer(kBlock);
  answer(-ESTALE);
  EXPECT_FALSE(outcome_.has_value());
  answer(kBlock);
  ASSERT_TRUE(outcome_.has_value());
  EXPECT_EQ(states(), "done done failed done failed done ");
  EXPECT_THAT(outcome_->error, AllOf(HasSubstr("block 2"), HasSubstr("Input/output error"), HasSubstr("at 16384 of")));
  EXPECT_EQ(std::memcmp(file.bytes(0).data(), host.regions()[0].bytes().data(), 2 * kBlock), 0);
}

TEST_F(FileTransfersTest, ADirectRequestThatIsRefusedIsMadeBuffered) {
  TestLayout host = TestLayout::make(blocks_of(2));
  host.fill(3);
  const FileLayout file(blocks_of(2), FileMode::kDirect);
  if (!file.layout()->regions()[0]->is_direct()) {
    GTEST_SKIP() << "no direct I/O in " << file.file(0).path();
  }
  submit(plan_between(host.layout(), file.layout()), 2);
  const std::uint32_t direct = backend_.queued.front().file;
  answer(-EINVAL);
  ASSERT_EQ(backend_.queued.size(), 1U);
  EXPECT_NE(backend_.queued.front().file, direct) << "through another descriptor";
  EXPECT_THAT(transfers_->describe(), HasSubstr("1 file buffered: the file system refuses direct I/O"));
  answer(2 * kBlock);
  EXPECT_TRUE(outcome_->all_done()) << outcome_->error;
  // A second refusal is an error.
  submit(plan_between(host.layout(), file.layout()), 1);
  answer(-EINVAL);
  EXPECT_EQ(states(), "failed ");
}

TEST_F(FileTransfersTest, AReadThatIsLateSettlesWhenTheKernelIsDone) {
  const TestLayout host = TestLayout::make(blocks_of(2));
  const FileLayout file(blocks_of(2), FileMode::kBuffered);
  submit(plan_between(file.layout(), host.layout()), 2, TimePoint(1000));
  clock_.advance(Duration(1000));
  ledger_.check_deadlines();
  while (ledger_.run_callbacks()) {
  }
  ASSERT_TRUE(outcome_.has_value());
  EXPECT_EQ(states(), "expired expired ");
  EXPECT_FALSE(settled_) << "the kernel may still write into these blocks";
  answer(2 * kBlock);
  EXPECT_TRUE(settled_);
}

TEST_F(FileTransfersTest, BlocksThatHaveNotBegunAreCancelled) {
  constexpr std::uint32_t kMany = 200;  // more than begin at once
  const TestLayout host = TestLayout::make(blocks_of(kMany));
  const FileLayout file(blocks_of(kMany), FileMode::kBuffered);
  submit(plan_between(host.layout(), file.layout()), kMany);
  ledger_.cancel(id_);
  while (!backend_.queued.empty()) {
    answer(static_cast<std::int32_t>(backend_.queued.front().bytes));
  }
  ASSERT_TRUE(outcome_.has_value());
  EXPECT_EQ(outcome_->blocks.front().state, BlockState::kDone);
  EXPECT_EQ(outcome_->blocks.back().state, BlockState::kCancelled);
  EXPECT_TRUE(settled_);
  EXPECT_TRUE(transfers_->idle());
}

TEST_F(FileTransfersTest, ReadsAndWritesTakeTurns) {
  BlockLayout::Options options = blocks_of(64);
  const TestLayout host = TestLayout::make(options);
  const TestLayout other = TestLayout::make(options);
  const FileLayout file(options, FileMode::kBuffered);
  const FileLayout from(options, FileMode::kBuffered);
  submit(plan_between(host.layout(), file.layout()), 64);
  submit(plan_between(from.layout(), other.layout()), 64);
  // The writes came first and took all four places; from now on every second one is a read.
  std::string order;
  for (int i = 0; i < 12; ++i) {
    order += backend_.queued.front().operation == IoOperation::kRead ? 'r' : 'w';
    answer(static_cast<std::int32_t>(backend_.queued.front().bytes));
  }
  EXPECT_THAT(order, ::testing::AnyOf("wwwwrwrwrwrw", "wwwwwrwrwrwr"));
  while (!backend_.queued.empty()) {
    answer(static_cast<std::int32_t>(backend_.queued.front().bytes));
  }
}

TEST_F(FileTransfersTest, RegionsThatAreGoneAreForgotten) {
  {
    const TestLayout host = TestLayout::make(blocks_of(1));
    const FileLayout file(blocks_of(1), FileMode::kBuffered);
    submit(plan_between(host.layout(), file.layout()), 1);
    answer(kBlock);
    EXPECT_EQ(backend_.descriptors.size(), 1U);
    EXPECT_EQ(backend_.memory.size(), 1U);
  }
  const TestLayout host = TestLayout::make(blocks_of(1));
  const FileLayout file(blocks_of(1), FileMode::kBuffered);
  submit(plan_between(host.layout(), file.layout()), 1);
  EXPECT_EQ(backend_.descriptors.size(), 1U) << "the other one is closed, and its number may name any file";
  EXPECT_EQ(backend_.memory.size(), 1U);
  answer(kBlock);
}

TEST_F(FileTransfersTest, PartsOfPagesAreWrittenBuffered) {
  BlockLayout::Options options = blocks_of(4);
  options.shape.head_size = 60;  // blocks of 7680 bytes
  options.alignment = 1;
  const TestLayout host = TestLayout::make(options);
  const FileLayout file(options, FileMode::kDirect);
  if (!file.layout()->regions()[0]->is_direct()) {
    GTEST_SKIP() << "no direct I/O in " << file.file(0).path();
  }
  submit(plan_between(host.layout(), file.layout()), 2);
  EXPECT_NE(backend_.descriptors.at(backend_.queued.front().file), file.layout()->regions()[0]->file());
  answer(2 * 7680);
  EXPECT_TRUE(outcome_->all_done()) << outcome_->error;
}

}  // namespace
}  // namespace cairn
