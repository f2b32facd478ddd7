// HostLimits: how much more memory this process can use, and which limit that comes from. Reads /proc and /sys.
//
// Thread safety: a plain value. Each answer is of its moment; other processes use memory too.
// Errors: none. What the kernel does not say is no limit.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "cairn/base/result.h"
#include "cairn/memory/region.h"

namespace cairn {

struct MemoryRoom {
  std::uint64_t bytes = UINT64_MAX;  // can be touched without any process being killed; some are left to others
  std::string limit = {};            // the limit that this comes from, with its numbers
};

struct HugePagePool {
  std::uint64_t page_bytes = 0;
  std::uint64_t total = 0;  // pages
  std::uint64_t free = 0;   // and not reserved
};

class HostLimits {
 public:
  // Reads below `machine_root`: "" for this machine, a folder of files in tests.
  explicit HostLimits(std::string machine_root) : machine_root_(std::move(machine_root)) {}

  // The smallest of: the system's available memory; what is left in the control groups of this process (both versions);
  // and, if a node is given, what is free or can be freed on it. Swap does not count.
  [[nodiscard]] MemoryRoom memory(int numa_node = kNoNumaNode) const;

  // kExhausted if `bytes` is more than memory() has; the message names the limit and what to change.
  [[nodiscard]] Status check_memory(std::uint64_t bytes, int numa_node = kNoNumaNode) const;

  // Huge pages of that size that the administrator reserved, on the machine or on one node.
  [[nodiscard]] HugePagePool huge_pages(std::uint64_t page_bytes, int numa_node = kNoNumaNode) const;

  // Whether transparent huge pages are switched off.
  [[nodiscard]] bool transparent_pages_off() const;

 private:
  std::string machine_root_;
};

// The address-space limit of this process, as the end of a message about a refused mapping: "" or "; RLIMIT_AS is ...".
[[nodiscard]] std::string address_space_text();

// Keeps pages from being swapped out. Errors: kExhausted if RLIMIT_MEMLOCK forbids it.
[[nodiscard]] Status lock_pages(std::byte* base, std::uint64_t bytes);

}  // namespace cairn
