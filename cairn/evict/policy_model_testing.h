// Models of the eviction policies, slow and simple. For tests.
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
#include "cairn/evict/fake_blocks_testing.h"

namespace cairn {

// One block at a time, O(n) each: a victim is found by looking at all candidates in their order.
class PolicyModel {
 public:
  explicit PolicyModel(const FakeBlocks& fake) : fake_(fake) {}
  PolicyModel(const PolicyModel&) = delete;
  PolicyModel& operator=(const PolicyModel&) = delete;
  virtual ~PolicyModel() = default;

  virtual void insert(BlockId block_id) = 0;
  virtual void remove(BlockId block_id) = 0;
  virtual void forget(BlockId block_id) = 0;
  // One more use of a block in use; policies that order by releases ignore it.
  virtual void touch(BlockId /*block_id*/) {}

  BlockId evict(ClassRange range, const Veto& veto) {
    const BlockId victim = choose([&](BlockId block_id) {
      const std::uint32_t its_class = fake_.class_of(block_id);
      return its_class >= range.first && its_class < range.last && !(veto && veto(block_id));
    });
    if (victim != kNoBlock) {
      remove(victim);
    }
    return victim;
  }

  // The next victim among those permitted, which the caller holds; kNoBlock if there is none.
  using Permitted = std::function<bool(BlockId)>;
  virtual BlockId choose(const Permitted& permitted) = 0;

 protected:
  // The first of the lowest class.
  [[nodiscard]] BlockId lowest_class(const std::vector<BlockId>& candidates, const Permitted& permitted) const {
    BlockId victim = kNoBlock;
    for (const BlockId candidate : candidates) {
      if (permitted(candidate) && (victim == kNoBlock || fake_.class_of(candidate) < fake_.class_of(victim))) {
        victim = candidate;
      }
    }
    return victim;
  }

  const FakeBlocks& fake_;
};

class LruModel final : public PolicyModel {
 public:
  using PolicyModel::PolicyModel;
  void insert(BlockId block_id) override { order_.push_back(block_id); }
  void remove(BlockId block_id) override { std::erase(order_, block_id); }
  void forget(BlockId /*block_id*/) override {}
  BlockId choose(const Permitted& permitted) override { return lowest_class(order_, permitted); }

 private:
  std::vector<BlockId> order_;
};

class FifoModel final : public PolicyModel {
 public:
  using PolicyModel::PolicyModel;
  void insert(BlockId block_id) override {
    if (std::ranges::count(order_, block_id) == 0) {
      order_.push_back(block_id);
    }
    held_.insert(block_id);
  }
  void remove(BlockId block_id) override { held_.erase(block_id); }
  void forget(BlockId block_id) override { std::erase(order_, block_id); }

 private:
  BlockId choose(const Permitted& permitted) override {
    return lowest_class(order_, [&](BlockId block_id) { return held_.contains(block_id) && permitted(block_id); });
  }

  std::vector<BlockId> order_;  // by first release, in use or not
  std::set<BlockId> held_;
};

// The graph of blocks by the parent that a child's key names. A node whose block is not evictable, or not resident, is
// a ghost. A block is connected to its parent when it is inserted, until it is pruned or loses its key.
class LineageModel final : public PolicyModel {
 public:
  LineageModel(const FakeBlocks& fake, bool by_tick) : PolicyModel(fake), by_tick_(by_tick) {}

  void insert(BlockId block_id) override {
    const BlockKey& key = fake_.key_of(block_id);
    const Name name = name_of(key);
    Node& node = graph_[name];
    node.real = block_id;
    node.tick = ++now_;
    if (key.position() > 0 && !node.parent) {
      node.parent = Name(key.position() - 1, key.parent_fragment());
      graph_[*node.parent].children.insert(name);
    }
    note_leaves();
  }
  void remove(BlockId block_id) override {
    const Name name = name_of(fake_.key_of(block_id));
    graph_.at(name).real.reset();
    prune(name);
    note_leaves();
  }
  void forget(BlockId block_id) override {
    const Name name = name_of(fake_.key_of(block_id));
    if (const auto found = graph_.find(name); found != graph_.end() && found->second.parent) {
      const Name parent = *found->second.parent;
      found->second.parent.reset();
      graph_.at(parent).children.erase(name);
      prune(parent);
    }
    prune(name);
    note_leaves();
  }
  BlockId choose(const Permitted& permitted) override { return lowest_class(candidates(), permitted); }

  [[nodiscard]] bool is_leaf(BlockId block_id) const {
    const auto found = graph_.find(name_of(fake_.key_of(block_id)));
    return found != graph_.end() && found->second.leaf_since != 0;
  }

 private:
  using Name = std::pair<std::uint32_t, std::uint64_t>;  // position and fragment

  struct Node {
    std::optional<BlockId> real{};
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

  // Checked after each call: at most one node has become a leaf.
  void note_leaves() {
    for (auto& [name, node] : graph_) {
      if (!node.real || !node.children.empty()) {
        node.leaf_since = 0;
      } else if (node.leaf_since == 0) {
        node.leaf_since = ++now_;
      }
    }
  }

  [[nodiscard]] std::vector<BlockId> candidates() const {
    std::map<std::uint64_t, BlockId> leaves;
    for (const auto& [name, node] : graph_) {
      if (node.leaf_since != 0) {
        leaves.emplace(by_tick_ ? node.tick : node.leaf_since, *node.real);
      }
    }
    std::vector<BlockId> order;
    for (const auto& [time, block_id] : leaves) {
      order.push_back(block_id);
    }
    return order;
  }

  const bool by_tick_;
  std::map<Name, Node> graph_;
  std::uint64_t now_ = 0;
};

// Any model, except that a block with an evictable block below it is kept.
class LeafFirstModel final : public PolicyModel {
 public:
  LeafFirstModel(const FakeBlocks& fake, std::unique_ptr<PolicyModel> inner)
      : PolicyModel(fake), inner_(std::move(inner)), tree_(fake, true) {}

  void insert(BlockId block_id) override {
    inner_->insert(block_id);
    tree_.insert(block_id);
  }
  void remove(BlockId block_id) override {
    inner_->remove(block_id);
    tree_.remove(block_id);
  }
  void forget(BlockId block_id) override {
    inner_->forget(block_id);
    tree_.forget(block_id);
  }
  void touch(BlockId block_id) override { inner_->touch(block_id); }
  BlockId choose(const Permitted& permitted) override {
    return inner_->choose([&](BlockId block_id) { return tree_.is_leaf(block_id) && permitted(block_id); });
  }
  [[nodiscard]] const LineageModel& tree() const { return tree_; }

 private:
  std::unique_ptr<PolicyModel> inner_;
  LineageModel tree_;
};

}  // namespace cairn
