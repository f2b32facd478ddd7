// open_disk(): opens the file of a disk tier, or makes it. A damaged file does not keep a manager from starting.
//
// kReuse:    a file that was cut off is made whole again: the blocks that it still has are used. A file that cannot be read
//            at all (both superblocks damaged, another format) is renamed to PATH.damaged and an empty one takes its place.
//            One PATH.damaged is kept: if there is one already, or no room for both, the damaged file is removed.
// kExisting: a file that is damaged in one of these ways, or does not exist, is an error.
// kFresh:    an existing file is removed, damaged or not.
// Links:     a symbolic link at PATH stays; what it leads to is opened, renamed or removed.
// Errors:    in every mode: a file of another model, layout or size, a file in use, and one that shows no sign of being
//            Cairn's. Such a file is left as it is: to point Cairn at it was a mistake. No room for a new file.
// Thread safety: any.
#pragma once

#include <cstdint>
#include <string>

#include "cairn/base/result.h"
#include "cairn/tier/disk_file.h"
#include "cairn/tier/tier_status.h"

namespace cairn {

struct OpenedDisk {
  DiskFile file;
  std::string damage = {};  // what was wrong with the file, and what became of it; empty if all was well
};
[[nodiscard]] Result<OpenedDisk> open_disk(const std::string& path, const DiskGeometry& geometry, DiskOpening opening);

}  // namespace cairn
