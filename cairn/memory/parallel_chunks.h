// for_each_chunk(): works through a long range of bytes in chunks, on several threads.
//
// Threads take chunks in order, so the chunks that have not been started are always the end of the range.
//
// Thread safety: `work` runs on several threads at once; progress is reported on the calling thread. The call returns when
// all threads have ended.
// Errors: the error of one chunk that failed; no further chunk is started then.
#pragma once

#include <cstdint>
#include <functional>

#include "cairn/base/result.h"
#include "cairn/memory/region.h"

namespace cairn {

struct ChunkedWork {
  std::uint64_t bytes = 0;
  std::uint64_t chunk = 0;  // bytes of each chunk but the last
  unsigned threads = 0;     // 0: one for each processor of this process, at most 32
  MemoryProgress progress = {};
};

[[nodiscard]] Status for_each_chunk(const ChunkedWork& whole,
                                    const std::function<Status(std::uint64_t offset, std::uint64_t bytes)>& work);

}  // namespace cairn
