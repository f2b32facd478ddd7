#include "cairn/tier/disk_entry_index.h"

#include <algorithm>
#include <bit>
#include <limits>

namespace cairn {

namespace {

constexpr std::uint32_t kEnd = std::numeric_limits<std::uint32_t>::max();

}  // namespace

DiskEntryIndex::DiskEntryIndex(std::uint32_t slots, std::uint64_t seed)
    : seed_(seed),
      states_(slots, State::kEmpty),
      keys_(slots),
      next_(slots, kEnd),
      heads_(std::bit_ceil(std::max<std::size_t>(slots, 2)), kEnd) {
  shift_ = 64 - std::countr_zero(heads_.size());
}

// Two multiplications with the seed between: who does not know the seed cannot choose keys of one chain.
std::size_t DiskEntryIndex::place(const BlockKey& key) const {
  std::uint64_t mixed = (key.high_word() ^ seed_) * 0x9E3779B97F4A7C15U;
  mixed = (mixed ^ (mixed >> 32) ^ key.low_word() ^ std::rotl(seed_, 32)) * 0xD6E8FEB86659FD93U;
  mixed ^= mixed >> 32;
  return (mixed * 0x9E3779B97F4A7C15U) >> shift_;
}

void DiskEntryIndex::set(SlotId slot, const BlockKey& key) {
  clear(slot);
  const std::uint32_t index = index_of(slot);
  std::uint32_t& first = head(key);
  keys_[index] = key;
  next_[index] = first;
  first = index;
  states_[index] = State::kNamed;
}

void DiskEntryIndex::set_unnamed(SlotId slot) {
  clear(slot);
  states_[index_of(slot)] = State::kUnnamed;
}

void DiskEntryIndex::clear(SlotId slot) {
  const std::uint32_t index = index_of(slot);
  if (states_[index] == State::kNamed) {
    std::uint32_t* at = &head(keys_[index]);
    while (*at != index) {
      at = &next_[*at];
    }
    *at = next_[index];
  }
  states_[index] = State::kEmpty;
}

void DiskEntryIndex::slots_of(const BlockKey& key, std::vector<SlotId>& out) const {
  for (std::uint32_t slot = heads_[place(key)]; slot != kEnd; slot = next_[slot]) {
    if (keys_[slot] == key) {
      out.push_back(SlotId{slot});
    }
  }
}

}  // namespace cairn
