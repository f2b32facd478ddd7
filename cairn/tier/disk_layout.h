// The file of a DiskFile as a region, and its blocks as a layout, for transfers. The rows of block i lie one after the other
// (layer, K/V, token, head) at data_offset() + i x block_step().
//
// Ownership: the region has its own descriptor; it neither removes nor locks the file.
// Errors: the file cannot be opened a second time; blocks of the shape have another size than those of the file.
#pragma once

#include "cairn/base/result.h"
#include "cairn/layout/block_layout.h"
#include "cairn/memory/region.h"
#include "cairn/tier/disk_file.h"

namespace cairn {

// The whole file, entries included. `direct`: past the page cache, if the file system can.
[[nodiscard]] Result<RegionPtr> disk_region(const DiskFile& file, bool direct);
[[nodiscard]] Result<BlockLayoutPtr> disk_layout(const DiskFile& file, const KvShape& shape, RegionPtr region);

}  // namespace cairn
