// CudaExecutor: copies between one GPU and pinned host memory, and within the GPU. Verification costs nothing: the kernel that
// gathers or scatters small fragments computes the checksums. Both directions run at once, each with its own streams and thread
// (cuda_lane.h). Sizes decide which method copies a block, by a tuning that calibrate_cuda() measures.
//
// Thread safety: as TransferExecutor. Make one executor for each GPU.
// Ownership: allocates staging memory on the GPU: 2 x pieces x piece_bytes of the tuning.
// Errors: create() without a driver, a GPU, kernels in this build, or enough memory; the message says which. submit() refuses
// memory that is neither on the GPU nor pinned: use a BounceExecutor for that.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "cairn/base/clock.h"
#include "cairn/base/result.h"
#include "cairn/transfer/cuda_tuning.h"
#include "cairn/transfer/executor.h"

namespace cairn {

namespace gpu {
class CudaLane;
}

struct CudaExecutorOptions {
  int device = 0;
  std::size_t queue_limit = 1024;  // transfers, in each direction
  CudaTuning tuning = {};
  const Clock* clock = &steady_clock();
};

class CudaExecutor final : public TransferExecutor {
 public:
  [[nodiscard]] static Result<std::unique_ptr<CudaExecutor>> create(const CudaExecutorOptions& options);
  ~CudaExecutor() override;

  [[nodiscard]] Result<TransferId> submit(Transfer&& transfer) override;
  void cancel(TransferId transfer) override;
  void check_deadlines() override;
  [[nodiscard]] bool can_move(const CopyPlan& plan) const override;
  [[nodiscard]] ExecutorLoad load() const override;
  [[nodiscard]] std::string describe() const override;

 private:
  static constexpr std::size_t kLanes = 2;
  CudaExecutor(const CudaExecutorOptions& options, std::string gpu_name);
  [[nodiscard]] std::size_t lane_of(const CopyPlan& plan) const;

  const CudaExecutorOptions options_;
  const std::string gpu_name_;
  std::array<std::unique_ptr<gpu::CudaLane>, kLanes> lanes_;  // from the device, to the device
};

}  // namespace cairn
