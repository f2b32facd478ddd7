// The conformance suite of executors on a GPU: copies from it, to it and within it, and through a bounce buffer to
// memory and files that it cannot reach. Without a GPU there are no cases.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cairn/memory/cuda_driver.h"
#include "cairn/memory/device_region.h"
#include "cairn/memory/file_region.h"
#include "cairn/memory/pinned_region.h"
#include "cairn/transfer/bounce_executor.h"
#include "cairn/transfer/cuda_executor.h"
#include "cairn/transfer/executor_conformance_testing.h"
#include "cairn/transfer/file_executor.h"
#include "cairn/transfer/host_executor.h"

namespace cairn::testing {
namespace {

// Memory that the driver can copy: the GPU's, and pinned memory of the host.
class DriverStore final : public BlockStore {
 public:
  DriverStore(MemoryKind kind, const BlockLayout::Options& options) : driver_(**CudaDriver::get()) {
    std::vector<RegionPtr> regions;
    const Result<std::vector<std::uint64_t>> sizes = BlockLayout::region_sizes(options);
    for (const std::uint64_t size : *sizes) {
      regions.push_back(kind == MemoryKind::kDevice ? *device_region({.size = size})
                                                    : *pinned_region({.size = size, .required = true}));
    }
    layout_ = *BlockLayout::make(options, std::move(regions));
  }
  [[nodiscard]] const BlockLayoutPtr& layout() const override { return layout_; }
  void write(std::uint32_t region, std::uint64_t offset, std::span<const std::byte> bytes) override {
    copy(layout_->regions()[region]->base() + offset, bytes.data(), bytes.size());
  }
  void read(std::uint32_t region, std::uint64_t offset, std::span<std::byte> bytes) const override {
    copy(bytes.data(), layout_->regions()[region]->base() + offset, bytes.size());
  }

 private:
  void copy(void* to, const void* from, std::size_t bytes) const {
    const GpuContext context = *GpuContext::enter(0);
    EXPECT_EQ(driver_.memcpy_async(reinterpret_cast<cuda::Pointer>(to), reinterpret_cast<cuda::Pointer>(from), bytes,
                                   nullptr),
              cuda::kSuccess);
    EXPECT_EQ(driver_.stream_synchronize(nullptr), cuda::kSuccess);
  }

  const CudaDriver& driver_;
  BlockLayoutPtr layout_;
};

ExecutorCase::MakeStore in(MemoryKind kind) {
  return [kind](const BlockLayout::Options& options) -> std::unique_ptr<BlockStore> {
    if (kind == MemoryKind::kSystem) {
      return std::make_unique<HostStore>(options);
    }
    return std::make_unique<DriverStore>(kind, options);
  };
}

std::unique_ptr<TransferExecutor> cuda_executor(const Clock& clock, std::size_t limit, const CudaTuning& tuning) {
  return *CudaExecutor::create({.queue_limit = limit, .tuning = tuning, .clock = &clock});
}

// CudaExecutor, HostExecutor and the bounce buffer between them as one executor, for pageable memory.
class PageableExecutor final : public TransferExecutor {
 public:
  PageableExecutor(const Clock& clock, std::size_t limit)
      : gpu_(cuda_executor(clock, 64, {})),
        host_(std::make_unique<HostExecutor>(clock, HostExecutor::Options{})),
        bounce_(*BounceExecutor::make(
            clock, *gpu_, *host_,
            {.ring = *pinned_region({.size = kRing, .required = true}), .block_bytes = kBlock, .transfers = limit})) {}
  [[nodiscard]] Result<TransferId> submit(Transfer&& transfer) override { return bounce_->submit(std::move(transfer)); }
  void cancel(TransferId transfer) override { bounce_->cancel(transfer); }
  void check_deadlines() override { bounce_->check_deadlines(); }
  [[nodiscard]] bool can_move(const CopyPlan& plan) const override { return bounce_->can_move(plan); }
  [[nodiscard]] ExecutorLoad load() const override { return bounce_->load(); }
  [[nodiscard]] std::string describe() const override { return bounce_->describe(); }

 private:
  static constexpr std::uint64_t kBlock = std::uint64_t{4} << 20;
  static constexpr std::uint64_t kRing = 8 * kBlock;
  std::unique_ptr<TransferExecutor> gpu_;
  std::unique_ptr<HostExecutor> host_;
  std::unique_ptr<BounceExecutor> bounce_;  // destroyed first: it uses the others
};

std::vector<ExecutorCase> gpu_cases() {
  if (!CudaDriver::get()) {
    return {};
  }
  CudaTuning direct;
  direct.stage_from_bytes = ~std::uint64_t{0};
  direct.engines_from_bytes = ~std::uint64_t{0};
  CudaTuning staged = direct;
  staged.stage_from_bytes = 0;
  staged.piece_bytes = std::uint64_t{1} << 20;
  std::vector<ExecutorCase> cases;
  struct Ends {
    const char* name;
    MemoryKind from;
    MemoryKind to;
  };
  for (const Ends& ends : {Ends{"FromGpu", MemoryKind::kDevice, MemoryKind::kPinned},
                           Ends{"ToGpu", MemoryKind::kPinned, MemoryKind::kDevice},
                           Ends{"WithinGpu", MemoryKind::kDevice, MemoryKind::kDevice}}) {
    for (const auto& [way, tuning] : {std::pair{"Staged", staged}, std::pair{"Direct", direct}}) {
      cases.push_back({.name = std::string(ends.name) + way,
                       .make = [tuning = tuning](const Clock& clock,
                                                 std::size_t limit) { return cuda_executor(clock, limit, tuning); },
                       .source = in(ends.from),
                       .destination = in(ends.to),
                       .foreign = in(MemoryKind::kSystem)});
    }
  }
  const auto pageable = [](const Clock& clock, std::size_t limit) -> std::unique_ptr<TransferExecutor> {
    return std::make_unique<PageableExecutor>(clock, limit);
  };
  cases.push_back({.name = "FromGpuToPageable",
                   .make = pageable,
                   .source = in(MemoryKind::kDevice),
                   .destination = in(MemoryKind::kSystem)});
  cases.push_back({.name = "FromPageableToGpu",
                   .make = pageable,
                   .source = in(MemoryKind::kSystem),
                   .destination = in(MemoryKind::kDevice)});
  return cases;
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(ExecutorConformanceTest);
INSTANTIATE_TEST_SUITE_P(Gpu, ExecutorConformanceTest, ::testing::ValuesIn(gpu_cases()), case_name);

}  // namespace
}  // namespace cairn::testing
