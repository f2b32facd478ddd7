// KeyIndex: from a block key to the slot that holds it.
//
// Does:     a hash table of slot numbers; the keys themselves are read from the slots. One cache line is a bucket of
//           twelve entries with a byte of hash each, so that a hit costs one line here and one in the slot table. It
//           hashes only what a child's key knows of its parent, so the parent of a block can be looked up as well.
// Owner:    the slot table. Threads: none; but hash_of, and prefetch, touch nothing that changes.
// Costs:    8 bytes a slot, taken once. Entries that do not fit their bucket go to the next ones, which count them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cairn/base/column.h"
#include "cairn/base/ids.h"
#include "cairn/base/page_array.h"
#include "cairn/base/result.h"
#include "cairn/tokens/block_key.h"

namespace cairn {

class KeyIndex {
 public:
  // For `capacity` slots whose keys are in the column.
  [[nodiscard]] static Result<KeyIndex> create(std::uint32_t capacity, Column<BlockKey> keys);

  [[nodiscard]] static std::uint64_t hash_of(const BlockKey& key) {
    return mix(key.position(), value_of(key.sequence_hash()));
  }
  void prefetch(std::uint64_t hash) const { __builtin_prefetch(&buckets_[home_of(hash)], 1); }
  // The first slot that may hold a key with this hash, if any: what to fetch before asking find().
  [[nodiscard]] SlotId guess(std::uint64_t hash) const;

  [[nodiscard]] SlotId find(const BlockKey& key, std::uint64_t hash) const;
  [[nodiscard]] SlotId find_parent(const BlockKey& child) const;
  // Requires: the slot's key is not in the index.
  void insert(SlotId slot, std::uint64_t hash);
  // Requires: the slot is in the index under this hash.
  void erase(SlotId slot, std::uint64_t hash);

  [[nodiscard]] std::size_t bytes() const { return buckets_.bytes(); }

 private:
  static constexpr std::uint32_t kEntries = 12;

  struct alignas(64) Bucket {
    std::uint8_t tags[kEntries];  // 0: empty
    std::uint32_t passed;         // entries that would be here or before, had there been room
    SlotId slots[kEntries];
  };
  static_assert(sizeof(Bucket) == 64);

  KeyIndex(PageArray<Bucket> buckets, Column<BlockKey> keys) : buckets_(std::move(buckets)), keys_(keys) {}

  static std::uint64_t mix(std::uint32_t position, std::uint64_t sequence_hash) {
    constexpr std::uint64_t kShared = (std::uint64_t{1} << BlockKey::kMinFragmentBits) - 1;
    std::uint64_t x = (sequence_hash & kShared) ^ (std::uint64_t{position} << 40);
    x *= 0x9E3779B97F4A7C15U;
    x ^= x >> 32;
    return x * 0xD6E8FEB86659FD93U;
  }
  // High bits choose the bucket, low ones the tag.
  [[nodiscard]] std::size_t home_of(std::uint64_t hash) const {
    return static_cast<std::size_t>(((hash >> 32) * buckets_.size()) >> 32);
  }
  static std::uint8_t tag_of(std::uint64_t hash) {
    const auto tag = static_cast<std::uint8_t>(hash);
    return tag == 0 ? 1 : tag;
  }
  [[nodiscard]] std::size_t after(std::size_t bucket) const { return bucket + 1 == buckets_.size() ? 0 : bucket + 1; }
  // One bit for each entry with the tag.
  static std::uint32_t entries_with(const Bucket& bucket, std::uint8_t tag);
  template <typename Matches>
  [[nodiscard]] SlotId search(std::uint64_t hash, Matches matches) const;

  PageArray<Bucket> buckets_;
  Column<BlockKey> keys_;
};

}  // namespace cairn
