// OffloadEngine: the tiers below the G1 of one simulated worker, and the transfers between them, in virtual time.
//
// Down: blocks evicted from a tier are copied to the next one unless it has them (offload_decision.h), in batches, over
// that tier's link. A copy first allocates blocks in the tier below. Blocks evicted there are copied further down
// first, and the copy waits for that, because it overwrites them. Blocks evicted from the last tier are lost. The G1
// blocks that a copy reads are quarantined until it has ended.
//
// Up: a load takes a run of blocks, each from the nearest tier that has it (load_plan.h), to blocks that the caller
// reserved. Each source tier makes one part of the load, which crosses one link after the other. Tiers keep the blocks
// that are read from them, and pin them while the load is in flight.
//
// For lookups and events, a block is in a tier from the end of its copy until it is evicted. Events report one block
// each, at the level of the tier: Removed when a copy takes its place, Stored when the copy has ended. Tiers of one
// level count as one place.
//
// As in the original, the G1 blocks of one offload() are released together, when all its copies have ended, including
// blocks that needed no copy, and a batch that does not fit in the tier below is dropped.
//
// Thread safety: not thread-safe. Arrivals come, in order of time, whenever any user advances the network's time.
// Ownership:  owned by a KvManager. The network and the event writer must outlive it.
// Errors:     create() fails without tiers, for levels in the wrong order, unknown links, limits of 0, blocks that are
//             too large for a link, and as BlockPool::create() does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "cairn/base/clock.h"
#include "cairn/base/ids.h"
#include "cairn/base/result.h"
#include "cairn/evict/eviction_policy.h"
#include "cairn/pool/blocks.h"
#include "cairn/sim/block_record.h"
#include "cairn/sim/event_writer.h"
#include "cairn/sim/link_network.h"
#include "cairn/sim/load_plan.h"
#include "cairn/sim/sim_tier.h"

namespace cairn::sim {

struct OffloadTierOptions {
  CacheLevel level = CacheLevel::kG2;  // in its events
  std::uint32_t capacity = 0;          // blocks
  PolicyKind eviction = PolicyKind::kLineageTick;
  LinkId down{};  // from the tier above
  LinkId up{};    // to it
};

struct OffloadOptions {
  std::uint64_t block_bytes = 0;               // per block; 0: a transfer takes only the latency
  std::uint32_t batch_blocks = 32;             // largest batch of a copy down
  std::uint32_t max_copies = 32;               // copies in flight into one tier; the others queue
  std::vector<OffloadTierOptions> tiers = {};  // the nearest first
};

// Blocks, since the engine was created.
struct OffloadTierStats {
  std::uint64_t copied = 0;   // into the tier, from above
  std::uint64_t skipped = 0;  // not copied, because the tier had them or was receiving them
  std::uint64_t dropped = 0;  // not copied, because the tier had no room
  std::uint64_t evicted = 0;  // from the tier
  std::uint64_t loaded = 0;   // from the tier to G1

  friend bool operator==(const OffloadTierStats&, const OffloadTierStats&) = default;
};

enum class LoadId : std::uint64_t {};

class OffloadEngine final : private LinkUser {
 public:
  // What the engine gets from its KvManager.
  struct Environment {
    std::uint32_t block_size = 0;    // tokens per block
    std::uint32_t max_capacity = 0;  // blocks of G1: the largest possible load
    LinkNetwork* network = nullptr;
    internal::EventWriter* events = nullptr;
  };

  [[nodiscard]] static Result<std::unique_ptr<OffloadEngine>> create(const OffloadOptions& options,
                                                                     const Environment& environment);
  OffloadEngine(const OffloadEngine&) = delete;
  OffloadEngine& operator=(const OffloadEngine&) = delete;
  ~OffloadEngine() override;

  // Copies blocks that were evicted from G1. `sources`, the G1 blocks with their contents, are quarantined until they
  // have been read.
  void offload(std::vector<BlockRecord> blocks, MutableBlocks sources);

  // Plans a load of these keys, up to the first one that no tier has.
  [[nodiscard]] LoadPlan find(std::span<const BlockKey> keys) const;
  // Opens a load of the planned blocks, and pins them. `keys` are those given to find().
  [[nodiscard]] LoadId open_load(std::span<const BlockKey> keys, const LoadPlan& plan);
  // Begins an open load.
  void begin_load(LoadId load);
  // Drops an open load that has not begun.
  void close_load(LoadId load);

  [[nodiscard]] TimePoint now() const { return network_->now(); }
  // Advances the time of the whole network, and clears what next_event_time() says of the past.
  void advance_to(TimePoint now);
  // When the next transfer of this worker arrives; the time of the first arrival since the last advance_to(), if
  // another worker advanced the network.
  [[nodiscard]] std::optional<TimePoint> next_event_time() const;
  // The loads that have ended since the last call, in that order.
  [[nodiscard]] std::vector<LoadId> take_finished_loads() { return std::exchange(finished_, {}); }

  [[nodiscard]] std::uint64_t block_bytes() const { return options_.block_bytes; }
  [[nodiscard]] std::size_t tier_count() const { return tiers_.size(); }
  [[nodiscard]] const SimTier& tier(TierIndex tier) const { return *tiers_[tier].tier; }
  [[nodiscard]] const OffloadTierStats& stats(TierIndex tier) const { return tiers_[tier].stats; }
  // Copies down and loads that have not ended.
  [[nodiscard]] std::size_t copies() const { return copies_.size(); }
  [[nodiscard]] std::size_t loads() const { return loads_.size(); }

  // Aborts on the first invariant that does not hold. For tests.
  void check_invariants() const;

 private:
  enum class CopyId : std::uint64_t {};
  enum class HoldId : std::uint64_t {};
  // What waits for the end of a copy.
  using Waiter = std::variant<HoldId, CopyId>;

  struct Tier {
    std::unique_ptr<SimTier> tier;
    LinkId down;
    LinkId up;
    std::deque<CopyId> pending{};
    std::uint32_t in_flight = 0;
    OffloadTierStats stats{};
  };
  // One batch that is copied into a tier.
  struct Copy {
    TierIndex tier;
    std::vector<BlockRecord> blocks;
    Waiter waiter;
    std::optional<MutableBlocks> room{};  // once the copy has begun
    std::uint32_t waits_for = 0;          // copies further down, of blocks that it overwrites
  };
  // G1 blocks that copies read.
  struct Hold {
    QuarantinedBlocks blocks;
    std::uint32_t copies;  // that have not ended
  };
  // The blocks of a load that come from one tier.
  struct Part {
    TierIndex from;
    TierIndex at;  // the tier they have reached
    ImmutableBlocks blocks;
  };
  struct Load {
    std::vector<Part> parts{};
    std::uint32_t parts_left = 0;
  };
  struct LoadPart {
    LoadId load;
    std::size_t part;
  };
  // What a transfer carries.
  using Cargo = std::variant<CopyId, LoadPart>;

  OffloadEngine(const OffloadOptions& options, const Environment& environment);

  void on_arrived(TransferId transfer) override;

  // Returns the blocks that have to be copied into a tier; the tier expects them from now on.
  [[nodiscard]] std::vector<BlockRecord> take_needed(TierIndex tier, std::vector<BlockRecord> blocks);
  // Returns the number of batches.
  std::uint32_t queue_copies(TierIndex tier, std::vector<BlockRecord> blocks, const Waiter& waiter);
  void begin_pending(TierIndex tier);
  void begin_copy(CopyId id);
  void end_copy(CopyId id);
  // One copy that the waiter waits for has ended.
  void count_down(CopyId id);
  void count_down(HoldId id);
  void start_part(const LoadPart& part);
  void part_arrived(const LoadPart& arrived);

  [[nodiscard]] bool elsewhere_on_level(TierIndex tier, const BlockKey& key) const;
  void publish_stored(TierIndex tier, const BlockRecord& block);
  void publish_removed(TierIndex tier, const BlockRecord& block);
  void start_transfer(LinkId link, std::size_t blocks, const Cargo& cargo);
  void check_waiters() const;

  const OffloadOptions options_;
  LinkNetwork* const network_;
  internal::EventWriter* const events_;
  std::vector<Tier> tiers_;
  std::map<CopyId, Copy> copies_;
  std::map<HoldId, Hold> holds_;
  std::map<LoadId, Load> loads_;
  std::unordered_map<std::uint64_t, Cargo> in_flight_;  // by transfer
  std::vector<LoadId> finished_;
  std::uint64_t next_id_ = 0;              // of copies, holds and loads
  std::optional<TimePoint> unseen_since_;  // the first arrival since advance_to()
};

}  // namespace cairn::sim
