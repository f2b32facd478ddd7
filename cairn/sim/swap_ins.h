// SwapIns: loads blocks from the tiers below into G1 blocks that are reserved for them. Internal.
//
// The blocks of the sequence that G1 has are pinned meanwhile, because the loaded blocks are of no use without them. When
// a load has ended, its blocks are registered and published, one Stored for each run between blocks that came to G1 in
// the meantime, and may be evicted at once. If there are too few free blocks, start() evicts some, and the caller tries
// again when they have been copied down.
//
// Thread safety: not thread-safe.
// Ownership:  owned by a KvManager with an offload engine; must be destroyed before the gate and the ledger.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "cairn/pool/blocks.h"
#include "cairn/sim/block_ledger.h"
#include "cairn/sim/block_record.h"
#include "cairn/sim/event_writer.h"
#include "cairn/sim/move_block.h"
#include "cairn/sim/offload_engine.h"
#include "cairn/sim/tier_gate.h"

namespace cairn::sim {

struct SwapInStart {
  enum class Outcome : std::uint8_t {
    kNothing,    // there is nothing to load, or no room
    kScheduled,  // the load is in flight
    kBlocked,    // blocks have to be copied down first; try again when time has advanced
  };
  Outcome outcome = Outcome::kNothing;
  LoadId id{};             // kScheduled
  std::size_t cached = 0;  // leading blocks that G1 has
  LoadPlan plan = {};      // kScheduled: the sources of the blocks after those
};

namespace internal {

class SwapIns {
 public:
  SwapIns(TierGate& gate, BlockLedger& ledger, EventWriter& events)
      : gate_(&gate), ledger_(&ledger), events_(&events) {}

  // Loads the leading full blocks of a Use, all that were found or none. Requires: KvManager checked the Use.
  [[nodiscard]] SwapInStart start(const Use& use);
  // Registers the blocks of loads that have ended.
  void land_finished();
  // The loads that have landed since the last call, in that order.
  [[nodiscard]] std::vector<LoadId> take_landed() { return std::exchange(landed_, {}); }

  // Blocks that loads write into, and blocks that they pin and that are not in use otherwise.
  [[nodiscard]] std::size_t blocks_held() const;

 private:
  struct SwapIn {
    MutableBlocks room;
    std::vector<BlockRecord> blocks;
    ImmutableBlocks prefix;  // the leading blocks that G1 had
  };

  [[nodiscard]] std::size_t count_cached(const Use& use, std::size_t full) const;
  [[nodiscard]] bool make_room(std::size_t count);
  void land(SwapIn swap_in);
  void publish(std::span<const BlockRecord> run);

  TierGate* gate_;
  BlockLedger* ledger_;
  EventWriter* events_;
  std::map<LoadId, SwapIn> swap_ins_;
  std::vector<LoadId> landed_;
};

}  // namespace internal
}  // namespace cairn::sim
