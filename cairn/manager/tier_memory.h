// The memory of host and disk tiers as a configuration wants it: for those who make tiers, and for ranks that hold a part of
// each block.
//
// Threads:  any.
// Fails:    what the system does not give; says what.
#pragma once

#include <cstdint>

#include "cairn/base/result.h"
#include "cairn/manager/manager_config.h"
#include "cairn/memory/memory_progress.h"
#include "cairn/memory/region.h"

namespace cairn {

// An error with the key of the configuration that it is about before it.
[[nodiscard]] Unexpected<Error> at_key(const char* key, const Error& error);

// Of every block of a host tier: whole pages where blocks go to a disk.
[[nodiscard]] std::uint64_t host_alignment(bool has_disk);

// Pinned where the configuration asks for it, or prefers it and there is a GPU; `gpu`: the one it is for.
[[nodiscard]] Result<RegionPtr> host_region(const HostConfig& host, std::uint64_t size, bool has_gpu, int gpu,
                                            const MemoryProgress& progress = {});

}  // namespace cairn
