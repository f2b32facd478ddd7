// Snapshot: everything that is cached now in the pools of a log, which of their tiers are suspended, and the one event
// number at which that is true. What a follower that joins late, or has fallen behind, starts again from.
//
// Does:     take_snapshot walks the pools in pieces while they go on working, and corrects what it saw by the events of
//           the meantime. The result is exact: the state after event `sequence`, as if everything had stopped there.
// Threads:  safe from any thread. A pool is locked for a piece of its blocks at a time, never for the whole walk unless
//           the log is so small that nothing else succeeds.
// Costs:    memory for what is resident, and a sort of it, outside all locks.
// Fails:    kInvalidArgument for two pools of one tier; kExhausted where the log drops events faster than pieces are
//           walked: make the log larger.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cairn/base/ids.h"
#include "cairn/base/result.h"
#include "cairn/events/event_log.h"
#include "cairn/pool/pool_observer.h"

namespace cairn {

struct TierSnapshot {
  CacheLevel tier = CacheLevel::kG1;
  std::vector<ResidentBlock> blocks = {};  // in the order of their keys, so parents first; parent 0 at position 0
  bool suspended = false;                  // the blocks cannot be had before it is resumed
};

struct Snapshot {
  std::uint64_t sequence = 0;       // go on with the event after this one
  std::vector<TierSnapshot> tiers;  // one for each pool, in the order given
};

// `pools` are all those that `log` observes, since before their first block.
[[nodiscard]] Result<Snapshot> take_snapshot(const EventLog& log, std::span<const ResidentSource* const> pools);

}  // namespace cairn
