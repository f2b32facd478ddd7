// Event: one change of what a tier has cached, for routers and other followers (docs/events.md).
//
//   Stored       consecutive blocks of one sequence, each the parent of the next, are cached in the tier from now on
//   Removed      these blocks are no longer cached there
//   Cleared      nothing is cached there any more
//   Invalidated  the weights changed: nothing is cached there any more, and blocks stored from now on are of this
//                generation of the weights
//   Suspended    the tier is out of use: its blocks cannot be loaded for now. Stored and Removed events go on.
//   Resumed      the blocks of the tier can be loaded again: all that were stored and not removed, before or during the
//                suspension
//
// The events of one log are numbered 1, 2, 3 and so on without gaps, for all tiers together. At the start no tier has
// blocks and none is suspended. A key is Stored in a tier only if it is not cached there, and Removed only if it is,
// suspended or not. A tier is Suspended only if it is not suspended, and Resumed only if it is; Cleared and Invalidated do
// not resume it.
//
// All events of a log have the same source: worker id and data parallel rank.
//
// Thread safety: plain values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "cairn/base/ids.h"
#include "cairn/tokens/block_key.h"
#include "cairn/tokens/hashes.h"

namespace cairn {

struct StoredBlock {
  BlockKey key;
  // 0 if it is not known. If the engine gave the key, what its own events call the block (engine_event_hash()).
  BlockHash tokens_hash{0};

  friend bool operator==(const StoredBlock&, const StoredBlock&) = default;
};

struct Stored {
  std::optional<SequenceHash> parent;  // of the first block; std::nullopt at position 0
  std::vector<StoredBlock> blocks;     // at least one; each is the parent of the next
  // Of all blocks; empty if the log does not record them, does not know them, or dropped them.
  std::vector<Token> token_ids;

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

// Whose events: of which worker, and of which of its data parallel ranks.
struct EventSource {
  std::uint64_t worker_id = 0;
  std::uint32_t dp_rank = 0;

  friend bool operator==(const EventSource&, const EventSource&) = default;
};

struct Event {
  std::uint64_t sequence = 0;
  CacheLevel tier = CacheLevel::kG1;
  EventData data;
  EventSource source = {};
  std::uint32_t group = 0;  // index of the KV cache group that the blocks belong to; Cairn has one group so far

  friend bool operator==(const Event&, const Event&) = default;
};

// The log has dropped an event that the follower needs: the follower must start again from a snapshot (event_log.h).
struct Lagged {
  std::uint64_t missed_from = 0;  // the first event that is lost
  std::uint64_t oldest = 0;       // the first event that the log still has, or will have

  friend bool operator==(const Lagged&, const Lagged&) = default;
};

// The next events in order (empty if there is nothing new), or Lagged if they are lost.
using EventBatch = std::variant<std::vector<Event>, Lagged>;

// Appends the event as one line of JSON and a newline, in the form that routers of Dynamo read.
//
//     {"event_id":7,"tier":"G1","data":{"stored":{"parent_hash":null,"blocks":[
//         {"block_hash":11,"tokens_hash":12,"position":0}],"token_ids":[1,2]}},"worker_id":1,"dp_rank":0,"group_idx":0}
//     {"event_id":8,"tier":"G2","data":{"removed":{"block_hashes":[11]}},"worker_id":1,"dp_rank":0,"group_idx":0}
//     {"event_id":9,"tier":"G3","data":"cleared","worker_id":1,"dp_rank":0,"group_idx":0}
//     {"event_id":10,"tier":"G3","data":"suspended","worker_id":1,"dp_rank":0,"group_idx":0}
//     {"event_id":11,"tier":"G3","data":"resumed","worker_id":1,"dp_rank":0,"group_idx":0}
//     {"event_id":12,"tier":"G3","data":{"invalidated":{"weights_generation":8}},"worker_id":1,"dp_rank":0,"group_idx":0}
//
// There are no spaces. block_hash is the 64-bit sequence hash of the block; parent_hash is that of the
// block before the first one, or null. token_ids is there only if the event has them. "suspended", "resumed" and
// "invalidated" are Cairn's own: a reader that ignores them counts the blocks of a suspended tier, and does not know the
// generation of the weights. If a tier had blocks, a "cleared" comes before "invalidated".
//
// Hashes are unsigned 64-bit integers: a reader that stores numbers as doubles loses bits.
void append_json_line(const Event& event, std::string& out);

}  // namespace cairn
