// OffloadEngine: the tiers below the G1 of one simulated worker, and what moves between them, in virtual time.
//
// Does:     Down: blocks that leave a tier are copied to the next one unless they are there (offload_decision.h), in
//           batches, over that tier's link. A copy first takes its blocks in the tier below, and what it evicts there goes
//           further down first: the copy waits for that, since it will overwrite it. What leaves the last tier is gone.
//           The G1 blocks that are read are quarantined until the copy is over.
//           Up: a load takes a run of blocks, each from the nearest tier that has it (load_plan.h), to blocks that the
//           caller reserved: one transfer for each tier that has some, over each link on the way in turn. Tiers keep what
//           is read from them, and hold it meanwhile.
//           A block is in a tier, for lookups and events, from the moment its copy is over until it is evicted.
// Events:   one for each block, of the level of its tier: Removed when a copy takes the block, Stored when the copy is
//           over. Tiers of one level count as one place.
// Profiles: kSeed releases the G1 blocks of one call together, when all that call's copies are over, those included that
//           needed no copy; gives up a batch that does not fit in the tier below. kStrict releases the blocks of each
//           batch when it is over, and copies what fits.
// Owner:    a KvManager. The network and the event writer outlive it.
// Threads:  one. Arrivals come whenever anybody moves the network's time, in the order of time.
// Fails:    create(): no tiers, levels that fall, links that are not there, sizes beyond what links can count; as pools.
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
#include "cairn/sim/profile.h"
#include "cairn/sim/sim_tier.h"

namespace cairn::sim {

struct OffloadTierOptions {
  CacheLevel level = CacheLevel::kG2;  // what its events say
  std::uint32_t capacity = 0;          // blocks
  PolicyKind eviction = PolicyKind::kLineageTick;
  LinkId down{};  // from the tier above
  LinkId up{};    // to it
};

struct OffloadOptions {
  std::uint64_t block_bytes = 0;               // of one block; 0: copies take no time but the latency
  std::uint32_t batch_blocks = 32;             // in one copy down, at most
  std::uint32_t max_copies = 32;               // copies down into one tier at once, at most; the others wait in order
  std::vector<OffloadTierOptions> tiers = {};  // the nearest one first
};

// Blocks, since the engine was made.
struct OffloadTierStats {
  std::uint64_t copied = 0;   // into the tier, from above
  std::uint64_t skipped = 0;  // not copied since they were there, or on their way
  std::uint64_t dropped = 0;  // not copied since there was no room that could be made
  std::uint64_t evicted = 0;  // from the tier
  std::uint64_t loaded = 0;   // from the tier to G1

  friend bool operator==(const OffloadTierStats&, const OffloadTierStats&) = default;
};

enum class LoadId : std::uint64_t {};

class OffloadEngine final : private LinkUser {
 public:
  // What stands around it: the worker's, and the simulation's.
  struct Surroundings {
    Profile profile = Profile::kStrict;
    std::uint32_t block_size = 0;    // tokens a block
    std::uint32_t max_capacity = 0;  // blocks of G1: what a load can have
    LinkNetwork* network = nullptr;
    internal::EventWriter* events = nullptr;
  };

  [[nodiscard]] static Result<std::unique_ptr<OffloadEngine>> create(const OffloadOptions& options,
                                                                     const Surroundings& surroundings);
  OffloadEngine(const OffloadEngine&) = delete;
  OffloadEngine& operator=(const OffloadEngine&) = delete;
  ~OffloadEngine() override;

  // Whether a block that leaves G1 has to be copied.
  [[nodiscard]] bool needs_copy(const BlockKey& key) const;
  // So many have left G1 that did not have to be.
  void count_skipped(std::size_t blocks) { tiers_[0].stats.skipped += blocks; }
  // These blocks have left G1, and these are the blocks they had there: nobody gets them until they have been read.
  void offload(std::vector<BlockRecord> blocks, MutableBlocks sources);

  // What the tiers have of these keys, from the first on.
  [[nodiscard]] LoadPlan find(std::span<const BlockKey> keys) const;
  // A load of the blocks of a plan for the first of these keys; holds them from now on. It begins when told to, after
  // what leaves G1 for it has been read.
  [[nodiscard]] LoadId open_load(std::span<const BlockKey> keys, const LoadPlan& plan);
  void offload_for(LoadId load, std::vector<BlockRecord> blocks);
  void begin_load(LoadId load);
  // Gives up a load that was opened and has not begun.
  void close_load(LoadId load);

  [[nodiscard]] TimePoint now() const { return network_->now(); }
  // Moves time for everybody on the network; then this worker has seen all that arrived for it.
  void advance_to(TimePoint now);
  // When something arrives for this worker, or the moment at which something did that it has not seen.
  [[nodiscard]] std::optional<TimePoint> next_event_time() const;
  // Loads that are over, in that order; each one once.
  [[nodiscard]] std::vector<LoadId> take_finished_loads() { return std::exchange(finished_, {}); }

  [[nodiscard]] std::uint64_t block_bytes() const { return options_.block_bytes; }
  [[nodiscard]] std::size_t tier_count() const { return tiers_.size(); }
  [[nodiscard]] const SimTier& tier(TierIndex tier) const { return *tiers_[tier].tier; }
  [[nodiscard]] const OffloadTierStats& stats(TierIndex tier) const { return tiers_[tier].stats; }
  // Copies down and loads that are not over.
  [[nodiscard]] std::size_t copies() const { return copies_.size(); }
  [[nodiscard]] std::size_t loads() const { return loads_.size(); }

  // Walks everything and aborts on the first invariant that does not hold. For tests.
  void check_invariants() const;

 private:
  enum class CopyId : std::uint64_t {};
  enum class HoldId : std::uint64_t {};
  // Who is told that a copy is over.
  using Waiter = std::variant<HoldId, CopyId, LoadId>;

  struct Tier {
    std::unique_ptr<SimTier> tier;
    LinkId down;
    LinkId up;
    std::deque<CopyId> waiting{};
    std::uint32_t under_way = 0;
    OffloadTierStats stats{};
  };
  // One batch on its way into a tier.
  struct Copy {
    TierIndex tier;
    std::vector<BlockRecord> blocks;
    Waiter waiter;
    std::optional<MutableBlocks> room{};  // once its turn has come
    std::uint32_t waits_for = 0;          // copies further down, of what it will overwrite
  };
  // G1 blocks that copies read.
  struct Hold {
    QuarantinedBlocks block_ids;
    std::uint32_t copies;
  };
  // The blocks of a load that come from one tier.
  struct Leg {
    TierIndex from;
    TierIndex at;  // how far they have come
    ImmutableBlocks blocks;
  };
  struct Load {
    std::vector<Leg> legs{};
    std::uint32_t legs_left = 0;
    std::uint32_t waits_for = 1;  // copies of what it will overwrite, and begin_load()
  };
  struct MovingLeg {
    LoadId load;
    std::size_t leg;
  };
  using Moving = std::variant<CopyId, MovingLeg>;

  OffloadEngine(const OffloadOptions& options, const Surroundings& surroundings);

  void on_arrived(TransferId transfer) override;

  // Those that have to be copied into a tier; they are expected there from now on.
  [[nodiscard]] std::vector<BlockRecord> take_needed(TierIndex tier, std::vector<BlockRecord> blocks);
  // How many batches that makes.
  std::uint32_t queue_copies(TierIndex tier, std::vector<BlockRecord> blocks, const Waiter& waiter);
  void queue_copy(TierIndex tier, std::vector<BlockRecord> batch, const Waiter& waiter);
  void begin_waiting(TierIndex tier);
  void begin_copy(CopyId id);
  void end_copy(CopyId id);
  void one_wait_less(CopyId id);
  void one_wait_less(HoldId id);
  void one_wait_less(LoadId id);
  void move_leg(LoadId id, std::size_t leg);
  void leg_arrived(const MovingLeg& moved);

  [[nodiscard]] bool elsewhere_on_level(TierIndex tier, const BlockKey& key) const;
  void publish_stored(TierIndex tier, const BlockRecord& block);
  void publish_removed(TierIndex tier, const BlockRecord& block);
  void start_transfer(LinkId link, std::size_t blocks, const Moving& moving);
  void check_waiters() const;

  const OffloadOptions options_;
  const Profile profile_;
  LinkNetwork* const network_;
  internal::EventWriter* const events_;
  std::vector<Tier> tiers_;
  std::map<CopyId, Copy> copies_;
  std::map<HoldId, Hold> holds_;
  std::map<LoadId, Load> loads_;
  std::unordered_map<std::uint64_t, Moving> moving_;  // by transfer
  std::vector<LoadId> finished_;
  std::uint64_t next_id_ = 0;              // of copies, holds and loads
  std::optional<TimePoint> unseen_since_;  // something arrived that the worker has not asked for
};

}  // namespace cairn::sim
