// SwapIns: loads blocks from the tiers below into G1 blocks that are reserved for them. Internal.
//
// The blocks of the sequence that G1 has are held meanwhile, because the loaded blocks are of no use without them. When
// a load has ended, its blocks are registered and published: one Stored for each run between blocks that came to G1 in
// the meantime. kStrict holds all of them until end(); kSeed releases them at once. If blocks have to be copied down
// first, kStrict reserves them and the load waits; kSeed only starts the copies, and the caller tries again.
//
// Thread safety: not thread-safe.
// Ownership:  owned by a KvManager with an offload engine; must be destroyed before the gate and the ledger.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "cairn/pool/blocks.h"
#include "cairn/sim/block_ledger.h"
#include "cairn/sim/block_record.h"
#include "cairn/sim/engine_options.h"
#include "cairn/sim/event_writer.h"
#include "cairn/sim/move_block.h"
#include "cairn/sim/offload_engine.h"
#include "cairn/sim/tier_gate.h"

namespace cairn::sim {

struct SwapInStart {
  enum class Outcome : std::uint8_t {
    kNothing,    // there is nothing to load, or no room
    kScheduled,  // the load is pending or in flight
    kBlocked,    // blocks have to be copied down first; try again when time has advanced (kSeed only)
  };
  Outcome outcome = Outcome::kNothing;
  LoadId id{};             // kScheduled
  std::size_t cached = 0;  // leading blocks that G1 has
  LoadPlan plan = {};      // kScheduled: the sources of the blocks after those
};

namespace internal {

class SwapIns {
 public:
  SwapIns(Profile profile, TierGate& gate, BlockLedger& ledger, EventWriter& events)
      : profile_(profile), gate_(&gate), ledger_(&ledger), events_(&events) {}
  SwapIns(const SwapIns&) = delete;
  SwapIns& operator=(const SwapIns&) = delete;
  ~SwapIns();

  // Loads the leading full blocks of a Use. Requires: KvManager checked the Use.
  [[nodiscard]] SwapInStart start(const Use& use);
  // Registers the blocks of loads that have ended.
  void land_finished();
  // The loads that have landed since the last call, in that order.
  [[nodiscard]] std::vector<LoadId> take_landed() { return std::exchange(landed_, {}); }
  // Releases the blocks that a load holds, now or as soon as it has landed. False if the id is unknown or was ended.
  [[nodiscard]] bool end(LoadId id);

  // Blocks that loads write into.
  [[nodiscard]] std::size_t reserved() const { return reserved_; }

 private:
  struct SwapIn {
    std::optional<MutableBlocks> room{};  // until it has landed
    std::vector<BlockRecord> blocks{};
    ImmutableBlocks held{};  // leading blocks that G1 had, then those that have landed
    bool ended = false;      // by end(), while in flight
  };

  [[nodiscard]] std::size_t count_cached(const Use& use, std::size_t full) const;
  [[nodiscard]] std::vector<BlockRecord> records_of(const Use& use, std::size_t first, std::size_t count) const;
  [[nodiscard]] bool make_room_as_the_seed(std::size_t count);
  void land(SwapIn& swap_in);
  void publish(std::span<const BlockRecord> run);

  const Profile profile_;
  TierGate* gate_;
  BlockLedger* ledger_;
  EventWriter* events_;
  std::map<LoadId, SwapIn> swap_ins_;
  std::vector<LoadId> landed_;
  std::size_t reserved_ = 0;
};

}  // namespace internal
}  // namespace cairn::sim
