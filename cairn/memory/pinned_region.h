// pinned_region(): pages of this process that a GPU reads and writes by itself.
//
// Does:     maps pages near the GPU, touches all of them in parallel and then registers them with the driver, in one
//           piece: a copy that crosses from one registration to the next is refused by the driver, and it registers no
//           faster from several threads. Usable by every GPU of the process.
// Falls back: where there is no driver, no GPU, or the driver refuses: to pages locked in memory, and to plain ones where
//           RLIMIT_MEMLOCK forbids that. The region is of kind kSystem then, and its notes say why. With `required` it
//           is an error instead.
// NUMA:     the node next to the GPU is preferred where the machine has several; numa_node() says where the pages are,
//           and a note where that is not what was wanted. A node that is named is a must, as for system_region().
// Owner:    the region unregisters and unmaps; with it any use must be over.
// Threads:  any; the call returns when the pages are there.
// Fails:    as system_region() does; a GPU that is not there although a driver is.
// Costs:    on a machine with an H200 and 16 processors, huge pages: touching 40 GB/s, registering 34 to 50 GB/s, that is
//           under a minute for a terabyte. Untouched pages are registered at 5 GB/s.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "cairn/base/result.h"
#include "cairn/memory/memory_progress.h"
#include "cairn/memory/region.h"
#include "cairn/memory/system_region.h"

namespace cairn {

struct PinnedRegionOptions {
  std::uint64_t size = 0;
  int device = 0;         // the GPU it serves
  bool required = false;  // nothing but pinned pages will do
  HugePages huge_pages = HugePages::kTransparent;
  std::optional<int> numa_node = {};  // none: that of the GPU
  unsigned threads = 0;               // 0: as many as there are processors for this process, at most 32
  MemoryProgress progress = {};
  std::string machine_root = {};  // where /proc and /sys are read; tests have folders of their own
};

[[nodiscard]] Result<RegionPtr> pinned_region(const PinnedRegionOptions& options);

// What makes pages known to a GPU.
struct PageRegistrar {
  std::function<Status(std::byte* base, std::uint64_t bytes)> add;
  std::function<void(std::byte* base)> remove;  // what was added at this address
  std::string pci_id = {};                      // of the GPU
};

// The driver's, for one GPU. kUnavailable without a driver or a GPU, kNotFound where there is none of that number.
[[nodiscard]] Result<PageRegistrar> gpu_page_registrar(int device);

// The same with another registrar, or without one because of an error.
[[nodiscard]] Result<RegionPtr> pinned_region(const PinnedRegionOptions& options, Result<PageRegistrar> registrar);

}  // namespace cairn
