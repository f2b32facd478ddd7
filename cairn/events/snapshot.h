// Snapshot: all blocks that the pools of a log have cached, the suspended tiers, and the number of the event after which
// this was so. A follower that joins late or has lost events starts from a snapshot.
//
// take_snapshot() walks the pools in parts while they go on working, and corrects what it saw by the events of that time.
// The result is exact: the state after event `sequence`, as if everything had stopped there.
//
// Thread safety: safe from any thread. A pool is locked for a part of its blocks at a time; for all of them only if the log
// is so small that nothing else succeeds.
// Errors: kInvalidArgument for two pools of one tier; kExhausted if the log drops events faster than the pools can be
// walked: make the log larger.
// Complexity: memory for the resident blocks, and sorting them, without a lock.
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
  std::vector<ResidentBlock> blocks = {};  // sorted by key, so parents come first; parent 0 at position 0
  bool suspended = false;                  // the blocks cannot be loaded until the tier is resumed
};

struct Snapshot {
  std::uint64_t sequence = 0;       // continue with the event after this one
  std::vector<TierSnapshot> tiers;  // one for each pool, in the order given
};

// `pools` are all pools that `log` has observed since before their first block.
[[nodiscard]] Result<Snapshot> take_snapshot(const EventLog& log, std::span<const ResidentSource* const> pools);

}  // namespace cairn
