// The test suite for every TransferExecutor, run on each of them with the memory that it copies.
//
// An executor's test makes an ExecutorCase and instantiates the suite with it, in a program that holds
// executor_conformance_threads_test.cc:
//
//   INSTANTIATE_TEST_SUITE_P(Host, ExecutorConformanceTest, ::testing::Values(host_case()), case_name);
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <future>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cairn/base/clock.h"
#include "cairn/layout/layout_testing.h"
#include "cairn/transfer/executor.h"

namespace cairn::testing {

// A layout whose bytes a test can write and read, whatever memory they are in.
class BlockStore {
 public:
  BlockStore() = default;
  BlockStore(const BlockStore&) = delete;
  BlockStore& operator=(const BlockStore&) = delete;
  virtual ~BlockStore() = default;
  [[nodiscard]] virtual const BlockLayoutPtr& layout() const = 0;
  virtual void write(std::uint32_t region, std::uint64_t offset, std::span<const std::byte> bytes) = 0;
  virtual void read(std::uint32_t region, std::uint64_t offset, std::span<std::byte> bytes) const = 0;
  // Whether the guards around the regions, if any, are unchanged.
  [[nodiscard]] virtual bool guards_intact() const { return true; }
};

// In plain memory, with guards around it.
class HostStore final : public BlockStore {
 public:
  explicit HostStore(const BlockLayout::Options& options, MemoryKind kind = MemoryKind::kSystem)
      : memory_(TestLayout::make(options, kind)) {}
  [[nodiscard]] const BlockLayoutPtr& layout() const override { return memory_.layout(); }
  void write(std::uint32_t region, std::uint64_t offset, std::span<const std::byte> bytes) override {
    std::memcpy(memory_.regions()[region].bytes().data() + offset, bytes.data(), bytes.size());
  }
  void read(std::uint32_t region, std::uint64_t offset, std::span<std::byte> bytes) const override {
    std::memcpy(bytes.data(), memory_.regions()[region].bytes().data() + offset, bytes.size());
  }
  [[nodiscard]] bool guards_intact() const override {
    return std::all_of(memory_.regions().begin(), memory_.regions().end(),
                       [](const TestRegion& region) { return region.guards_intact(); });
  }

 private:
  TestLayout memory_;
};

struct ExecutorCase {
  using MakeStore = std::function<std::unique_ptr<BlockStore>(const BlockLayout::Options&)>;

  std::string name;
  std::function<std::unique_ptr<TransferExecutor>(const Clock& clock, std::size_t limit)> make;
  MakeStore source;
  MakeStore destination;
  std::uint64_t alignment = 1;  // that layouts are made with at least
  // Memory that the executor cannot copy: the source of plans that it must refuse. Optional.
  MakeStore foreign = {};
};

inline std::string case_name(const ::testing::TestParamInfo<ExecutorCase>& each) { return each.param.name; }

// The two sides of a plan, with known bytes.
class Exchange {
 public:
  Exchange(const ExecutorCase& of, const KvShape& shape, std::uint32_t blocks, Arrangement from, Arrangement to);

  // Other bytes everywhere on both sides.
  void fill(std::uint64_t seed);
  [[nodiscard]] const CopyPlanPtr& plan() const { return plan_; }
  [[nodiscard]] std::uint32_t blocks() const { return plan_->source().blocks(); }
  // The checksum of a block of the source.
  [[nodiscard]] Checksum checksum(std::uint32_t source_block, const BlockTag& tag) const;
  // The destination has these blocks of the source, and nothing else of it has changed since fill().
  void expect_moved(std::span<const BlockPair> pairs) const;
  // The destination blocks of these pairs may hold anything: they expired or failed.
  void expect_moved(std::span<const BlockPair> pairs, std::span<const BlockPair> torn) const;
  // Changes a byte of a source block.
  void damage(std::uint32_t source_block);

 private:
  using Contents = std::vector<std::vector<std::byte>>;  // of each region
  [[nodiscard]] static Contents contents(const BlockStore& store);

  std::unique_ptr<BlockStore> source_;
  std::unique_ptr<BlockStore> destination_;
  CopyPlanPtr plan_;
  Contents source_bytes_;
  Contents destination_bytes_;
};

class ExecutorConformanceTest : public ::testing::TestWithParam<ExecutorCase> {
 protected:
  [[nodiscard]] std::unique_ptr<TransferExecutor> make_executor(std::size_t limit = 64) const {
    return GetParam().make(steady_clock(), limit);
  }
  // Blocks of 6 KiB to 24 KiB, in 24 rows: one size for most tests.
  [[nodiscard]] Exchange exchange(std::uint32_t blocks = 16) const;

  // Submits, waits for `done` and `settled`, and gives the outcome.
  static TransferOutcome run(TransferExecutor& executor, Transfer transfer);
};

}  // namespace cairn::testing
