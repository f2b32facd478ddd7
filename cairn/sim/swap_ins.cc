#include "cairn/sim/swap_ins.h"

#include <algorithm>
#include <optional>
#include <set>

#include "cairn/base/check.h"

namespace cairn::sim::internal {

SwapInStart SwapIns::start(const Use& use) {
  const auto full = static_cast<std::size_t>(
      std::ranges::find_if(use.blocks, [](const UniqueBlock& block) { return block.is_partial(); }) -
      use.blocks.begin());
  SwapInStart started{.cached = count_cached(use, full)};
  OffloadEngine& engine = gate_->engine();
  const std::span<const BlockKey> missing = use.keys.subspan(started.cached, full - started.cached);
  LoadPlan plan = engine.find(missing);
  if (plan.blocks() == 0) {
    return started;
  }
  std::optional<ImmutableBlocks> prefix = ledger_->pin_for_load(use.keys.first(started.cached));
  if (!prefix) {  // a block is in use under a hash of another key
    return started;
  }
  const LoadId id = engine.open_load(missing, plan);
  const std::size_t free = ledger_->pool().counts().free;
  if (plan.blocks() > free) {
    started.outcome = make_room(plan.blocks() - free) ? SwapInStart::Outcome::kBlocked : SwapInStart::Outcome::kNothing;
    engine.close_load(id);
    return started;
  }
  std::vector<BlockRecord> records;
  for (std::size_t i = started.cached; i < started.cached + plan.blocks(); ++i) {
    records.push_back(
        record_of(use, i, use.blocks[i].hash(), i > 0 ? std::optional(use.blocks[i - 1].hash()) : std::nullopt));
  }
  swap_ins_.emplace(
      id,
      SwapIn{.room = *ledger_->allocate(plan.blocks()), .blocks = std::move(records), .prefix = *std::move(prefix)});
  engine.begin_load(id);
  started.outcome = SwapInStart::Outcome::kScheduled;
  started.id = id;
  started.plan = std::move(plan);
  return started;
}

std::size_t SwapIns::count_cached(const Use& use, std::size_t full) const {
  std::size_t cached = 0;
  while (cached < full) {
    const BlockId block_id = ledger_->find(use.keys[cached]);
    const bool known = block_id != kNoBlock && !ledger_->forgotten(block_id);
    if (!known && ledger_->find(use.blocks[cached].hash()) == nullptr) {
      break;
    }
    ++cached;
  }
  return cached;
}

// Evicts up to this many blocks and starts their copies; false if no block can be evicted.
bool SwapIns::make_room(std::size_t count) {
  const std::size_t victims = std::min<std::size_t>(count, ledger_->pool().counts().inactive);
  if (victims == 0) {
    return false;
  }
  ledger_->evictions().clear();
  const std::optional<MutableBlocks> free = ledger_->allocate(ledger_->pool().counts().free);
  MutableBlocks sources = *ledger_->allocate(victims);
  gate_->publish_evictions();
  gate_->offload_evictions(std::move(sources));
  return true;
}

void SwapIns::land_finished() {
  for (const LoadId id : gate_->engine().take_finished_loads()) {
    land(std::move(swap_ins_.extract(id).mapped()));
    landed_.push_back(id);
  }
}

void SwapIns::land(SwapIn swap_in) {
  std::size_t first = 0;  // the first block that is not published
  for (std::size_t i = 0; i < swap_in.blocks.size(); ++i) {
    const BlockRecord& block = swap_in.blocks[i];
    MutableBlocks target = swap_in.room.take_front(1);
    if (ledger_->find(block.hash) != nullptr || ledger_->find(block.key) != kNoBlock) {
      publish({&swap_in.blocks[first], i - first});
      first = i + 1;
      continue;
    }
    ledger_->land(std::move(target), block.key, block.hash);
    gate_->remember(block);
  }
  publish(std::span(swap_in.blocks).subspan(first));
}

void SwapIns::publish(std::span<const BlockRecord> run) {
  if (run.empty() || !events_->has_sink()) {
    return;
  }
  std::vector<KvStoredBlock> blocks;
  std::vector<Token> tokens;
  for (const BlockRecord& block : run) {
    blocks.push_back({block.hash, block.tokens_hash});
    tokens.insert(tokens.end(), block.token_ids.begin(), block.token_ids.end());
  }
  KvStored event{.parent = run[0].parent, .blocks = blocks, .token_ids = std::nullopt};
  if (!tokens.empty()) {
    event.token_ids = tokens;
  }
  events_->stored(event);
}

std::size_t SwapIns::blocks_held() const {
  std::size_t room = 0;
  std::set<BlockId> pinned;
  for (const auto& [id, swap_in] : swap_ins_) {
    room += swap_in.room.size();
    for (const BlockId block_id : swap_in.prefix.block_ids()) {
      if (!ledger_->in_use(block_id)) {
        pinned.insert(block_id);
      }
    }
  }
  return room + pinned.size();
}

}  // namespace cairn::sim::internal
