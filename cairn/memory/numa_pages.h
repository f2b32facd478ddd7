// Placing pages on NUMA nodes and finding where they are, with system calls: no library is needed.
//
// Thread safety: safe from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "cairn/base/result.h"
#include "cairn/memory/region.h"

namespace cairn {

inline constexpr int kMostNumaNodes = 1024;

enum class NumaWish : std::uint8_t {
  kPrefer,   // on this node while it has memory, then on others
  kRequire,  // on this node only
};

// Pages of this range that are touched for the first time after this call come from that node. Errors: kUnavailable if the
// kernel refuses.
[[nodiscard]] Status place_on_node(std::byte* base, std::uint64_t bytes, int node, NumaWish wish);

struct FoundNode {
  int node = kNoNumaNode;  // the node of all sampled pages, if it is one node
  std::string words;       // otherwise where they are: "3 pages on node 0, 1 on node 1, of 4 looked at"
};

// The node of a range's pages, from an evenly spread sample of up to some thousand pages, the first and last included.
[[nodiscard]] Result<FoundNode> find_node(std::byte* base, std::uint64_t bytes);

// The same from what the kernel answered for each page: a node, or a negative number for a page that is not present.
[[nodiscard]] FoundNode summarize_nodes(std::span<const int> nodes);

}  // namespace cairn
