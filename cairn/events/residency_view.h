// ResidencyView: what a follower of events (a router, a mirror) knows to be cached in the tiers of one worker.
//
// A view starts empty, as a log does. Apply a snapshot when one is needed, and then every event in order: the view equals
// what the pools held after event sequence(). Questions about a block (contains(), tiers_holding(), match_prefix()) ask
// where the block can be loaded from, so a suspended tier does not count. Questions about a tier (size(), for_each(),
// sorted_blocks()) tell what is cached there, suspended or not.
//
// Thread safety: one thread at a time; const calls may run at the same time as each other.
// Errors: apply() refuses an event that is not the next one, a Stored of a key that is there, a Removed of a key that is
// not, a Suspended or Resumed that changes nothing, and a snapshot that names a tier or key twice. A call that fails has
// no effect; to go on, apply a new snapshot.
// Complexity: about 45 to 85 bytes for each block of each tier.
#pragma once

#include <array>
#include <bit>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "cairn/base/flat_table.h"
#include "cairn/base/ids.h"
#include "cairn/base/result.h"
#include "cairn/events/event.h"
#include "cairn/events/snapshot.h"
#include "cairn/hash/key_seed.h"
#include "cairn/pool/pool_observer.h"
#include "cairn/tokens/block_key.h"

namespace cairn {

class ResidencyView {
 public:
  // Replaces everything the view knows.
  [[nodiscard]] Status apply(const Snapshot& snapshot);
  // `event` is the one after sequence().
  [[nodiscard]] Status apply(const Event& event);

  // The number of the last event that was applied, or that the snapshot includes.
  [[nodiscard]] std::uint64_t sequence() const { return sequence_; }
  [[nodiscard]] bool is_suspended(CacheLevel tier) const { return tiers_[index_of(tier)].suspended; }
  // Whether the block can be loaded from the tier.
  [[nodiscard]] bool contains(CacheLevel tier, const BlockKey& key) const {
    return !is_suspended(tier) && blocks_of(tier).contains(Name(key));
  }
  // The tiers that the block can be loaded from: one bit for each tier, at index_of(tier).
  [[nodiscard]] std::bitset<kCacheLevels> tiers_holding(const BlockKey& key) const;

  struct PrefixMatch {
    std::size_t blocks = 0;  // leading keys that at least one tier holds
    std::array<std::size_t, kCacheLevels>
        by_tier{};  // of these, how many come from this tier, the nearest that has them

    friend bool operator==(const PrefixMatch&, const PrefixMatch&) = default;
  };
  // How much of a request is cached: how many keys from the first on can be loaded, and from where. `keys` are those of
  // the request's blocks in order; the first key that no tier holds ends the match. For one tier alone, pass its bit in
  // `among`. A lookup costs some 20 ns for each matched key.
  [[nodiscard]] PrefixMatch match_prefix(std::span<const BlockKey> keys,
                                         std::bitset<kCacheLevels> among = std::bitset<kCacheLevels>().set()) const;

  [[nodiscard]] std::size_t size(CacheLevel tier) const { return blocks_of(tier).size(); }
  // Of all tiers together; a block in two tiers counts twice.
  [[nodiscard]] std::size_t size() const;
  // Calls fn(const ResidentBlock&) for each block of the tier, in no particular order.
  template <typename Fn>
  void for_each(CacheLevel tier, Fn fn) const {
    blocks_of(tier).for_each([&fn](const Name& name, const Rest& rest) {
      fn(ResidentBlock{.key = name.key(), .parent = rest.parent, .tokens_hash = rest.tokens_hash});
    });
  }
  // In the order of their keys, as in a snapshot.
  [[nodiscard]] std::vector<ResidentBlock> sorted_blocks(CacheLevel tier) const;

 private:
  // A key, or none: no key has all bits set, because there is no mode 3.
  struct Name {
    std::uint64_t high = ~std::uint64_t{0};
    std::uint64_t low = ~std::uint64_t{0};

    Name() = default;
    explicit Name(const BlockKey& key) : high(key.high_word()), low(key.low_word()) {}
    [[nodiscard]] BlockKey key() const { return std::bit_cast<BlockKey>(std::array{high, low}); }
    friend bool operator==(const Name&, const Name&) = default;
  };
  struct Rest {
    SequenceHash parent{0};
    BlockHash tokens_hash{0};
  };
  struct Traits {
    static std::uint64_t hash(const Name& name) { return KeySeed::of_process().mix(name.high, name.low); }
    static bool is_vacant(const Name& name, const Rest& /*rest*/) { return name == Name(); }
    static constexpr std::uint32_t kMaxPercent = 75;
  };
  using BlockMap = FlatTable<Name, Rest, Traits>;
  struct Tier {
    BlockMap blocks;
    bool suspended = false;
  };

  [[nodiscard]] const BlockMap& blocks_of(CacheLevel tier) const { return tiers_[index_of(tier)].blocks; }
  [[nodiscard]] static Status apply_to(Tier& tier, const Event& event, const Stored& stored);
  [[nodiscard]] static Status apply_to(Tier& tier, const Event& event, const Removed& removed);
  [[nodiscard]] static Status apply_to(Tier& tier, const Event& event, const Cleared&);
  [[nodiscard]] static Status apply_to(Tier& tier, const Event& event, const Invalidated&);
  [[nodiscard]] static Status apply_to(Tier& tier, const Event& event, const Suspended&);
  [[nodiscard]] static Status apply_to(Tier& tier, const Event& event, const Resumed&);

  std::array<Tier, kCacheLevels> tiers_;
  std::uint64_t sequence_ = 0;
};

}  // namespace cairn
