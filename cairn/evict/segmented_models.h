// The models of policies that rank blocks by segments, slow and obviously right. For tests.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "cairn/evict/policy_model.h"
#include "cairn/evict/tiny_lfu.h"

namespace cairn {

// Lists of known slots, each in its order; the held ones among them can be had.
class SegmentedModel : public PolicyModel {
 public:
  SegmentedModel(const FakeSlots& fake, std::size_t segments) : PolicyModel(fake), lists_(segments) {}

  void insert(SlotId slot) final {
    place(slot);
    held_.insert(slot);
  }
  void remove(SlotId slot) final { held_.erase(slot); }
  void touch(SlotId slot) final { place(slot); }
  void forget(SlotId slot) final { unlist(slot); }

 protected:
  using List = std::vector<SlotId>;

  virtual void place(SlotId slot) = 0;

  [[nodiscard]] std::size_t segment_of(SlotId slot) const {
    const auto found = std::ranges::find_if(lists_, [&](const List& l) { return std::ranges::count(l, slot) > 0; });
    return static_cast<std::size_t>(found - lists_.begin());
  }
  [[nodiscard]] bool is_known(SlotId slot) const { return segment_of(slot) < lists_.size(); }
  void unlist(SlotId slot) {
    for (List& list : lists_) {
      std::erase(list, slot);
    }
  }
  void append(std::size_t segment, SlotId slot) {
    unlist(slot);
    lists_[segment].push_back(slot);
  }
  [[nodiscard]] SlotId front(std::size_t segment, const Permitted& permitted) const {
    return lowest_class(lists_[segment], [&](SlotId slot) { return held_.contains(slot) && permitted(slot); });
  }
  // The lower class of two fronts, the first where they are of one.
  [[nodiscard]] SlotId better(SlotId a, SlotId b) const {
    std::vector<SlotId> both{a, b};
    std::erase(both, kNoSlot);
    return lowest_class(both, [](SlotId) { return true; });
  }

  std::vector<List> lists_;
  std::set<SlotId> held_;
};

class LfuModel final : public SegmentedModel {
 public:
  explicit LfuModel(const FakeSlots& fake) : SegmentedModel(fake, 1) {}

 private:
  void place(SlotId slot) override {
    uses_[slot] = is_known(slot) ? uses_[slot] + 1 : 1;
    rank_[slot] = floor_ + uses_[slot];
    append(0, slot);
  }
  SlotId choose(const Permitted& permitted) override {
    List by_rank = lists_[0];
    std::ranges::stable_sort(by_rank, {}, [this](SlotId slot) { return rank_[slot]; });
    const SlotId victim = lowest_class(by_rank, [&](SlotId slot) { return held_.contains(slot) && permitted(slot); });
    floor_ = victim == kNoSlot ? floor_ : std::max(floor_, rank_[victim]);
    return victim;
  }

  std::map<SlotId, std::uint64_t> uses_;
  std::map<SlotId, std::uint64_t> rank_;
  std::uint64_t floor_ = 0;
};

class SlruModel final : public SegmentedModel {
 public:
  explicit SlruModel(const FakeSlots& fake) : SegmentedModel(fake, 2) {}
  void set_leaf_test(Permitted is_leaf) { is_leaf_ = std::move(is_leaf); }

 private:
  void place(SlotId slot) override {
    append(is_known(slot) ? 1 : 0, slot);
    if (lists_[1].size() > fake_.capacity() - fake_.capacity() / 5) {
      const SlotId demoted = front(1, is_leaf_);
      if (demoted != kNoSlot) {
        append(0, demoted);
      }
    }
  }
  SlotId choose(const Permitted& permitted) override { return better(front(0, permitted), front(1, permitted)); }

  Permitted is_leaf_ = [](SlotId) { return true; };
};

class ArcModel final : public SegmentedModel {
 public:
  explicit ArcModel(const FakeSlots& fake) : SegmentedModel(fake, 2), ghosts_(2) {}

 private:
  void place(SlotId slot) override {
    const BlockKey& key = fake_.key_of(slot);
    const bool again = is_known(slot);
    const auto once = static_cast<double>(ghosts_[0].size());
    const auto twice = static_cast<double>(ghosts_[1].size());
    if (!again && std::erase(ghosts_[0], key) > 0) {
      target_ = std::min<double>(fake_.capacity(), target_ + std::max(1.0, twice / once));
      append(1, slot);
    } else if (!again && std::erase(ghosts_[1], key) > 0) {
      target_ = std::max(0.0, target_ - std::max(1.0, once / twice));
      append(1, slot);
    } else {
      append(again ? 1 : 0, slot);
    }
  }
  SlotId choose(const Permitted& permitted) override {
    const std::size_t first = static_cast<double>(lists_[0].size()) > target_ ? 0 : 1;
    const SlotId victim = better(front(first, permitted), front(1 - first, permitted));
    if (victim != kNoSlot) {
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
  explicit S3FifoModel(const FakeSlots& fake) : SegmentedModel(fake, 2) {}

 private:
  void place(SlotId slot) override {
    if (is_known(slot)) {
      uses_[slot] = std::min(3, uses_[slot] + 1);
      return;
    }
    uses_[slot] = 0;
    append(std::erase(ghosts_, fake_.key_of(slot)) > 0 ? 1 : 0, slot);
  }
  SlotId choose(const Permitted& permitted) override {
    while (true) {
      const std::size_t first = lists_[0].size() > fake_.capacity() / 10 ? 0 : 1;
      const SlotId next = better(front(first, permitted), front(1 - first, permitted));
      if (next == kNoSlot) {
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

  std::map<SlotId, int> uses_;
  std::vector<BlockKey> ghosts_;
};

// Shares the sketch with the policy, which has a test of its own.
class MultiLruModel final : public SegmentedModel {
 public:
  explicit MultiLruModel(const FakeSlots& fake) : SegmentedModel(fake, 4), sketch_(*TinyLfu::create(fake.capacity())) {}

 private:
  void place(SlotId slot) override {
    const std::uint32_t uses = sketch_.add(fake_.key_of(slot));
    append(uses < 3 ? 0 : uses < 8 ? 1 : uses < 15 ? 2 : 3, slot);
  }
  SlotId choose(const Permitted& permitted) override {
    return better(better(front(0, permitted), front(1, permitted)), better(front(2, permitted), front(3, permitted)));
  }

  TinyLfu sketch_;
};

}  // namespace cairn
