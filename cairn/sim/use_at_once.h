// UseAtOnce: serves a Use as the manager of Profile::kStrict does: all of it or, without room, nothing. Internal.
//
// Does:     finds what is there, pins it, evicts for the rest, registers that. Removed comes before Stored; a Stored is
//           a run of new blocks of which each is the parent of the next. With tiers below, where some of what has to go
//           must be copied first: nothing is granted, the copies are under way, and what was there is as if just used.
// Fails:    a hash that is not the one in its block's key, or that is in use for a block with another key.
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

class TierGate;

class UseAtOnce {
 public:
  // All of the blocks, or 0. Requires: the parts of the Use fit together.
  // The gate: none without tiers below.
  [[nodiscard]] Result<std::size_t> run(const Use& use, BlockLedger& ledger, EventWriter& events, TierGate* gate);

 private:
  enum class Kind : std::uint8_t { kActive, kInactive, kAbsent };

  [[nodiscard]] Status plan(const Use& use, BlockLedger& ledger);
  [[nodiscard]] Result<Kind> plan_full(const Use& use, BlockLedger& ledger, SequenceHash hash, std::size_t number);
  void withdraw_plan(BlockLedger& ledger) const;
  // What is there and must not be evicted, but could be.
  [[nodiscard]] std::size_t evictable_hits(const BlockLedger& ledger) const;
  // False where copies come first.
  [[nodiscard]] bool commit(const Use& use, BlockLedger& ledger, TierGate* gate);
  void publish(const Use& use, BlockLedger& ledger, EventWriter& events);

  // The plan, and what the events say; kept for their memory.
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

// The block before a full one, by its number, where the Use says so and the key does not contradict it.
[[nodiscard]] std::optional<SequenceHash> parent_of(const Use& use, std::size_t number);

// Fails unless the hash is the one in the key, and, where it is in use, for this key.
[[nodiscard]] Status check_name(const BlockLedger& ledger, SequenceHash hash, const BlockKey& key);

}  // namespace cairn::sim::internal
