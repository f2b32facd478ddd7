#include "cairn/sim/swap_ins.h"

#include <algorithm>

#include "cairn/base/check.h"
#include "cairn/sim/use_at_once.h"

namespace cairn::sim::internal {

SwapIns::~SwapIns() {
  for (auto& [id, swap_in] : swap_ins_) {
    ledger_->unpin_for_load(std::move(swap_in.held));
  }
}

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
  const std::size_t free = ledger_->pool().counts().free;
  const std::size_t room = profile_ == Profile::kSeed ? free : ledger_->available();
  const std::size_t count = blocks_to_load(profile_, plan.blocks(), room);
  if (profile_ == Profile::kStrict) {
    plan.source.resize(count);
  }
  if (plan.blocks() == 0) {
    ledger_->unpin_for_load(*std::move(prefix));
    return started;
  }
  started.id = engine.open_load(missing, plan);
  if (count == 0) {
    started.outcome =
        make_room_as_the_seed(plan.blocks() - free) ? SwapInStart::Outcome::kBlocked : SwapInStart::Outcome::kNothing;
    engine.close_load(started.id);
    ledger_->unpin_for_load(*std::move(prefix));
    return started;
  }
  ledger_->evictions().clear();
  SwapIn swap_in{
      .room = ledger_->allocate(count), .blocks = records_of(use, started.cached, count), .held = *std::move(prefix)};
  reserved_ += count;
  swap_ins_.emplace(started.id, std::move(swap_in));
  gate_->publish_evictions();
  engine.offload_for(started.id, gate_->take_evicted_records());
  engine.begin_load(started.id);
  started.outcome = SwapInStart::Outcome::kScheduled;
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

std::vector<BlockRecord> SwapIns::records_of(const Use& use, std::size_t first, std::size_t count) const {
  std::vector<BlockRecord> records;
  for (std::size_t i = first; i < first + count; ++i) {
    records.push_back(record_of(use, i, use.blocks[i].hash()));
    if (profile_ == Profile::kStrict) {
      records.back().parent = parent_of(use, i);
    } else if (i > 0) {
      records.back().parent = use.blocks[i - 1].hash();
    }
  }
  return records;
}

// Evicts up to this many blocks and starts their copies; false if no block can be evicted.
bool SwapIns::make_room_as_the_seed(std::size_t count) {
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
    SwapIn& swap_in = swap_ins_.at(id);
    land(swap_in);
    if (profile_ == Profile::kSeed || swap_in.ended) {
      ledger_->unpin_for_load(std::exchange(swap_in.held, {}));
    }
    if (swap_in.ended) {
      swap_ins_.erase(id);
    } else {
      landed_.push_back(id);
    }
  }
}

void SwapIns::land(SwapIn& swap_in) {
  MutableBlocks room = *std::move(swap_in.room);
  swap_in.room.reset();
  reserved_ -= room.size();
  std::size_t first = 0;  // the first block that is not published
  for (std::size_t i = 0; i < swap_in.blocks.size(); ++i) {
    const BlockRecord& block = swap_in.blocks[i];
    MutableBlocks target = room.take_front(1);
    if (i > first && block.parent != swap_in.blocks[i - 1].hash) {
      publish({&swap_in.blocks[first], i - first});
      first = i;
    }
    if (ledger_->find(block.hash) != nullptr || ledger_->find(block.key) != kNoBlock) {
      publish({&swap_in.blocks[first], i - first});
      first = i + 1;
      if (profile_ == Profile::kStrict) {
        std::optional<ImmutableBlocks> there = ledger_->pin_for_load({&block.key, 1});
        CAIRN_CHECK(there && swap_in.held.append(*std::move(there)).has_value(), "a block of G1 can be held");
      }
      continue;
    }
    ImmutableBlocks landed = ledger_->land(std::move(target), block.key, block.hash);
    gate_->remember(block);
    if (profile_ == Profile::kSeed) {
      ledger_->unpin_for_load(std::move(landed));
    } else {
      CAIRN_CHECK(swap_in.held.append(std::move(landed)).has_value(), "the blocks are of one pool");
    }
  }
  publish(std::span(swap_in.blocks).subspan(first));
  swap_in.blocks.clear();
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

bool SwapIns::end(LoadId id) {
  const auto found = swap_ins_.find(id);
  if (found == swap_ins_.end() || found->second.ended) {
    return false;
  }
  if (found->second.room) {
    found->second.ended = true;
    return true;
  }
  ledger_->unpin_for_load(std::move(found->second.held));
  std::erase(landed_, id);
  swap_ins_.erase(found);
  return true;
}

}  // namespace cairn::sim::internal
