// KeyIndex: from a block key to the block that holds it.
//
// Does:     a hash table of block numbers; the keys themselves are read from the blocks. One cache line is a bucket of
//           twelve entries with a byte of hash each, so that a hit costs one line here and one in the block table. It
//           hashes only what a child's key knows of its parent, so the parent of a block can be looked up as well.
// Owner:    the block table. Threads: none of its own.
// Costs:    7 bytes a block, taken once. Entries that do not fit their bucket go to the next ones, which count them.
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "cairn/base/column.h"
#include "cairn/base/ids.h"
#include "cairn/base/page_array.h"
#include "cairn/base/result.h"
#include "cairn/hash/key_seed.h"
#include "cairn/tokens/block_key.h"

namespace cairn {

class KeyIndex {
 public:
  // For `capacity` blocks whose keys are in the column. What is found does not depend on the seed.
  [[nodiscard]] static Result<KeyIndex> create(std::uint32_t capacity, Column<BlockKey> keys,
                                               const KeySeed& seed = KeySeed::of_process());

  // Where to look for a key.
  struct Place {
    std::uint32_t bucket;
    std::uint8_t tag;
  };
  [[nodiscard]] Place place_of(const BlockKey& key) const {
    return place(key.position(), value_of(key.sequence_hash()));
  }
  // Safe without the lock that guards the rest: it reads nothing, and a bucket that was swapped away is not missed.
  void prefetch(Place place) const {
    __builtin_prefetch(prefetched_.load(std::memory_order_relaxed) + place.bucket, 1);
  }
  // The first block that may hold a key of this place, if any: what to fetch before asking find().
  [[nodiscard]] BlockId guess(Place place) const {
    const Bucket& bucket = buckets_[place.bucket];
    const std::uint32_t entries = entries_with(bucket, place.tag);
    return entries == 0 ? kNoBlock : bucket.block_ids[std::countr_zero(entries)];
  }

  [[nodiscard]] BlockId find(const BlockKey& key, Place place) const;
  [[nodiscard]] BlockId find_parent(const BlockKey& child) const;
  // Requires: the block's key is not in the index.
  void insert(BlockId block_id, Place place);
  // Requires: the block is in the index at this place.
  void erase(BlockId block_id, Place place);

  // An empty index that has the same places for the same keys.
  [[nodiscard]] Result<KeyIndex> make_empty() const { return create(capacity_, keys_, seed_); }
  // Exchanges the entries with those of one that make_empty() gave. Places stay valid.
  void swap_entries(KeyIndex& other) noexcept;

  [[nodiscard]] std::size_t bytes() const { return buckets_.bytes(); }

  KeyIndex(KeyIndex&& other) noexcept;
  KeyIndex& operator=(KeyIndex&&) = delete;
  KeyIndex(const KeyIndex&) = delete;
  KeyIndex& operator=(const KeyIndex&) = delete;
  ~KeyIndex() = default;

 private:
  static constexpr std::uint32_t kEntries = 12;

  struct alignas(64) Bucket {
    std::uint8_t tags[kEntries];  // 0: empty
    std::uint32_t passed;         // entries that would be here or before, had there been room
    BlockId block_ids[kEntries];
  };
  static_assert(sizeof(Bucket) == 64);

  KeyIndex(std::uint32_t capacity, PageArray<Bucket> buckets, Column<BlockKey> keys, const KeySeed& seed);

  // The multiplier is secret: nobody can choose keys that share a bucket. High bits choose the bucket.
  [[nodiscard]] Place place(std::uint32_t position, std::uint64_t sequence_hash) const {
    constexpr std::uint64_t kShared = (std::uint64_t{1} << BlockKey::kMinFragmentBits) - 1;
    const std::uint64_t name = (sequence_hash & kShared) ^ (std::uint64_t{position} << 40);
    const std::uint64_t mixed = (name ^ seed_.first) * seed_.second;
    const auto tag = static_cast<std::uint8_t>(mixed >> 24);
    return {static_cast<std::uint32_t>(((mixed >> 32) * bucket_count_) >> 32), tag == 0 ? std::uint8_t{1} : tag};
  }
  [[nodiscard]] std::uint32_t after(std::uint32_t bucket) const { return bucket + 1 == bucket_count_ ? 0 : bucket + 1; }
  // One bit for each entry with the tag.
  static std::uint32_t entries_with(const Bucket& bucket, std::uint8_t tag) {
#if defined(__SSE2__)
    const __m128i tags = _mm_load_si128(reinterpret_cast<const __m128i*>(&bucket));
    const __m128i same = _mm_cmpeq_epi8(tags, _mm_set1_epi8(static_cast<char>(tag)));
    return static_cast<std::uint32_t>(_mm_movemask_epi8(same)) & ((1U << kEntries) - 1);
#else
    std::uint32_t bits = 0;
    for (std::uint32_t i = 0; i < kEntries; ++i) {
      bits |= static_cast<std::uint32_t>(bucket.tags[i] == tag) << i;
    }
    return bits;
#endif
  }
  template <typename Matches>
  [[nodiscard]] BlockId search(Place place, Matches matches) const;

  const std::uint32_t capacity_;
  const std::size_t bucket_count_;
  PageArray<Bucket> buckets_;
  // Where buckets_ are, for prefetch(): threads that do not hold the lock ask while swap_entries() exchanges them. Orders
  // nothing.
  std::atomic<const Bucket*> prefetched_;
  Column<BlockKey> keys_;
  KeySeed seed_;
};

}  // namespace cairn
