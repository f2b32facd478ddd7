// TierGate: the way out of G1: what a simulated KvManager does with blocks it evicts when there are tiers below.
// Internal.
//
// Does:     keeps what is known of each block in G1, and hands it to the offload engine with the block's block when the
//           block is evicted. A block whose block has to be copied is not to be had until the copy is over.
// Owner:    a KvManager with an offload engine; gone before the ledger.
// Threads:  one.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
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

  // A block has come to G1.
  void remember(BlockRecord record) {
    const BlockId block_id = ledger_->find(record.key);
    records_[index_of(block_id)] = std::move(record);
  }

  // Blocks for `count` blocks, or nothing where some of them have to be read first: those are on their way then, the
  // others are free, and what was evicted has been published. Requires: as many are available.
  [[nodiscard]] std::optional<MutableBlocks> allocate(std::size_t count);
  // Publishes that the evictions of the ledger left G1.
  void publish_evictions();
  // The evictions of the ledger, and the blocks they had; to be published before.
  void offload_evictions(MutableBlocks block_ids);
  // The records of the evictions of the ledger, but for those that the events forgot.
  [[nodiscard]] std::vector<BlockRecord> take_evicted_records();

  // Whether a Use that was refused for want of this many blocks will find them without anybody letting go.
  [[nodiscard]] bool will_have(std::size_t missing) const { return missing <= ledger_->pool().counts().quarantined; }
  // Whether the last Use was refused only because copies come first.
  [[nodiscard]] bool blocked() const { return blocked_; }
  void block() { blocked_ = true; }
  void unblock() { blocked_ = false; }

 private:
  std::unique_ptr<OffloadEngine> engine_;
  BlockLedger* ledger_;
  EventWriter* events_;
  std::vector<BlockRecord> records_;   // by block
  std::vector<SequenceHash> removed_;  // kept for its memory
  bool blocked_ = false;
};

}  // namespace cairn::sim::internal
