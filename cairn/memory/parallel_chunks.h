// for_each_chunk: work on a long stretch of bytes, cut into chunks that threads take one after the other.
//
// Does:     hands chunks out in order, so that what is not yet begun is always the end of the stretch. Progress is told
//           on the calling thread, never less than before, at last the whole.
// Threads:  `work` runs on several at once; for_each_chunk returns when all of them are through.
// Fails:    with the error of one chunk that failed; no further chunk is begun then, others may have been done.
#pragma once

#include <cstdint>
#include <functional>

#include "cairn/base/result.h"
#include "cairn/memory/memory_progress.h"

namespace cairn {

struct ChunkedWork {
  std::uint64_t bytes = 0;
  std::uint64_t chunk = 0;  // bytes of all but the last
  unsigned threads = 0;     // 0: as many as there are processors for this process, at most 32
  MemoryProgress progress = {};
};

[[nodiscard]] Status for_each_chunk(const ChunkedWork& whole,
                                    const std::function<Status(std::uint64_t offset, std::uint64_t bytes)>& work);

}  // namespace cairn
