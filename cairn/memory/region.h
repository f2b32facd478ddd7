// Region: one piece of memory or one file, where blocks lie. The factories beside this header make them.
//
// Does:     says what it is; nothing here reads or writes it. Bytes are named by their offset, so that memory of the
//           host, memory of a GPU and a file are spoken of alike.
// Owner:    shared: layouts and transfers hold the regions they use, and the last one frees it, in the way its maker
//           gave. Memory of someone else (an engine's tensor) is not freed; what keeps it alive is held as long.
// Threads:  immutable; use from any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace cairn {

enum class MemoryKind : std::uint8_t {
  kSystem,  // pages of this process
  kPinned,  // pages that a GPU reads and writes by itself: locked, and known to the driver
  kDevice,  // memory of a GPU: base() is its address there and nothing for the host to follow
  kFile,    // no address: file() and an offset
};
// "system", "pinned", "device", "file"
[[nodiscard]] std::string_view to_string(MemoryKind kind);

inline constexpr int kNoDevice = -1;
inline constexpr int kNoNumaNode = -1;
inline constexpr int kNoFile = -1;

struct RegionFacts {
  MemoryKind kind = MemoryKind::kSystem;
  std::byte* base = nullptr;  // none for a file
  std::uint64_t size = 0;
  std::uint64_t alignment = 1;  // of the base, and for files of what direct reads and writes must keep to
  int device = kNoDevice;       // the GPU that holds it, or that pinned pages were made for
  int numa_node = kNoNumaNode;  // where the pages were found to be; unknown where the machine has one node
  int file = kNoFile;           // a descriptor
  bool direct = false;          // of a file: reads and writes go past the page cache
  bool external = false;        // somebody else's memory
  std::string notes = {};       // what was asked for and not to be had, for people: "no huge pages: ..."
};

class Region {
 public:
  // `release` runs when the last holder lets go: it frees what was made, or drops what keeps it alive.
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
  // Bytes of other processes: nobody here may touch them.
  [[nodiscard]] bool is_elsewhere() const { return facts_.base == nullptr && facts_.file == kNoFile; }
  // The host may follow base().
  [[nodiscard]] bool is_host() const {
    return !is_elsewhere() && (kind() == MemoryKind::kSystem || kind() == MemoryKind::kPinned);
  }

 private:
  RegionFacts facts_;
  std::function<void()> release_;
};

using RegionPtr = std::shared_ptr<const Region>;

}  // namespace cairn
