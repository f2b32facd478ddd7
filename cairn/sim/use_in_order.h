// UseInOrder: serves a Use as the manager of Profile::kSeed does: block after block, as far as there is room. Internal.
//
// Does:     what comes out is as if each block were looked up, or given a block, before the next one is looked at.
//           Neighbours of a kind go to the pool in one step where that comes to the same. With tiers below, the first
//           block for which another would have to go ends the Use: that one is evicted, and as many more as the rest of
//           the Use would take, and their blocks are not to be had until they have been copied.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "cairn/sim/block_ledger.h"
#include "cairn/sim/event_writer.h"
#include "cairn/sim/move_block.h"

namespace cairn::sim::internal {

class TierGate;

class UseInOrder {
 public:
  // How many blocks were granted. Requires: the parts of the Use fit together. The gate: none without tiers below.
  [[nodiscard]] std::size_t run(const Use& use, BlockLedger& ledger, EventWriter& events, TierGate* gate);

 private:
  enum class Kind : std::uint8_t { kActiveUnderAnotherHash, kInactive, kAbsent };
  class Walk;

  // Kept for their memory.
  std::vector<SequenceHash> pending_;
  std::vector<BlockLedger::Active*> announced_;
  std::vector<KvStoredBlock> stored_;
  std::vector<Token> stored_tokens_;
  std::vector<SequenceHash> removed_;
  std::vector<SequenceHash> full_hashes_;  // of all full blocks; only with tiers below
};

}  // namespace cairn::sim::internal
