// What the model test plays with: keys that share prefixes, and an observer that mirrors what it is told.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "tests/naive_pool_testing.h"

namespace cairn::model {

// Keys of sequences that share prefixes and branch: three trunks, each with branches off every second block.
class Universe {
 public:
  Universe() {
    for (std::uint64_t trunk = 0; trunk < 3; ++trunk) {
      paths_.push_back(extend({}, 9, trunk));
      const std::vector<BlockKey> whole = paths_.back();
      for (std::uint64_t at = 1; at < whole.size(); at += 2) {
        paths_.push_back(extend({whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(at)}, 3, 100 * at + trunk));
      }
    }
    for (const std::vector<BlockKey>& path : paths_) {
      keys_.insert(keys_.end(), path.begin(), path.end());
    }
    std::ranges::sort(keys_);
    keys_.erase(std::ranges::unique(keys_).begin(), keys_.end());
  }

  [[nodiscard]] const std::vector<BlockKey>& keys() const { return keys_; }
  // `count` keys (or as many as there are) along a path, from the first on or from further down.
  [[nodiscard]] std::vector<BlockKey> along(std::size_t path, std::size_t first, std::size_t count) const {
    const std::vector<BlockKey>& whole = paths_[path % paths_.size()];
    first = std::min(first, whole.size() - 1);
    count = std::min(count, whole.size() - first);
    return {whole.begin() + static_cast<std::ptrdiff_t>(first),
            whole.begin() + static_cast<std::ptrdiff_t>(first + count)};
  }

 private:
  static std::vector<BlockKey> extend(std::vector<BlockKey> path, std::size_t count, std::uint64_t name) {
    for (std::size_t i = 0; i < count; ++i) {
      const BlockHash block{(name + 1) * 0x9E3779B97F4A7C15U + i};
      path.push_back(path.empty() ? *BlockKey::root(sequence_hash_of_root(block)) : *path.back().extend(block));
    }
    return path;
  }

  std::vector<std::vector<BlockKey>> paths_;
  std::vector<BlockKey> keys_;
};

inline const Universe& universe() {
  static const Universe universe;
  return universe;
}

// What observers were told, as single facts.
class Told final : public PoolObserver {
 public:
  void on_registered(CacheLevel /*tier*/, std::span<const ResidentBlock> blocks,
                     std::span<const Token> /*tokens*/) override {
    for (const ResidentBlock& block : blocks) {
      events_.push_back({Event::Kind::kStored, block});
      truthful_ &= mirror_.emplace(block.key, block).second;
    }
  }
  void on_removed(CacheLevel /*tier*/, std::span<const BlockKey> keys) override {
    for (const BlockKey& key : keys) {
      events_.push_back({Event::Kind::kRemoved, {.key = key}});
      truthful_ &= mirror_.erase(key) == 1;
    }
  }
  void on_cleared(CacheLevel /*tier*/) override {
    events_.push_back({Event::Kind::kCleared});
    truthful_ &= !mirror_.empty();
    mirror_.clear();
  }
  void on_matched(CacheLevel /*tier*/, std::span<const BlockKey> keys) override {
    for (const BlockKey& key : keys) {
      truthful_ &= mirror_.contains(key);
    }
  }

  [[nodiscard]] std::vector<Event> take_events() { return std::exchange(events_, {}); }
  [[nodiscard]] const std::map<BlockKey, ResidentBlock>& mirror() const { return mirror_; }
  // Nothing was stored that was there, and nothing removed or matched that was not.
  [[nodiscard]] bool truthful() const { return truthful_; }

 private:
  bool truthful_ = true;
  std::vector<Event> events_;
  std::map<BlockKey, ResidentBlock> mirror_;
};

}  // namespace cairn::model
