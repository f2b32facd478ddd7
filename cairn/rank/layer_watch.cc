#include "cairn/rank/layer_watch.h"

#include <algorithm>
#include <utility>

namespace cairn {

void LayerWatch::expect(std::span<const BlockId> blocks) {
  rows_.clear();
  for (const BlockId block : blocks) {
    rows_.try_emplace(index_of(block), static_cast<std::uint32_t>(rows_.size()));
  }
  came_.assign(rows_.size() * missing_.size(), 0);
  failed_.assign(rows_.size(), 0);
  std::ranges::fill(lost_, 0);
  std::ranges::fill(missing_, static_cast<std::uint32_t>(rows_.size()));
}

void LayerWatch::layers_came(std::uint32_t block, std::uint32_t first, std::uint32_t count) {
  const auto row = rows_.find(block);
  if (row == rows_.end()) {
    return;
  }
  std::vector<std::uint32_t>& without = failed_[row->second] != 0 ? lost_ : missing_;
  for (std::uint32_t layer = first; layer < first + count; ++layer) {
    if (std::exchange(came_[row->second * missing_.size() + layer], 1) == 0) {
      --without[layer];
    }
  }
}

void LayerWatch::fail(std::uint32_t block) {
  const auto row = rows_.find(block);
  if (row == rows_.end() || std::exchange(failed_[row->second], 1) != 0) {
    return;
  }
  for (std::uint32_t layer = 0; layer < layers(); ++layer) {
    if (came_[row->second * missing_.size() + layer] == 0) {
      --missing_[layer];
      ++lost_[layer];
    }
  }
}

void LayerWatch::fail_all() {
  for (const auto& [block, row] : rows_) {
    fail(block);
  }
}

std::vector<BlockId> LayerWatch::lacking(std::uint32_t layer) const {
  std::vector<BlockId> blocks;
  for (const auto& [block, row] : rows_) {
    if (came_[row * missing_.size() + layer] == 0) {
      blocks.push_back(BlockId{block});
    }
  }
  return blocks;
}

}  // namespace cairn
