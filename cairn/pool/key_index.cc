#include "cairn/pool/key_index.h"

#include <bit>
#include <utility>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "cairn/base/check.h"

namespace cairn {

namespace {

// Twelve places for eight slots: one bucket in twenty has more than it can hold.
constexpr std::uint32_t kSlotsPerBucket = 8;

}  // namespace

Result<KeyIndex> KeyIndex::create(std::uint32_t capacity, Column<BlockKey> keys) {
  Result<PageArray<Bucket>> buckets = PageArray<Bucket>::create(capacity / kSlotsPerBucket + 1);
  if (!buckets) {
    return Unexpected(std::move(buckets).error());
  }
  return KeyIndex(*std::move(buckets), keys);
}

std::uint32_t KeyIndex::entries_with(const Bucket& bucket, std::uint8_t tag) {
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

SlotId KeyIndex::guess(std::uint64_t hash) const {
  const Bucket& bucket = buckets_[home_of(hash)];
  const std::uint32_t entries = entries_with(bucket, tag_of(hash));
  return entries == 0 ? kNoSlot : bucket.slots[std::countr_zero(entries)];
}

template <typename Matches>
SlotId KeyIndex::search(std::uint64_t hash, Matches matches) const {
  const std::uint8_t tag = tag_of(hash);
  std::size_t at = home_of(hash);
  for (std::size_t probes = 0; probes < buckets_.size(); ++probes, at = after(at)) {
    const Bucket& bucket = buckets_[at];
    for (std::uint32_t entries = entries_with(bucket, tag); entries != 0; entries &= entries - 1) {
      const SlotId slot = bucket.slots[std::countr_zero(entries)];
      if (matches(keys_[index_of(slot)])) {
        return slot;
      }
    }
    if (bucket.passed == 0) {
      break;
    }
  }
  return kNoSlot;
}

SlotId KeyIndex::find(const BlockKey& key, std::uint64_t hash) const {
  return search(hash, [&key](const BlockKey& there) { return there == key; });
}

SlotId KeyIndex::find_parent(const BlockKey& child) const {
  if (child.position() == 0) {
    return kNoSlot;
  }
  return search(mix(child.position() - 1, child.parent_fragment()),
                [&child](const BlockKey& there) { return there.is_parent_of(child); });
}

void KeyIndex::insert(SlotId slot, std::uint64_t hash) {
  for (std::size_t at = home_of(hash);; at = after(at)) {
    Bucket& bucket = buckets_[at];
    if (const std::uint32_t empty = entries_with(bucket, 0); empty != 0) {
      const int entry = std::countr_zero(empty);
      bucket.tags[entry] = tag_of(hash);
      bucket.slots[entry] = slot;
      return;
    }
    ++bucket.passed;
  }
}

void KeyIndex::erase(SlotId slot, std::uint64_t hash) {
  const std::uint8_t tag = tag_of(hash);
  for (std::size_t at = home_of(hash);; at = after(at)) {
    Bucket& bucket = buckets_[at];
    for (std::uint32_t entries = entries_with(bucket, tag); entries != 0; entries &= entries - 1) {
      const int entry = std::countr_zero(entries);
      if (bucket.slots[entry] == slot) {
        bucket.tags[entry] = 0;
        return;
      }
    }
    CAIRN_CHECK(bucket.passed > 0, "every registered slot is in the key index");
    --bucket.passed;
  }
}

}  // namespace cairn
