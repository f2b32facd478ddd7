// OffloadQueue: blocks that are pending, the most valuable first, up to a bound. Ordered by priority, then urgent blocks
// first, then by frequency of use, then by position (a block is of no use without those before it), then by age. When the
// queue is full, the least valuable block is shed.
//
// Thread safety: none; the Offloader's lock guards every call.
// Complexity: O(log n) for each block.
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
    bool is_urgent = false;  // about to be evicted, or needed by a block that is
  };

  explicit OffloadQueue(std::size_t bound) : bound_(bound) {}

  // Adds the block. If the queue is full, returns the block that was shed, which may be this one. Requires: it is not queued.
  [[nodiscard]] std::optional<BlockKey> push(const Block& block) { return push(block, take_numbers(1)); }
  // The same for blocks that are not pushed in the order of their age: of equal blocks the lowest number goes first.
  [[nodiscard]] std::optional<BlockKey> push(const Block& block, std::uint64_t number);
  // Reserves `count` numbers, higher than all before, and returns the first.
  [[nodiscard]] std::uint64_t take_numbers(std::size_t count) {
    next_number_ += count;
    return next_number_ - count;
  }
  // Gives the block this priority if it has a lower one. Requires: it is queued.
  void raise(const BlockKey& key, std::uint32_t priority);
  // Requires: it is queued.
  void make_urgent(const BlockKey& key);
  // Returns whether it was queued.
  bool erase(const BlockKey& key);
  // The most valuable blocks, in order; they stay queued.
  [[nodiscard]] std::vector<BlockKey> first(std::size_t count) const;
  [[nodiscard]] std::size_t size() const { return order_.size(); }
  [[nodiscard]] std::size_t bound() const { return bound_; }
  // If it is lower than size(), blocks stay, and each new one sheds one.
  void set_bound(std::size_t bound) { bound_ = bound; }
  [[nodiscard]] bool empty() const { return order_.empty(); }

 private:
  struct Place {
    Block block;
    std::uint64_t number = 0;  // by age
    bool operator<(const Place& other) const;
  };
  using Order = std::set<Place>;

  // Changes the block and moves it to its new place.
  template <typename Change>
  void change(const BlockKey& key, Change change);

  std::size_t bound_;
  std::uint64_t next_number_ = 0;
  Order order_;
  std::unordered_map<BlockKey, Order::iterator> places_;
};

}  // namespace cairn
