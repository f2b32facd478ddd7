// LayerWatch: which layers of the blocks that an engine expects have come.
//
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
  explicit LayerWatch(std::uint32_t layers) : missing_(layers, 0) {}

  // In the place of what was expected before.
  void expect(std::span<const SlotId> blocks);
  [[nodiscard]] bool is_expected(std::uint32_t block) const { return rows_.contains(block); }
  [[nodiscard]] bool is_empty() const { return rows_.empty(); }

  // What is not expected is passed over.
  void layer_came(std::uint32_t block, std::uint32_t layer);
  void all_came(std::uint32_t block);
  // Some of it will not come.
  void fail(std::uint32_t block);
  void fail_all() { has_failed_ = !rows_.empty(); }

  [[nodiscard]] bool has_failed() const { return has_failed_; }
  // Of all that is expected. Requires: a layer of the model.
  [[nodiscard]] bool has_come(std::uint32_t layer) const { return missing_[layer] == 0; }
  [[nodiscard]] std::uint32_t layers() const { return static_cast<std::uint32_t>(missing_.size()); }

 private:
  std::unordered_map<std::uint32_t, std::uint32_t> rows_;  // by block: its row of `came_`
  std::vector<std::uint8_t> came_;                         // a row of layers a block
  std::vector<std::uint32_t> missing_;                     // by layer: blocks that lack it
  bool has_failed_ = false;
};

}  // namespace cairn
