// compact(): rewrites the file of a disk tier with only the blocks that are right. Writes PATH.compact beside it, with the blocks
// whose bytes have their checksums, oldest first, from block 0 on; then the new file replaces the old one. If the new file has
// fewer blocks, the newest are kept.
//
// Whenever it stops, PATH is a whole file, the old one or the new one. A call that returns or throws leaves nothing beside it; the
// next call removes what a killed process left. It needs room for the whole new file while the old one is still there.
//
// Errors: the file is in use or is not a disk tier; no room (the message says how much is needed); kCancelled if the progress
// callback returned false. The old file is then unchanged.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "cairn/base/result.h"
#include "cairn/tier/disk_check.h"

namespace cairn {

struct Compaction {
  std::uint64_t kept = 0;      // blocks of the new file
  std::uint64_t left_out = 0;  // older than those that the new file has room for; not read
  std::uint64_t wrong = 0;     // blocks that had wrong bytes or could not be read
  std::uint64_t old_bytes = 0;
  std::uint64_t new_bytes = 0;
  std::uint32_t blocks = 0;
};

// `blocks`: of the new file; std::nullopt for as many as before. The progress counts the blocks that are copied; if some have to be
// left out, first those that are read to choose.
[[nodiscard]] Result<Compaction> compact(const std::string& path, std::optional<std::uint32_t> blocks,
                                         const DiskProgress& progress = {});

}  // namespace cairn
