// Event: one change of what can be had from which tier, as routers and other followers are told of it.
//
// Does:     Stored     a run of blocks of one sequence, each the parent of the next, is cached in a tier from now on
//           Removed    these blocks are no longer cached there
//           Cleared    nothing is cached there any more
//           Invalidated  the weights changed: nothing is cached there any more, and what is stored from now on is of this
//                      generation of the weights
//           Suspended  what is cached there cannot be had for the time being: it counts as absent. What comes and goes
//                      meanwhile is told as ever.
//           Resumed    it can be had again: what was stored and not removed since, before or during the suspension
//           What is cached in a tier can be had there, unless the tier is suspended. None is at the start.
//           The events of one log are numbered 1, 2, 3 and so on without holes, whatever the tier.
// Owner:    plain values that own what they hold.
// Promise:  a key is Stored in a tier only while it is not cached there, and Removed only while it is, suspended or not.
//           A tier is Suspended only while it is not, and Resumed only while it is; neither Cleared nor Invalidated resumes it.
#pragma once

#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "cairn/base/ids.h"
#include "cairn/tokens/block_key.h"
#include "cairn/tokens/hashes.h"

namespace cairn {

struct StoredBlock {
  BlockKey key;
  BlockHash tokens_hash{0};  // 0 where whoever named the block gave none

  friend bool operator==(const StoredBlock&, const StoredBlock&) = default;
};

struct Stored {
  std::optional<SequenceHash> parent;  // of the first block; none at position 0
  std::vector<StoredBlock> blocks;     // at least one; the parent of each but the first is the one before it
  std::vector<Token> token_ids;        // of all the blocks; empty where they were not recorded or are gone from the log

  friend bool operator==(const Stored&, const Stored&) = default;
};

struct Removed {
  std::vector<BlockKey> keys;  // at least one

  friend bool operator==(const Removed&, const Removed&) = default;
};

struct Cleared {
  friend bool operator==(const Cleared&, const Cleared&) = default;
};

struct Invalidated {
  std::uint64_t weights_generation = 0;

  friend bool operator==(const Invalidated&, const Invalidated&) = default;
};

struct Suspended {
  friend bool operator==(const Suspended&, const Suspended&) = default;
};

struct Resumed {
  friend bool operator==(const Resumed&, const Resumed&) = default;
};

using EventData = std::variant<Stored, Removed, Cleared, Invalidated, Suspended, Resumed>;

struct Event {
  std::uint64_t sequence = 0;
  CacheLevel tier = CacheLevel::kG1;
  EventData data;

  friend bool operator==(const Event&, const Event&) = default;
};

// A follower wanted an event that its log no longer has: it resynchronises from a snapshot (snapshot.h).
struct Lagged {
  std::uint64_t missed_from = 0;  // the first event it will not get
  std::uint64_t oldest = 0;       // the first one the log still has, or will have next

  friend bool operator==(const Lagged&, const Lagged&) = default;
};

// What following a log gives: the next events in order, none if there is nothing new; or that they are gone.
using EventBatch = std::variant<std::vector<Event>, Lagged>;

}  // namespace cairn
