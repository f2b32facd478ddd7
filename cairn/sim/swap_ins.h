// SwapIns: the way into G1: loads from the tiers below into blocks that are reserved for them. Internal.
//
// Does:     the blocks of a sequence that G1 has are held meanwhile, so that what is loaded behind them is of use. When a
//           load is over its blocks are registered and published, a Stored for each run between blocks that came to G1
//           by another way in the meantime. kStrict goes on holding all of them until end(); kSeed lets go at once.
//           Where blocks have to be copied down first, kStrict reserves them and the load waits; kSeed only starts the
//           copies, and the caller tries again.
// Owner:    a KvManager with an offload engine; gone before the gate and the ledger.
// Threads:  one.
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
#include "cairn/sim/event_writer.h"
#include "cairn/sim/move_block.h"
#include "cairn/sim/offload_engine.h"
#include "cairn/sim/profile.h"
#include "cairn/sim/tier_gate.h"

namespace cairn::sim {

struct SwapInStart {
  enum class Outcome : std::uint8_t {
    kNothing,    // there is nothing to load, or no room to load it
    kScheduled,  // the blocks are on their way
    kBlocked,    // blocks have to be copied down first; try again when time has moved (kSeed only)
  };
  Outcome outcome = Outcome::kNothing;
  LoadId id{};             // kScheduled
  std::size_t cached = 0;  // blocks that G1 has, from the first on
  LoadPlan plan = {};      // kScheduled: the blocks behind those, and where each comes from
};

namespace internal {

class SwapIns {
 public:
  SwapIns(Profile profile, TierGate& gate, BlockLedger& ledger, EventWriter& events)
      : profile_(profile), gate_(&gate), ledger_(&ledger), events_(&events) {}
  SwapIns(const SwapIns&) = delete;
  SwapIns& operator=(const SwapIns&) = delete;
  ~SwapIns();

  // For the full blocks that a Use begins with. Requires: its parts fit together.
  [[nodiscard]] SwapInStart start(const Use& wanted);
  // Registers what has been loaded.
  void land_finished();
  // Those that have landed, in that order; each one once.
  [[nodiscard]] std::vector<LoadId> take_landed() { return std::exchange(landed_, {}); }
  // Nobody waits for it any more: what it holds is let go as soon as it may be. False where there is none.
  [[nodiscard]] bool end(LoadId id);

  // Blocks that are being loaded into.
  [[nodiscard]] std::size_t reserved() const { return reserved_; }

 private:
  struct SwapIn {
    std::optional<MutableBlocks> block_ids{};  // until it has landed
    std::vector<BlockRecord> blocks{};
    ImmutableBlocks held{};  // what G1 had, and what has landed
    bool wanted = true;
  };

  [[nodiscard]] std::size_t count_cached(const Use& wanted, std::size_t full) const;
  [[nodiscard]] std::vector<BlockRecord> records_of(const Use& wanted, std::size_t first, std::size_t count) const;
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
