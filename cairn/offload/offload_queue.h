// OffloadQueue: blocks that wait to be copied, the most valuable first, so many at most.
//
// Does:     orders by priority, then urgent ones first, then by how often the block was used, then shallower before deeper
//           (a block is of no use without those before it), then older before younger. When it is full the least
//           valuable one goes.
// Owner:    an OffloadEdge, whose lock guards every call.
// Costs:    O(log n) a block.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <unordered_map>
#include <vector>

#include "cairn/tokens/block_key.h"

namespace cairn {

class OffloadQueue {
 public:
  struct Block {
    BlockKey key;
    std::uint32_t priority = 0;
    std::uint32_t frequency = 0;
    bool is_urgent = false;  // it is about to be evicted, or needed by a block that is
  };

  explicit OffloadQueue(std::size_t bound) : bound_(bound) {}

  // Takes the block in. Where there is no room for it, the least valuable comes back, which may be this one. Requires: it
  // is not in it.
  [[nodiscard]] std::optional<BlockKey> push(const Block& block) { return push(block, take_numbers(1)); }
  // The same for blocks that are not pushed in the order of their ages: of equal ones the lowest number goes first.
  [[nodiscard]] std::optional<BlockKey> push(const Block& block, std::uint64_t number);
  // The first of so many numbers, later than all before.
  [[nodiscard]] std::uint64_t take_numbers(std::size_t count) {
    next_number_ += count;
    return next_number_ - count;
  }
  // Gives the block this priority if it has a lower one. Requires: it is in it.
  void raise(const BlockKey& key, std::uint32_t priority);
  // Requires: it is in it.
  void make_urgent(const BlockKey& key);
  // Whether it was in it.
  bool erase(const BlockKey& key);
  // The most valuable ones, in order; they stay.
  [[nodiscard]] std::vector<BlockKey> first(std::size_t count) const;
  [[nodiscard]] std::size_t size() const { return order_.size(); }
  [[nodiscard]] bool empty() const { return order_.empty(); }

 private:
  struct Place {
    Block block;
    std::uint64_t number = 0;  // by age
    bool operator<(const Place& other) const;
  };
  using Order = std::set<Place>;

  // Moves the block to where the change takes it.
  template <typename Change>
  void change(const BlockKey& key, Change change);

  const std::size_t bound_;
  std::uint64_t next_number_ = 0;
  Order order_;
  std::unordered_map<BlockKey, Order::iterator> places_;
};

}  // namespace cairn
