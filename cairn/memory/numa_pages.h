// Pages and memory nodes, by the kernel's own calls: a program needs no further library.
//
// Threads:  any.
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
  kPrefer,   // there while it has memory, elsewhere after that
  kRequire,  // nowhere else
};

// Pages of this range that are first touched later come from that node. kUnavailable where the kernel refuses.
[[nodiscard]] Status place_on_node(std::byte* base, std::uint64_t bytes, int node, NumaWish wish);

struct FoundNode {
  int node = kNoNumaNode;  // that all pages looked at are on
  std::string words;       // where they are, when that is several: "3 pages on node 0, 1 on node 1, of 4 looked at"
};

// Where the pages of a range are: up to some thousand of them, evenly spread, the first and the last included. Looks, and
// moves nothing.
[[nodiscard]] Result<FoundNode> find_node(std::byte* base, std::uint64_t bytes);

// The same of answers of the kernel: nodes, negative ones for pages that are nowhere.
[[nodiscard]] FoundNode summarize_nodes(std::span<const int> nodes);

}  // namespace cairn
