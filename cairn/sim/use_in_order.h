// UseInOrder: serves a Use as the manager of Profile::kSeed does: block after block, as far as there is room. Internal.
//
// Does:     what comes out is as if each block were looked up, or given a slot, before the next one is looked at.
//           Neighbours of a kind go to the pool in one step where that comes to the same.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "cairn/sim/block_ledger.h"
#include "cairn/sim/event_writer.h"
#include "cairn/sim/move_block.h"

namespace cairn::sim::internal {

class UseInOrder {
 public:
  // How many blocks were granted. Requires: the parts of the Use fit together.
  [[nodiscard]] std::size_t run(const Use& use, BlockLedger& ledger, EventWriter& events);

 private:
  enum class Kind : std::uint8_t { kActiveUnderAnotherHash, kInactive, kAbsent };
  class Walk;

  // Kept for their memory.
  std::vector<SequenceHash> pending_;
  std::vector<BlockLedger::Active*> announced_;
  std::vector<KvStoredBlock> stored_;
  std::vector<Token> stored_tokens_;
  std::vector<SequenceHash> removed_;
};

}  // namespace cairn::sim::internal
