// Whether the blocks of a disk tier's file are what its entries say.
//
// Does:     reads every block that is named, in large reads in the order in which they lie, and holds its bytes to the
//           checksum of its entry, which is bound to its key and the file's namespace. Needs no model and no manager.
// Leaves:   the file as it is.
// Threads:  one at a time for a file.
// Fails:    kCancelled, when the progress says so. A block that cannot be read is a finding and not a failure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "cairn/base/result.h"
#include "cairn/tier/disk_file.h"
#include "cairn/transfer/checksum.h"

namespace cairn {

// Told after every read how many blocks of how many are done; false ends it.
using DiskProgress = std::function<bool(std::uint64_t done, std::uint64_t all)>;

struct DiskCheck {
  std::vector<DiskEntry> right;  // each list in the order of the entries
  std::vector<DiskEntry> wrong;  // other bytes than were written
  std::vector<DiskEntry> unreadable;
};

// Requires: entries of this file, as recover() gives them.
[[nodiscard]] Result<DiskCheck> check_blocks(const DiskFile& file, std::span<const DiskEntry> entries,
                                             const DiskProgress& progress = {});

// The checksum of a block of a file of this geometry that lies at `block`, under this key.
// Requires: geometry.block_bytes bytes.
[[nodiscard]] Checksum checksum_of(const DiskGeometry& geometry, NamespaceId space, const BlockKey& key,
                                   std::span<const std::byte> block);

}  // namespace cairn
