// OffloadCandidates: finds blocks of the upper pool that may be worth copying, and offers them to an OffloadChooser: blocks as
// they are registered, the next victims of the pool, and blocks that were missed when they were registered.
//
// Thread safety: none; the Offloader's lock guards every call. Takes locks of the pools, a few blocks at a time: an allocation
// never waits long.
// Ownership: an Offloader. Link, registry and chooser outlive it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "cairn/offload/offload_chooser.h"
#include "cairn/offload/offload_demand.h"
#include "cairn/offload/offload_inbox.h"
#include "cairn/pool/block_registry.h"
#include "cairn/tier/tier_link.h"

namespace cairn {

class OffloadCandidates {
 public:
  OffloadCandidates(const TierLink& link, const BlockRegistry& registry, const OffloadOptions& options,
                    OffloadChooser& chooser);

  // OffloadMode::kAhead, and the upper tier has a pool.
  [[nodiscard]] bool is_ahead() const { return is_ahead_; }

  // Each returns whether it did anything. None is called while offloading is paused or has ended.
  bool offer_registered(const OffloadInbox::Contents& news, TimePoint now);
  // In mode kAhead: claims the next victims that the upper pool wants, which may be evicted from then on, and offers those
  // that are not below as urgent.
  bool offer_victims(TimePoint now);
  // In mode kAhead: searches the upper pool for blocks that were missed while there is little else to copy.
  bool offer_missed(TimePoint now);
  // Whether offer_missed() would do anything.
  [[nodiscard]] bool may_find_missed() const;

  // Some blocks of the upper pool that may be worth a copy are not pending: search for them.
  void missed_some() { missed_some_ = true; }
  // The same, as soon as a transfer has copied a block: until then they would only be shed again.
  void shed_some() { shed_some_ = true; }
  void copied_some();
  // After a fence there is nothing to search for.
  void forget();

  [[nodiscard]] bool is_below(const BlockKey& key) const;
  // The block before it in its sequence is in neither tier: nobody could load it.
  [[nodiscard]] bool is_orphan(const BlockKey& key) const;
  [[nodiscard]] std::optional<BlockKey> parent_of(const BlockKey& key) const;
  // For blocks that are not urgent. The last few free blocks of the lower tier are left to urgent ones: as those come and go,
  // the upper pool would be searched again and again.
  [[nodiscard]] std::uint32_t free_below() const;
  [[nodiscard]] OffloadDemand::Lendable lendable(std::uint32_t on_loan) const;

 private:
  enum class Urgency : std::uint8_t { kUrgent, kNotUrgent };
  [[nodiscard]] ImmutableBlocks claim_victims(std::uint32_t count);
  void offer_victim(const BlockKey& key, bool is_open, TimePoint now);
  void offer_with_ancestors(BlockKey key, Urgency urgency, TimePoint now);
  [[nodiscard]] bool offer(const BlockFacts& block, Urgency urgency, TimePoint now);

  const TierLink& link_;
  const BlockRegistry& registry_;
  const OffloadOptions options_;
  OffloadChooser& chooser_;
  BlockPool* const upper_;  // null: the engine's own blocks
  BlockPool& lower_;
  const bool is_ahead_;
  OffloadDemand demand_;
  bool missed_some_ = false;
  bool shed_some_ = false;
  bool is_searching_ = false;
  std::uint32_t searched_to_ = 0;
};

}  // namespace cairn
