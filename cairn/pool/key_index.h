// KeyIndex: finds the block that is registered under a key, and the parent of a block.
//
// A hash table of block ids; the keys are read from the pool's records. A bucket is one cache line with twelve entries
// and a byte of hash for each, so a hit costs one line here and one in the records. The hash covers only the bits that
// a child's key holds of its parent, so parents can be looked up too. Not a FlatTable (base/): that one would store each
// key a second time.
//
// Thread safety: none; the lock of the pool guards it. Only place_of(), prefetch() and the constructor of Lookup may be
//                called without it.
// Complexity: O(1) a call. 7 bytes a block, allocated at creation. An entry that does not fit its bucket goes into the
//             next one with room; the buckets that it passed count it.
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "cairn/base/column.h"
#include "cairn/base/ids.h"
#include "cairn/base/page_array.h"
#include "cairn/base/result.h"
#include "cairn/tokens/block_key.h"

namespace cairn {

class KeyIndex {
 public:
  // For `capacity` blocks whose keys are in the column. The seed changes where keys are stored, not what is found.
  [[nodiscard]] static Result<KeyIndex> create(std::uint32_t capacity, Column<BlockKey> keys,
                                               const KeySeed& seed = KeySeed::of_process());

  [[nodiscard]] std::uint32_t size() const { return size_; }

  // Where to look for a key.
  struct Place {
    std::uint32_t bucket;
    std::uint8_t tag;
  };
  [[nodiscard]] Place place_of(const BlockKey& key) const {
    return place(key.position(), value_of(key.sequence_hash()));
  }
  // Needs no lock: it reads nothing, and it does not matter if the bucket was swapped away.
  void prefetch(Place place) const {
    __builtin_prefetch(prefetched_.load(std::memory_order_relaxed) + place.bucket, 1);
  }
  // The first block that may have a key of this place, or kNoBlock: what to fetch before find() compares keys.
  [[nodiscard]] BlockId guess(Place place) const {
    const Bucket& bucket = buckets_[place.bucket];
    const std::uint32_t entries = entries_with(bucket, place.tag);
    return entries == 0 ? kNoBlock : bucket.block_ids[std::countr_zero(entries)];
  }

  // kNoBlock if the key, or the parent, is not in the index.
  [[nodiscard]] BlockId find(const BlockKey& key) const { return find(key, place_of(key)); }
  [[nodiscard]] BlockId find(const BlockKey& key, Place place) const;
  [[nodiscard]] BlockId find_parent(const BlockKey& child) const;
  // Requires: the block's key is not in the index.
  void insert(BlockId block_id, Place place);
  // Requires: the blocks are in the index under their keys.
  void erase(BlockId block_id) { erase(block_id, place_of(keys_[index_of(block_id)])); }
  void erase(std::span<const BlockId> block_ids);

  // Blocks that may have the keys of a group. Good for prefetching only: they may have changed meanwhile.
  static constexpr std::size_t kGroup = 128;
  struct Guesses {
    BlockId block_ids[kGroup];
    std::size_t count = 0;
  };

  // A lookup of many keys, which fetches what it will read some steps ahead.
  class Lookup {
   public:
    // Computes where to look, and starts to fetch it. Needs no lock, so that threads do this in parallel. Index and
    // keys outlive the lookup.
    Lookup(const KeyIndex& index, std::span<const BlockKey> keys) : index_(index), keys_(keys) { locate(0); }
    // Whether it fetches what it will read: the pool does not fit into the cache.
    [[nodiscard]] bool fetches_ahead() const { return index_.capacity_ > kFitsInCache; }
    // The blocks that for_each() will compare with the first group of keys first. Needs the lock.
    [[nodiscard]] Guesses guess_group() const;
    // Calls visit(i, block of keys[i] or kNoBlock) for one key after the other until it returns false.
    template <typename Visit>
    void for_each(Visit visit);

   private:
    static constexpr std::size_t kAhead = 16;
    // A pool this small fits into the cache of a core: fetching ahead would cost more than it saves.
    static constexpr std::uint32_t kFitsInCache = 4096;

    void locate(std::size_t begin);

    const KeyIndex& index_;
    std::span<const BlockKey> keys_;
    Place places_[kGroup];  // of the current group of keys
  };

  // An empty index that has the same places for the same keys.
  [[nodiscard]] Result<KeyIndex> make_empty() const { return create(capacity_, keys_, seed_); }
  // Exchanges the entries with those of an index that make_empty() returned. Places stay valid.
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
    std::uint32_t passed;         // entries that belong here or in a bucket before, and went further for lack of room
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
  void erase(BlockId block_id, Place place);
  template <typename Matches>
  [[nodiscard]] BlockId search(Place place, Matches matches) const;

  const std::uint32_t capacity_;
  const std::size_t bucket_count_;
  PageArray<Bucket> buckets_;
  // Where buckets_ are, for prefetch() without the lock while swap_entries() exchanges them. Relaxed: it orders
  // nothing.
  std::atomic<const Bucket*> prefetched_;
  Column<BlockKey> keys_;
  KeySeed seed_;
  std::uint32_t size_ = 0;
};

inline void KeyIndex::Lookup::locate(std::size_t begin) {
  const bool fetch = fetches_ahead();
  const std::size_t count = std::min(keys_.size() - begin, kGroup);
  for (std::size_t i = 0; i < count; ++i) {
    places_[i] = index_.place_of(keys_[begin + i]);
    if (fetch) {
      index_.prefetch(places_[i]);
    }
  }
}

inline KeyIndex::Guesses KeyIndex::Lookup::guess_group() const {
  Guesses guesses;
  for (std::size_t i = 0; i < std::min(keys_.size(), kGroup); ++i) {
    const BlockId block_id = index_.guess(places_[i]);
    guesses.block_ids[guesses.count] = block_id;
    guesses.count += block_id != kNoBlock ? 1 : 0;
  }
  return guesses;
}

template <typename Visit>
[[gnu::always_inline]] inline void KeyIndex::Lookup::for_each(Visit visit) {
  const bool fetch = fetches_ahead();
  for (std::size_t begin = 0; begin < keys_.size(); begin += kGroup) {
    const std::span<const BlockKey> group = keys_.subspan(begin, std::min(kGroup, keys_.size() - begin));
    if (begin > 0) {
      locate(begin);
    }
    BlockId guesses[kGroup + kAhead];
    const auto guess = [&](std::size_t i) {
      guesses[i] = index_.guess(places_[i]);
      if (guesses[i] != kNoBlock) {
        __builtin_prefetch(&index_.keys_[index_of(guesses[i])], 1);
      }
    };
    for (std::size_t i = 0; fetch && i < std::min(kAhead, group.size()); ++i) {
      guess(i);
    }
    for (std::size_t i = 0; i < group.size(); ++i) {
      if (!fetch) {
        guesses[i] = index_.guess(places_[i]);
      } else if (i + kAhead < group.size()) {
        guess(i + kAhead);
      }
      BlockId block_id = guesses[i];
      if (block_id == kNoBlock || index_.keys_[index_of(block_id)] != group[i]) {
        block_id = index_.find(group[i], places_[i]);
      }
      if (!visit(begin + i, block_id)) {
        return;
      }
    }
  }
}

}  // namespace cairn
