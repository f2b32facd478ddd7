// HostLimits: how much memory this process may still take, and which limit says so.
//
// Does:     reads /proc and /sys below a folder that is handed in: tests make machines of their own.
// Threads:  a plain value. Answers are of the moment: others take memory too.
// Fails:    never: what the kernel does not say is no limit.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "cairn/base/result.h"
#include "cairn/memory/region.h"

namespace cairn {

struct MemoryRoom {
  std::uint64_t bytes = UINT64_MAX;  // that may be touched without anything being killed; some are left to others
  std::string limit = {};            // what says so, with its numbers
};

struct HugePagePool {
  std::uint64_t page_bytes = 0;
  std::uint64_t total = 0;  // pages
  std::uint64_t free = 0;   // and not promised to anyone
};

class HostLimits {
 public:
  // Of the machine whose /proc and /sys lie in `machine_root`; the one this runs on is "".
  explicit HostLimits(std::string machine_root) : machine_root_(std::move(machine_root)) {}

  // The least of the system's available memory, of what is left in the control groups of this process (both versions)
  // and, where one is named, of what is free or can be freed on a memory node. Swap does not count: a cache in swap is
  // none.
  [[nodiscard]] MemoryRoom memory(int numa_node = kNoNumaNode) const;

  // kExhausted when `bytes` is more than there is room for, with the limit and what to change.
  [[nodiscard]] Status check_memory(std::uint64_t bytes, int numa_node = kNoNumaNode) const;

  // Pages of that size set aside by the administrator, of the machine or of one node.
  [[nodiscard]] HugePagePool huge_pages(std::uint64_t page_bytes, int numa_node = kNoNumaNode) const;

  // Transparent huge pages are switched off for the machine.
  [[nodiscard]] bool transparent_pages_off() const;

 private:
  std::string machine_root_;
};

// The limits on address space that apply to this process, as words for a mapping that was refused: "" or "; RLIMIT_AS is
// ...".
[[nodiscard]] std::string address_space_text();

// Keeps pages from being moved or swapped. kExhausted where RLIMIT_MEMLOCK forbids it.
[[nodiscard]] Status lock_pages(std::byte* base, std::uint64_t bytes);

}  // namespace cairn
