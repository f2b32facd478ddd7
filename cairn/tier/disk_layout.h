// Where the blocks of a DiskFile are, for those who copy them: the file as a region, and its blocks as a layout.
//
// Does:     the rows of block i lie one after the other (layer, K/V, token, head) at data_offset() + i x block_step().
// Owner:    the region has a descriptor of its own, and neither removes nor locks the file: that is DiskFile's.
// Threads:  any.
// Fails:    a file that cannot be opened once more; blocks of a shape that has not the file's bytes.
#pragma once

#include "cairn/base/result.h"
#include "cairn/layout/block_layout.h"
#include "cairn/layout/kv_shape.h"
#include "cairn/memory/region.h"
#include "cairn/tier/disk_file.h"

namespace cairn {

// All of the file, entries included. `direct`: past the page cache, where the file system can.
[[nodiscard]] Result<RegionPtr> disk_region(const DiskFile& file, bool direct);
[[nodiscard]] Result<BlockLayoutPtr> disk_layout(const DiskFile& file, const KvShape& shape, RegionPtr region);

}  // namespace cairn
