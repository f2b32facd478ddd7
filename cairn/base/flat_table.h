// FlatTable<Key, Value, Traits>: a hash table in one array, for tables that are looked up for every block.
//
// Open addressing with linear probing. erase() moves later entries back, so there are no tombstones. `Traits` has
//
//   static std::uint64_t hash(const Key&);                  // its highest bits choose the place
//   static bool is_vacant(const Key&, const Value&);        // true for Key{}, Value{}; false for every stored entry
//   static constexpr std::uint32_t kMaxPercent;             // of the places, before the table grows to twice its size
//
// Thread safety: one thread at a time.
// Ownership: owns the entries. A pointer to a value is valid until the next erase(), clear(), or insert() beyond what
// reserve() made room for.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace cairn {

template <typename Key, typename Value, typename Traits>
class FlatTable {
 public:
  FlatTable() : cells_(std::size_t{1} << kFirstBits) {}

  [[nodiscard]] std::size_t size() const { return size_; }

  [[nodiscard]] Value* find(const Key& key) {
    Cell& cell = cells_[place_of(key)];
    return cell.vacant() ? nullptr : &cell.value;
  }
  [[nodiscard]] const Value* find(const Key& key) const { return const_cast<FlatTable*>(this)->find(key); }
  [[nodiscard]] bool contains(const Key& key) const { return find(key) != nullptr; }
  // Fetches the place of a key that will be looked up soon.
  void prefetch(const Key& key) const { __builtin_prefetch(&cells_[home_of(key)], 1); }

  // Calls fn(const Key&, const Value&) for each entry, in the order of the places: the same for the same calls before.
  template <typename Fn>
  void for_each(Fn fn) const {
    for (const Cell& cell : cells_) {
      if (!cell.vacant()) {
        fn(cell.key, cell.value);
      }
    }
  }

  // Makes room for this many more entries.
  void reserve(std::size_t more) {
    std::size_t places = cells_.size();
    while (exceeds(size_ + more, places)) {
      places *= 2;
    }
    if (places != cells_.size()) {
      grow_to(places);
    }
  }
  // Stores `value` unless the key has one. Returns the value of the key, and whether it is the new one.
  std::pair<Value*, bool> insert(const Key& key, const Value& value) {
    reserve(1);
    Cell& cell = cells_[place_of(key)];
    if (!cell.vacant()) {
      return {&cell.value, false};
    }
    cell = {key, value};
    ++size_;
    return {&cell.value, true};
  }

  // Returns what was erased, or Value{} if the key was not there.
  Value erase(const Key& key) {
    const std::size_t place = place_of(key);
    if (cells_[place].vacant()) {
      return Value{};
    }
    Value erased = std::move(cells_[place].value);
    empty(place);
    return erased;
  }
  // Calls fn(Value&), and erases the entry if that returns true. Returns whether the key was there.
  template <typename Fn>
  bool erase_if(const Key& key, Fn fn) {
    const std::size_t place = place_of(key);
    if (cells_[place].vacant()) {
      return false;
    }
    if (fn(cells_[place].value)) {
      empty(place);
    }
    return true;
  }
  // Erases everything and frees the memory.
  void clear() { *this = FlatTable(); }

 private:
  static constexpr std::uint32_t kFirstBits = 4;
  static_assert(Traits::kMaxPercent >= 10 && Traits::kMaxPercent <= 90, "probing ends at a vacant place");

  struct Cell {
    Key key{};
    Value value{};
    [[nodiscard]] bool vacant() const { return Traits::is_vacant(key, value); }
  };

  [[nodiscard]] static bool exceeds(std::size_t entries, std::size_t places) {
    return entries * 100 > places * Traits::kMaxPercent;
  }
  [[nodiscard]] std::size_t home_of(const Key& key) const { return Traits::hash(key) >> shift_; }
  // The place of the key, or the vacant one where it would be.
  [[nodiscard]] std::size_t place_of(const Key& key) const {
    std::size_t place = home_of(key);
    while (!cells_[place].vacant() && !(cells_[place].key == key)) {
      place = (place + 1) & mask_;
    }
    return place;
  }
  void empty(std::size_t hole) {
    for (std::size_t next = (hole + 1) & mask_; !cells_[next].vacant(); next = (next + 1) & mask_) {
      // An entry moves back unless its own place lies after the hole.
      if (((next - home_of(cells_[next].key)) & mask_) >= ((next - hole) & mask_)) {
        cells_[hole] = std::move(cells_[next]);
        hole = next;
      }
    }
    cells_[hole] = Cell{};
    --size_;
  }
  void grow_to(std::size_t places) {
    std::vector<Cell> old(places);
    old.swap(cells_);
    mask_ = places - 1;
    shift_ = 64 - static_cast<std::uint32_t>(std::countr_zero(places));
    for (Cell& cell : old) {
      if (!cell.vacant()) {
        cells_[place_of(cell.key)] = std::move(cell);
      }
    }
  }

  std::vector<Cell> cells_;  // a power of two
  std::size_t mask_ = (std::size_t{1} << kFirstBits) - 1;
  std::size_t size_ = 0;
  std::uint32_t shift_ = 64 - kFirstBits;
};

}  // namespace cairn
