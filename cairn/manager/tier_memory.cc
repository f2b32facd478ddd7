#include "cairn/manager/tier_memory.h"

#include "cairn/base/str_cat.h"
#include "cairn/memory/pinned_region.h"
#include "cairn/memory/system_region.h"
#include "cairn/tier/disk_file.h"

namespace cairn {

Unexpected<Error> at_key(const char* key, const Error& error) {
  return fail(error.code, str_cat(key, ": ", error.message));
}

std::uint64_t host_alignment(bool has_disk) { return has_disk ? DiskFile::kAlignment : std::uint64_t{256}; }

Result<RegionPtr> host_region(const HostConfig& host, std::uint64_t size, bool has_gpu, int gpu,
                              const MemoryProgress& progress, const SharedMemoryPtr& shared) {
  if (host.pinning == Pinning::kOff || (!has_gpu && host.pinning == Pinning::kPreferred)) {
    return system_region({.size = size,
                          .huge_pages = host.huge_pages,
                          .prefault = host.max_size == 0,  // memory for a later growth is not touched before
                          .numa_node = host.numa_node.value_or(kNoNumaNode),
                          .progress = progress,
                          .shared = shared});
  }
  return pinned_region({.size = size,
                        .device = gpu,
                        .required = host.pinning == Pinning::kRequired,
                        .huge_pages = host.huge_pages,
                        .numa_node = host.numa_node,
                        .progress = progress,
                        .shared = shared});
}

}  // namespace cairn
