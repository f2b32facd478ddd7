// NaiveOrder: the order in which each policy evicts blocks, as simple as possible: maps, and linear searches.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <tuple>

#include "cairn/evict/eviction_policy.h"
#include "cairn/tokens/block_key.h"

namespace cairn::model {

class NaiveOrder {
 public:
  explicit NaiveOrder(PolicyKind kind) : kind_(kind) {}

  // `parent`: the key's parent, if it is in the pool.
  void insert(const BlockKey& key, const std::optional<BlockKey>& parent) {
    Node& node = nodes_[key];
    node.evictable = true;
    if (kind_ != PolicyKind::kFifo || node.tick == 0) {
      node.tick = ++now_;
    }
    if (!is_lineage()) {
      return;
    }
    for (auto& [other, below] : nodes_) {
      if (below.linked && !below.parent && key.is_parent_of(other)) {
        below.parent = key;  // its parent was missing until now
      }
    }
    if (!node.linked) {
      node.linked = true;
      node.parent = parent;
      if (parent) {
        nodes_.try_emplace(*parent);
      }
    }
  }

  void remove(const BlockKey& key) {
    nodes_.at(key).evictable = false;
    if (is_lineage() && is_childless(key)) {
      prune(key);
    }
  }

  // The key has left the pool.
  void forget(const BlockKey& key) {
    for (auto& [other, below] : nodes_) {
      if (below.parent == key) {
        below.parent.reset();
      }
    }
    if (nodes_.contains(key)) {
      prune(key);
      nodes_.erase(key);
    }
  }

  // Whether evictable blocks are below this one in the tree.
  [[nodiscard]] bool has_descendants(const BlockKey& key) const { return is_lineage() && !is_childless(key); }
  [[nodiscard]] bool is_lineage() const {
    return kind_ == PolicyKind::kLineageTick || kind_ == PolicyKind::kLineageFifo;
  }

  using ClassOf = std::function<std::uint32_t(const BlockKey&)>;
  using Eligible = std::function<bool(const BlockKey&)>;
  // The next victim of the lowest class.
  [[nodiscard]] std::optional<BlockKey> victim(const ClassOf& class_of, const Eligible& eligible) const {
    std::optional<std::tuple<std::uint32_t, std::uint64_t, BlockKey>> first;
    for (const auto& [key, node] : nodes_) {
      if (node.evictable && eligible(key) && (!is_lineage() || is_childless(key))) {
        const std::tuple candidate(class_of(key), node.tick, key);
        first = first ? std::min(*first, candidate) : candidate;
      }
    }
    return first ? std::optional(std::get<BlockKey>(*first)) : std::nullopt;
  }

 private:
  struct Node {
    bool evictable = false;
    std::uint64_t tick = 0;
    bool linked = false;             // lineage: the block is in the tree
    std::optional<BlockKey> parent;  // in the tree; empty for a root and while the parent is missing
  };

  [[nodiscard]] bool is_childless(const BlockKey& key) const {
    for (const auto& [other, node] : nodes_) {
      if (node.parent == key) {
        return false;
      }
    }
    return true;
  }

  // Removes a block that is not evictable from the tree, and all its ancestors that are not needed any more.
  void prune(const BlockKey& key) {
    Node& node = nodes_.at(key);
    if (!node.linked) {
      return;
    }
    node.linked = false;
    const std::optional<BlockKey> parent = node.parent;
    node.parent.reset();
    if (!parent || !is_childless(*parent)) {
      return;
    }
    if (!nodes_.at(*parent).evictable) {
      prune(*parent);
    } else if (kind_ == PolicyKind::kLineageFifo) {
      nodes_.at(*parent).tick = ++now_;  // it has just become a leaf
    }
  }

  PolicyKind kind_;
  std::map<BlockKey, Node> nodes_;
  std::uint64_t now_ = 0;
};

}  // namespace cairn::model
