// LayerWatch: which layers of the expected blocks have come.
//
// It no longer waits for a block that has failed, only for the others.
//
// Thread safety: under the lock of RankTransfers.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "cairn/base/ids.h"

namespace cairn {

class LayerWatch {
 public:
  explicit LayerWatch(std::uint32_t layers) : missing_(layers, 0), lost_(layers, 0) {}

  // Replaces what was expected before.
  void expect(std::span<const BlockId> blocks);
  [[nodiscard]] bool is_expected(std::uint32_t block) const { return rows_.contains(block); }
  [[nodiscard]] bool is_empty() const { return rows_.empty(); }

  // Blocks that are not expected are ignored.
  void layers_came(std::uint32_t block, std::uint32_t first, std::uint32_t count);
  void all_came(std::uint32_t block) { layers_came(block, 0, layers()); }
  // The block will not come whole.
  void fail(std::uint32_t block);
  void fail_all();

  // Whether all expected blocks that have not failed have the layer. Requires here and below: layer < layers().
  [[nodiscard]] bool has_come(std::uint32_t layer) const { return missing_[layer] == 0; }
  // Whether a block that has failed does not have the layer.
  [[nodiscard]] bool is_lost(std::uint32_t layer) const { return lost_[layer] > 0; }
  // Blocks that do not have the layer, failed or not, in no order.
  [[nodiscard]] std::vector<BlockId> lacking(std::uint32_t layer) const;
  [[nodiscard]] std::uint32_t layers() const { return static_cast<std::uint32_t>(missing_.size()); }

 private:
  std::unordered_map<std::uint32_t, std::uint32_t> rows_;  // by block: its row of `came_` and `failed_`
  std::vector<std::uint8_t> came_;                         // a row of layers for each block
  std::vector<std::uint8_t> failed_;                       // by row
  std::vector<std::uint32_t> missing_;                     // by layer: blocks that lack it and may still get it
  std::vector<std::uint32_t> lost_;                        // by layer: blocks that lack it and have failed
};

}  // namespace cairn
