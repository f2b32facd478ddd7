#include "cairn/sim/swap_ins.h"

#include <algorithm>

#include "cairn/base/check.h"
#include "cairn/sim/use_at_once.h"

namespace cairn::sim::internal {

SwapIns::~SwapIns() {
  for (auto& [id, swap_in] : swap_ins_) {
    ledger_->unpin_aside(std::move(swap_in.held));
  }
}

SwapInStart SwapIns::start(const Use& wanted) {
  const auto full = static_cast<std::size_t>(
      std::ranges::find_if(wanted.blocks, [](const UniqueBlock& block) { return block.is_partial(); }) -
      wanted.blocks.begin());
  SwapInStart started{.cached = count_cached(wanted, full)};
  OffloadEngine& engine = gate_->engine();
  const std::span<const BlockKey> missing = wanted.keys.subspan(started.cached, full - started.cached);
  LoadPlan plan = engine.find(missing);
  if (plan.blocks() == 0) {
    return started;
  }
  std::optional<ImmutableBlocks> prefix = ledger_->pin_aside(wanted.keys.first(started.cached));
  if (!prefix) {  // in use under a hash whose key is another one
    return started;
  }
  const std::size_t free = ledger_->pool().counts().free;
  const std::size_t room = profile_ == Profile::kSeed ? free : ledger_->available();
  const std::size_t count = blocks_to_load(profile_, plan.blocks(), room);
  if (profile_ == Profile::kStrict) {
    plan.source.resize(count);
  }
  if (plan.blocks() == 0) {
    ledger_->unpin_aside(*std::move(prefix));
    return started;
  }
  started.id = engine.open_load(missing, plan);
  if (count == 0) {
    started.outcome =
        make_room_as_the_seed(plan.blocks() - free) ? SwapInStart::Outcome::kBlocked : SwapInStart::Outcome::kNothing;
    engine.close_load(started.id);
    ledger_->unpin_aside(*std::move(prefix));
    return started;
  }
  ledger_->evictions().clear();
  SwapIn swap_in{.block_ids = ledger_->allocate(count),
                 .blocks = records_of(wanted, started.cached, count),
                 .held = *std::move(prefix)};
  reserved_ += count;
  swap_ins_.emplace(started.id, std::move(swap_in));
  gate_->publish_evictions();
  engine.offload_for(started.id, gate_->take_evicted_records());
  engine.begin_load(started.id);
  started.outcome = SwapInStart::Outcome::kScheduled;
  started.plan = std::move(plan);
  return started;
}

std::size_t SwapIns::count_cached(const Use& wanted, std::size_t full) const {
  std::size_t cached = 0;
  while (cached < full) {
    const BlockId block_id = ledger_->find(wanted.keys[cached]);
    const bool known = block_id != kNoBlock && !ledger_->forgotten(block_id);
    if (!known && ledger_->find(wanted.blocks[cached].hash()) == nullptr) {
      break;
    }
    ++cached;
  }
  return cached;
}

std::vector<BlockRecord> SwapIns::records_of(const Use& wanted, std::size_t first, std::size_t count) const {
  std::vector<BlockRecord> records;
  for (std::size_t i = first; i < first + count; ++i) {
    records.push_back(record_of(wanted, i, wanted.blocks[i].hash()));
    if (profile_ == Profile::kStrict) {
      records.back().parent = parent_of(wanted, i);
    } else if (i > 0) {
      records.back().parent = wanted.blocks[i - 1].hash();
    }
  }
  return records;
}

// Starts the copies of what has to go for this many blocks; false where there is nothing that could go.
bool SwapIns::make_room_as_the_seed(std::size_t count) {
  const std::size_t victims = std::min<std::size_t>(count, ledger_->pool().counts().inactive);
  if (victims == 0) {
    return false;
  }
  ledger_->evictions().clear();
  const std::optional<MutableBlocks> free = ledger_->allocate(ledger_->pool().counts().free);
  MutableBlocks block_ids = *ledger_->allocate(victims);
  gate_->publish_evictions();
  gate_->offload_evictions(std::move(block_ids));
  return true;
}

void SwapIns::land_finished() {
  for (const LoadId id : gate_->engine().take_finished_loads()) {
    SwapIn& swap_in = swap_ins_.at(id);
    land(swap_in);
    if (profile_ == Profile::kSeed || !swap_in.wanted) {
      ledger_->unpin_aside(std::exchange(swap_in.held, {}));
    }
    if (swap_in.wanted) {
      landed_.push_back(id);
    } else {
      swap_ins_.erase(id);
    }
  }
}

void SwapIns::land(SwapIn& swap_in) {
  MutableBlocks block_ids = *std::move(swap_in.block_ids);
  swap_in.block_ids.reset();
  reserved_ -= block_ids.size();
  std::size_t first = 0;  // of those that are not published
  for (std::size_t i = 0; i < swap_in.blocks.size(); ++i) {
    const BlockRecord& block = swap_in.blocks[i];
    MutableBlocks block_id = block_ids.take_front(1);
    if (i > first && block.parent != swap_in.blocks[i - 1].hash) {
      publish({&swap_in.blocks[first], i - first});
      first = i;
    }
    if (ledger_->find(block.hash) != nullptr || ledger_->find(block.key) != kNoBlock) {
      publish({&swap_in.blocks[first], i - first});
      first = i + 1;
      if (profile_ == Profile::kStrict) {
        std::optional<ImmutableBlocks> there = ledger_->pin_aside({&block.key, 1});
        CAIRN_CHECK(there && swap_in.held.append(*std::move(there)).has_value(), "a block that is there can be held");
      }
      continue;
    }
    ImmutableBlocks landed = ledger_->land(std::move(block_id), block.key, block.hash);
    gate_->remember(block);
    if (profile_ == Profile::kSeed) {
      ledger_->unpin_aside(std::move(landed));
    } else {
      CAIRN_CHECK(swap_in.held.append(std::move(landed)).has_value(), "they are of one pool");
    }
  }
  publish(std::span(swap_in.blocks).subspan(first));
  swap_in.blocks.clear();
}

void SwapIns::publish(std::span<const BlockRecord> run) {
  if (run.empty() || !events_->wanted()) {
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
  if (found == swap_ins_.end() || !found->second.wanted) {
    return false;
  }
  if (found->second.block_ids) {
    found->second.wanted = false;
    return true;
  }
  ledger_->unpin_aside(std::move(found->second.held));
  std::erase(landed_, id);
  swap_ins_.erase(found);
  return true;
}

}  // namespace cairn::sim::internal
