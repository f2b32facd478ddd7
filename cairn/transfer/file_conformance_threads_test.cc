// The conformance suite, on files: each I/O backend, in both directions, and through a ring.
#include <future>
#include <memory>

#include "cairn/transfer/bounce_executor.h"
#include "cairn/transfer/executor_conformance_testing.h"
#include "cairn/transfer/fault_executor.h"
#include "cairn/transfer/file_executor.h"
#include "cairn/transfer/file_testing.h"
#include "cairn/transfer/host_executor.h"

namespace cairn::testing {
namespace {

class FileStore final : public BlockStore {
 public:
  FileStore(const BlockLayout::Options& options, FileMode mode) : files_(options, mode) {}
  [[nodiscard]] const BlockLayoutPtr& layout() const override { return files_.layout(); }
  void write(std::uint32_t region, std::uint64_t offset, std::span<const std::byte> bytes) override {
    files_.file(region).write(offset, {bytes.begin(), bytes.end()});
  }
  void read(std::uint32_t region, std::uint64_t offset, std::span<std::byte> bytes) const override {
    const std::vector<std::byte> found = files_.file(region).read(offset, bytes.size());
    std::copy(found.begin(), found.end(), bytes.begin());
  }
  [[nodiscard]] bool guards_intact() const override {
    for (std::size_t i = 0; i < files_.files(); ++i) {
      const std::vector<std::byte> beyond =
          files_.file(i).read(layout()->regions()[i]->size(), FileLayout::kBeyond + 1);
      if (beyond != std::vector<std::byte>(FileLayout::kBeyond, FileLayout::kGuard)) {
        return false;
      }
    }
    return true;
  }

 private:
  FileLayout files_;
};

ExecutorCase::MakeStore files(FileMode mode) {
  return [mode](const BlockLayout::Options& options) { return std::make_unique<FileStore>(options, mode); };
}

ExecutorCase::MakeStore memory(MemoryKind kind = MemoryKind::kSystem) {
  return [kind](const BlockLayout::Options& options) { return std::make_unique<HostStore>(options, kind); };
}

std::unique_ptr<FileExecutor> make_executor(IoMethod method, const Clock& clock, std::size_t limit) {
  Result<std::unique_ptr<FileExecutor>> made = FileExecutor::make(
      clock, {.method = method, .in_flight = 4, .copy_bytes = 1U << 16U, .checksum_threads = 1, .transfers = limit});
  CAIRN_CHECK(made.has_value(), made.has_value() ? "" : made.error().message);
  return *std::move(made);
}

std::vector<ExecutorCase> file_cases() {
  const auto best = [](const Clock& clock, std::size_t limit) { return make_executor(IoMethod::kBest, clock, limit); };
  const auto threads = [](const Clock& clock, std::size_t limit) {
    return make_executor(IoMethod::kThreads, clock, limit);
  };
  const ExecutorCase::MakeStore direct = files(FileMode::kDirect);
  const ExecutorCase::MakeStore buffered = files(FileMode::kBuffered);
  return {{"BestDirectWrite", best, memory(), direct, 4096, direct},
          {"BestDirectRead", best, direct, memory(), 4096, memory()},
          {"BestBufferedWrite", best, memory(), buffered, 1, buffered},
          {"ThreadsDirectWrite", threads, memory(), direct, 4096, direct},
          {"ThreadsBufferedRead", threads, buffered, memory(), 1, memory()}};
}

INSTANTIATE_TEST_SUITE_P(File, ExecutorConformanceTest, ::testing::ValuesIn(file_cases()), case_name);

// A bounce executor with the two executors that it uses.
class Bounce final : public TransferExecutor {
 public:
  Bounce(const Clock& clock, std::size_t limit)
      : host_(clock, {.threads = 1, .limit = 2}), files_(make_executor(IoMethod::kBest, clock, 2)) {
    // Room for five of the largest blocks of the suite: larger transfers use the ring several times.
    constexpr std::uint64_t kLargest = std::uint64_t{2} << 20;
    Result<std::unique_ptr<BounceExecutor>> made = BounceExecutor::make(
        clock, host_, *files_,
        {.ring = TestRegion(5 * kLargest, 4096).region(), .block_bytes = kLargest, .transfers = limit});
    CAIRN_CHECK(made.has_value(), made.has_value() ? "" : made.error().message);
    bounce_ = *std::move(made);
  }

  [[nodiscard]] Result<TransferId> submit(Transfer&& transfer) override { return bounce_->submit(std::move(transfer)); }
  void cancel(TransferId transfer) override { bounce_->cancel(transfer); }
  void check_deadlines() override { bounce_->check_deadlines(); }
  [[nodiscard]] bool can_move(const CopyPlan& plan) const override { return bounce_->can_move(plan); }
  [[nodiscard]] ExecutorLoad load() const override { return bounce_->load(); }
  [[nodiscard]] std::string describe() const override { return bounce_->describe(); }

 private:
  HostExecutor host_;
  std::unique_ptr<FileExecutor> files_;
  std::unique_ptr<BounceExecutor> bounce_;
};

std::vector<ExecutorCase> bounce_cases() {
  const auto make = [](const Clock& clock, std::size_t limit) { return std::make_unique<Bounce>(clock, limit); };
  return {{"Write", make, memory(), files(FileMode::kDirect), 4096, memory(MemoryKind::kDevice)},
          {"Read", make, files(FileMode::kBuffered), memory(), 1, memory(MemoryKind::kDevice)}};
}

INSTANTIATE_TEST_SUITE_P(Bounce, ExecutorConformanceTest, ::testing::ValuesIn(bounce_cases()), case_name);

// A fault executor without faults changes nothing, whatever executor it wraps.
std::vector<ExecutorCase> decorated_cases() {
  std::vector<ExecutorCase> cases;
  for (std::vector<ExecutorCase> all : {file_cases(), bounce_cases()}) {
    ExecutorCase& each = all.front();
    each.name = "Around" + each.name;
    each.make = [inside = each.make](const Clock& clock, std::size_t limit) {
      return std::make_unique<FaultExecutor>(clock, inside(clock, limit), FaultOptions{});
    };
    cases.push_back(each);
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Decorated, ExecutorConformanceTest, ::testing::ValuesIn(decorated_cases()), case_name);

TransferOutcome run(TransferExecutor& executor, const CopyPlanPtr& plan, std::vector<TransferBlock> blocks,
                    Verify verify) {
  std::promise<TransferOutcome> promise;
  Result<TransferId> id = executor.submit(
      {.plan = plan, .blocks = std::move(blocks), .verify = verify, .done = [&](TransferOutcome&& outcome) {
         promise.set_value(std::move(outcome));
       }});
  EXPECT_TRUE(id) << id.error().message;
  return promise.get_future().get();
}

// Blocks reported as done are in the file, and all others are reported as failed: around files, and around a ring.
TEST(FaultsAroundFilesTest, DoneBlocksAreCopiedAndTheOthersAreNot) {
  const KvShape shape{.layers = 4, .kv = 2, .page_size = 8, .heads = 2, .head_size = 64, .element_bits = 16};
  const BlockLayout::Options options{.shape = shape, .blocks = 64, .alignment = 4096};
  for (const bool bounce : {false, true}) {
    HostStore source(options);
    HostStore back(options);
    FileStore file(options, FileMode::kDirect);
    std::vector<std::byte> bytes(source.layout()->regions()[0]->size());
    std::uint64_t state = 7;
    for (std::byte& byte : bytes) {
      state = state * 6364136223846793005U + 1442695040888963407U;
      byte = static_cast<std::byte>(state >> 56U);
    }
    source.write(0, 0, bytes);
    const Clock& clock = steady_clock();
    std::unique_ptr<TransferExecutor> inside;
    if (bounce) {
      inside = std::make_unique<Bounce>(clock, 8);
    } else {
      inside = make_executor(IoMethod::kBest, clock, 8);
    }
    FaultExecutor faulty(clock, std::move(inside),
                         {.rules = {{.fault = Fault::kFail, .chance = 0.2},
                                    {.fault = Fault::kShort, .chance = 0.1},
                                    {.fault = Fault::kCorruptInFlight, .chance = 0.1}},
                          .seed = 3});
    std::vector<TransferBlock> blocks;
    for (std::uint32_t i = 0; i < 64; ++i) {
      blocks.push_back({.pair = {i, 63 - i}, .tag = {i, 9}});
    }
    const TransferOutcome out = run(faulty, *CopyPlan::make(source.layout(), file.layout()), blocks, Verify::kMake);
    EXPECT_FALSE(out.all_done());
    const std::unique_ptr<FileExecutor> plain = make_executor(IoMethod::kBest, clock, 8);
    std::size_t done = 0;
    for (std::uint32_t i = 0; i < 64; ++i) {
      if (out.blocks[i].state != BlockState::kDone) {
        EXPECT_EQ(out.blocks[i].state, BlockState::kFailed);
        continue;
      }
      ++done;
      const TransferOutcome in =
          run(*plain, *CopyPlan::make(file.layout(), back.layout()),
              {{.pair = {63 - i, i}, .tag = {i, 9}, .expected = out.blocks[i].checksum}}, Verify::kCheck);
      const bool corrupted = faulty.fault_of(i + 1) == Fault::kCorruptInFlight;  // they are counted from 1
      EXPECT_EQ(in.blocks[0].state, corrupted ? BlockState::kMismatch : BlockState::kDone) << "block " << i;
    }
    EXPECT_GT(done, 20U);
    EXPECT_LT(done, 60U);
  }
}

}  // namespace
}  // namespace cairn::testing
