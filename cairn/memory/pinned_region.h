// pinned_region(): host memory that a GPU can read and write directly.
//
// Maps pages near the GPU, touches all of them in parallel, and registers them with the driver in one piece: the driver
// refuses a copy across two registrations, and several threads do not register faster. Every GPU of the process can use
// the region.
//
// If there is no driver or GPU, or if the driver refuses, the pages are locked in memory instead, or left as they are if
// RLIMIT_MEMLOCK forbids that. The region is of kind kSystem then, and its notes say why. With `required` it is an error.
//
// On a machine with several NUMA nodes the node of the GPU is preferred; numa_node() says where the pages are, and a note
// says if that is another node. If `numa_node` is set, the pages must be on that node, as for system_region().
//
// Thread safety: safe from any thread. The call returns when the pages are ready.
// Ownership: the region unregisters and unmaps the pages; nothing may use them after that.
// Errors: those of system_region(), and kNotFound if there is a driver but no such GPU.
// Complexity: on a machine with an H200 and 16 processors, with huge pages: touching 40 GB/s, registering 34 to 50 GB/s,
// less than a minute for a terabyte. Untouched pages are registered at 5 GB/s.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "cairn/base/result.h"
#include "cairn/memory/region.h"
#include "cairn/memory/system_region.h"

namespace cairn {

struct PinnedRegionOptions {
  std::uint64_t size = 0;
  int device = 0;         // the GPU that uses it
  bool required = false;  // fail unless the pages can be pinned
  HugePages huge_pages = HugePages::kTransparent;
  std::optional<int> numa_node = {};  // std::nullopt: the node of the GPU, preferred
  unsigned threads = 0;               // 0: one for each processor of this process, at most 32
  MemoryProgress progress = {};
  std::string machine_root = {};  // below which /proc and /sys are read; for tests
  SharedMemoryPtr shared = {};    // as in SystemRegionOptions
};

[[nodiscard]] Result<RegionPtr> pinned_region(const PinnedRegionOptions& options);

// Registers pages with a GPU. An interface, so that tests need no GPU.
struct PageRegistrar {
  std::function<Status(std::byte* base, std::uint64_t bytes)> add;
  std::function<void(std::byte* base)> remove;  // the pages that were added at this address
  std::string pci_id = {};                      // of the GPU
};

// The registrar of the driver for one GPU. Errors: kUnavailable if there is no driver or no GPU, kNotFound if there is no
// GPU of that number.
[[nodiscard]] Result<PageRegistrar> gpu_page_registrar(int device);

// The same with another registrar; if `registrar` is an error, the pages are not registered because of it.
[[nodiscard]] Result<RegionPtr> pinned_region(const PinnedRegionOptions& options, Result<PageRegistrar> registrar);

}  // namespace cairn
