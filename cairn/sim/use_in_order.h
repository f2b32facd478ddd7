// UseInOrder: serves a Use as Profile::kSeed does: block by block, as far as there is room. Internal.
//
// The result is as if each block were looked up or allocated before the next one is looked at. Consecutive blocks of
// one kind go to the pool in one step if that makes no difference. With tiers below, the Use ends at the first block
// for which another one has to be evicted: that one is evicted, and as many more as the rest of the Use needs, and
// their places cannot be allocated until they have been copied.
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
  // Returns how many blocks were granted. `gate` is null without tiers below. Requires: KvManager checked the Use.
  [[nodiscard]] std::size_t run(const Use& use, BlockLedger& ledger, EventWriter& events, TierGate* gate);

 private:
  enum class Kind : std::uint8_t { kActiveUnderAnotherHash, kInactive, kAbsent };
  class Walk;

  // Contents are valid during one run(); members only to reuse their memory.
  std::vector<SequenceHash> pending_;
  std::vector<BlockLedger::Active*> announced_;
  std::vector<KvStoredBlock> stored_;
  std::vector<Token> stored_tokens_;
  std::vector<SequenceHash> removed_;
  std::vector<SequenceHash> full_hashes_;  // of all full blocks; only with tiers below
};

}  // namespace cairn::sim::internal
