// Memory of host and disk tiers as a configuration asks for it, for managers and for ranks, which hold a part of each block.
//
// Thread safety: any thread may call.
// Errors:        memory that the system does not give; says which.
#pragma once

#include <cstdint>

#include "cairn/base/result.h"
#include "cairn/manager/manager_config.h"
#include "cairn/memory/region.h"
#include "cairn/memory/shared_memory.h"

namespace cairn {

// The error, with the key of the configuration that it is about in front.
[[nodiscard]] Unexpected<Error> at_key(const char* key, const Error& error);

// Of blocks in host memory that several processes share: whole pages, whether or not there is a disk tier.
inline constexpr std::uint64_t kSharedBlockAlignment = 4096;

// Of the blocks of a host tier: whole pages if there is a disk tier.
[[nodiscard]] std::uint64_t host_alignment(bool has_disk);

// What the blocks of a disk tier take.
struct DiskFootprint {
  std::uint64_t block_bytes = 0;  // of one block, in all files together
  std::uint64_t files = 1;        // each with a header
  [[nodiscard]] std::uint64_t bytes_of(std::uint32_t blocks) const;
  // The most blocks that fit into `size` bytes, headers included.
  [[nodiscard]] std::uint32_t blocks_in(std::uint64_t size) const;
  friend bool operator==(const DiskFootprint&, const DiskFootprint&) = default;
};

// Pinned if the configuration requires it, or prefers it and there is a GPU; `gpu`: the GPU that copies from it. `shared`: maps
// this memory, which other processes map too.
[[nodiscard]] Result<RegionPtr> host_region(const HostConfig& host, std::uint64_t size, bool has_gpu, int gpu,
                                            const MemoryProgress& progress = {}, const SharedMemoryPtr& shared = {});

}  // namespace cairn
