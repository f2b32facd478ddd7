// Descriptors of disk tiers' files: locked against other processes, and never of a file that another user put there.
//
// open_locked():   follows symbolic links: an operator may keep the file of disk.path elsewhere.
// create_locked(): makes a new file that only this user can read. It follows no link and opens no existing file. A
//                  file that a process of this user left there when it was killed is removed first.
// Ownership: the caller closes the descriptor, which releases the lock.
// Errors:    kFailedPrecondition if another process has the file locked or owns it; kInvalidArgument if the path is a
//            folder, a device, or (create_locked) a link; what the system says otherwise. Every message has the path.
#pragma once

#include <cstdint>
#include <string>

#include "cairn/base/result.h"

namespace cairn::disk {

enum class Access : std::uint8_t { kRead, kWrite };

[[nodiscard]] Result<int> open_locked(const std::string& path, Access access);
[[nodiscard]] Result<int> create_locked(const std::string& path);
// Opens a file that another process has locked, and uses with this one. `seat`: a number that one process at a time has, so that
// a process that is started again does not write to the file beside the one that it replaces.
[[nodiscard]] Result<int> open_shared(const std::string& path, std::uint32_t seat);

// "cannot open /nvme/blocks: No such file or directory", with a code for the number.
[[nodiscard]] Error file_error(const char* what, const std::string& path, int number);

}  // namespace cairn::disk
