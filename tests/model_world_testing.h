// Helpers of the pool model test: keys that share prefixes, and an observer that mirrors the events.
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

// Keys of sequences that share prefixes: three trunks, each with a branch at every second block.
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
  // Up to `count` keys along a path, from index `first` on.
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

// Records the events of a pool, one block each.
class RecordingObserver final : public PoolObserver {
 public:
  void on_registered(CacheLevel /*tier*/, std::span<const ResidentBlock> blocks,
                     std::span<const Token> /*tokens*/) override {
    for (const ResidentBlock& block : blocks) {
      events_.push_back({Event::Kind::kStored, block});
      consistent_ &= mirror_.emplace(block.key, block).second;
    }
  }
  void on_removed(CacheLevel /*tier*/, std::span<const BlockKey> keys) override {
    for (const BlockKey& key : keys) {
      events_.push_back({Event::Kind::kRemoved, {.key = key}});
      consistent_ &= mirror_.erase(key) == 1;
    }
  }
  void on_cleared(CacheLevel /*tier*/) override {
    events_.push_back({Event::Kind::kCleared});
    consistent_ &= !mirror_.empty();
    mirror_.clear();
  }
  void on_matched(CacheLevel /*tier*/, std::span<const BlockKey> keys) override {
    for (const BlockKey& key : keys) {
      consistent_ &= mirror_.contains(key);
    }
  }

  [[nodiscard]] std::vector<Event> take_events() { return std::exchange(events_, {}); }
  [[nodiscard]] const std::map<BlockKey, ResidentBlock>& mirror() const { return mirror_; }
  // False if a block was stored twice, or removed or matched without being stored.
  [[nodiscard]] bool consistent() const { return consistent_; }

 private:
  bool consistent_ = true;
  std::vector<Event> events_;
  std::map<BlockKey, ResidentBlock> mirror_;
};

}  // namespace cairn::model
