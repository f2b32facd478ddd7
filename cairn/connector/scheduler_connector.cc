// SchedulerConnector: its making and its requests.
#include "cairn/connector/scheduler_connector.h"

#include <algorithm>
#include <utility>

#include "cairn/connector/scheduler_impl.h"

namespace cairn {

namespace {

std::optional<CacheLevel> save_tier(const KvBlockManager& manager) {
  if (manager.host() != nullptr) {
    return CacheLevel::kG2;
  }
  return manager.disk() != nullptr ? std::optional(CacheLevel::kG3) : std::nullopt;
}

// The same for a manager whose blocks the ranks hold: the engine's device blocks are counted, and nothing else.
Result<ManagerConfig> without_bytes(ManagerConfig config) {
  if (config.device.blocks == 0) {
    return fail(ErrorCode::kInvalidArgument, "device.blocks is 0; give how many blocks the engine has");
  }
  Result<BlockLayoutPtr> layout = BlockLayout::elsewhere(config.shape(), config.device.blocks, MemoryKind::kDevice);
  if (!layout) {
    return Unexpected(std::move(layout).error());
  }
  config.device.blocks = 0;
  config.device.engine_layout = *std::move(layout);
  config.device.managed_by_engine = true;
  return config;
}

// What ranks are told of the tiers: how many blocks they have. Bytes say nothing to a rank, which has a part of each block.
ManagerConfig in_blocks(ManagerConfig config, const KvBlockManager& manager) {
  const auto count = [](TierConfig& tier, const BlockPool* pool) {
    if (pool != nullptr) {
      tier.blocks = pool->capacity();
      tier.size = 0;
    }
  };
  count(config.host, manager.host());
  count(config.disk, manager.disk());
  // Ranks copy blocks and make no keys.
  config.model.secret.clear();
  config.model.secret_file.clear();
  return config;
}

}  // namespace

Unexpected<SlotError> unknown_request(RequestHandle request) {
  return invalid_operation(ErrorCode::kNotFound, "handle ", static_cast<std::uint64_t>(request),
                           " names no request; it is gone, or never was");
}

Result<std::unique_ptr<SchedulerConnector>> SchedulerConnector::make(Options options) {
  if (options.loading_blocks == 0) {
    return fail(ErrorCode::kInvalidArgument, "loading_blocks is 0; at least one has to be possible");
  }
  // Ranks are told what is over, and the inbox is told of ranks that are ready: none is before the group is opened.
  const auto group = std::make_shared<Leader*>(nullptr);
  const auto inbox = std::make_shared<OperationInbox>(
      [group](const OperationNotice& notice) { (*group)->broadcast(RankBroadcast{notice.encode()}); });
  const auto rank_came_back = std::make_shared<std::atomic<bool>>(false);
  options.ranks.told = [inbox, rank_came_back, was_there = std::vector<char>(options.ranks.ranks),
                        told = std::move(options.ranks.told)](const RankChange& change) mutable {
    if (change.is_there && std::exchange(was_there[change.rank], 1) != 0) {
      *rank_came_back = true;
    }
    if (change.is_there) {
      inbox->tell_under_way();
    }
    if (told) {
      told(change);
    }
  };
  Result<std::unique_ptr<Leader>> ranks = Leader::make(std::move(options.ranks));
  if (!ranks) {
    return Unexpected(std::move(ranks).error());
  }
  *group = ranks->get();
  Result<ManagerConfig> logical = without_bytes(options.manager);
  if (!logical) {
    return Unexpected(std::move(logical).error());
  }
  options.parts.elsewhere = [&group = **ranks] { return group.make_executor(); };
  Result<KvBlockManager> manager = KvBlockManager::make(*logical, options.parts);
  if (!manager) {
    return Unexpected(std::move(manager).error());
  }
  Result<SlotManager> slots = SlotManager::make(options.manager.block_size, manager->hasher());
  if (!slots) {
    return Unexpected(std::move(slots).error());
  }
  (*ranks)->open(in_blocks(options.manager, *manager));
  return std::unique_ptr<SchedulerConnector>(new SchedulerConnector(std::make_unique<Impl>(
      options, *std::move(slots), *std::move(manager), *std::move(ranks), inbox, rank_came_back)));
}

SchedulerConnector::SchedulerConnector(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
SchedulerConnector::~SchedulerConnector() = default;

SchedulerConnector::Impl::Impl(const Options& options, SlotManager slots, KvBlockManager manager,
                               std::unique_ptr<Leader> ranks, std::shared_ptr<OperationInbox> inbox,
                               std::shared_ptr<std::atomic<bool>> rank_came_back)
    : load_mode_(options.load),
      loading_blocks_limit_(options.loading_blocks),
      least_blocks_(options.least_blocks),
      ask_again_(options.ask_again),
      load_deadline_(options.load_deadline),
      save_deadline_(options.save_deadline),
      clock_(*options.parts.clock),
      block_size_(options.manager.block_size),
      device_blocks_(options.manager.device.blocks),
      save_to_(save_tier(manager)),
      slots_(std::move(slots)),
      device_use_(device_blocks_),
      rank_came_back_(std::move(rank_came_back)),
      ranks_(std::move(ranks)),
      inbox_(std::move(inbox)),
      manager_(std::move(manager)),
      save_counts_(std::make_shared<SaveCounts>()) {
  metadata_.leader = ranks_->id();
  runner_.emplace(*manager_, inbox_, save_counts_, save_to_);
}

// Nothing new is begun, what is under way ends with the manager, and what could not be proven over (a rank that is gone)
// finds the inbox closed.
SchedulerConnector::Impl::~Impl() {
  runner_.reset();
  manager_.reset();
  inbox_->close();
}

SlotResult<RequestHandle> SchedulerConnector::Impl::add(const RequestId& request, std::span<const Token> tokens,
                                                        const RequestSalt& salt, std::span<const MmRun> runs) {
  SlotResult<ExternallyManagedDeviceSlot*> slot = slots_.create_slot(request, tokens, salt, runs);
  if (!slot) {
    return Unexpected(std::move(slot).error());
  }
  try {
    // As many requests as there are may have operations, or a load that is to begin: noting it takes no memory.
    make_room(with_operations_, slots_.size());
    make_room(to_load_, slots_.size());
    const RequestHandle handle = table_.add(request, **slot);
    table_.get(handle)->fence = manager_->fences();
    return handle;
  } catch (...) {
    CAIRN_CHECK((*slot)->mark_as_finished(0) && slots_.remove_slot(request), "a request that never ran can go");
    throw;
  }
}

SlotResult<SlotState> SchedulerConnector::Impl::state(RequestHandle request) {
  const RequestEntry* const entry = table_.get(request);
  return entry != nullptr ? SlotResult<SlotState>(entry->slot->state()) : unknown_request(request);
}

// What of the request tiers have and is worth loading; 0 where it is to compute.
std::size_t SchedulerConnector::Impl::blocks_to_load(const ExternallyManagedDeviceSlot& slot,
                                                     std::size_t local_tokens) const {
  const std::span<const BlockKey> keys = slot.keys_to_match(local_tokens);
  if (keys.empty() || !save_to_) {
    return 0;
  }
  const PrefixLocation found = manager_->locate(keys);
  const auto first = static_cast<std::uint32_t>(local_tokens / block_size_);
  const std::uint32_t blocks = std::min(manager_->worth_loading(found, first), loading_blocks_limit_);
  return blocks >= least_blocks_ ? blocks : 0;
}

SlotResult<SchedulerConnector::Match> SchedulerConnector::Impl::match(RequestHandle request, std::size_t local_tokens) {
  RequestEntry* const entry = table_.get(request);
  if (entry == nullptr) {
    return unknown_request(request);
  }
  if (entry->is_given_up) {
    return Match{};
  }
  if (entry->wants_load) {
    return invalid_operation(ErrorCode::kFailedPrecondition,
                             "its blocks are allocated; its load is in the next metadata");
  }
  std::size_t blocks = blocks_to_load(*entry->slot, local_tokens);
  const bool has_room = loading_blocks_ == 0 || loading_blocks_ + blocks <= loading_blocks_limit_;
  const bool asks_again = blocks > 0 && !has_room && entry->put_off < ask_again_;
  if (!has_room) {
    blocks = 0;
  }
  if (SlotStatus staged = entry->slot->acquire_all_local_matches(local_tokens, blocks); !staged) {
    return Unexpected(staged.error());
  }
  entry->matched_at = local_tokens;
  if (!entry->slot->has_run()) {
    entry->computable = local_tokens;
  }
  if (asks_again) {
    ++entry->put_off;
    return Match{.when = Match::When::kAskAgain};
  }
  const bool waits = blocks > 0 && load_mode_ == LoadMode::kAsync;
  return Match{.tokens = blocks * block_size_, .when = waits ? Match::When::kLater : Match::When::kNow};
}

SlotStatus SchedulerConnector::Impl::check_blocks(std::span<const BlockId> blocks) const {
  for (const BlockId block : blocks) {
    if (index_of(block) >= device_blocks_) {
      return invalid_operation(ErrorCode::kInvalidArgument, "device block ", index_of(block), " is none of the ",
                               device_blocks_, " that there are; device.blocks is how many the engine has");
    }
  }
  return SlotStatus();
}

Unexpected<SlotError> SchedulerConnector::Impl::listed_twice(const RequestEntry& entry, BlockId block) {
  return invalid_operation(ErrorCode::kInvalidArgument, "device block ", index_of(block),
                           " is listed twice for request ", entry.id.to_string(),
                           "; a block stands in the table of a request once");
}

SlotStatus SchedulerConnector::Impl::add_blocks(RequestEntry& entry, std::span<const BlockId> blocks,
                                                std::size_t local_tokens) {
  if (SlotStatus checked = check_blocks(blocks); !checked) {
    return checked;
  }
  // Blocks that the request shares with others are counted more than once: its own table is looked at.
  const std::span<const BlockId> before = entry.slot->device_blocks();
  const std::size_t shared = shared_blocks(entry, blocks.size(), local_tokens);
  for (std::size_t i = 0; i < shared && !before.empty(); ++i) {
    if (std::ranges::find(before, blocks[i]) != before.end()) {
      return listed_twice(entry, blocks[i]);
    }
  }
  if (const std::optional<BlockId> twice = device_use_.add(blocks)) {
    return listed_twice(entry, *twice);
  }
  try {
    SlotStatus appended = entry.slot->append_mutable_device_blocks(blocks);
    if (!appended) {
      device_use_.remove(blocks);
    }
    return appended;
  } catch (...) {
    device_use_.remove(blocks);
    throw;
  }
}

// The request that has the block is looked for only to name it.
SlotStatus SchedulerConnector::Impl::check_table(const RequestEntry& entry, std::size_t first, std::size_t shared) {
  const std::optional<BlockId> found = device_use_.find_conflict(entry.slot->device_blocks().subspan(first), shared);
  if (!found) {
    return SlotStatus();
  }
  const RequestEntry* const other = table_.find_if([&](const RequestEntry& each) {
    return each.handle != entry.handle &&
           std::ranges::find(each.slot->device_blocks(), *found) != each.slot->device_blocks().end();
  });
  if (other == nullptr) {
    return listed_twice(entry, *found);
  }
  return invalid_operation(ErrorCode::kInvalidArgument, "device block ", index_of(*found), " of request ",
                           entry.id.to_string(), " is in use by request ", other->id.to_string(), ", which is ",
                           other->slot->state().to_string(),
                           "; requests share only blocks whose KV was computed before");
}

SlotStatus SchedulerConnector::Impl::check_allocated(const RequestEntry& entry, std::span<const BlockId> blocks,
                                                     std::size_t local_tokens, std::size_t loaded_tokens) const {
  const ExternallyManagedDeviceSlot& slot = *entry.slot;
  const Kind kind = slot.state().kind();
  if ((kind != Kind::kInitialized && kind != Kind::kNotScheduled && kind != Kind::kOnboardStaged) || entry.wants_load) {
    return invalid_operation(ErrorCode::kFailedPrecondition, "a request that is ", slot.state().to_string(),
                             entry.wants_load ? " and has its blocks" : "", " waits for none");
  }
  const std::size_t staged = slot.state().staged_tokens().value_or(0);
  if (loaded_tokens > staged || loaded_tokens % block_size_ != 0 ||
      (loaded_tokens > 0 && local_tokens != entry.matched_at)) {
    return invalid_operation(ErrorCode::kInvalidArgument, loaded_tokens, " tokens after ", local_tokens,
                             " cannot be loaded; ", staged, " after ", entry.matched_at,
                             " were matched, and fewer whole blocks may be");
  }
  const std::size_t room = (slot.num_device_blocks_allocated() + blocks.size()) * block_size_;
  if (local_tokens < slot.computed_tokens() || local_tokens >= slot.sequence().size() ||
      local_tokens + loaded_tokens > room) {
    return invalid_operation(ErrorCode::kOutOfRange, local_tokens, " tokens and ", loaded_tokens, " to load, of ",
                             slot.sequence().size(), " with ", slot.computed_tokens(), " computed, in blocks for ",
                             room, "; one has to be computed");
  }
  if (slot.has_run() && local_tokens > most_computed(entry)) {
    return never_scheduled(entry, local_tokens);
  }
  return SlotStatus();
}

SlotStatus SchedulerConnector::Impl::allocated(RequestHandle request, std::span<const BlockId> blocks,
                                               std::size_t local_tokens, std::size_t loaded_tokens) {
  RequestEntry* const entry = table_.get(request);
  if (entry == nullptr) {
    return unknown_request(request);
  }
  if (entry->is_given_up) {
    return SlotStatus();
  }
  if (SlotStatus checked = check_allocated(*entry, blocks, local_tokens, loaded_tokens); !checked) {
    return checked;
  }
  ExternallyManagedDeviceSlot& slot = *entry->slot;
  unchecked_.push_back(
      {request, slot.num_device_blocks_allocated(), shared_blocks(*entry, blocks.size(), local_tokens)});
  try {
    if (SlotStatus added = add_blocks(*entry, blocks, local_tokens); !added) {
      unchecked_.pop_back();
      return added;
    }
  } catch (...) {
    unchecked_.pop_back();
    throw;
  }
  // Checked above: none of these fails.
  for (const SlotStatus& done : {slot.acquire_all_local_matches(local_tokens, loaded_tokens / block_size_),
                                 slot.advance_computed_position(local_tokens - slot.computed_tokens())}) {
    if (!done) {
      return done;
    }
  }
  entry->put_off = 0;
  entry->fell_short = false;
  if (!slot.has_run()) {
    entry->computable = local_tokens;
  }
  if (loaded_tokens > 0) {
    entry->wants_load = true;
    entry->staged_blocks = loaded_tokens / block_size_;
    loading_blocks_ += entry->staged_blocks;
    device_use_.begin_load(slot.device_blocks().subspan(local_tokens / block_size_, entry->staged_blocks));
    to_load_.push_back(request);
  }
  note_operations(*entry);
  return SlotStatus();
}

SlotResult<bool> SchedulerConnector::Impl::finish(RequestHandle request, std::optional<std::size_t> computed_tokens) {
  RequestEntry* const entry = table_.get(request);
  if (entry == nullptr) {
    return unknown_request(request);
  }
  ExternallyManagedDeviceSlot& slot = *entry->slot;
  const Kind kind = slot.state().kind();
  const bool is_computing = kind == Kind::kPrefilling || kind == Kind::kDecoding || kind == Kind::kNotScheduled;
  if (computed_tokens && is_computing && !entry->is_given_up) {
    if (SlotStatus set = set_computed(*entry, *computed_tokens); !set) {
      return Unexpected(set.error());
    }
  }
  if (entry->wants_load) {
    drop_load(*entry, slot.device_blocks());
  }
  remember_blocks(*entry);
  if (SlotStatus finished = slot.mark_as_finished(iteration_.value_or(0)); !finished) {
    return Unexpected(finished.error());
  }
  if (!save_to_) {
    collect(*entry);  // nobody saves: what is offered is over
  }
  if (slot.state() == SlotState::finished()) {
    (void)remove(*entry);
    return false;
  }
  note_operations(*entry);
  return true;
}

// Requires: remember_blocks() before the slot was finished.
RequestId SchedulerConnector::Impl::remove(RequestEntry& entry) {
  device_use_.remove(had_blocks_);
  RequestId id = table_.remove(entry.handle);
  CAIRN_CHECK(slots_.remove_slot(id).has_value(), "a request that is over has a slot that is");
  return id;
}

// --- the face ---

SlotResult<RequestHandle> SchedulerConnector::add(const RequestId& request, std::span<const Token> tokens,
                                                  const RequestSalt& salt, std::span<const MmRun> runs) {
  return impl_->add(request, tokens, salt, runs);
}
std::optional<RequestHandle> SchedulerConnector::find(const RequestId& request) const { return impl_->find(request); }
SlotResult<SlotState> SchedulerConnector::state(RequestHandle request) const { return impl_->state(request); }
SlotResult<SchedulerConnector::Match> SchedulerConnector::match(RequestHandle request, std::size_t local_tokens) {
  return impl_->match(request, local_tokens);
}
SlotStatus SchedulerConnector::allocated(RequestHandle request, std::span<const BlockId> blocks,
                                         std::size_t local_tokens, std::size_t loaded_tokens) {
  return impl_->allocated(request, blocks, local_tokens, loaded_tokens);
}
Status SchedulerConnector::build(const Iteration& iteration, std::vector<std::byte>& metadata) {
  return impl_->build(iteration, metadata);
}
std::span<const SchedulerConnector::Refused> SchedulerConnector::refused() const { return impl_->refused(); }
SlotResult<bool> SchedulerConnector::finish(RequestHandle request, std::optional<std::size_t> computed_tokens) {
  return impl_->finish(request, computed_tokens);
}
SchedulerConnector::Results SchedulerConnector::take_results() { return impl_->take_results(); }
bool SchedulerConnector::has_work() const { return impl_->has_work(); }
SchedulerConnector::SaveStatus SchedulerConnector::saves() const { return impl_->saves(); }
Result<ResetReport> SchedulerConnector::reset() { return impl_->manager().reset_all(); }
Result<ResetReport> SchedulerConnector::invalidate(std::uint64_t weights_generation) {
  return impl_->manager().invalidate(weights_generation);
}
const KvBlockManager& SchedulerConnector::manager() const { return impl_->manager(); }
Leader& SchedulerConnector::ranks() const { return impl_->ranks(); }

}  // namespace cairn
