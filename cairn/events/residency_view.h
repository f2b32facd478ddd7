// ResidencyView: what a consumer of events (a router, a mirror) knows to be cached where.
//
// Does:     starts empty, as a log does; takes a snapshot whenever one is needed, and events in order. Then it equals
//           what the pools held after event sequence(), and knows which tiers were suspended then.
//           Asked about a key, it says where the block can be had: never in a tier that is suspended. Asked about a
//           tier, it says what is cached there, suspended or not.
// Owner:    a plain value; memory in proportion to what is resident.
// Threads:  belongs to one thread at a time.
// Fails:    an event that is not the next one, a Stored of a known key, a Removed of an unknown one, a Suspended or
//           Resumed of a tier that is so already, a snapshot that names something twice. Nothing has changed then; to
//           go on, apply a new snapshot.
#pragma once

#include <array>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "cairn/base/ids.h"
#include "cairn/base/result.h"
#include "cairn/events/event.h"
#include "cairn/events/snapshot.h"
#include "cairn/pool/pool_observer.h"
#include "cairn/tokens/block_key.h"

namespace cairn {

class ResidencyView {
 public:
  // Replaces all that is known.
  [[nodiscard]] Status apply(const Snapshot& snapshot);
  // The event after sequence().
  [[nodiscard]] Status apply(const Event& event);

  // The last event that is part of this.
  [[nodiscard]] std::uint64_t sequence() const { return sequence_; }
  [[nodiscard]] bool is_suspended(CacheLevel tier) const { return tiers_[index_of(tier)].suspended; }
  // Whether the block can be had from the tier.
  [[nodiscard]] bool contains(CacheLevel tier, const BlockKey& key) const {
    return !is_suspended(tier) && blocks_of(tier).contains(key);
  }
  // The tiers it can be had from: one bit a tier, at index_of(tier).
  [[nodiscard]] std::bitset<kCacheLevels> tiers_holding(const BlockKey& key) const;
  [[nodiscard]] std::size_t size(CacheLevel tier) const { return blocks_of(tier).size(); }
  // Blocks of all tiers together, of suspended ones too.
  [[nodiscard]] std::size_t size() const;
  // In no particular order; fn(const ResidentBlock&).
  template <typename Fn>
  void for_each(CacheLevel tier, Fn fn) const {
    for (const auto& [key, rest] : blocks_of(tier)) {
      fn(ResidentBlock{.key = key, .parent = rest.parent, .tokens_hash = rest.tokens_hash});
    }
  }
  // In the order of their keys, as in a snapshot.
  [[nodiscard]] std::vector<ResidentBlock> sorted_blocks(CacheLevel tier) const;

 private:
  struct Rest {
    SequenceHash parent{0};
    BlockHash tokens_hash{0};
  };
  using BlockMap = std::unordered_map<BlockKey, Rest>;
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
