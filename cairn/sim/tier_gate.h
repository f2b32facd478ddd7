// TierGate: hands blocks that a simulated KvManager evicts from G1 to the tiers below. Internal.
//
// Keeps a record of each block in G1 and passes it to the offload engine when the block is evicted. A G1 block whose
// contents have to be copied cannot be allocated until the copy has ended.
//
// Thread safety: not thread-safe.
// Ownership:  owned by a KvManager with an offload engine; must be destroyed before the ledger.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "cairn/pool/blocks.h"
#include "cairn/sim/block_ledger.h"
#include "cairn/sim/block_record.h"
#include "cairn/sim/event_writer.h"
#include "cairn/sim/offload_engine.h"

namespace cairn::sim::internal {

class TierGate {
 public:
  TierGate(std::unique_ptr<OffloadEngine> engine, BlockLedger& ledger, EventWriter& events)
      : engine_(std::move(engine)), ledger_(&ledger), events_(&events), records_(ledger.pool().capacity()) {}

  [[nodiscard]] OffloadEngine& engine() { return *engine_; }
  [[nodiscard]] const OffloadEngine& engine() const { return *engine_; }

  // Keeps the record of a block that was registered in G1.
  void remember(BlockRecord record) {
    const BlockId block_id = ledger_->find(record.key);
    records_[index_of(block_id)] = std::move(record);
  }

  // Publishes a Removed for the evictions of the ledger.
  void publish_evictions();
  // Copies the evictions of the ledger, without those whose Removed was reported before; `sources` are the G1 blocks with
  // their contents. Publish them first.
  void offload_evictions(MutableBlocks sources);

  // Whether this many blocks will become available when copies end, without any request releasing blocks.
  [[nodiscard]] bool will_have(std::size_t missing) const { return missing <= ledger_->pool().counts().quarantined; }
  // Whether the last Use was refused only because blocks have to be copied first.
  [[nodiscard]] bool blocked() const { return blocked_; }
  void block() { blocked_ = true; }
  void unblock() { blocked_ = false; }

 private:
  std::unique_ptr<OffloadEngine> engine_;
  BlockLedger* ledger_;
  EventWriter* events_;
  std::vector<BlockRecord> records_;   // by block id
  std::vector<SequenceHash> removed_;  // a member only to reuse its memory
  bool blocked_ = false;
};

}  // namespace cairn::sim::internal
