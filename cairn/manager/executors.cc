#include "cairn/manager/executors.h"

#include <algorithm>
#include <utility>

#include "cairn/cluster/store_executor.h"
#include "cairn/memory/pinned_region.h"
#include "cairn/transfer/bounce_executor.h"
#include "cairn/transfer/cuda_calibration.h"
#include "cairn/transfer/cuda_executor.h"
#include "cairn/transfer/file_executor.h"
#include "cairn/transfer/host_executor.h"

namespace cairn {

namespace {

// Between a GPU and a file: enough for both to be busy.
constexpr std::uint64_t kRingBytes = std::uint64_t{64} << 20;
constexpr std::uint64_t kLeastRingBlocks = 8;

// A GPU that cannot be measured copies with the defaults.
CudaTuning gpu_tuning(const DeviceConfig& config) {
  const Result<CudaIdentity> gpu = cuda_identity(config.gpu);
  if (!gpu || config.calibration == GpuCalibration::kOff) {
    return {};
  }
  const CudaTuningCache cache(CudaTuningCache::folder_of(ManagerConfig::environment_of_process()));
  const auto calibrate = [&config] { return calibrate_cuda(config.gpu, {}); };
  return config.calibration == GpuCalibration::kCached ? cached_tuning(*gpu, cache, calibrate)
                                                       : fresh_tuning(*gpu, cache, calibrate);
}

}  // namespace

template <typename Make>
Result<TransferExecutor*> Executors::in_place(std::unique_ptr<TransferExecutor>& place, ExecutorKind kind, Make make) {
  if (place == nullptr && parts_.executor) {
    place = parts_.executor(kind);
  }
  if (place == nullptr) {
    CAIRN_TRY_ASSIGN(std::unique_ptr<TransferExecutor> made, make());
    place = parts_.around ? parts_.around(kind, std::move(made)) : std::move(made);
  }
  return place.get();
}

Result<TransferExecutor*> Executors::host() {
  return in_place(host_, ExecutorKind::kHost, [this] {
    return Result<std::unique_ptr<TransferExecutor>>(
        std::make_unique<HostExecutor>(*parts_.clock, HostExecutor::Options{}));
  });
}

Result<TransferExecutor*> Executors::file() {
  return in_place(file_, ExecutorKind::kFile, [this] {
    return FileExecutor::make(*parts_.clock, {.method = config_.disk.io, .in_flight = config_.disk.in_flight});
  });
}

Result<TransferExecutor*> Executors::gpu() {
  return in_place(gpu_, ExecutorKind::kGpu, [this]() -> Result<std::unique_ptr<TransferExecutor>> {
    CAIRN_TRY_ASSIGN(std::unique_ptr<CudaExecutor> made,
                     CudaExecutor::create(
                         {.device = config_.device.gpu, .tuning = gpu_tuning(config_.device), .clock = parts_.clock}));
    return made;
  });
}

Result<TransferExecutor*> Executors::store() {
  return in_place(store_, ExecutorKind::kStore, [this] {
    return Result<std::unique_ptr<TransferExecutor>>(
        std::make_unique<StoreExecutor>(*parts_.clock, *block_store_, *space_, StoreExecutor::Options{}));
  });
}

Result<TransferExecutor*> Executors::bounce(std::unique_ptr<TransferExecutor>& place, TransferExecutor& other,
                                            std::uint64_t block_bytes) {
  if (place != nullptr) {
    return place.get();
  }
  CAIRN_TRY_ASSIGN(TransferExecutor* const one, gpu());
  const std::uint64_t pages = (block_bytes + 4095) / 4096 * 4096;
  CAIRN_TRY_ASSIGN(RegionPtr ring, pinned_region({.size = std::max(kRingBytes, kLeastRingBlocks * pages),
                                                  .device = config_.device.gpu,
                                                  .required = true}));
  CAIRN_TRY_ASSIGN(
      place, BounceExecutor::make(*parts_.clock, *one, other, {.ring = std::move(ring), .block_bytes = block_bytes}));
  return place.get();
}

Result<TransferExecutor*> Executors::for_copy(const BlockLayout& from, const BlockLayout& to) {
  if (parts_.elsewhere) {
    if (elsewhere_ == nullptr) {
      elsewhere_ = parts_.elsewhere();
    }
    return elsewhere_.get();
  }
  if (from.regions().front()->is_elsewhere() || to.regions().front()->is_elsewhere()) {
    return store();
  }
  const MemoryKind a = from.kind();
  const MemoryKind b = to.kind();
  const bool with_file = a == MemoryKind::kFile || b == MemoryKind::kFile;
  if (a != MemoryKind::kDevice && b != MemoryKind::kDevice) {
    return with_file ? file() : host();
  }
  if (with_file) {
    CAIRN_TRY_ASSIGN(TransferExecutor* const other, file());
    return bounce(gpu_and_file_, *other, from.shape().block_bytes());
  }
  if (a == MemoryKind::kSystem || b == MemoryKind::kSystem) {
    CAIRN_TRY_ASSIGN(TransferExecutor* const other, host());
    return bounce(gpu_and_system_, *other, from.shape().block_bytes());
  }
  return gpu();
}

void Executors::check_deadlines() {
  for (TransferExecutor* executor : {gpu_and_file_.get(), gpu_and_system_.get(), host_.get(), file_.get(), gpu_.get(),
                                     store_.get(), elsewhere_.get()}) {
    if (executor != nullptr) {
      executor->check_deadlines();
    }
  }
}

}  // namespace cairn
