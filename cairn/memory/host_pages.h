// HostPages: maps the pages of a system or pinned region. Internal.
//
// Thread safety: one thread at a time.
// Ownership: unmaps the pages when it is destroyed, unless release() was called.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "cairn/base/result.h"
#include "cairn/memory/numa_pages.h"
#include "cairn/memory/system_region.h"

namespace cairn {

class HostPages {
 public:
  // Maps the pages, places them on a node, touches them and verifies the node, as the options say. Does not lock them.
  [[nodiscard]] static Result<HostPages> map(const SystemRegionOptions& options, NumaWish wish);

  HostPages(HostPages&& other) noexcept
      : base_(std::exchange(other.base_, nullptr)),
        bytes_(other.bytes_),
        page_bytes_(other.page_bytes_),
        alignment_(other.alignment_),
        numa_node_(other.numa_node_),
        from_pool_(other.from_pool_),
        notes_(std::move(other.notes_)) {}
  HostPages& operator=(HostPages&&) = delete;
  ~HostPages();

  [[nodiscard]] std::byte* base() const { return base_; }
  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }  // whole pages
  [[nodiscard]] std::uint64_t alignment() const { return alignment_; }
  [[nodiscard]] int numa_node() const { return numa_node_; }
  [[nodiscard]] const std::string& notes() const { return notes_; }
  void note(std::string_view text);
  // The caller unmaps base() and bytes() from now on.
  void release() { base_ = nullptr; }

 private:
  HostPages() = default;
  [[nodiscard]] Status map_explicit(const SystemRegionOptions& options);
  [[nodiscard]] Status map_small(const SystemRegionOptions& options);
  [[nodiscard]] Status map_shared(const SharedMemory& memory);
  [[nodiscard]] Status place(const SystemRegionOptions& options, NumaWish wish);
  [[nodiscard]] Status touch(const SystemRegionOptions& options, int strict_node) const;
  [[nodiscard]] Status verify_node(const SystemRegionOptions& options, NumaWish wish);

  std::byte* base_ = nullptr;
  std::uint64_t bytes_ = 0;
  std::uint64_t page_bytes_ = 0;  // of reserved huge pages, or of small pages
  std::uint64_t alignment_ = 1;
  int numa_node_ = kNoNumaNode;
  bool from_pool_ = false;  // reserved huge pages, which do not count as memory of the machine
  std::string notes_;
};

}  // namespace cairn
