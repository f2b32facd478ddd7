// CudaTuningCache: keeps what calibrate_cuda() measured, a small file for each GPU, so that a machine measures once.
//
// A file is used only for the GPU and driver that it was made with, and only if it is whole; otherwise it is as if there were
// none. It is written beside its place and then renamed.
//
// Thread safety: any thread and process; the last writer wins.
// Errors: put(): the folder cannot be made or written.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cairn/base/result.h"
#include "cairn/transfer/cuda_tuning.h"

namespace cairn {

// What a tuning belongs to.
struct CudaIdentity {
  std::string uuid = {};    // of the GPU, in hexadecimal digits
  std::string driver = {};  // versions of CUDA and of the kernel's module
};

class CudaTuningCache {
 public:
  // An empty folder: nothing is kept.
  explicit CudaTuningCache(std::string folder) : folder_(std::move(folder)) {}
  // XDG_CACHE_HOME/cairn or HOME/.cache/cairn; empty if the environment has neither.
  [[nodiscard]] static std::string folder_of(const std::vector<std::pair<std::string, std::string>>& environment);

  [[nodiscard]] std::optional<CudaTuning> find(const CudaIdentity& gpu) const;
  [[nodiscard]] Status put(const CudaIdentity& gpu, const CudaTuning& tuning) const;
  [[nodiscard]] std::string path_of(const CudaIdentity& gpu) const;

 private:
  std::string folder_;
};

// The tuning from the cache or, if there is none, what `calibrate` measures, which is kept. The defaults if it cannot be
// measured: copies are right with any tuning.
[[nodiscard]] CudaTuning cached_tuning(const CudaIdentity& gpu, const CudaTuningCache& cache,
                                       const std::function<Result<CudaTuning>()>& calibrate);
// The same without looking into the cache.
[[nodiscard]] CudaTuning fresh_tuning(const CudaIdentity& gpu, const CudaTuningCache& cache,
                                      const std::function<Result<CudaTuning>()>& calibrate);

}  // namespace cairn
