#include "cairn/manager/tier_memory.h"

#include <algorithm>

#include "cairn/base/ids.h"
#include "cairn/base/str_cat.h"
#include "cairn/memory/pinned_region.h"
#include "cairn/memory/system_region.h"
#include "cairn/tier/disk_file.h"

namespace cairn {

Unexpected<Error> at_key(const char* key, const Error& error) {
  return fail(error.code, str_cat(key, ": ", error.message));
}

std::uint64_t DiskFootprint::bytes_of(std::uint32_t blocks) const {
  return files * disk_header_bytes(blocks) + blocks * block_bytes;
}

std::uint32_t DiskFootprint::blocks_in(std::uint64_t size) const {
  std::uint32_t fits = 0;
  auto above = static_cast<std::uint32_t>(std::min<std::uint64_t>(size / block_bytes + 1, index_of(kNoBlock)));
  while (above - fits > 1) {
    const std::uint32_t middle = fits + (above - fits) / 2;
    (bytes_of(middle) <= size ? fits : above) = middle;
  }
  return fits;
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
