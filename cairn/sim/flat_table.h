// FlatTable<Key, Value>: a hash table in one array, for tables that are asked at every block. Internal.
//
// Does:     open addressing with linear probing; erasing moves what follows back, so that it never fills with graves.
// Requires: of Value that a default one says vacant(), and one that is kept does not; of Key that hash_of() mixes it.
// Owner:    owns its cells. A pointer to a value is good until the next erase(), and insert() beyond what was reserved.
// Threads:  one.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "cairn/tokens/block_key.h"

namespace cairn::sim::internal {

// The high bits are the good ones.
[[nodiscard]] inline std::uint64_t hash_of(std::uint64_t key) { return key * 0x9E3779B97F4A7C15U; }
[[nodiscard]] inline std::uint64_t hash_of(const BlockKey& key) {
  return hash_of(key.high_word() ^ std::rotl(key.low_word(), 23) ^ (key.low_word() >> 7));
}

template <typename Key, typename Value>
class FlatTable {
 public:
  FlatTable() : cells_(std::size_t{1} << kFirstBits) {}

  [[nodiscard]] std::size_t size() const { return size_; }

  [[nodiscard]] Value* find(const Key& key) {
    Cell& cell = cells_[place_of(key)];
    return cell.value.vacant() ? nullptr : &cell.value;
  }
  [[nodiscard]] const Value* find(const Key& key) const { return const_cast<FlatTable*>(this)->find(key); }
  [[nodiscard]] bool contains(const Key& key) const { return find(key) != nullptr; }
  // The key will be asked for soon.
  void prefetch(const Key& key) const { __builtin_prefetch(&cells_[home_of(key)], 1); }

  // In no particular order, but always the same one; fn(const Key&, const Value&).
  template <typename Fn>
  void for_each(Fn fn) const {
    for (const Cell& cell : cells_) {
      if (!cell.value.vacant()) {
        fn(cell.key, cell.value);
      }
    }
  }

  // Room for this many more.
  void reserve(std::size_t more) {
    while ((size_ + more) * 2 > mask_ + 1) {
      grow();
    }
  }
  // The value of the key, made of `value` where there was none, and whether it was made.
  std::pair<Value*, bool> insert(const Key& key, const Value& value) {
    reserve(1);
    Cell& cell = cells_[place_of(key)];
    if (!cell.value.vacant()) {
      return {&cell.value, false};
    }
    cell = {key, value};
    ++size_;
    return {&cell.value, true};
  }

  // What it was; a vacant value where there was none.
  Value erase(const Key& key) {
    const std::size_t place = place_of(key);
    const Value erased = cells_[place].value;
    if (!erased.vacant()) {
      empty(place);
    }
    return erased;
  }
  // Calls fn(value), and erases it where that answers true. Whether there was one.
  template <typename Fn>
  bool erase_if(const Key& key, Fn fn) {
    const std::size_t place = place_of(key);
    if (cells_[place].value.vacant()) {
      return false;
    }
    if (fn(cells_[place].value)) {
      empty(place);
    }
    return true;
  }

 private:
  static constexpr std::uint32_t kFirstBits = 4;

  struct Cell {
    Key key{};
    Value value{};
  };

  [[nodiscard]] std::size_t home_of(const Key& key) const { return hash_of(key) >> shift_; }
  // The cell of the key, or the vacant one where it would be.
  [[nodiscard]] std::size_t place_of(const Key& key) const {
    std::size_t place = home_of(key);
    while (!cells_[place].value.vacant() && !(cells_[place].key == key)) {
      place = (place + 1) & mask_;
    }
    return place;
  }
  void empty(std::size_t hole) {
    for (std::size_t next = (hole + 1) & mask_; !cells_[next].value.vacant(); next = (next + 1) & mask_) {
      // It may move back unless its own place lies after the hole.
      if (((next - home_of(cells_[next].key)) & mask_) >= ((next - hole) & mask_)) {
        cells_[hole] = cells_[next];
        hole = next;
      }
    }
    cells_[hole] = Cell{};
    --size_;
  }
  void grow() {
    std::vector<Cell> old(cells_.size() * 2);
    old.swap(cells_);
    mask_ = cells_.size() - 1;
    --shift_;
    for (const Cell& cell : old) {
      if (!cell.value.vacant()) {
        cells_[place_of(cell.key)] = cell;
      }
    }
  }

  std::vector<Cell> cells_;  // a power of two, at most half of them taken
  std::size_t mask_ = (std::size_t{1} << kFirstBits) - 1;
  std::size_t size_ = 0;
  std::uint32_t shift_ = 64 - kFirstBits;
};

}  // namespace cairn::sim::internal
