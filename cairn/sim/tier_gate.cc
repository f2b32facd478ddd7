#include "cairn/sim/tier_gate.h"

#include <algorithm>
#include <utility>

#include "cairn/base/check.h"

namespace cairn::sim::internal {

std::optional<MutableBlocks> TierGate::allocate(std::size_t count) {
  std::optional<MutableBlocks> blocks = ledger_->allocate(count);
  CAIRN_CHECK(blocks.has_value(), "the caller checked that as many blocks are available");
  const std::vector<BlockLedger::Eviction>& evictions = ledger_->evictions();
  const auto needs_copy = [this](const BlockLedger::Eviction& evicted) { return engine_->needs_copy(evicted.key); };
  const auto to_copy = static_cast<std::size_t>(std::ranges::count_if(evictions, needs_copy));
  engine_->count_skipped(evictions.size() - to_copy);
  if (to_copy == 0) {
    return blocks;
  }
  publish_evictions();
  // The pool returns free blocks first, then those that it evicted, in the order of the evictions.
  static_cast<void>(blocks->take_front(static_cast<std::uint32_t>(count - evictions.size())));
  std::optional<MutableBlocks> sources;
  std::vector<BlockRecord> records;
  for (const BlockLedger::Eviction& evicted : evictions) {
    MutableBlocks source = blocks->take_front(1);
    CAIRN_CHECK(source.block_ids()[0] == evicted.block_id, "blocks come in the order of the evictions");
    if (!needs_copy(evicted)) {
      continue;
    }
    records.push_back(std::exchange(records_[index_of(evicted.block_id)], {}));
    if (sources) {
      CAIRN_CHECK(sources->append(std::move(source)).has_value(), "the blocks are of one pool");
    } else {
      sources.emplace(std::move(source));
    }
  }
  engine_->offload(std::move(records), *std::move(sources));
  return std::nullopt;
}

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

std::vector<BlockRecord> TierGate::take_evicted_records() {
  std::vector<BlockRecord> records;
  for (const BlockLedger::Eviction& evicted : ledger_->evictions()) {
    if (!evicted.forgotten) {
      records.push_back(std::exchange(records_[index_of(evicted.block_id)], {}));
    }
  }
  return records;
}

void TierGate::offload_evictions(MutableBlocks sources) {
  engine_->offload(take_evicted_records(), std::move(sources));
}

}  // namespace cairn::sim::internal
