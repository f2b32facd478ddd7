// CudaLane: one direction of a GPU's copies: a thread, its streams and its staging memory. A CudaExecutor has one for each
// direction, so that both use the bus at once.
//
// Cuts transfers into parts and keeps several in flight. If the host's blocks are dense, the kernel gathers (or scatters) a
// part inside the GPU and sums it, while a copy engine moves another part. If they are not, the kernel reads or writes the
// host's memory itself. If nothing is verified and the runs are long, the copy engines do it alone.
//
// Thread safety: the ledger's functions from any thread; the rest happens on the lane's thread.
// Errors: create() if the GPU has not enough memory. If the driver reports an error, the blocks of the part fail with its text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <thread>
#include <unordered_map>
#include <vector>

#include "cairn/base/clock.h"
#include "cairn/base/result.h"
#include "cairn/memory/cuda_driver.h"
#include "cairn/memory/region.h"
#include "cairn/transfer/cuda_tuning.h"
#include "cairn/transfer/gpu_plan.h"
#include "cairn/transfer/part_sizes.h"
#include "cairn/transfer/transfer_ledger.h"

namespace cairn::gpu {

// The kernels of one GPU; lives as long as the process's context.
struct Kernels {
  cuda::Function copy_16 = nullptr;
  cuda::Function copy_8 = nullptr;
  cuda::Function copy_1 = nullptr;
};

class CudaLane {
 public:
  struct Options {
    int device = 0;
    Direction direction = Direction::kFromDevice;
    CudaTuning tuning;
    std::size_t queue_limit = 0;
    const Clock* clock = nullptr;
  };
  [[nodiscard]] static Result<std::unique_ptr<CudaLane>> create(const Options& options, const Kernels& kernels);
  CudaLane(const CudaLane&) = delete;
  CudaLane& operator=(const CudaLane&) = delete;
  ~CudaLane();

  [[nodiscard]] TransferLedger& ledger() { return ledger_; }
  [[nodiscard]] const TransferLedger& ledger() const { return ledger_; }

 private:
  // What one part in flight uses.
  struct StagingBuffer {
    cuda::Pointer staging = 0;
    BlockSums* sums = nullptr;      // on the GPU
    BlockSums* sums_out = nullptr;  // of the host, pinned
    std::uint32_t* arrivals = nullptr;
    cuda::Event staged = nullptr;
    cuda::Event over = nullptr;
  };
  struct PlanOnGpu {
    std::weak_ptr<const CopyPlan> plan;
    GpuPlan made;
    cuda::Pointer direct_boxes = 0;
    cuda::Pointer staged_boxes = 0;
    RegionPtr tables;  // on the GPU: both tables
  };
  struct Part {
    std::shared_ptr<ActiveTransfer> transfer;
    std::shared_ptr<const PlanOnGpu> plan;
    std::vector<std::uint32_t> blocks;  // of the transfer; they have begun
    std::size_t buffer = 0;
  };
  struct Current {  // the transfer that parts are cut from
    std::shared_ptr<ActiveTransfer> transfer;
    std::shared_ptr<const PlanOnGpu> plan;
    std::uint32_t next = 0;
  };
  enum class Method : std::uint8_t { kStaged, kDirect, kEngines };

  CudaLane(const Options& options, const Kernels& kernels, const CudaDriver& driver);
  [[nodiscard]] Status allocate();
  void run();
  void start(std::shared_ptr<ActiveTransfer> transfer);
  void begin_part();
  [[nodiscard]] Result<std::shared_ptr<const PlanOnGpu>> plan_on_gpu(const CopyPlanPtr& plan);
  [[nodiscard]] Method method_for(const Transfer& transfer, const GpuPlan& plan) const;
  [[nodiscard]] std::uint32_t blocks_of_part(std::uint64_t rest, const GpuPlan& plan, Method method);
  [[nodiscard]] Status enqueue(const Part& part, Method method);
  [[nodiscard]] Status launch(const Part& part, const BoxTable& table, cuda::Pointer boxes, bool staged);
  [[nodiscard]] Status move_staged(const Part& part);
  [[nodiscard]] Status move_runs(const Part& part);
  [[nodiscard]] Status copy_all();
  void retire_oldest();
  [[nodiscard]] Status wait_for(cuda::Event event) const;

  const Options options_;
  const Kernels kernels_;
  const CudaDriver& driver_;
  TransferLedger ledger_;
  RegionPtr device_memory_;
  RegionPtr host_memory_;
  cuda::Stream kernel_stream_ = nullptr;
  cuda::Stream copy_stream_ = nullptr;
  std::vector<StagingBuffer> buffers_;
  std::size_t next_buffer_ = 0;
  PartSizes part_sizes_;
  std::deque<Part> in_flight_;
  Current current_;
  std::unordered_map<const CopyPlan*, std::shared_ptr<const PlanOnGpu>> plans_;
  // Of a batch of copies; kept for their memory.
  std::vector<cuda::Pointer> to_;
  std::vector<cuda::Pointer> from_;
  std::vector<std::size_t> bytes_;
  std::vector<Copy> copies_;
  std::thread thread_;
};

}  // namespace cairn::gpu
