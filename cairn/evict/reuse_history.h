// ReuseHistory: when keys were last used, and how often, long after their blocks were evicted.
//
// It remembers the latest keys, about four for each block of the pool. A time is exact to a five-hundredth of a
// turnover of the pool. 16 bits stand for a key within its bucket, so about one lookup in some thousands finds another
// key. A key may be forgotten early if its bucket is crowded.
//
// Thread safety: none; the lock of the pool guards it.
// Complexity: one cache line a key. 16 bytes a block, at least 64 KiB, allocated at creation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "cairn/base/page_array.h"
#include "cairn/base/result.h"
#include "cairn/tokens/block_key.h"

namespace cairn {

class ReuseHistory {
 public:
  static constexpr std::uint32_t kMaxUses = 4;

  struct Past {
    std::uint64_t age;   // in ticks
    std::uint32_t uses;  // up to kMaxUses
  };

  [[nodiscard]] static Result<ReuseHistory> create(std::uint32_t capacity, const KeySeed& seed = {});

  // The past of the key at this time; std::nullopt if the key is new or forgotten.
  [[nodiscard]] std::optional<Past> find(const BlockKey& key, std::uint64_t now) const;
  // The key was used now, for the `uses`th time.
  void record(const BlockKey& key, std::uint64_t now, std::uint32_t uses);
  // Call it shortly before find() or record().
  void prefetch(const BlockKey& key) const;
  [[nodiscard]] std::size_t bytes() const { return entries_.bytes(); }

 private:
  // From the top: 16 bits of the key, 2 of the uses less one, 14 of the time. 0: empty.
  using Entry = std::uint32_t;
  static constexpr std::size_t kBucket = 16;
  static constexpr std::uint32_t kTimeMask = (1U << 14) - 1;

  ReuseHistory(std::uint64_t tick_unit, PageArray<Entry> entries, const KeySeed& seed)
      : unit_(tick_unit), seed_(seed), entries_(std::move(entries)) {}

  [[nodiscard]] std::size_t bucket_of(std::uint64_t hash) const {
    return (((hash >> 32) * (entries_.size() / kBucket)) >> 32) * kBucket;
  }
  [[nodiscard]] std::uint32_t time_of(std::uint64_t now) const {
    return static_cast<std::uint32_t>(now / unit_) & kTimeMask;
  }

  std::uint64_t unit_;
  KeySeed seed_;
  PageArray<Entry> entries_;
};

}  // namespace cairn
