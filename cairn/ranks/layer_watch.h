// LayerWatch: which layers of the blocks that an engine expects have come.
//
// Failed:   a block that will not come is not waited for any more; the others are.
// Threads:  one at a time; RankWork's lock guards it.
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

  // In the place of what was expected before.
  void expect(std::span<const BlockId> blocks);
  [[nodiscard]] bool is_expected(std::uint32_t block) const { return rows_.contains(block); }
  [[nodiscard]] bool is_empty() const { return rows_.empty(); }

  // What is not expected is passed over.
  void layer_came(std::uint32_t block, std::uint32_t layer);
  void all_came(std::uint32_t block);
  // Some of it will not come.
  void fail(std::uint32_t block);
  void fail_all();

  // Of all that is expected and has not failed. This and the following require a layer of the model.
  [[nodiscard]] bool has_come(std::uint32_t layer) const { return missing_[layer] == 0; }
  // Of some of what has failed it has not come.
  [[nodiscard]] bool is_lost(std::uint32_t layer) const { return lost_[layer] > 0; }
  // Blocks that it has not come of, failed or not; in no order.
  [[nodiscard]] std::vector<BlockId> lacking(std::uint32_t layer) const;
  [[nodiscard]] std::uint32_t layers() const { return static_cast<std::uint32_t>(missing_.size()); }

 private:
  std::unordered_map<std::uint32_t, std::uint32_t> rows_;  // by block: its row of `came_` and `failed_`
  std::vector<std::uint8_t> came_;                         // a row of layers a block
  std::vector<std::uint8_t> failed_;                       // a block
  std::vector<std::uint32_t> missing_;                     // by layer: blocks that lack it and may still get it
  std::vector<std::uint32_t> lost_;                        // by layer: blocks that lack it and have failed
};

}  // namespace cairn
