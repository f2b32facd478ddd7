// find_shared_byte(): whether two rows of layouts share a byte. Exact, and computed from the steps of sets of rows, not row
// by row. Internal.
//
// Looks for indices with |address of one row - address of another| < bytes of a row. It chooses the index of each dimension
// in turn, from the largest step down; if the steps nest, as those of tensors do, the smaller steps leave only one or two
// values to try.
//
// Complexity: a handful of steps for two sets that nest. If steps do not nest, the search stops at a limit and the answer
// is kUnknown.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "cairn/layout/block_layout.h"

namespace cairn::internal {

enum Dimension : std::uint8_t { kBlockDim, kLayerDim, kKvDim, kTokenDim, kHeadDim, kDimensions };

// The rows of consecutive layers whose distance is constant.
struct RowSet {
  int space = 0;            // two spaces never overlap: memory is one, each file is one, each kind elsewhere is one
  std::uint64_t base = 0;   // in the space
  std::uint64_t bytes = 0;  // from the base to the end of the last row
  std::uint32_t first_layer = 0;
  std::array<std::uint64_t, kDimensions> counts = {1, 1, 1, 1, 1};
  std::array<std::uint64_t, kDimensions> steps = {};
};

// Requires: the places are within their regions.
[[nodiscard]] std::vector<RowSet> row_sets(const KvShape& shape, std::uint32_t blocks,
                                           std::span<const LayerPlace> layers, std::span<const RegionPtr> regions);
[[nodiscard]] std::vector<RowSet> row_sets(const BlockLayout& layout);

enum class Sharing : std::uint8_t { kNone, kFound, kUnknown };
struct SharedByte {
  Sharing sharing = Sharing::kNone;
  std::string rows = {};  // kFound: "block 0, layer 1, K, token 0, head 0 and block ..."
};

// Whether two different rows of one layout share a byte.
[[nodiscard]] SharedByte find_shared_byte(std::span<const RowSet> sets, std::uint64_t row_bytes);
// Whether a row of one layout and a row of another share a byte.
[[nodiscard]] SharedByte find_shared_byte(std::span<const RowSet> ones, std::span<const RowSet> others,
                                          std::uint64_t row_bytes);

}  // namespace cairn::internal
