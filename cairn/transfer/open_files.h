// OpenFiles: the files and the host memory that a FileExecutor's backend knows. Adds a region at its first use and removes it
// when nobody holds it any more. A file is used directly or buffered, as its region says. It is used through a second, buffered
// descriptor if its file system refuses direct I/O after all, or if blocks do not consist of whole pages: two blocks that share
// a page cannot both be written past the page cache.
//
// Thread safety: none; used by the thread of the backend.
// Ownership: the executor. Regions are not kept alive.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cairn/base/result.h"
#include "cairn/memory/region.h"
#include "cairn/transfer/io_backend.h"

namespace cairn {

class OpenFiles {
 public:
  enum class Access : std::uint8_t {
    kWholePages,    // direct, if the region is
    kPartsOfPages,  // buffered
  };
  struct Handle {
    std::uint32_t number = 0;  // for the backend
    bool direct = false;
  };

  explicit OpenFiles(IoBackend& backend) : backend_(backend) {}
  OpenFiles(const OpenFiles&) = delete;
  OpenFiles& operator=(const OpenFiles&) = delete;
  ~OpenFiles();

  // Fails if a second descriptor is needed and cannot be opened.
  [[nodiscard]] Result<Handle> file(const RegionPtr& region, Access access);
  // The number of the region's own descriptor, whichever is used for reads and writes.
  [[nodiscard]] std::uint32_t own_file(const RegionPtr& region);
  // file() returns a buffered descriptor from now on, whatever the access. `why` is shown by describe().
  void use_buffered(const RegionPtr& region, const std::string& why);
  void use_memory(const RegionPtr& region);
  void forget_gone();

  // "2 files direct, 1 buffered: blocks are not whole pages"
  [[nodiscard]] std::string describe() const;

 private:
  static constexpr std::uint32_t kNotAdded = UINT32_MAX;
  struct File {
    const Region* key = nullptr;
    std::weak_ptr<const Region> region;
    std::uint32_t number = kNotAdded;
    std::uint32_t buffered_number = kNotAdded;
    int buffered_descriptor = kNoFile;
    std::string buffered_why;  // if it is not empty, the file is used buffered
  };
  struct Memory {
    std::weak_ptr<const Region> region;
    std::byte* base = nullptr;
    std::uint64_t size = 0;
  };

  [[nodiscard]] File& entry(const RegionPtr& region);
  void remove(File& file);

  IoBackend& backend_;
  std::vector<File> files_;
  std::vector<Memory> memory_;
};

// The path of an open file, for messages: "/data/kv.blocks".
[[nodiscard]] std::string file_name(int descriptor);

}  // namespace cairn
