#include "cairn/sim/kv_manager.h"

#include <algorithm>
#include <utility>

#include "cairn/base/str_cat.h"

namespace cairn::sim {

Result<std::unique_ptr<KvManager>> KvManager::create(const KvManagerOptions& options) {
  if (options.block_size < 2) {
    return fail(ErrorCode::kInvalidArgument,
                str_cat("block size ", options.block_size, " is too small; give at least 2 tokens per block"));
  }
  CAIRN_TRY_ASSIGN(internal::BlockLedger ledger, internal::BlockLedger::create({.capacity = options.max_capacity,
                                                                                .block_size = options.block_size,
                                                                                .policy = options.eviction,
                                                                                .leaves_first = options.leaves_first}));
  return std::unique_ptr<KvManager>(new KvManager(options, std::move(ledger)));
}

KvManager::KvManager(const KvManagerOptions& options, internal::BlockLedger ledger)
    : options_(options), ledger_(std::move(ledger)), events_(options.sink) {}

Result<std::size_t> KvManager::process(const MoveBlock& move) {
  if (const Use* use = std::get_if<Use>(&move)) {
    return process_use(*use);
  }
  if (const Deref* deref = std::get_if<Deref>(&move)) {
    return process_deref(*deref);
  }
  return process_promote(*std::get_if<Promote>(&move));
}

Status KvManager::check(const Use& use) const {
  const auto full = static_cast<std::size_t>(
      std::ranges::count_if(use.blocks, [](const UniqueBlock& block) { return block.is_full(); }));
  if (use.keys.size() != full) {
    return fail(ErrorCode::kInvalidArgument,
                str_cat("Use: ", use.keys.size(), " keys for ", full, " full blocks; give one for each"));
  }
  if (!use.tokens_hashes.empty() && use.tokens_hashes.size() != full) {
    return fail(ErrorCode::kInvalidArgument, str_cat("Use: ", use.tokens_hashes.size(), " tokens hashes for ", full,
                                                     " full blocks; give one for each, or none"));
  }
  if (use.token_ids && use.token_ids->size() != full * options_.block_size) {
    return fail(ErrorCode::kInvalidArgument,
                str_cat("Use: ", use.token_ids->size(), " token ids for ", full, " full blocks of ",
                        options_.block_size, "; give all tokens of these blocks, or none"));
  }
  if (use.parent && use.parent->is_partial()) {
    return fail(ErrorCode::kInvalidArgument, "Use: the parent is a partial block; give a full one");
  }
  return {};
}

Result<std::size_t> KvManager::process_use(const Use& use) {
  CAIRN_TRY(check(use));
  if (gate_ != nullptr) {
    gate_->unblock();
  }
  return options_.profile == Profile::kSeed ? use_in_order_.run(use, ledger_, events_, gate_.get())
                                            : use_at_once_.run(use, ledger_, events_);
}

Result<std::size_t> KvManager::process_deref(const Deref& deref) {
  partials_.clear();
  const std::size_t count = deref.blocks.size();
  const auto block = [&](std::size_t i) -> const UniqueBlock& {
    return deref.blocks[deref.last_first ? count - 1 - i : i];
  };
  for (std::size_t i = 0; i < count; ++i) {
    if (const std::size_t ahead = i + internal::BlockLedger::kAhead; ahead < count && block(ahead).is_full()) {
      ledger_.prefetch(block(ahead).hash());
    }
    if (deref_one(block(i))) {
      continue;
    }
    for (std::size_t done = i; done-- > 0;) {
      if (block(done).is_full()) {
        ledger_.undo_drop_reference(block(done).hash());
      }
    }
    return fail(ErrorCode::kFailedPrecondition,
                str_cat("Deref: the ", block(i).is_full() ? "full" : "partial", " block ", i, " of ", count,
                        " is not in use; release each granted block once"));
  }
  for (const PartialId partial : partials_) {
    static_cast<void>(ledger_.take(partial));
  }
  ledger_.release_dropped();
  return std::size_t{1};
}

// Drops one reference; false if there is none. Partial blocks are only collected in partials_.
bool KvManager::deref_one(const UniqueBlock& block) {
  if (block.is_full()) {
    return ledger_.drop_reference(block.hash());
  }
  if (!ledger_.contains(block.id()) || std::ranges::find(partials_, block.id()) != partials_.end()) {
    return false;
  }
  partials_.push_back(block.id());
  return true;
}

Status KvManager::check(const Promote& promote) const {
  if (!ledger_.contains(promote.partial)) {
    return fail(ErrorCode::kNotFound, "Promote: partial block not found");
  }
  if (promote.token_ids && promote.token_ids->size() != options_.block_size) {
    return fail(ErrorCode::kInvalidArgument,
                str_cat("Promote: ", promote.token_ids->size(), " token ids for a block of ", options_.block_size,
                        "; give all tokens of the block, or none"));
  }
  return options_.profile == Profile::kSeed ? Status() : internal::check_hash(ledger_, promote.hash, promote.key);
}

Result<std::size_t> KvManager::process_promote(const Promote& promote) {
  CAIRN_TRY(check(promote));
  MutableBlocks own = ledger_.take(promote.partial);
  const auto [block, is_new] = ledger_.announce(promote.hash, 0);
  if (!is_new) {
    ledger_.add_reference(*block);
    return std::size_t{1};
  }
  if (const BlockId block_id = ledger_.find(promote.key); block_id != kNoBlock) {
    if (!ledger_.in_use(block_id)) {
      ledger_.pin({&promote.key, 1});
    }
    ledger_.settle(*block, block_id);
    return std::size_t{1};
  }
  ledger_.add(std::move(own), {&promote.key, 1}, {&promote.hash, 1}, {&block, 1});
  if (gate_ != nullptr) {
    BlockRecord record{
        .key = promote.key, .hash = promote.hash, .parent = promote.parent, .tokens_hash = promote.tokens_hash};
    if (promote.token_ids) {
      record.token_ids.assign(promote.token_ids->begin(), promote.token_ids->end());
    }
    gate_->remember(std::move(record));
  }
  const KvStoredBlock stored{promote.hash, promote.tokens_hash};
  events_.stored({.parent = promote.parent, .blocks = {&stored, 1}, .token_ids = promote.token_ids});
  return std::size_t{1};
}

std::size_t KvManager::refcount(SequenceHash hash) const {
  const internal::BlockLedger::Active* active = ledger_.find(hash);
  return active == nullptr ? 0 : active->refs;
}

PrefillCost KvManager::get_prefill_cost(const ActiveSequence& sequence) const {
  std::size_t overlap = 0;
  if (sequence.enable_prefix_caching()) {
    const std::span<const BlockKey> keys = sequence.keys();
    while (overlap < keys.size()) {
      if (overlap + internal::BlockLedger::kAhead < keys.size()) {
        ledger_.prefetch(keys[overlap + internal::BlockLedger::kAhead]);
      }
      const BlockId block_id = ledger_.find(keys[overlap]);
      const bool known = block_id != kNoBlock && !ledger_.forgotten(block_id);
      if (!known && ledger_.find(sequence.unique_blocks()[overlap].hash()) == nullptr) {
        break;
      }
      ++overlap;
    }
  }
  const std::size_t cached = std::min(overlap * options_.block_size, sequence.num_input_tokens());
  return {.new_blocks = sequence.unique_blocks().size() - overlap,
          .new_tokens = sequence.num_input_tokens() - cached,
          .cached_tokens = cached};
}

Status KvManager::attach_offload_engine(const OffloadOptions& options, LinkNetwork& network) {
  if (options_.profile != Profile::kSeed) {
    return fail(ErrorCode::kInvalidArgument,
                "only a manager of the seed profile has simulated tiers; a strict worker with tiers has a real "
                "KvBlockManager (managed_cache.h)");
  }
  if (gate_ != nullptr) {
    return fail(ErrorCode::kAlreadyExists, "the manager has an offload engine already; create another manager");
  }
  if (ledger_.pool().counts().registered > 0) {
    return fail(ErrorCode::kFailedPrecondition, str_cat("the manager already has ", ledger_.pool().counts().registered,
                                                        " blocks; attach the offload engine before the first move"));
  }
  CAIRN_TRY_ASSIGN(std::unique_ptr<OffloadEngine> engine,
                   OffloadEngine::create(options, {.block_size = options_.block_size,
                                                   .max_capacity = options_.max_capacity,
                                                   .network = &network,
                                                   .events = &events_}));
  gate_ = std::make_unique<internal::TierGate>(std::move(engine), ledger_, events_);
  swap_ins_ = std::make_unique<internal::SwapIns>(*gate_, ledger_, events_);
  return {};
}

void KvManager::advance_to(TimePoint now) {
  if (gate_ != nullptr) {
    gate_->engine().advance_to(now);
    swap_ins_->land_finished();
  }
}

std::optional<TimePoint> KvManager::next_event_time() const {
  return gate_ == nullptr ? std::nullopt : gate_->engine().next_event_time();
}

Result<SwapInStart> KvManager::start_swap_in(const Use& use) {
  CAIRN_TRY(check(use));
  return gate_ == nullptr ? SwapInStart{} : swap_ins_->start(use);
}

std::vector<LoadId> KvManager::take_landed_swap_ins() {
  return gate_ == nullptr ? std::vector<LoadId>{} : swap_ins_->take_landed();
}

void KvManager::check_invariants() const {
  ledger_.check_invariants(gate_ == nullptr ? 0 : swap_ins_->blocks_held());
  if (gate_ != nullptr) {
    gate_->engine().check_invariants();
  }
}

}  // namespace cairn::sim
