// BlockRegistry: which tiers hold a key, and how often it was used.
//
// It observes the pools of one process, at most one for each tier. It saves a lookup in every pool but is not the
// authority: a key may be gone by the time its pool is locked. When the last tier loses a key, its frequency goes
// too. Not a FlatTable (base/): two arrays of hashes and facts take 12 bytes a key, and a fence swaps them.
//
// Thread safety: every call is safe from any thread; one mutex, rank kRegistry.
// Ownership: outlives the pools that it observes.
// Complexity: O(1) a key. About 12 bytes a key. Keys are compared by 64 bits of hash.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "cairn/base/mutex.h"
#include "cairn/base/page_array.h"
#include "cairn/base/result.h"
#include "cairn/pool/pool_observer.h"

namespace cairn {

// A set of cache levels.
class TierSet {
 public:
  constexpr TierSet() = default;
  constexpr explicit TierSet(std::uint8_t bits) : bits_(bits) {}
  [[nodiscard]] constexpr bool contains(CacheLevel tier) const { return (bits_ >> index_of(tier) & 1) != 0; }
  [[nodiscard]] constexpr bool empty() const { return bits_ == 0; }
  // The tier nearest to the device. Requires: not empty.
  [[nodiscard]] constexpr CacheLevel nearest() const {
    return CacheLevel{static_cast<std::uint8_t>(std::countr_zero(bits_))};
  }
  [[nodiscard]] constexpr TierSet operator&(TierSet other) const {
    return TierSet(static_cast<std::uint8_t>(bits_ & other.bits_));
  }
  constexpr void insert(CacheLevel tier) { bits_ = static_cast<std::uint8_t>(bits_ | 1U << index_of(tier)); }
  constexpr void erase(CacheLevel tier) { bits_ = static_cast<std::uint8_t>(bits_ & ~(1U << index_of(tier))); }
  friend constexpr bool operator==(TierSet, TierSet) = default;

 private:
  std::uint8_t bits_ = 0;
};

class BlockRegistry final : public PoolObserver {
 public:
  // With room for `keys`, the sum of the pools' capacities. It grows if there are more.
  [[nodiscard]] static Result<std::unique_ptr<BlockRegistry>> create(std::uint32_t keys);
  ~BlockRegistry() override;

  [[nodiscard]] TierSet tiers_of(const BlockKey& key) const;
  // The nearest of the tiers in `among` that holds the first key, and how many keys from the first on have it as their
  // nearest. std::nullopt if none of them holds the first key.
  struct Run {
    CacheLevel tier = CacheLevel::kG1;
    std::uint32_t keys = 0;
  };
  [[nodiscard]] std::optional<Run> nearest_run(std::span<const BlockKey> keys, TierSet among) const;
  // The nearest of the tiers in `among` for each key, up to the first key that none of them holds.
  [[nodiscard]] std::vector<CacheLevel> nearest_of_each(std::span<const BlockKey> keys, TierSet among) const;
  // Uses since a first tier registered the key, plus that registration; at most 255. 0 if no tier holds the key. A use is
  // a match in any tier, or a load into blocks of an engine, which no pool matches (used()).
  [[nodiscard]] std::uint32_t frequency(const BlockKey& key) const;
  void used(std::span<const BlockKey> keys);
  [[nodiscard]] std::size_t size() const;
  [[nodiscard]] std::size_t bytes() const;
  // How many blocks the tier evicted to make room while no other tier held them.
  [[nodiscard]] std::uint64_t evicted_unsaved(CacheLevel tier) const;

  // Clears all pools by fences (BlockPool::raise_fence()) in constant time: call expect_all_cleared() before the first
  // fence is raised, and all_cleared() after the last is raised and before one is lowered. In between, on_cleared()
  // does not look for the keys of its tier. expect_all_cleared() fails, without any effect, if there is no memory.
  [[nodiscard]] Status expect_all_cleared();
  void all_cleared();

  void on_registered(CacheLevel tier, std::span<const ResidentBlock> blocks, std::span<const Token> tokens) override;
  void on_removed(CacheLevel tier, std::span<const BlockKey> keys) override;
  void on_evicted(CacheLevel tier, std::span<const BlockKey> keys) override;
  void on_cleared(CacheLevel tier) override;
  void on_matched(CacheLevel /*tier*/, std::span<const BlockKey> keys) override { used(keys); }

 private:
  // Of the key whose hash is at the same index in `hashes`.
  struct Facts {
    TierSet tiers;
    std::uint8_t frequency;
  };
  struct Table {
    PageArray<std::uint64_t> hashes;  // 0: empty
    PageArray<Facts> facts;
  };
  static constexpr std::size_t kNowhere = static_cast<std::size_t>(-1);

  explicit BlockRegistry(Table table);

  static Result<Table> new_table(std::size_t places);
  static std::uint64_t hash_of(const BlockKey& key);
  [[nodiscard]] std::size_t home_of(std::uint64_t hash) const CAIRN_REQUIRES(mutex_);
  [[nodiscard]] std::size_t find(std::uint64_t hash) const CAIRN_REQUIRES(mutex_);
  // Calls visit(tier) with the nearest of the tiers in `among` for one key after the other, until it returns false or none
  // of them holds the key.
  template <typename Visit>
  void for_each_nearest(std::span<const BlockKey> keys, TierSet among, Visit visit) const;
  [[nodiscard]] std::size_t find_or_add(std::uint64_t hash) CAIRN_REQUIRES(mutex_);
  void erase(std::size_t place) CAIRN_REQUIRES(mutex_);
  // Returns how many of the keys no tier holds any more.
  std::size_t remove(CacheLevel tier, std::span<const BlockKey> keys) CAIRN_REQUIRES(mutex_);
  void grow() CAIRN_REQUIRES(mutex_);

  mutable Mutex mutex_{LockRank::kRegistry};
  Table table_ CAIRN_GUARDED_BY(mutex_);
  std::optional<Table> empty_ CAIRN_GUARDED_BY(mutex_);  // replaces table_ when all pools are cleared
  std::size_t size_ CAIRN_GUARDED_BY(mutex_) = 0;
  std::array<std::uint64_t, kCacheLevels> evicted_unsaved_ CAIRN_GUARDED_BY(mutex_) = {};
};

}  // namespace cairn
