// Direct I/O of a file: whether its file system has it, and what reads and writes must keep to.
#pragma once

#include <cstdint>
#include <string>

namespace cairn {

enum class DirectProbe : std::uint8_t {
  kReadOnly,  // what the file holds matters
  kMayWrite,  // the file is new and holds zeros: writes them again, for some file systems refuse only that
};

struct DirectIo {
  bool works = false;
  std::uint64_t alignment = 1;  // of memory, offset and length alike
  std::string why_not = {};
};

// Tries reads (and writes) on a file of `size` bytes that is open for both with O_DIRECT set. Larger and larger alignments,
// from what the file system says where it says so.
[[nodiscard]] DirectIo probe_direct_io(int descriptor, std::uint64_t size, DirectProbe probe);

}  // namespace cairn
