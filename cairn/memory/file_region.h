// file_region(): a file of a fixed size, for blocks that outlive memory.
//
// Does:     creates a file, or opens one of just that size, and has the file system set its bytes aside, so that a full
//           disk is an error here and not a failed write later. Reads and writes go past the page cache where the file
//           system can do that: it is asked, and then tried with a real read, and a real write where the file is new.
// Owner:    the region closes the descriptor and, if told so, removes the file: the one it opened, not another that has
//           taken its name. external_file_region() does neither.
// Threads:  any. Nothing here locks the file against other processes.
// Fails:    a size of 0; a path that is there (kCreate) or not (kOpen), no regular file, of another size, not permitted;
//           less space than asked for, a quota, RLIMIT_FSIZE. Names the path, the cause, and what to change. A file that
//           was created is removed again.
// Notes:    a file system without direct I/O, or without means to set bytes aside.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "cairn/base/result.h"
#include "cairn/memory/region.h"

namespace cairn {

enum class FileOpening : std::uint8_t {
  kCreate,  // must not exist
  kOpen,    // must exist; what it holds is kept
};

struct FileRegionOptions {
  std::string path = {};
  std::uint64_t size = 0;
  FileOpening opening = FileOpening::kCreate;
  bool direct = true;              // past the page cache, where the file system can
  bool remove_on_release = false;  // a cache for the life of the process
  unsigned permissions = 0600;     // of a new file, less the umask: what it holds was said to a model in private
  std::string machine_root = {};   // where /proc and /sys are read; tests have folders of their own
};

[[nodiscard]] Result<RegionPtr> file_region(const FileRegionOptions& options);

struct ExternalFile {
  int descriptor = kNoFile;  // of a regular file or a block device, for reading and writing
  std::uint64_t size = 0;    // from its beginning; it may be longer
  std::shared_ptr<void> keep_alive = {};
};

// A file of somebody else, used as it was opened: direct where it has O_DIRECT set and that works.
[[nodiscard]] Result<RegionPtr> external_file_region(ExternalFile file);

}  // namespace cairn
