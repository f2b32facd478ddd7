// KvEventSink: who is told what a simulated KvManager stored and removed.
//
// Does:     the calls come in the order of the events; the numbers of one manager's events are 0, 1, 2 and so on.
// Owner:    outlives the manager.
// Threads:  called by whoever calls the manager.
// Obliges:  never calls the manager; keeps no span it is given.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "cairn/base/ids.h"
#include "cairn/tokens/hashes.h"

namespace cairn::sim {

struct KvStoredBlock {
  SequenceHash hash{};
  BlockHash tokens_hash{};  // 0 where whoever named the block gave none

  friend bool operator==(const KvStoredBlock&, const KvStoredBlock&) = default;
};

struct KvStored {
  std::optional<SequenceHash> parent;  // of the first block
  std::span<const KvStoredBlock> blocks;
  std::optional<std::span<const Token>> token_ids;  // of all the blocks
};

struct KvRemoved {
  std::span<const SequenceHash> hashes;
};

class KvEventSink {
 public:
  virtual ~KvEventSink() = default;

  virtual void on_stored(std::uint64_t event_id, CacheLevel tier, const KvStored& stored) = 0;
  virtual void on_removed(std::uint64_t event_id, CacheLevel tier, const KvRemoved& removed) = 0;
};

}  // namespace cairn::sim
