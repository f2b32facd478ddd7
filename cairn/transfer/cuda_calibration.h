// calibrate_cuda(): measures on the GPU at hand from which block sizes on each method of copying is the fastest. Copies random
// blocks of 16 KiB to 4 MiB to the host and back with each method, and takes the smallest size from which on a method wins in both
// directions. Takes about two seconds, and half a gigabyte on the GPU and on the host. Keep the outcome as text
// (CudaTuning::to_string()): it belongs to the machine.
//
// Thread safety: any thread; the GPU should be idle.
// Errors: as CudaExecutor::create().
#pragma once

#include <functional>
#include <string>

#include "cairn/base/result.h"
#include "cairn/transfer/cuda_tuning.h"

namespace cairn {

// `progress` gets a line of text for each measurement; may be empty.
[[nodiscard]] Result<CudaTuning> calibrate_cuda(int device, const std::function<void(const std::string&)>& progress);

}  // namespace cairn
