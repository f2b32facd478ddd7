// Whether rows share a byte: exact arithmetic over the steps of sets of rows, never over the rows themselves.
//
// Does:     finds indices with |address of one row - address of another| < a row's bytes. Dimensions are decided from the
//           largest step down; what the smaller steps can still reach leaves one or two values to try at each, where
//           steps nest in each other as those of tensors do.
// Threads:  pure.
// Costs:    a handful of steps for a pair of sets that nest. Steps that do not nest are searched up to a limit, and then
//           the answer is kUnknown.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "cairn/layout/block_layout.h"

namespace cairn::internal {

enum Dimension : std::uint8_t { kBlockDim, kLayerDim, kKvDim, kTokenDim, kHeadDim, kDimensions };

// The rows of layers that follow each other at a regular distance.
struct RowSet {
  int space = 0;  // addresses of two spaces never meet: memory is one, each file is one, each kind elsewhere is one
  std::uint64_t base = 0;   // in the space
  std::uint64_t bytes = 0;  // from the base to the end of the last row
  std::uint32_t first_layer = 0;
  std::array<std::uint64_t, kDimensions> counts = {1, 1, 1, 1, 1};
  std::array<std::uint64_t, kDimensions> steps = {};
};

// Requires: places within their regions.
[[nodiscard]] std::vector<RowSet> row_sets(const KvShape& shape, std::uint32_t blocks,
                                           std::span<const LayerPlace> layers, std::span<const RegionPtr> regions);
[[nodiscard]] std::vector<RowSet> row_sets(const BlockLayout& layout);

enum class Sharing : std::uint8_t { kNone, kFound, kUnknown };
struct SharedByte {
  Sharing sharing = Sharing::kNone;
  std::string rows = {};  // kFound: "block 0, layer 1, K, token 0, head 0 and block ..."
};

// Of any two different rows of one layout.
[[nodiscard]] SharedByte find_shared_byte(std::span<const RowSet> sets, std::uint64_t row_bytes);
// Of a row of one layout and a row of another.
[[nodiscard]] SharedByte find_shared_byte(std::span<const RowSet> ones, std::span<const RowSet> others,
                                          std::uint64_t row_bytes);

}  // namespace cairn::internal
