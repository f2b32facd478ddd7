#include "cairn/ranks/layer_watch.h"

#include <algorithm>

namespace cairn {

void LayerWatch::expect(std::span<const SlotId> blocks) {
  rows_.clear();
  has_failed_ = false;
  for (const SlotId block : blocks) {
    rows_.try_emplace(index_of(block), static_cast<std::uint32_t>(rows_.size()));
  }
  came_.assign(rows_.size() * missing_.size(), 0);
  std::ranges::fill(missing_, static_cast<std::uint32_t>(rows_.size()));
}

void LayerWatch::layer_came(std::uint32_t block, std::uint32_t layer) {
  const auto row = rows_.find(block);
  if (row == rows_.end()) {
    return;
  }
  std::uint8_t& came = came_[row->second * missing_.size() + layer];
  if (came == 0) {
    came = 1;
    --missing_[layer];
  }
}

void LayerWatch::all_came(std::uint32_t block) {
  for (std::uint32_t layer = 0; layer < layers(); ++layer) {
    layer_came(block, layer);
  }
}

void LayerWatch::fail(std::uint32_t block) { has_failed_ = has_failed_ || is_expected(block); }

}  // namespace cairn
