// Region: describes one piece of memory or one file that holds blocks. external_region() describes memory of an engine;
// other functions of this folder make regions.
//
// A region does not read or write its bytes. Bytes are addressed by their offset, so that host memory, GPU memory and
// files are handled alike.
//
// Thread safety: immutable; safe from any thread.
// Ownership: shared. Layouts and transfers hold the regions that they use; the last holder frees the memory or file. Memory
// of somebody else (an engine's tensor) is not freed; the region holds what keeps it alive.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "cairn/base/result.h"

namespace cairn {

enum class MemoryKind : std::uint8_t {
  kSystem,  // pages of this process
  kPinned,  // pages that a GPU can read and write directly: locked and registered with the driver
  kDevice,  // memory of a GPU: base() is an address on the GPU, which the host must not dereference
  kFile,    // no address, but file() and an offset
};
// "system", "pinned", "device", "file"
[[nodiscard]] std::string_view to_string(MemoryKind kind);

inline constexpr int kNoDevice = -1;
inline constexpr int kNoNumaNode = -1;
inline constexpr int kNoFile = -1;

struct RegionFacts {
  MemoryKind kind = MemoryKind::kSystem;
  std::byte* base = nullptr;  // null for a file
  std::uint64_t size = 0;
  std::uint64_t alignment = 1;  // of the base; for files, of direct reads and writes
  int device = kNoDevice;       // the GPU that has the memory, or that pinned pages were made for
  int numa_node = kNoNumaNode;  // where the pages are; kNoNumaNode if the machine has one node
  int file = kNoFile;           // a descriptor
  bool direct = false;          // of a file: reads and writes bypass the page cache
  bool external = false;        // somebody else owns the memory
  std::string notes = {};       // wishes that could not be met, for people: "no huge pages: ..."
};

class Region {
 public:
  // `release` runs when the region is destroyed: it frees the memory, or drops what keeps it alive.
  Region(RegionFacts facts, std::function<void()> release) : facts_(std::move(facts)), release_(std::move(release)) {}
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;
  ~Region() {
    if (release_) {
      release_();
    }
  }

  [[nodiscard]] MemoryKind kind() const { return facts_.kind; }
  [[nodiscard]] std::byte* base() const { return facts_.base; }
  [[nodiscard]] std::uint64_t size() const { return facts_.size; }
  [[nodiscard]] std::uint64_t alignment() const { return facts_.alignment; }
  [[nodiscard]] int device() const { return facts_.device; }
  [[nodiscard]] int numa_node() const { return facts_.numa_node; }
  [[nodiscard]] int file() const { return facts_.file; }
  [[nodiscard]] bool is_direct() const { return facts_.direct; }
  [[nodiscard]] bool is_external() const { return facts_.external; }
  [[nodiscard]] const std::string& notes() const { return facts_.notes; }
  // The bytes are in other processes: this one must not touch them.
  [[nodiscard]] bool is_elsewhere() const { return facts_.base == nullptr && facts_.file == kNoFile; }
  // The host may dereference base().
  [[nodiscard]] bool is_host() const {
    return !is_elsewhere() && (kind() == MemoryKind::kSystem || kind() == MemoryKind::kPinned);
  }

 private:
  RegionFacts facts_;
  std::function<void()> release_;
};

using RegionPtr = std::shared_ptr<const Region>;

struct ExternalMemory {
  void* base = nullptr;
  std::uint64_t size = 0;
  MemoryKind kind = MemoryKind::kDevice;  // kPinned only if the pages are registered with the driver
  int device = kNoDevice;                 // kDevice: the GPU; kPinned: the GPU that uses the pages, if known
  std::shared_ptr<void> keep_alive = {};  // null: the owner keeps the memory longer than the region
};

// Describes memory that somebody else owns, such as an engine's tensor. Nothing here checks that the address is valid. The
// region holds `keep_alive`; the last holder of the region drops it, on whichever thread that is.
// Errors: no address, a size of 0, a range beyond the address space, kind kFile, GPU memory without a device number.
[[nodiscard]] Result<RegionPtr> external_region(ExternalMemory memory);

// The pages of host memory.
enum class HugePages : std::uint8_t {
  kNone,         // the machine's small pages
  kTransparent,  // 2 MiB pages if the kernel has them
  k2MiB,         // reserved by the administrator (/proc/sys/vm/nr_hugepages)
  k1GiB,
};

// How files are read and written.
enum class IoMethod : std::uint8_t {
  kBest,     // io_uring if it works, else threads
  kUring,    // io_uring, or fail
  kThreads,  // pread() and pwrite()
};

// Reports how much of a large region is ready. Called on the thread that makes the region, with the bytes of work done and in
// total. `done` never shrinks, and reaches `total` if the region is made. Touching a page and registering it count separately.
using MemoryProgress = std::function<void(std::uint64_t done, std::uint64_t total)>;

}  // namespace cairn
