// What each eviction policy does, slow and obviously right. For tests.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "cairn/evict/eviction_policy.h"
#include "cairn/evict/fake_slots.h"

namespace cairn {

// One slot at a time, O(n) each: a victim is found by looking at all candidates in their order.
class PolicyModel {
 public:
  explicit PolicyModel(const FakeSlots& fake) : fake_(fake) {}
  PolicyModel(const PolicyModel&) = delete;
  PolicyModel& operator=(const PolicyModel&) = delete;
  virtual ~PolicyModel() = default;

  virtual void insert(SlotId slot) = 0;
  virtual void remove(SlotId slot) = 0;
  virtual void forget(SlotId slot) = 0;
  // One more use of a block in use; the order of those that go by releases does not know it.
  virtual void touch(SlotId /*slot*/) {}

  SlotId evict(ClassRange range, const Veto& veto) {
    const SlotId victim = choose([&](SlotId slot) {
      const std::uint32_t its_class = fake_.class_of(slot);
      return its_class >= range.first && its_class < range.last && !(veto && veto(slot));
    });
    if (victim != kNoSlot) {
      remove(victim);
    }
    return victim;
  }

  // The next victim among those permitted, which are held by whoever calls; kNoSlot where there is none.
  using Permitted = std::function<bool(SlotId)>;
  virtual SlotId choose(const Permitted& permitted) = 0;

 protected:
  // The first of the lowest class.
  [[nodiscard]] SlotId lowest_class(const std::vector<SlotId>& candidates, const Permitted& permitted) const {
    SlotId victim = kNoSlot;
    for (const SlotId candidate : candidates) {
      if (permitted(candidate) && (victim == kNoSlot || fake_.class_of(candidate) < fake_.class_of(victim))) {
        victim = candidate;
      }
    }
    return victim;
  }

  const FakeSlots& fake_;
};

class LruModel final : public PolicyModel {
 public:
  using PolicyModel::PolicyModel;
  void insert(SlotId slot) override { order_.push_back(slot); }
  void remove(SlotId slot) override { std::erase(order_, slot); }
  void forget(SlotId /*slot*/) override {}
  SlotId choose(const Permitted& permitted) override { return lowest_class(order_, permitted); }

 private:
  std::vector<SlotId> order_;
};

class FifoModel final : public PolicyModel {
 public:
  using PolicyModel::PolicyModel;
  void insert(SlotId slot) override {
    if (std::ranges::count(order_, slot) == 0) {
      order_.push_back(slot);
    }
    held_.insert(slot);
  }
  void remove(SlotId slot) override { held_.erase(slot); }
  void forget(SlotId slot) override { std::erase(order_, slot); }

 private:
  SlotId choose(const Permitted& permitted) override {
    return lowest_class(order_, [&](SlotId slot) { return held_.contains(slot) && permitted(slot); });
  }

  std::vector<SlotId> order_;  // by first release, in use or not
  std::set<SlotId> held_;
};

// The graph of blocks by what a child's key says of its parent. A node whose block is not evictable, or is not there at
// all, is a ghost. A block is linked to its parent when it is inserted; the link ends when it is pruned or loses its
// key.
class LineageModel final : public PolicyModel {
 public:
  LineageModel(const FakeSlots& fake, bool by_tick) : PolicyModel(fake), by_tick_(by_tick) {}

  void insert(SlotId slot) override {
    const BlockKey& key = fake_.key_of(slot);
    const Name name = name_of(key);
    Node& node = graph_[name];
    node.real = slot;
    node.tick = ++now_;
    if (key.position() > 0 && !node.parent) {
      node.parent = Name(key.position() - 1, key.parent_fragment());
      graph_[*node.parent].children.insert(name);
    }
    note_leaves();
  }
  void remove(SlotId slot) override {
    const Name name = name_of(fake_.key_of(slot));
    graph_.at(name).real.reset();
    prune(name);
    note_leaves();
  }
  void forget(SlotId slot) override {
    const Name name = name_of(fake_.key_of(slot));
    if (const auto found = graph_.find(name); found != graph_.end() && found->second.parent) {
      const Name parent = *found->second.parent;
      found->second.parent.reset();
      graph_.at(parent).children.erase(name);
      prune(parent);
    }
    prune(name);
    note_leaves();
  }
  SlotId choose(const Permitted& permitted) override { return lowest_class(candidates(), permitted); }

  [[nodiscard]] bool is_leaf(SlotId slot) const {
    const auto found = graph_.find(name_of(fake_.key_of(slot)));
    return found != graph_.end() && found->second.leaf_since != 0;
  }

 private:
  using Name = std::pair<std::uint32_t, std::uint64_t>;  // position and fragment

  struct Node {
    std::optional<SlotId> real{};
    std::uint64_t tick = 0;        // when it was inserted
    std::uint64_t leaf_since = 0;  // 0: it is no leaf
    std::optional<Name> parent{};
    std::set<Name> children{};
  };

  static Name name_of(const BlockKey& key) { return {key.position(), key.fragment_for_child()}; }

  void prune(Name name) {
    for (auto found = graph_.find(name); found != graph_.end(); found = graph_.find(name)) {
      const Node node = found->second;
      if (node.real || !node.children.empty()) {
        return;
      }
      graph_.erase(found);
      if (!node.parent) {
        return;
      }
      graph_.at(*node.parent).children.erase(name);
      name = *node.parent;
    }
  }

  // After each call: at most one node has become a leaf by it.
  void note_leaves() {
    for (auto& [name, node] : graph_) {
      if (!node.real || !node.children.empty()) {
        node.leaf_since = 0;
      } else if (node.leaf_since == 0) {
        node.leaf_since = ++now_;
      }
    }
  }

  [[nodiscard]] std::vector<SlotId> candidates() const {
    std::map<std::uint64_t, SlotId> leaves;
    for (const auto& [name, node] : graph_) {
      if (node.leaf_since != 0) {
        leaves.emplace(by_tick_ ? node.tick : node.leaf_since, *node.real);
      }
    }
    std::vector<SlotId> order;
    for (const auto& [time, slot] : leaves) {
      order.push_back(slot);
    }
    return order;
  }

  const bool by_tick_;
  std::map<Name, Node> graph_;
  std::uint64_t now_ = 0;
};

// Any model, with blocks that have something evictable below them kept back.
class LeafFirstModel final : public PolicyModel {
 public:
  LeafFirstModel(const FakeSlots& fake, std::unique_ptr<PolicyModel> inner)
      : PolicyModel(fake), inner_(std::move(inner)), tree_(fake, true) {}

  void insert(SlotId slot) override {
    inner_->insert(slot);
    tree_.insert(slot);
  }
  void remove(SlotId slot) override {
    inner_->remove(slot);
    tree_.remove(slot);
  }
  void forget(SlotId slot) override {
    inner_->forget(slot);
    tree_.forget(slot);
  }
  void touch(SlotId slot) override { inner_->touch(slot); }
  SlotId choose(const Permitted& permitted) override {
    return inner_->choose([&](SlotId slot) { return tree_.is_leaf(slot) && permitted(slot); });
  }
  [[nodiscard]] const LineageModel& tree() const { return tree_; }

 private:
  std::unique_ptr<PolicyModel> inner_;
  LineageModel tree_;
};

}  // namespace cairn
