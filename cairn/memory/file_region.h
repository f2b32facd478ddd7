// file_region(): a file of a fixed size, for blocks that outlive the process.
//
// Creates a file, or opens one of exactly that size, and preallocates its bytes, so that a full disk is an error here and
// not a failed write later. Reads and writes bypass the page cache if the file system can do that, which is tried with a
// real read and, if the file is new, a real write. The notes of the region say if the file system has no direct I/O or
// cannot preallocate.
//
// Thread safety: safe from any thread. The file is not locked against other processes.
// Ownership: the region closes the descriptor and, with `remove_on_release`, removes the file, unless another file has
// taken its name. external_file_region() does neither.
// Errors: a size of 0; a path that exists (kCreate) or does not exist (kOpen); not a regular file, another size, no
// permission; too little space, a quota, RLIMIT_FSIZE. The message names the path, the cause and what to change. A file
// that was created is removed again.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "cairn/base/result.h"
#include "cairn/memory/region.h"

namespace cairn {

enum class FileOpening : std::uint8_t {
  kCreate,  // the file must not exist
  kOpen,    // the file must exist; its contents are kept
};

struct FileRegionOptions {
  std::string path = {};
  std::uint64_t size = 0;
  FileOpening opening = FileOpening::kCreate;
  bool direct = true;              // bypass the page cache if the file system can
  bool remove_on_release = false;  // the file lives only as long as the process
  unsigned permissions = 0600;     // of a new file, less the umask; the contents are private, they are prompts
  std::string machine_root = {};   // below which /proc and /sys are read; for tests
};

[[nodiscard]] Result<RegionPtr> file_region(const FileRegionOptions& options);

struct ExternalFile {
  int descriptor = kNoFile;  // a regular file or block device, open for reading and writing
  std::uint64_t size = 0;    // from the beginning of the file, which may be longer
  std::shared_ptr<void> keep_alive = {};
};

// A file that somebody else opened. Uses direct I/O if the descriptor has O_DIRECT set and that works.
[[nodiscard]] Result<RegionPtr> external_file_region(ExternalFile file);

}  // namespace cairn
