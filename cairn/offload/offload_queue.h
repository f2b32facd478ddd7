// OffloadQueue: blocks that wait to be copied, the most valuable first, so many at most.
//
// Does:     orders by priority, then by how often the block was used, then shallower before deeper (a block is of no use
//           without those before it), then older before younger. When it is full the least valuable one goes.
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
  };

  explicit OffloadQueue(std::size_t bound) : bound_(bound) {}

  // Takes the block in. Where there is no room for it, the least valuable comes back, which may be this one. Requires: it
  // is not in it.
  [[nodiscard]] std::optional<BlockKey> push(const Block& block);
  // Gives the block this priority if it has a lower one. Requires: it is in it.
  void raise(const BlockKey& key, std::uint32_t priority);
  // Whether it was in it.
  bool erase(const BlockKey& key);
  // The most valuable ones, in order; they stay.
  [[nodiscard]] std::vector<BlockKey> first(std::size_t count) const;
  [[nodiscard]] std::size_t size() const { return order_.size(); }
  [[nodiscard]] bool empty() const { return order_.empty(); }

 private:
  struct Place {
    Block block;
    std::uint64_t number = 0;  // of its push
    bool operator<(const Place& other) const;
  };
  using Order = std::set<Place>;

  const std::size_t bound_;
  std::uint64_t next_number_ = 0;
  Order order_;
  std::unordered_map<BlockKey, Order::iterator> places_;
};

}  // namespace cairn
