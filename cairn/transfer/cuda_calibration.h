// calibrate_cuda: measures on the GPU at hand from which sizes on each way of copying is the fastest.
//
// Does:     copies random blocks of 16 KiB to 4 MiB to the host and back, each way in turn, and takes the smallest size
//           from which on a way wins in both directions. Takes about two seconds and half a gigabyte on either side.
//           Keep the answer as text (CudaTuning::to_string()): it belongs to the machine.
// Threads:  any; the GPU should be idle.
// Fails:    as CudaExecutor::create().
#pragma once

#include <functional>
#include <string>

#include "cairn/base/result.h"
#include "cairn/transfer/cuda_tuning.h"

namespace cairn {

// `progress` gets a line of text for each measurement; may be left out.
[[nodiscard]] Result<CudaTuning> calibrate_cuda(int device, const std::function<void(const std::string&)>& progress);

}  // namespace cairn
