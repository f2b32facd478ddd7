// probe_direct_io(): whether a file can be read and written past the page cache, and with which alignment.
#pragma once

#include <cstdint>
#include <string>

namespace cairn {

enum class DirectProbe : std::uint8_t {
  kReadOnly,  // the file has contents to keep: try reads only
  kMayWrite,  // the file is new and holds zeros: also write zeros, because some file systems refuse writes only
};

struct DirectIo {
  bool works = false;
  std::uint64_t alignment = 1;  // of memory, offset and length alike
  std::string why_not = {};
};

// Tries reads (and writes) with growing alignments, starting with the one that the file system names. The file has `size`
// bytes and is open for reading and writing with O_DIRECT.
[[nodiscard]] DirectIo probe_direct_io(int descriptor, std::uint64_t size, DirectProbe probe);

}  // namespace cairn
