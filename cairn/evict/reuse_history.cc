#include "cairn/evict/reuse_history.h"

#include <algorithm>
#include <utility>

#include "cairn/tokens/block_key.h"

namespace cairn {

namespace {

constexpr std::size_t kEntriesPerBlock = 4;
constexpr std::size_t kLeastEntries = std::size_t{1} << 14;
constexpr std::uint32_t kUnitsPerPool = 512;

// Never 0, so that no entry in use is.
std::uint32_t print_of(std::uint64_t hash) { return static_cast<std::uint32_t>(hash & 0xFFFF) | 1; }

}  // namespace

Result<ReuseHistory> ReuseHistory::create(std::uint32_t capacity, const KeySeed& seed) {
  const std::size_t entries = std::max(kEntriesPerBlock * capacity, kLeastEntries) / kBucket * kBucket;
  CAIRN_TRY_ASSIGN(PageArray<Entry> made, PageArray<Entry>::create(entries));
  return ReuseHistory(std::max(1U, capacity / kUnitsPerPool), std::move(made), seed);
}

std::optional<ReuseHistory::Past> ReuseHistory::find(const BlockKey& key, std::uint64_t now) const {
  const std::uint64_t hash = hash_of(key, seed_);
  const Entry* const bucket = &entries_[bucket_of(hash)];
  for (std::size_t i = 0; i < kBucket; ++i) {
    if (bucket[i] >> 16 == print_of(hash)) {
      const std::uint32_t units = (time_of(now) - bucket[i]) & kTimeMask;
      return Past{.age = units * unit_, .uses = ((bucket[i] >> 14) & 3) + 1};
    }
  }
  return std::nullopt;
}

void ReuseHistory::prefetch(const BlockKey& key) const {
  __builtin_prefetch(&entries_[bucket_of(hash_of(key, seed_))], 1);
}

void ReuseHistory::record(const BlockKey& key, std::uint64_t now, std::uint32_t uses) {
  const std::uint64_t hash = hash_of(key, seed_);
  const std::uint32_t time = time_of(now);
  Entry* const bucket = &entries_[bucket_of(hash)];
  Entry* place = bucket;
  std::uint32_t oldest = 0;
  for (std::size_t i = 0; i < kBucket; ++i) {
    if (bucket[i] >> 16 == print_of(hash) || bucket[i] == 0) {
      place = &bucket[i];
      break;
    }
    const std::uint32_t age = (time - bucket[i]) & kTimeMask;
    if (age >= oldest) {
      oldest = age;
      place = &bucket[i];
    }
  }
  *place = (print_of(hash) << 16) | ((std::clamp(uses, 1U, kMaxUses) - 1) << 14) | time;
}

}  // namespace cairn
