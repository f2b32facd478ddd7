// preallocate(): gives a file its size and reserves its space, so that a full disk is an error now and not a failed write
// later.
//
// Some file systems cannot reserve space. The file gets its size all the same, and writes to it fail if the disk is full by
// then. posix_fallocate() of glibc would write the whole file there, which takes minutes and wears out the disk.
//
// Thread safety: safe from any thread.
#pragma once

#include <fcntl.h>

#include <cstdint>

namespace cairn {

struct Preallocated {
  int error = 0;  // an errno if the file has neither the size nor the space
  bool is_reserved = true;
};

using Fallocate = int (*)(int file, int mode, off_t offset, off_t length);  // fallocate(), or a test's

// Does not make the file shorter.
[[nodiscard]] Preallocated preallocate(int file, std::uint64_t bytes, Fallocate reserve = &::fallocate);

// For messages: what it means that a file is not reserved.
inline constexpr const char* kNotReserved =
    "no space reserved, because the file system cannot do it: if the disk is full, blocks are not stored";

}  // namespace cairn
