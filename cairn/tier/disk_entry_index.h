// DiskEntryIndex: which slots of a disk tier's file have an entry, and of which keys.
//
// Finds the slots of a key without a walk over all slots: a key may have entries in several slots, because a slot keeps
// its entry until it is written again. 28 bytes a slot.
// Thread safety: one thread at a time.
// Complexity:    every call is O(1), and O(slots found) for slots_of(). The seed keeps whoever can choose keys from making
//                long chains.
#pragma once

#include <cstdint>
#include <vector>

#include "cairn/base/ids.h"
#include "cairn/tokens/block_key.h"

namespace cairn {

class DiskEntryIndex {
 public:
  DiskEntryIndex() = default;
  DiskEntryIndex(std::uint32_t slots, std::uint64_t seed);

  // The slot has an entry of this key now, and of no other.
  void set(SlotId slot, const BlockKey& key);
  // The slot has an entry that names no key: it is only to be erased before the slot is written.
  void set_unnamed(SlotId slot);
  void clear(SlotId slot);
  [[nodiscard]] bool has(SlotId slot) const { return states_[index_of(slot)] != State::kEmpty; }
  // Appends the slots that have an entry of this key.
  void slots_of(const BlockKey& key, std::vector<SlotId>& out) const;

 private:
  enum class State : std::uint8_t { kEmpty, kUnnamed, kNamed };
  [[nodiscard]] std::uint32_t& head(const BlockKey& key) { return heads_[place(key)]; }
  [[nodiscard]] std::size_t place(const BlockKey& key) const;

  std::uint64_t seed_ = 0;
  int shift_ = 0;
  std::vector<State> states_;         // by slot, as are keys_ and next_
  std::vector<BlockKey> keys_;        // of slots that are named
  std::vector<std::uint32_t> next_;   // the next slot of the same chain
  std::vector<std::uint32_t> heads_;  // the first slot of each chain
};

}  // namespace cairn
