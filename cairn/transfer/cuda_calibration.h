// calibrate_cuda(): measures on the GPU at hand from which block sizes on each method of copying is the fastest. Copies random
// blocks of 16 KiB to 4 MiB to the host and back with each method, and takes the smallest size from which on a method wins in both
// directions. Takes about two seconds, and a quarter of a gigabyte on the GPU and on the host. CudaTuningCache keeps the outcome:
// it belongs to the machine.
//
// Thread safety: any thread; the GPU should be idle.
// Errors: as CudaExecutor::create(); kExpired if it takes longer than it may.
#pragma once

#include <functional>
#include <string>

#include "cairn/base/clock.h"
#include "cairn/base/result.h"
#include "cairn/transfer/cuda_tuning.h"
#include "cairn/transfer/cuda_tuning_cache.h"

namespace cairn {

struct CudaCalibrationOptions {
  std::function<void(const std::string&)> progress = {};  // gets a line of text for each measurement
  Duration longest = std::chrono::seconds(10);
};
[[nodiscard]] Result<CudaTuning> calibrate_cuda(int device, const CudaCalibrationOptions& options);

// The GPU and its driver.
[[nodiscard]] Result<CudaIdentity> cuda_identity(int device);

}  // namespace cairn
