#include "cairn/pool/block_registry.h"

#include <algorithm>
#include <array>
#include <utility>

#include "cairn/base/check.h"

namespace cairn {

namespace {

// Seven places for six keys: most lookups probe within one cache line.
std::size_t places_for(std::size_t keys) { return keys + keys / 6 + 16; }

constexpr std::size_t kPrefetchAhead = 8;

}  // namespace

Result<std::unique_ptr<BlockRegistry>> BlockRegistry::create(std::uint32_t keys) {
  CAIRN_TRY_ASSIGN(Table table, new_table(places_for(keys)));
  return std::unique_ptr<BlockRegistry>(new BlockRegistry(std::move(table)));
}

BlockRegistry::BlockRegistry(Table table) : table_(std::move(table)) {}
BlockRegistry::~BlockRegistry() = default;

Result<BlockRegistry::Table> BlockRegistry::new_table(std::size_t places) {
  CAIRN_TRY_ASSIGN(PageArray<std::uint64_t> hashes, PageArray<std::uint64_t>::create(places));
  CAIRN_TRY_ASSIGN(PageArray<Facts> facts, PageArray<Facts>::create(places));
  return Table{std::move(hashes), std::move(facts)};
}

std::uint64_t BlockRegistry::hash_of(const BlockKey& key) {
  const std::uint64_t mixed = KeySeed::of_process().mix(key);
  return mixed == 0 ? 1 : mixed;
}

std::size_t BlockRegistry::home_of(std::uint64_t hash) const { return ((hash >> 32) * table_.hashes.size()) >> 32; }

std::size_t BlockRegistry::find(std::uint64_t hash) const {
  const std::size_t places = table_.hashes.size();
  for (std::size_t at = home_of(hash); table_.hashes[at] != 0; at = at + 1 == places ? 0 : at + 1) {
    if (table_.hashes[at] == hash) {
      return at;
    }
  }
  return kNowhere;
}

std::size_t BlockRegistry::find_or_add(std::uint64_t hash) {
  if (const std::size_t at = find(hash); at != kNowhere) {
    return at;
  }
  if (places_for(size_) >= table_.hashes.size()) {
    grow();
  }
  const std::size_t places = table_.hashes.size();
  std::size_t at = home_of(hash);
  while (table_.hashes[at] != 0) {
    at = at + 1 == places ? 0 : at + 1;
  }
  table_.hashes[at] = hash;
  table_.facts[at] = Facts{};
  ++size_;
  return at;
}

// Closes the gap: entries behind it move up if that brings them nearer to their home.
void BlockRegistry::erase(std::size_t gap) {
  const std::size_t places = table_.hashes.size();
  --size_;
  for (std::size_t at = gap + 1 == places ? 0 : gap + 1; table_.hashes[at] != 0; at = at + 1 == places ? 0 : at + 1) {
    const std::size_t home = home_of(table_.hashes[at]);
    const std::size_t from_home = at >= home ? at - home : at + places - home;
    const std::size_t from_gap = at >= gap ? at - gap : at + places - gap;
    if (from_home >= from_gap) {
      table_.hashes[gap] = table_.hashes[at];
      table_.facts[gap] = table_.facts[at];
      gap = at;
    }
  }
  table_.hashes[gap] = 0;
}

void BlockRegistry::grow() {
  Result<Table> larger = new_table(table_.hashes.size() * 2);
  CAIRN_CHECK(larger.has_value(), "the registry gets memory for the keys that the pools hold");
  std::swap(table_, *larger);
  size_ = 0;
  for (std::size_t i = 0; i < larger->hashes.size(); ++i) {
    if (larger->hashes[i] != 0) {
      table_.facts[find_or_add(larger->hashes[i])] = larger->facts[i];
    }
  }
}

TierSet BlockRegistry::tiers_of(const BlockKey& key) const {
  const MutexLock lock(mutex_);
  const std::size_t at = find(hash_of(key));
  return at == kNowhere ? TierSet() : table_.facts[at].tiers;
}

// Locks for a group of keys at a time, so that a pool that registers blocks does not wait for a long prompt.
template <typename Visit>
void BlockRegistry::for_each_nearest(std::span<const BlockKey> keys, TierSet among, Visit visit) const {
  constexpr std::size_t kGroup = 128;
  constexpr std::size_t kAhead = 16;
  std::array<std::uint64_t, kAhead> hashes;  // of the next keys, whose places are being prefetched
  while (!keys.empty()) {
    const std::span<const BlockKey> group = keys.first(std::min(kGroup, keys.size()));
    const MutexLock lock(mutex_);
    const auto fetch = [&](std::size_t i) CAIRN_REQUIRES(mutex_) {
      hashes[i % kAhead] = hash_of(group[i]);
      const std::size_t home = home_of(hashes[i % kAhead]);
      __builtin_prefetch(&table_.hashes[home]);
      __builtin_prefetch(&table_.facts[home]);
    };
    for (std::size_t i = 0; i < std::min(kAhead, group.size()); ++i) {
      fetch(i);
    }
    for (std::size_t i = 0; i < group.size(); ++i) {
      const std::size_t at = find(hashes[i % kAhead]);
      if (i + kAhead < group.size()) {
        fetch(i + kAhead);
      }
      const TierSet tiers = at == kNowhere ? TierSet() : table_.facts[at].tiers & among;
      if (tiers.empty() || !visit(tiers.nearest())) {
        return;
      }
    }
    keys = keys.subspan(group.size());
  }
}

std::optional<BlockRegistry::Run> BlockRegistry::nearest_run(std::span<const BlockKey> keys, TierSet among) const {
  Run run;
  for_each_nearest(keys, among, [&run](CacheLevel tier) {
    if (run.keys > 0 && tier != run.tier) {
      return false;
    }
    run.tier = tier;
    ++run.keys;
    return true;
  });
  return run.keys > 0 ? std::optional(run) : std::nullopt;
}

std::vector<CacheLevel> BlockRegistry::nearest_of_each(std::span<const BlockKey> keys, TierSet among) const {
  std::vector<CacheLevel> tiers(keys.size());
  std::size_t count = 0;
  for_each_nearest(keys, among, [&](CacheLevel tier) {
    tiers[count++] = tier;
    return true;
  });
  tiers.resize(count);
  return tiers;
}

std::uint32_t BlockRegistry::frequency(const BlockKey& key) const {
  const MutexLock lock(mutex_);
  const std::size_t at = find(hash_of(key));
  return at == kNowhere ? 0 : table_.facts[at].frequency;
}

std::size_t BlockRegistry::size() const {
  const MutexLock lock(mutex_);
  return size_;
}

std::size_t BlockRegistry::bytes() const {
  const MutexLock lock(mutex_);
  return sizeof(*this) + table_.hashes.bytes() + table_.facts.bytes();
}

void BlockRegistry::on_registered(CacheLevel tier, std::span<const ResidentBlock> blocks,
                                  std::span<const Token> /*tokens*/) {
  const MutexLock lock(mutex_);
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    if (i + kPrefetchAhead < blocks.size()) {
      __builtin_prefetch(&table_.hashes[home_of(hash_of(blocks[i + kPrefetchAhead].key))], 1);
    }
    Facts& facts = table_.facts[find_or_add(hash_of(blocks[i].key))];
    facts.frequency = std::max<std::uint8_t>(facts.frequency, 1);
    facts.tiers.insert(tier);
  }
}

std::uint64_t BlockRegistry::evicted_unsaved(CacheLevel tier) const {
  const MutexLock lock(mutex_);
  return evicted_unsaved_[index_of(tier)];
}

void BlockRegistry::on_removed(CacheLevel tier, std::span<const BlockKey> keys) {
  const MutexLock lock(mutex_);
  remove(tier, keys);
}

void BlockRegistry::on_evicted(CacheLevel tier, std::span<const BlockKey> keys) {
  const MutexLock lock(mutex_);
  evicted_unsaved_[index_of(tier)] += remove(tier, keys);
}

std::size_t BlockRegistry::remove(CacheLevel tier, std::span<const BlockKey> keys) {
  std::size_t held_by_none = 0;
  for (const BlockKey& key : keys) {
    const std::size_t at = find(hash_of(key));
    if (at == kNowhere) {
      continue;
    }
    table_.facts[at].tiers.erase(tier);
    if (table_.facts[at].tiers.empty()) {
      erase(at);
      ++held_by_none;
    }
  }
  return held_by_none;
}

Status BlockRegistry::expect_all_cleared() {
  std::size_t places = 0;
  {
    const MutexLock lock(mutex_);
    places = table_.hashes.size();
  }
  CAIRN_TRY_ASSIGN(Table empty, new_table(places));
  const MutexLock lock(mutex_);
  empty_ = std::move(empty);
  return {};
}

void BlockRegistry::all_cleared() {
  std::optional<Table> old;  // freed without the lock
  const MutexLock lock(mutex_);
  CAIRN_CHECK(empty_.has_value(), "that all pools are cleared is expected");
  std::swap(table_, *empty_);
  std::swap(old, empty_);
  size_ = 0;
}

void BlockRegistry::on_cleared(CacheLevel tier) {
  const MutexLock lock(mutex_);
  if (empty_) {
    return;
  }
  for (std::size_t at = 0; at < table_.hashes.size();) {
    if (table_.hashes[at] != 0) {
      table_.facts[at].tiers.erase(tier);
      if (table_.facts[at].tiers.empty()) {
        erase(at);
        continue;  // another may have moved up into this place
      }
    }
    ++at;
  }
}

void BlockRegistry::used(std::span<const BlockKey> keys) {
  const MutexLock lock(mutex_);
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (i + kPrefetchAhead < keys.size()) {
      __builtin_prefetch(&table_.hashes[home_of(hash_of(keys[i + kPrefetchAhead]))]);
    }
    const std::size_t at = find(hash_of(keys[i]));
    if (at != kNowhere && table_.facts[at].frequency < 255) {
      ++table_.facts[at].frequency;
    }
  }
}

}  // namespace cairn
