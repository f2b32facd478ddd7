// compact(): a disk tier's file, written anew with only the blocks that are right.
//
// Does:     writes PATH.compact beside it: the blocks whose bytes have their checksums, oldest first, from block 0 on;
//           then the new file takes the place of the old one. With fewer blocks than blocks the newest stay.
// Promises: whenever it stops, PATH is a whole file, the old one or the new one. A call that returns or throws leaves
//           nothing beside it; what a process that was killed left there, the next call removes.
// Needs:    room for the whole new file while the old one is still there.
// Fails:    a file that is in use, or is not ours; no room, and says how much it takes; kCancelled when the progress says
//           so. Then the old file is there as it was.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "cairn/base/result.h"
#include "cairn/tier/disk_check.h"

namespace cairn {

struct Compaction {
  std::uint64_t kept = 0;      // blocks of the new file
  std::uint64_t left_out = 0;  // older than those that the new file has room for; nobody looked at them
  std::uint64_t wrong = 0;     // blocks that were other bytes, or could not be read
  std::uint64_t old_bytes = 0;
  std::uint64_t new_bytes = 0;
  std::uint32_t blocks = 0;
};

// `blocks`: of the new file; none: as many as before. The progress counts the blocks that are copied;
// where some have to be left out, those first that are looked at.
[[nodiscard]] Result<Compaction> compact(const std::string& path, std::optional<std::uint32_t> blocks,
                                         const DiskProgress& progress = {});

}  // namespace cairn
