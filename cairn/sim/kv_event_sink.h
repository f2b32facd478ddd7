// KvEventSink: receives the Stored and Removed events of a simulated KvManager.
//
// Events come in order; those of one manager are numbered 0, 1, 2 and so on. An implementation must not call the
// manager and must not keep a span that it is given.
//
// Thread safety: called on the thread that calls the manager.
// Ownership:  must outlive the manager.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "cairn/base/ids.h"
#include "cairn/tokens/hashes.h"

namespace cairn::sim {

struct KvStoredBlock {
  SequenceHash hash{};
  BlockHash tokens_hash{};  // 0 if the Use or Promote had none

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
