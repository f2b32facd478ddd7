// OpenFiles: the regions that a file executor's backend knows: files, in the mode in which each can be used, and host
// memory that is registered.
//
// Does:     adds a region at its first use and removes it once nobody holds it. A file is used as its region says,
//           direct or not; and through a second, buffered descriptor of the same file where its file system refuses
//           direct I/O after all, or where blocks are not made of whole pages: what shares a page with another block
//           cannot be written past the page cache without a lost update.
// Owner:    the executor; regions are not kept alive by it.
// Threads:  one, that of the backend.
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
    kWholePages,    // direct, where the region is
    kPartsOfPages,  // buffered
  };
  struct Handle {
    std::uint32_t number = 0;  // the backend's
    bool direct = false;
  };

  explicit OpenFiles(IoBackend& backend) : backend_(backend) {}
  OpenFiles(const OpenFiles&) = delete;
  OpenFiles& operator=(const OpenFiles&) = delete;
  ~OpenFiles();

  // Fails where a second descriptor is needed and cannot be had.
  [[nodiscard]] Result<Handle> file(const RegionPtr& region, Access access);
  // By the region's own descriptor, whatever is used for reads and writes.
  [[nodiscard]] std::uint32_t own_file(const RegionPtr& region);
  // What file() says from now on, whatever the access. `why` is for people.
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
    std::string buffered_why;  // not empty: buffered from now on
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

// "/data/kv.blocks", as the system knows the descriptor; for messages.
[[nodiscard]] std::string file_name(int descriptor);

}  // namespace cairn
