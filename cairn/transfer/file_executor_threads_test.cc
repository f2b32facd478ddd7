#include "cairn/transfer/file_executor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <future>
#include <numeric>
#include <random>

#include "cairn/transfer/file_testing.h"
#include "cairn/transfer/transfer_testing.h"

namespace cairn {
namespace {

using ::testing::AllOf;
using testing::FileLayout;
using testing::FileMode;
using ::testing::HasSubstr;
using testing::plan_between;
using testing::random_bytes;
using testing::same_blocks;
using testing::TestLayout;

BlockLayoutPtr plain_layout(const BlockLayout::Options& options) { return TestLayout::make(options).layout(); }

Transfer transfer_of(CopyPlanPtr plan, std::vector<TransferBlock> blocks, Verify verify = Verify::kMake) {
  Transfer transfer;
  transfer.plan = std::move(plan);
  transfer.blocks = std::move(blocks);
  transfer.verify = verify;
  return transfer;
}

struct Variant {
  const char* name;
  IoMethod method;
  FileMode mode;
};

std::unique_ptr<FileExecutor> make(IoMethod method, FileExecutor::Options options = {}) {
  options.method = method;
  options.copy_bytes = 1U << 16U;  // so that small blocks are cut and merged
  Result<std::unique_ptr<FileExecutor>> made = FileExecutor::make(steady_clock(), options);
  EXPECT_TRUE(made) << made.error().to_string();
  return *std::move(made);
}

TransferOutcome run(TransferExecutor& executor, Transfer transfer) {
  std::promise<TransferOutcome> outcome;
  std::promise<void> settled;
  transfer.done = [&outcome](TransferOutcome&& result) { outcome.set_value(std::move(result)); };
  transfer.settled = [&settled] { settled.set_value(); };
  const Result<TransferId> accepted = executor.submit(std::move(transfer));
  EXPECT_TRUE(accepted) << accepted.error().to_string();
  settled.get_future().wait();
  return outcome.get_future().get();
}

// The same blocks, with the checksums that were made of them.
std::vector<TransferBlock> expecting(std::vector<TransferBlock> blocks, const TransferOutcome& made) {
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    std::swap(blocks[i].pair.source, blocks[i].pair.destination);
    blocks[i].expected = made.blocks[i].checksum;
  }
  return blocks;
}

void fill(const BlockLayout& layout, std::uint64_t seed) {
  for (const RegionPtr& region : layout.regions()) {
    const std::vector<std::byte> bytes = random_bytes(region->size(), ++seed);
    std::memcpy(region->base(), bytes.data(), bytes.size());
  }
}

// Blocks of 64 KiB in one piece.
BlockLayout::Options large_blocks(std::uint32_t blocks) {
  return {.shape = {.layers = 4, .kv = 2, .page_size = 16, .heads = 4, .head_size = 64, .element_bits = 16},
          .blocks = blocks};
}

class FileExecutorTest : public ::testing::TestWithParam<Variant> {
 protected:
  void SetUp() override {
    if (GetParam().method == IoMethod::kUring && !make_io_backend(IoMethod::kUring, 1)) {
      GTEST_SKIP() << make_io_backend(IoMethod::kUring, 1).error().message;
    }
    executor_ = make(GetParam().method);
  }
  std::unique_ptr<FileExecutor> executor_;
};

INSTANTIATE_TEST_SUITE_P(Variants, FileExecutorTest,
                         ::testing::Values(Variant{"UringDirect", IoMethod::kUring, FileMode::kDirect},
                                           Variant{"UringBuffered", IoMethod::kUring, FileMode::kBuffered},
                                           Variant{"ThreadsDirect", IoMethod::kThreads, FileMode::kDirect},
                                           Variant{"ThreadsBuffered", IoMethod::kThreads, FileMode::kBuffered}),
                         [](const auto& test) { return test.param.name; });

TEST_P(FileExecutorTest, WritesAndReadsAnyArrangement) {
  std::mt19937 random(11);
  const auto pick = [&random](std::uint32_t low, std::uint32_t high) {
    return std::uniform_int_distribution<std::uint32_t>(low, high)(random);
  };
  for (int round = 0; round < 8; ++round) {
    SCOPED_TRACE(::testing::Message() << "round " << round);
    BlockLayout::Options options{.shape = {.layers = pick(1, 3),
                                           .kv = pick(1, 2),
                                           .page_size = pick(1, 16),
                                           .heads = pick(1, 4),
                                           .head_size = pick(1, 2) == 1 ? 64 : pick(1, 130),
                                           .element_bits = 16},
                                 .blocks = pick(4, 24)};
    const auto arrange = [&] {
      options.arrangement = kAllArrangements[pick(0, 5)];
      options.alignment = pick(0, 1) == 0 ? 1 : 4096;
    };
    arrange();
    TestLayout source = TestLayout::make(options);
    source.fill(round);
    arrange();
    const FileLayout file(options, GetParam().mode);
    arrange();
    TestLayout target = TestLayout::make(options);
    target.fill(99);

    std::vector<TransferBlock> blocks = same_blocks(options.blocks);
    std::vector<std::uint32_t> order(options.blocks);
    std::iota(order.begin(), order.end(), 0U);
    if (pick(0, 1) == 1) {
      std::shuffle(order.begin(), order.end(), random);
    }
    blocks.resize(pick(1, options.blocks));
    std::vector<BlockPair> pairs;
    for (std::uint32_t i = 0; i < blocks.size(); ++i) {
      blocks[i].pair.destination = order[i];
      pairs.push_back(blocks[i].pair);
    }

    // The expected file: the copies of the plan, and guard bytes everywhere else.
    const CopyPlanPtr out = plan_between(source.layout(), file.layout());
    std::vector<std::vector<std::byte>> model;
    for (std::size_t i = 0; i < file.files(); ++i) {
      model.push_back(file.bytes(i));
    }
    std::vector<Copy> copies;
    out->expand(pairs, UINT64_MAX, copies);
    for (const Copy& copy : copies) {
      std::memcpy(model[copy.destination_region].data() + copy.destination_offset,
                  source.regions()[copy.source_region].bytes().data() + copy.source_offset, copy.bytes);
    }
    const TransferOutcome written = run(*executor_, transfer_of(out, blocks));
    ASSERT_TRUE(written.all_done()) << written.error;
    for (std::size_t i = 0; i < file.files(); ++i) {
      ASSERT_TRUE(file.bytes(i) == model[i]) << "file " << i;
    }

    const TransferOutcome read = run(*executor_, transfer_of(plan_between(file.layout(), target.layout()),
                                                             expecting(blocks, written), Verify::kCheck));
    ASSERT_TRUE(read.all_done()) << read.error;
    std::vector<std::uint32_t> moved;
    for (const TransferBlock& block : blocks) {
      moved.push_back(block.pair.source);
      ASSERT_TRUE(target.holds(block.pair.source, source, block.pair.source));
    }
    ASSERT_TRUE(target.untouched_but(moved));
  }
}

TEST_P(FileExecutorTest, MemoryNeedNotBeAligned) {
  const BlockLayout::Options options = large_blocks(9);
  const std::uint64_t bytes = BlockLayout::region_sizes(options)->front();
  const testing::TestRegion memory(bytes, 4096, 8);
  const RegionPtr& shifted = memory.region();
  const BlockLayoutPtr host = *BlockLayout::make(options, {shifted});
  fill(*host, 5);
  const std::vector<std::byte> before(memory.bytes().begin(), memory.bytes().end());
  const FileLayout file(options, GetParam().mode);
  const TransferOutcome written = run(*executor_, transfer_of(plan_between(host, file.layout()), same_blocks(9)));
  ASSERT_TRUE(written.all_done()) << written.error;
  EXPECT_EQ(std::memcmp(file.bytes(0).data(), host->regions()[0]->base(), bytes), 0);
  std::memset(shifted->base(), 0, bytes);
  const TransferOutcome read = run(
      *executor_, transfer_of(plan_between(file.layout(), host), expecting(same_blocks(9), written), Verify::kCheck));
  ASSERT_TRUE(read.all_done()) << read.error;
  EXPECT_TRUE(std::ranges::equal(memory.bytes(), before));
  EXPECT_TRUE(memory.guards_intact());
}

TEST_P(FileExecutorTest, OnlyBlocksBeyondTheEndOfATruncatedFileFail) {
  const FileLayout file(large_blocks(8), GetParam().mode);
  const BlockLayoutPtr host = plain_layout(large_blocks(8));
  ASSERT_EQ(ftruncate(file.file(0).descriptor(), 3 * 65536 + 5000), 0);
  const TransferOutcome read = run(*executor_, transfer_of(plan_between(file.layout(), host), same_blocks(8)));
  for (std::uint32_t i = 0; i < 8; ++i) {
    EXPECT_EQ(read.blocks[i].state, i < 3 ? BlockState::kDone : BlockState::kFailed) << i;
  }
  EXPECT_THAT(read.error, AllOf(HasSubstr("truncated"), HasSubstr(file.file(0).path())));
}

TEST_P(FileExecutorTest, OnlyTheBlockThatWasChangedIsAMismatch) {
  const FileLayout file(large_blocks(6), GetParam().mode);
  const BlockLayoutPtr host = plain_layout(large_blocks(6));
  fill(*host, 3);
  const TransferOutcome written = run(*executor_, transfer_of(plan_between(host, file.layout()), same_blocks(6)));
  ASSERT_TRUE(written.all_done()) << written.error;
  std::vector<std::byte> byte = file.file(0).read(4 * 65536 + 77, 1);
  byte[0] ^= std::byte{0x10};
  file.file(0).write(4 * 65536 + 77, byte);
  Transfer transfer =
      transfer_of(plan_between(file.layout(), host), expecting(same_blocks(6), written), Verify::kCheck);
  const TransferOutcome read = run(*executor_, transfer);
  for (std::uint32_t i = 0; i < 6; ++i) {
    EXPECT_EQ(read.blocks[i].state, i == 4 ? BlockState::kMismatch : BlockState::kDone) << i;
  }
  transfer.verify = Verify::kOff;
  EXPECT_TRUE(run(*executor_, transfer).all_done()) << "nothing was verified";
}

TEST_P(FileExecutorTest, AFileThatCannotBeWrittenFailsItsBlocks) {
  const BlockLayoutPtr host = plain_layout(large_blocks(4));
  const FileLayout read_only(large_blocks(4), FileMode::kReadOnly);
  const TransferOutcome refused = run(*executor_, transfer_of(plan_between(host, read_only.layout()), same_blocks(4)));
  EXPECT_EQ(refused.blocks[3].state, BlockState::kFailed);
  EXPECT_THAT(refused.error, HasSubstr("not open for this"));

  const std::uint64_t bytes = BlockLayout::region_sizes(large_blocks(4))->front();
  const auto full = std::make_shared<const Region>(
      RegionFacts{.kind = MemoryKind::kFile, .size = bytes, .alignment = 4096, .file = open("/dev/full", O_RDWR)},
      nullptr);
  const TransferOutcome no_space =
      run(*executor_, transfer_of(plan_between(host, *BlockLayout::make(large_blocks(4), {full})), same_blocks(4)));
  for (const BlockOutcome& block : no_space.blocks) {
    EXPECT_EQ(block.state, BlockState::kFailed);
  }
  EXPECT_THAT(no_space.error, AllOf(HasSubstr("No space left"), HasSubstr("/dev/full"), HasSubstr("free space")));
  close(full->file());
  const auto gone = std::make_shared<const Region>(
      RegionFacts{.kind = MemoryKind::kFile, .size = bytes, .alignment = 4096, .file = 1 << 20}, nullptr);
  const TransferOutcome closed =
      run(*executor_, transfer_of(plan_between(host, *BlockLayout::make(large_blocks(4), {gone})), same_blocks(4)));
  EXPECT_EQ(closed.blocks[0].state, BlockState::kFailed);
  EXPECT_THAT(closed.error, HasSubstr("Bad file descriptor"));
}

TEST_P(FileExecutorTest, CarriesManyTransfersAtOnce) {
  constexpr std::uint32_t kBlocks = 8;
  constexpr int kTransfers = 12;
  std::vector<std::unique_ptr<FileLayout>> files;
  std::vector<BlockLayoutPtr> hosts;
  std::vector<CopyPlanPtr> plans;
  std::atomic<int> settled{0};
  std::atomic<int> failed{0};
  for (int i = 0; i < kTransfers; ++i) {
    files.push_back(std::make_unique<FileLayout>(large_blocks(kBlocks), GetParam().mode));
    hosts.push_back(plain_layout(large_blocks(kBlocks)));
    fill(*hosts.back(), 100 + i);
    plans.push_back(plan_between(hosts.back(), files.back()->layout()));
  }
  // Each write, when it is done, is read back into other memory: reads and writes mix.
  std::vector<BlockLayoutPtr> targets;
  std::vector<CopyPlanPtr> back;
  for (int i = 0; i < kTransfers; ++i) {
    targets.push_back(plain_layout(large_blocks(kBlocks)));
    back.push_back(plan_between(files[i]->layout(), targets[i]));
  }
  const auto submit = [&](int i) {
    Transfer write = transfer_of(plans[i], same_blocks(kBlocks));
    write.done = [&, i](TransferOutcome&& written) {
      failed += written.all_done() ? 0 : 1;
      Transfer read = transfer_of(back[i], expecting(same_blocks(kBlocks), written), Verify::kCheck);
      read.done = [&](TransferOutcome&& outcome) { failed += outcome.all_done() ? 0 : 1; };
      read.settled = [&] { settled += 1; };
      EXPECT_TRUE(executor_->submit(std::move(read)));
    };
    EXPECT_TRUE(executor_->submit(std::move(write)));
  };
  std::thread half([&] {
    for (int i = 0; i < kTransfers / 2; ++i) {
      submit(i);
    }
  });
  for (int i = kTransfers / 2; i < kTransfers; ++i) {
    submit(i);
  }
  half.join();
  while (settled.load() < kTransfers) {
    std::this_thread::yield();
  }
  EXPECT_EQ(failed.load(), 0);
  for (int i = 0; i < kTransfers; ++i) {
    EXPECT_EQ(
        std::memcmp(hosts[i]->regions()[0]->base(), targets[i]->regions()[0]->base(), targets[i]->regions()[0]->size()),
        0);
  }
  EXPECT_EQ(executor_->load().transfers, 0U);
}

TEST_P(FileExecutorTest, EndsWithTransfersInFlight) {
  const FileLayout file(large_blocks(64), GetParam().mode);
  const BlockLayoutPtr host = plain_layout(large_blocks(64));
  const CopyPlanPtr plan = plan_between(host, file.layout());
  std::atomic<int> done{0};
  std::atomic<int> settled{0};
  for (int i = 0; i < 20; ++i) {
    Transfer transfer = transfer_of(plan, same_blocks(64));
    transfer.done = [&](TransferOutcome&& outcome) {
      done += 1;
      for (const BlockOutcome& block : outcome.blocks) {
        EXPECT_TRUE(block.state == BlockState::kDone || block.state == BlockState::kCancelled);
      }
    };
    transfer.settled = [&] { settled += 1; };
    EXPECT_TRUE(executor_->submit(std::move(transfer)));
  }
  executor_.reset();
  EXPECT_EQ(done.load(), 20);
  EXPECT_EQ(settled.load(), 20);
}

TEST_P(FileExecutorTest, FlushesAFile) {
  const FileLayout file(large_blocks(4), GetParam().mode);
  const BlockLayoutPtr host = plain_layout(large_blocks(4));
  ASSERT_TRUE(run(*executor_, transfer_of(plan_between(host, file.layout()), same_blocks(4))).all_done());
  const auto flush = [this](const RegionPtr& region, TimePoint deadline) {
    std::promise<Status> reported;
    EXPECT_TRUE(executor_->flush(region, deadline, [&reported](const Status& status) { reported.set_value(status); }));
    return reported.get_future().get();
  };
  EXPECT_TRUE(flush(file.layout()->regions()[0], TimePoint::max()));
  EXPECT_EQ(flush(file.layout()->regions()[0], TimePoint(0)).error().code, ErrorCode::kExpired);
  const auto closed =
      std::make_shared<const Region>(RegionFacts{.kind = MemoryKind::kFile, .size = 4096, .file = 1 << 20}, nullptr);
  EXPECT_THAT(flush(closed, TimePoint::max()).error().message, HasSubstr("Bad file descriptor"));
  EXPECT_EQ(executor_->flush(host->regions()[0], TimePoint::max(), nullptr).error().code, ErrorCode::kInvalidArgument);
}

TEST_P(FileExecutorTest, SaysHowItWorks) {
  const BlockLayoutPtr host = plain_layout(large_blocks(2));
  EXPECT_THAT(executor_->describe(), HasSubstr("no file used yet"));
  const FileLayout file(large_blocks(2), GetParam().mode);
  ASSERT_TRUE(run(*executor_, transfer_of(plan_between(host, file.layout()), same_blocks(2))).all_done());
  EXPECT_THAT(executor_->describe(), HasSubstr(GetParam().method == IoMethod::kUring ? "io_uring" : "pread"));
  const bool direct = file.layout()->regions()[0]->is_direct();
  EXPECT_THAT(executor_->describe(), HasSubstr(direct ? "1 file direct" : "1 file buffered"));

  BlockLayout::Options small = large_blocks(2);
  small.shape.head_size = 5;
  const FileLayout parts(small, GetParam().mode);
  ASSERT_TRUE(
      run(*executor_, transfer_of(plan_between(plain_layout(small), parts.layout()), same_blocks(2))).all_done());
  if (direct) {
    EXPECT_THAT(executor_->describe(),
                HasSubstr("1 file direct, 1 file buffered: its blocks are not written in whole"));
  }
}

TEST_P(FileExecutorTest, RefusesWhatItDoesNotMove) {
  const BlockLayoutPtr host = plain_layout(large_blocks(2));
  const BlockLayoutPtr other = plain_layout(large_blocks(2));
  const FileLayout file(large_blocks(2), GetParam().mode);
  EXPECT_FALSE(executor_->can_move(*plan_between(host, other)));
  EXPECT_TRUE(executor_->can_move(*plan_between(host, file.layout())));
  EXPECT_TRUE(executor_->can_move(*plan_between(file.layout(), host)));
  Transfer transfer = transfer_of(plan_between(host, other), same_blocks(2));
  transfer.done = [](TransferOutcome&&) {};
  const Result<TransferId> refused = executor_->submit(std::move(transfer));
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(refused.error().message, HasSubstr("from system to system"));
  EXPECT_EQ(transfer.blocks.size(), 2U) << "the transfer is as it was";
}

TEST(FileExecutorOptionsTest, AreChecked) {
  EXPECT_EQ(FileExecutor::make(steady_clock(), {.copy_bytes = 100'000}).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(FileExecutor::make(steady_clock(), {.in_flight = 0}).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(FileExecutor::make(steady_clock(), {.checksum_threads = 0}).error().code, ErrorCode::kInvalidArgument);
}

// In a child process: the file may not grow beyond the first five blocks, one copy across the border included.
[[noreturn]] void write_beyond_the_limit() {
  const FileLayout file(large_blocks(8), FileMode::kBuffered);
  const rlimit limit = {.rlim_cur = 5 * 65536, .rlim_max = 5 * 65536};
  if (ftruncate(file.file(0).descriptor(), 0) != 0 || std::signal(SIGXFSZ, SIG_IGN) == SIG_ERR ||
      setrlimit(RLIMIT_FSIZE, &limit) != 0) {
    std::_Exit(2);
  }
  FileExecutor::Options options{.copy_bytes = 1U << 20U};  // all eight blocks in one copy
  const std::unique_ptr<FileExecutor> executor = *FileExecutor::make(steady_clock(), options);
  const TransferOutcome outcome =
      run(*executor, transfer_of(plan_between(plain_layout(large_blocks(8)), file.layout()), same_blocks(8)));
  for (const BlockOutcome& block : outcome.blocks) {
    std::fprintf(stderr, "%s ", std::string(to_string(block.state)).c_str());
  }
  std::fputs(outcome.error.c_str(), stderr);
  unlink(file.file(0).path().c_str());
  std::_Exit(0);
}

TEST(FileExecutorDeathTest, OnlyBlocksBeyondTheLimitOfAFileFail) {
  ::testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_EXIT(write_beyond_the_limit(), ::testing::ExitedWithCode(0),
              "^done done done done done failed failed failed .*writing 65536 bytes at 327680 of .*RLIMIT_FSIZE");
}

}  // namespace
}  // namespace cairn
