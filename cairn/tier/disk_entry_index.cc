#include "cairn/tier/disk_entry_index.h"

#include <algorithm>
#include <bit>
#include <limits>

namespace cairn {

namespace {

constexpr std::uint32_t kEnd = std::numeric_limits<std::uint32_t>::max();

}  // namespace

DiskEntryIndex::DiskEntryIndex(std::uint32_t blocks, std::uint64_t seed)
    : seed_(seed),
      states_(blocks, State::kEmpty),
      keys_(blocks),
      next_(blocks, kEnd),
      heads_(std::bit_ceil(std::max<std::size_t>(blocks, 2)), kEnd) {
  shift_ = 64 - std::countr_zero(heads_.size());
}

// Two multiplications with the seed between: without the seed nobody can choose keys that end up in one chain.
std::size_t DiskEntryIndex::place(const BlockKey& key) const {
  std::uint64_t mixed = (key.high_word() ^ seed_) * 0x9E3779B97F4A7C15U;
  mixed = (mixed ^ (mixed >> 32) ^ key.low_word() ^ std::rotl(seed_, 32)) * 0xD6E8FEB86659FD93U;
  mixed ^= mixed >> 32;
  return (mixed * 0x9E3779B97F4A7C15U) >> shift_;
}

void DiskEntryIndex::set(BlockId block_id, const BlockKey& key) {
  clear(block_id);
  const std::uint32_t index = index_of(block_id);
  std::uint32_t& first = head(key);
  keys_[index] = key;
  next_[index] = first;
  first = index;
  states_[index] = State::kNamed;
}

void DiskEntryIndex::set_unnamed(BlockId block_id) {
  clear(block_id);
  states_[index_of(block_id)] = State::kUnnamed;
}

void DiskEntryIndex::clear(BlockId block_id) {
  const std::uint32_t index = index_of(block_id);
  if (states_[index] == State::kNamed) {
    std::uint32_t* at = &head(keys_[index]);
    while (*at != index) {
      at = &next_[*at];
    }
    *at = next_[index];
  }
  states_[index] = State::kEmpty;
}

void DiskEntryIndex::block_ids_of(const BlockKey& key, std::vector<BlockId>& out) const {
  for (std::uint32_t block_id = heads_[place(key)]; block_id != kEnd; block_id = next_[block_id]) {
    if (keys_[block_id] == key) {
      out.push_back(BlockId{block_id});
    }
  }
}

}  // namespace cairn
