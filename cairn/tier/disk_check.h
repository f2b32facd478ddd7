// check_blocks(): reads every block of a disk tier's file that has an entry, in large reads in the order of the file, and compares
// its bytes with the checksum of its entry, which is bound to its key and the file's namespace. Needs no model and no manager.
// Does not change the file.
//
// Thread safety: one thread at a time for a file.
// Errors: kCancelled if the progress callback returned false. A block that cannot be read is counted, and is not an error.
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

// Called after every read with the number of blocks that are done, of all. Return false to stop.
using DiskProgress = std::function<bool(std::uint64_t done, std::uint64_t all)>;

struct DiskCheck {
  std::vector<DiskEntry> right;  // each list in the order of the entries
  std::vector<DiskEntry> wrong;  // whose bytes have another checksum
  std::vector<DiskEntry> unreadable;
};

// Requires: entries of this file, as recover() gives them.
[[nodiscard]] Result<DiskCheck> check_blocks(const DiskFile& file, std::span<const DiskEntry> entries,
                                             const DiskProgress& progress = {});

// The checksum of the bytes of a block of such a file, for this key.
// Requires: geometry.block_bytes bytes.
[[nodiscard]] Checksum checksum_of(const DiskGeometry& geometry, NamespaceId space, const BlockKey& key,
                                   std::span<const std::byte> block);

}  // namespace cairn
