// CudaLane: one direction of a GPU's copies: a thread, its streams and its staging memory. CudaExecutor has one for what
// leaves the GPU and one for what arrives, so that both use the wire at once.
//
// Does:     cuts transfers into pieces and keeps several under way. Where the host's blocks are dense a piece is gathered
//           (or scattered) inside the GPU by the kernel, which adds up the checksums, while a copy engine moves another;
//           where they are not, the kernel reads or writes the host's memory itself; and where nothing is verified and
//           the runs are long, the copy engines do it alone.
// Threads:  submit(), cancel(), check_deadlines(), load() from any; the rest happens on the lane's thread.
// Fails:    create() for want of memory on the GPU or of kernels in this build. A driver that reports an error fails
//           the blocks of the piece, with its words.
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
  // Where one piece is on its way, and what belongs to its place.
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
    RegionPtr tables;  // of the GPU, where both are
  };
  struct Piece {
    std::shared_ptr<ActiveTransfer> transfer;
    std::shared_ptr<const PlanOnGpu> plan;
    std::vector<std::uint32_t> blocks;  // that have begun
    std::size_t buffer = 0;
  };
  struct Current {  // the transfer that pieces are cut from
    std::shared_ptr<ActiveTransfer> transfer;
    std::shared_ptr<const PlanOnGpu> plan;
    std::uint32_t next = 0;
  };
  enum class Way : std::uint8_t { kStaged, kDirect, kEngines };

  CudaLane(const Options& options, const Kernels& kernels, const CudaDriver& driver);
  [[nodiscard]] Status allocate();
  void run();
  void start(std::shared_ptr<ActiveTransfer> transfer);
  void cut_piece();
  [[nodiscard]] Result<std::shared_ptr<const PlanOnGpu>> plan_on_gpu(const CopyPlanPtr& plan);
  [[nodiscard]] Way way_of(const Transfer& transfer, const GpuPlan& plan) const;
  [[nodiscard]] std::uint32_t blocks_a_piece(std::uint64_t rest, const GpuPlan& plan);
  [[nodiscard]] Status enqueue(const Piece& piece, Way way);
  [[nodiscard]] Status launch(const Piece& piece, const BoxTable& table, cuda::Pointer boxes, bool staged);
  [[nodiscard]] Status move_staged(const Piece& piece);
  [[nodiscard]] Status move_runs(const Piece& piece);
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
  std::uint64_t last_piece_bytes_ = 0;  // 0: nothing is under way
  std::deque<Piece> under_way_;
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
