// ResidencyView: what a follower of events (a router, a mirror) knows to be cached in the tiers of one worker.
//
// A view starts empty, as a log does. Apply a snapshot when one is needed, and then every event in order: the view equals
// what the pools held after event sequence(). Questions about a block (contains(), tiers_holding(), match_prefix()) ask
// where the block can be loaded from, so a suspended tier does not count. Questions about a tier (size(), for_each(),
// sorted_blocks()) tell what is cached there, suspended or not.
//
// Thread safety: one thread at a time; const calls may run at the same time as each other.
// Errors: apply() refuses an event that is not the next one, an event of another worker or data
// parallel rank, a Stored of a key that is there, a Removed of a key that is
// not, a Suspended or Resumed that changes nothing, and a snapshot that names a tier or key twice. A call that fails has
// no effect; to go on, apply a new snapshot.
// Complexity: about 45 to 85 bytes for each block of each tier.
#pragma once

#include <array>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "cairn/base/ids.h"
#include "cairn/base/result.h"
#include "cairn/events/event.h"
#include "cairn/events/event_log.h"
#include "cairn/pool/pool_observer.h"
#include "cairn/tokens/block_key.h"

namespace cairn {

class ResidencyView {
 public:
  ResidencyView();
  ResidencyView(const ResidencyView& other);
  ResidencyView(ResidencyView&& other) noexcept;
  ResidencyView& operator=(ResidencyView other) noexcept;
  ~ResidencyView();

  // Replaces everything the view knows.
  [[nodiscard]] Status apply(const Snapshot& snapshot);
  // `event` is the one after sequence().
  [[nodiscard]] Status apply(const Event& event);

  // The number of the last event that was applied, or that the snapshot includes.
  [[nodiscard]] std::uint64_t sequence() const { return sequence_; }
  [[nodiscard]] bool is_suspended(CacheLevel tier) const;
  // Whether the block can be loaded from the tier.
  [[nodiscard]] bool contains(CacheLevel tier, const BlockKey& key) const;
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

  [[nodiscard]] std::size_t size(CacheLevel tier) const;
  // Of all tiers together; a block in two tiers counts twice.
  [[nodiscard]] std::size_t size() const;
  // Calls `visit` for each block of the tier, in no particular order.
  void for_each(CacheLevel tier, const std::function<void(const ResidentBlock&)>& visit) const;
  // In the order of their keys, as in a snapshot.
  [[nodiscard]] std::vector<ResidentBlock> sorted_blocks(CacheLevel tier) const;

 private:
  struct Tiers;
  std::unique_ptr<Tiers> tiers_;
  std::uint64_t sequence_ = 0;
  std::optional<EventSource> source_;  // of the snapshot or the first event
};

}  // namespace cairn
