// system_region(): pages of this process.
//
// Does:     maps zeroed pages and, unless told otherwise, touches all of them at once, in parallel, so that running out
//           of memory is an error here and not a killed process later. Left out of core dumps, and of children made by
//           fork(): a cache must not be copied, page by page, because somebody forked.
// Owner:    the region unmaps them.
// Threads:  any; the call returns when the pages are there. Threads it starts are gone by then.
// Fails:    a size of 0; more than the machine, its control group, the memory node or RLIMIT_AS has; locking against
//           RLIMIT_MEMLOCK; a memory node that is not there, or where the pages did not come to be. Says which limit, what
//           was asked, what was there, and what to change.
// Notes:    huge pages that were not to be had: the region has smaller ones then, and says so. Memory that is not touched
//           yet and more than there is now.
// Costs:    touching: 40 GB/s on 16 processors with huge pages, 28 without.
#pragma once

#include <cstdint>
#include <string>

#include "cairn/base/result.h"
#include "cairn/memory/memory_progress.h"
#include "cairn/memory/region.h"

namespace cairn {

enum class HugePages : std::uint8_t {
  kNone,         // the machine's small pages
  kTransparent,  // as the kernel finds them, 2 MiB
  k2MiB,         // set aside by the administrator (/proc/sys/vm/nr_hugepages)
  k1GiB,
};

struct SystemRegionOptions {
  std::uint64_t size = 0;
  HugePages huge_pages = HugePages::kTransparent;
  bool prefault = true;         // touch every page now
  bool lock = false;            // never to be swapped out; touches them too
  int numa_node = kNoNumaNode;  // all pages on this one; verified where they are touched
  unsigned threads = 0;         // 0: as many as there are processors for this process, at most 32
  MemoryProgress progress = {};
  std::string machine_root = {};  // where /proc and /sys are read; tests have folders of their own
};

[[nodiscard]] Result<RegionPtr> system_region(const SystemRegionOptions& options);

}  // namespace cairn
