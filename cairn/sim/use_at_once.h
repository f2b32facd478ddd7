// UseAtOnce: serves a Use as Profile::kStrict does: completely or, without room, not at all. Internal.
//
// Finds the blocks that are there, pins them, evicts for the others, and registers those. Removed comes before Stored;
// a Stored is a run of new blocks each of which is the parent of the next.
//
// Errors:     run() fails for a hash that is not the one in its block's key, or that is in use for a block with another
//             key.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "cairn/base/result.h"
#include "cairn/sim/block_ledger.h"
#include "cairn/sim/event_writer.h"
#include "cairn/sim/move_block.h"

namespace cairn::sim::internal {

class UseAtOnce {
 public:
  // Returns the number of blocks, or 0. Requires: KvManager checked the Use.
  [[nodiscard]] Result<std::size_t> run(const Use& use, BlockLedger& ledger, EventWriter& events);

 private:
  enum class Kind : std::uint8_t { kActive, kInactive, kAbsent };

  [[nodiscard]] Status plan(const Use& use, BlockLedger& ledger);
  [[nodiscard]] Result<Kind> plan_full(const Use& use, BlockLedger& ledger, SequenceHash hash, std::size_t number);
  void withdraw_plan(BlockLedger& ledger) const;
  void commit(const Use& use, BlockLedger& ledger);
  void publish(const Use& use, BlockLedger& ledger, EventWriter& events);

  // The plan and the contents of events; members only to reuse their memory.
  std::vector<Kind> kinds_;  // of each full block
  std::vector<BlockKey> hit_keys_;
  std::vector<BlockId> hit_block_ids_;
  std::vector<SequenceHash> hit_hashes_;
  std::vector<BlockLedger::Active*> hits_;
  std::vector<BlockKey> new_keys_;
  std::vector<SequenceHash> new_hashes_;
  std::vector<BlockLedger::Active*> new_blocks_;
  std::vector<PartialId> new_partials_;
  std::vector<KvStoredBlock> stored_;
  std::vector<SequenceHash> removed_;
};

// Fails unless the hash is the one in the key, and not in use for another key.
[[nodiscard]] Status check_hash(const BlockLedger& ledger, SequenceHash hash, const BlockKey& key);

}  // namespace cairn::sim::internal
