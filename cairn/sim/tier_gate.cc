#include "cairn/sim/tier_gate.h"

#include <utility>

namespace cairn::sim::internal {

void TierGate::publish_evictions() {
  if (!events_->has_sink()) {
    return;
  }
  removed_.clear();
  for (const BlockLedger::Eviction& evicted : ledger_->evictions()) {
    if (!evicted.forgotten) {
      removed_.push_back(evicted.hash);
    }
  }
  events_->removed(removed_);
}

void TierGate::offload_evictions(MutableBlocks sources) {
  std::vector<BlockRecord> records;
  for (const BlockLedger::Eviction& evicted : ledger_->evictions()) {
    if (!evicted.forgotten) {
      records.push_back(std::exchange(records_[index_of(evicted.block_id)], {}));
    }
  }
  engine_->offload(std::move(records), std::move(sources));
}

}  // namespace cairn::sim::internal
