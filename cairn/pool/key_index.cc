#include "cairn/pool/key_index.h"

#include "cairn/base/check.h"

namespace cairn {

namespace {

// Of twelve entries, nine are in use if the pool is full. About one bucket in ten overflows then.
constexpr std::uint32_t kBlocksPerBucket = 9;

}  // namespace

Result<KeyIndex> KeyIndex::create(std::uint32_t capacity, Column<BlockKey> keys, const KeySeed& seed) {
  CAIRN_TRY_ASSIGN(PageArray<Bucket> buckets, PageArray<Bucket>::create(capacity / kBlocksPerBucket + 1));
  return KeyIndex(capacity, std::move(buckets), keys, seed);
}

KeyIndex::KeyIndex(std::uint32_t capacity, PageArray<Bucket> buckets, Column<BlockKey> keys, const KeySeed& seed)
    : capacity_(capacity),
      bucket_count_(buckets.size()),
      buckets_(std::move(buckets)),
      prefetched_(buckets_.data()),
      keys_(keys),
      seed_(seed) {}

KeyIndex::KeyIndex(KeyIndex&& other) noexcept
    : capacity_(other.capacity_),
      bucket_count_(other.bucket_count_),
      buckets_(std::move(other.buckets_)),
      prefetched_(buckets_.data()),
      keys_(other.keys_),
      seed_(other.seed_),
      size_(other.size_) {}

void KeyIndex::swap_entries(KeyIndex& other) noexcept {
  CAIRN_CHECK(bucket_count_ == other.bucket_count_ && seed_ == other.seed_,
              "indexes that exchange their entries have the same places");
  std::swap(buckets_, other.buckets_);
  std::swap(size_, other.size_);
  prefetched_.store(buckets_.data(), std::memory_order_relaxed);
  other.prefetched_.store(other.buckets_.data(), std::memory_order_relaxed);
}

template <typename Matches>
BlockId KeyIndex::search(Place place, Matches matches) const {
  std::uint32_t at = place.bucket;
  for (std::size_t probes = 0; probes < bucket_count_; ++probes, at = after(at)) {
    const Bucket& bucket = buckets_[at];
    for (std::uint32_t entries = entries_with(bucket, place.tag); entries != 0; entries &= entries - 1) {
      const BlockId block_id = bucket.block_ids[std::countr_zero(entries)];
      if (matches(keys_[index_of(block_id)])) {
        return block_id;
      }
    }
    if (bucket.passed == 0) {
      break;
    }
  }
  return kNoBlock;
}

BlockId KeyIndex::find(const BlockKey& key, Place place) const {
  return search(place, [&key](const BlockKey& there) { return there == key; });
}

BlockId KeyIndex::find_parent(const BlockKey& child) const {
  if (child.position() == 0) {
    return kNoBlock;
  }
  return search(place(child.position() - 1, child.parent_fragment()),
                [&child](const BlockKey& there) { return there.is_parent_of(child); });
}

void KeyIndex::insert(BlockId block_id, Place place) {
  for (std::uint32_t at = place.bucket;; at = after(at)) {
    Bucket& bucket = buckets_[at];
    if (const std::uint32_t empty = entries_with(bucket, 0); empty != 0) {
      const int entry = std::countr_zero(empty);
      bucket.tags[entry] = place.tag;
      bucket.block_ids[entry] = block_id;
      ++size_;
      return;
    }
    ++bucket.passed;
  }
}

void KeyIndex::erase(std::span<const BlockId> block_ids) {
  constexpr std::size_t kChunk = 16;
  Place places[kChunk];
  for (std::size_t begin = 0; begin < block_ids.size(); begin += kChunk) {
    const std::span<const BlockId> chunk = block_ids.subspan(begin, std::min(kChunk, block_ids.size() - begin));
    for (std::size_t i = 0; i < chunk.size(); ++i) {
      places[i] = place_of(keys_[index_of(chunk[i])]);
      prefetch(places[i]);
    }
    for (std::size_t i = 0; i < chunk.size(); ++i) {
      erase(chunk[i], places[i]);
    }
  }
}

void KeyIndex::erase(BlockId block_id, Place place) {
  for (std::uint32_t at = place.bucket;; at = after(at)) {
    Bucket& bucket = buckets_[at];
    for (std::uint32_t entries = entries_with(bucket, place.tag); entries != 0; entries &= entries - 1) {
      const int entry = std::countr_zero(entries);
      if (bucket.block_ids[entry] == block_id) {
        bucket.tags[entry] = 0;
        --size_;
        return;
      }
    }
    CAIRN_CHECK(bucket.passed > 0, "every registered block is in the key index");
    --bucket.passed;
  }
}

}  // namespace cairn
