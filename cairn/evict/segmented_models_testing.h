// Models of the policies that rank blocks by segments, slow and simple. For tests.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "cairn/evict/policy_model_testing.h"
#include "cairn/evict/tiny_lfu.h"

namespace cairn {

// Lists of known blocks, each in its order; the held ones among them can be evicted.
class SegmentedModel : public PolicyModel {
 public:
  SegmentedModel(const FakeBlocks& fake, std::size_t segments) : PolicyModel(fake), lists_(segments) {}

  void insert(BlockId block_id) final {
    place(block_id);
    held_.insert(block_id);
  }
  void remove(BlockId block_id) final { held_.erase(block_id); }
  void touch(BlockId block_id) final { place(block_id); }
  void forget(BlockId block_id) final { unlist(block_id); }

 protected:
  using List = std::vector<BlockId>;

  virtual void place(BlockId block_id) = 0;

  [[nodiscard]] std::size_t segment_of(BlockId block_id) const {
    const auto found = std::ranges::find_if(lists_, [&](const List& l) { return std::ranges::count(l, block_id) > 0; });
    return static_cast<std::size_t>(found - lists_.begin());
  }
  [[nodiscard]] bool is_known(BlockId block_id) const { return segment_of(block_id) < lists_.size(); }
  void unlist(BlockId block_id) {
    for (List& list : lists_) {
      std::erase(list, block_id);
    }
  }
  void append(std::size_t segment, BlockId block_id) {
    unlist(block_id);
    lists_[segment].push_back(block_id);
  }
  [[nodiscard]] BlockId front(std::size_t segment, const Permitted& permitted) const {
    return lowest_class(lists_[segment],
                        [&](BlockId block_id) { return held_.contains(block_id) && permitted(block_id); });
  }
  // The front of the lower class; the first if both have the same class.
  [[nodiscard]] BlockId better(BlockId a, BlockId b) const {
    std::vector<BlockId> both{a, b};
    std::erase(both, kNoBlock);
    return lowest_class(both, [](BlockId) { return true; });
  }

  std::vector<List> lists_;
  std::set<BlockId> held_;
};

class LfuModel final : public SegmentedModel {
 public:
  explicit LfuModel(const FakeBlocks& fake) : SegmentedModel(fake, 1) {}

 private:
  void place(BlockId block_id) override {
    uses_[block_id] = is_known(block_id) ? uses_[block_id] + 1 : 1;
    rank_[block_id] = floor_ + uses_[block_id];
    append(0, block_id);
  }
  BlockId choose(const Permitted& permitted) override {
    List by_rank = lists_[0];
    std::ranges::stable_sort(by_rank, {}, [this](BlockId block_id) { return rank_[block_id]; });
    const BlockId victim =
        lowest_class(by_rank, [&](BlockId block_id) { return held_.contains(block_id) && permitted(block_id); });
    floor_ = victim == kNoBlock ? floor_ : std::max(floor_, rank_[victim]);
    return victim;
  }

  std::map<BlockId, std::uint64_t> uses_;
  std::map<BlockId, std::uint64_t> rank_;
  std::uint64_t floor_ = 0;
};

class SlruModel final : public SegmentedModel {
 public:
  explicit SlruModel(const FakeBlocks& fake) : SegmentedModel(fake, 2) {}
  void set_leaf_test(Permitted is_leaf) { is_leaf_ = std::move(is_leaf); }

 private:
  void place(BlockId block_id) override {
    append(is_known(block_id) ? 1 : 0, block_id);
    if (lists_[1].size() > fake_.capacity() - fake_.capacity() / 5) {
      const BlockId demoted = front(1, is_leaf_);
      if (demoted != kNoBlock) {
        append(0, demoted);
      }
    }
  }
  BlockId choose(const Permitted& permitted) override { return better(front(0, permitted), front(1, permitted)); }

  Permitted is_leaf_ = [](BlockId) { return true; };
};

class ArcModel final : public SegmentedModel {
 public:
  explicit ArcModel(const FakeBlocks& fake) : SegmentedModel(fake, 2), ghosts_(2) {}

 private:
  void place(BlockId block_id) override {
    const BlockKey& key = fake_.key_of(block_id);
    const bool again = is_known(block_id);
    const auto once = static_cast<double>(ghosts_[0].size());
    const auto twice = static_cast<double>(ghosts_[1].size());
    if (!again && std::erase(ghosts_[0], key) > 0) {
      target_ = std::min<double>(fake_.capacity(), target_ + std::max(1.0, twice / once));
      append(1, block_id);
    } else if (!again && std::erase(ghosts_[1], key) > 0) {
      target_ = std::max(0.0, target_ - std::max(1.0, once / twice));
      append(1, block_id);
    } else {
      append(again ? 1 : 0, block_id);
    }
  }
  BlockId choose(const Permitted& permitted) override {
    const std::size_t first = static_cast<double>(lists_[0].size()) > target_ ? 0 : 1;
    const BlockId victim = better(front(first, permitted), front(1 - first, permitted));
    if (victim != kNoBlock) {
      remember(segment_of(victim), fake_.key_of(victim));
    }
    return victim;
  }
  void remember(std::size_t list, const BlockKey& key) {
    std::erase(ghosts_[0], key);
    std::erase(ghosts_[1], key);
    if (ghosts_[0].size() + ghosts_[1].size() == fake_.capacity()) {
      auto& longest = ghosts_[0].size() >= ghosts_[1].size() ? ghosts_[0] : ghosts_[1];
      longest.erase(longest.begin());
    }
    ghosts_[list].push_back(key);
    while (!ghosts_[0].empty() && lists_[0].size() + ghosts_[0].size() > fake_.capacity()) {
      ghosts_[0].erase(ghosts_[0].begin());
    }
  }

  std::vector<std::vector<BlockKey>> ghosts_;
  double target_ = 0;
};

class S3FifoModel final : public SegmentedModel {
 public:
  explicit S3FifoModel(const FakeBlocks& fake) : SegmentedModel(fake, 2) {}

 private:
  void place(BlockId block_id) override {
    if (is_known(block_id)) {
      uses_[block_id] = std::min(3, uses_[block_id] + 1);
      return;
    }
    uses_[block_id] = 0;
    append(std::erase(ghosts_, fake_.key_of(block_id)) > 0 ? 1 : 0, block_id);
  }
  BlockId choose(const Permitted& permitted) override {
    while (true) {
      const std::size_t first = lists_[0].size() > fake_.capacity() / 10 ? 0 : 1;
      const BlockId next = better(front(first, permitted), front(1 - first, permitted));
      if (next == kNoBlock) {
        return next;
      }
      if (uses_[next] < (segment_of(next) == 0 ? 2 : 1)) {
        if (segment_of(next) == 0) {
          remember(fake_.key_of(next));
        }
        return next;
      }
      uses_[next] = segment_of(next) == 0 ? 0 : uses_[next] - 1;
      append(1, next);
    }
  }
  void remember(const BlockKey& key) {
    std::erase(ghosts_, key);
    if (ghosts_.size() == fake_.capacity() - fake_.capacity() / 10) {
      ghosts_.erase(ghosts_.begin());
    }
    ghosts_.push_back(key);
  }

  std::map<BlockId, int> uses_;
  std::vector<BlockKey> ghosts_;
};

// Shares the sketch with the policy, which has a test of its own.
class MultiLruModel final : public SegmentedModel {
 public:
  explicit MultiLruModel(const FakeBlocks& fake)
      : SegmentedModel(fake, 4), sketch_(*TinyLfu::create(fake.capacity())) {}

 private:
  void place(BlockId block_id) override {
    const std::uint32_t uses = sketch_.add(fake_.key_of(block_id));
    append(uses < 3 ? 0 : uses < 8 ? 1 : uses < 15 ? 2 : 3, block_id);
  }
  BlockId choose(const Permitted& permitted) override {
    return better(better(front(0, permitted), front(1, permitted)), better(front(2, permitted), front(3, permitted)));
  }

  TinyLfu sketch_;
};

}  // namespace cairn
