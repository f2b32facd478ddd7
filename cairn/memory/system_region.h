// system_region(): maps zeroed host memory.
//
// Touches all pages in parallel unless `prefault` is false, so that too little memory is an error here and not a killed
// process later. The pages are left out of core dumps and of children made by fork(), which would copy the cache page by
// page. If huge pages are not available, the region has smaller pages and a note says so; so it does if memory that is
// not touched yet is more than there is now.
//
// Thread safety: safe from any thread. The call returns when the pages are ready; threads that it started have ended.
// Ownership: the region unmaps the pages.
// Errors: a size of 0; more than the machine, its control group, the memory node or RLIMIT_AS allow; RLIMIT_MEMLOCK if
// `lock` is set; a memory node that does not exist, or that the pages are not on. The message says which limit, how much
// was requested, how much is available, and what to change.
// Complexity: touching takes 40 GB/s on 16 processors with huge pages, 28 GB/s without.
#pragma once

#include <cstdint>
#include <string>

#include "cairn/base/result.h"
#include "cairn/memory/region.h"
#include "cairn/memory/shared_memory.h"

namespace cairn {

struct SystemRegionOptions {
  std::uint64_t size = 0;
  HugePages huge_pages = HugePages::kTransparent;
  bool prefault = true;         // touch every page now
  bool lock = false;            // never swapped out; implies prefault
  int numa_node = kNoNumaNode;  // the node that all pages must be on; verified if they are touched
  unsigned threads = 0;         // 0: one for each processor of this process, at most 32
  MemoryProgress progress = {};
  std::string machine_root = {};  // below which /proc and /sys are read; for tests
  // Maps this memory in the place of zeroed pages. What other processes have written there is kept.
  SharedMemoryPtr shared = {};
};

[[nodiscard]] Result<RegionPtr> system_region(const SystemRegionOptions& options);

}  // namespace cairn
