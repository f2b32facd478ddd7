#include "cairn/sim/tier_gate.h"

#include <algorithm>
#include <utility>

#include "cairn/base/check.h"

namespace cairn::sim::internal {

std::optional<MutableBlocks> TierGate::allocate(std::size_t count) {
  std::optional<MutableBlocks> block_ids = ledger_->allocate(count);
  CAIRN_CHECK(block_ids.has_value(), "as many are available");
  const std::vector<BlockLedger::Eviction>& evictions = ledger_->evictions();
  const auto needs_copy = [this](const BlockLedger::Eviction& evicted) { return engine_->needs_copy(evicted.key); };
  const auto to_copy = static_cast<std::size_t>(std::ranges::count_if(evictions, needs_copy));
  engine_->count_skipped(evictions.size() - to_copy);
  if (to_copy == 0) {
    return block_ids;
  }
  publish_evictions();
  // The pool gives what is free first, then the blocks of what it evicted, in that order.
  static_cast<void>(block_ids->take_front(static_cast<std::uint32_t>(count - evictions.size())));
  std::optional<MutableBlocks> sources;
  std::vector<BlockRecord> records;
  for (const BlockLedger::Eviction& evicted : evictions) {
    MutableBlocks block_id = block_ids->take_front(1);
    CAIRN_CHECK(block_id.block_ids()[0] == evicted.block_id, "blocks come in the order of the evictions");
    if (!needs_copy(evicted)) {
      continue;
    }
    records.push_back(std::exchange(records_[index_of(evicted.block_id)], {}));
    if (sources) {
      CAIRN_CHECK(sources->append(std::move(block_id)).has_value(), "they are of one pool");
    } else {
      sources.emplace(std::move(block_id));
    }
  }
  engine_->offload(std::move(records), *std::move(sources));
  return std::nullopt;
}

void TierGate::publish_evictions() {
  if (!events_->wanted()) {
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

std::vector<BlockRecord> TierGate::take_evicted_records() {
  std::vector<BlockRecord> records;
  for (const BlockLedger::Eviction& evicted : ledger_->evictions()) {
    if (!evicted.forgotten) {
      records.push_back(std::exchange(records_[index_of(evicted.block_id)], {}));
    }
  }
  return records;
}

void TierGate::offload_evictions(MutableBlocks block_ids) {
  engine_->offload(take_evicted_records(), std::move(block_ids));
}

}  // namespace cairn::sim::internal
