#include "cairn/sim/managed_cache.h"

#include <algorithm>
#include <bit>
#include <utility>
#include <variant>

#include "cairn/base/check.h"
#include "cairn/layout/block_layout.h"

namespace cairn::sim {

namespace {

constexpr std::uint64_t kReportsAtOnce = 16;  // equal iterations beyond these teach the manager nothing

// Of the log, so that none is lost between two calls of forward_events().
constexpr std::uint32_t kLeastEvents = 8192;
constexpr std::uint32_t kEventsPerBlock = 4;  // of the device

constexpr std::uint32_t kAhead = 12;  // blocks whose entries of a table are prefetched

}  // namespace

ManagedCache::ManagedCache(const Options& options)
    : site_(*options.site), member_(options.site->join(*this)), sink_(options.sink) {}

Result<std::unique_ptr<ManagedCache>> ManagedCache::make(const Options& options) {
  std::unique_ptr<ManagedCache> cache(new ManagedCache(options));
  CAIRN_TRY(cache->open(options));
  return cache;
}

Status ManagedCache::open(const Options& options) {
  if (!options.config.model.groups.empty()) {
    return fail(ErrorCode::kInvalidArgument,
                "model.groups is given, but a trace is replayed with one block table; remove it");
  }
  ManagerConfig config = options.config;
  const std::uint64_t block_bytes = config.shape().block_bytes();
  const std::uint32_t blocks =
      config.device.blocks != 0
          ? config.device.blocks
          : static_cast<std::uint32_t>(config.device.size / std::max<std::uint64_t>(1, block_bytes));
  config.device.size = 0;
  config.device.blocks = blocks;
  CAIRN_TRY_ASSIGN(config.device.engine_layout, BlockLayout::elsewhere(config.shape(), blocks, MemoryKind::kDevice));
  config.model.secret = std::string(64, '0');  // keys are the trace's; a random secret would be of no use
  config.model.secret_file.clear();
  config.record = {};
  config.event_log = std::max(kLeastEvents, kEventsPerBlock * blocks);
  config.event_token_ids = false;
  if (config.disk.is_there() && config.disk.path.empty()) {
    config.disk.path = "simulated";
  }
  ManagerParts parts;
  parts.clock = &site_.clock();
  parts.own_thread = false;
  parts.seed = KeySeed::from(1);
  parts.elsewhere = [this, links = options.links, faults = options.faults] {
    auto executor = std::make_unique<LinkExecutor>(
        LinkExecutor::Options{.site = &site_, .member = member_, .links = links, .faults = faults});
    executor_ = executor.get();
    return executor;
  };
  parts.disk_entries_in_file = false;
  parts.reports_iterations = true;
  CAIRN_TRY_ASSIGN(KvBlockManager manager, KvBlockManager::make(config, parts));
  manager_.emplace(std::move(manager));
  device_ = manager_->device();
  if (const EventLog* const log = manager_->events(); log != nullptr) {
    CAIRN_TRY_ASSIGN(EventSubscriber events, EventSubscriber::resuming(*log, 1));
    events_.emplace(std::move(events));
  }
  return {};
}

ManagedCache::~ManagedCache() {
  closing_ = true;
  landed_.clear();
}

// --- moves ---

std::size_t ManagedCache::process(const MoveBlock& move, Holding& holding) {
  if (const Use* const asked = std::get_if<Use>(&move)) {
    return use(*asked, holding);
  }
  if (const Promote* const full = std::get_if<Promote>(&move)) {
    promote(*full, holding);
  } else {
    release(holding);
  }
  return 1;
}

std::size_t ManagedCache::use(const Use& use, Holding& holding) {
  waits_for_copies_ = false;
  // Blocks that were loaded for the request are held already.
  const std::size_t first = use.keys.empty() ? 0 : use.keys.front().position();
  const std::size_t held = holding.blocks.size() > first ? holding.blocks.size() - first : 0;
  const std::size_t loaded = std::min(held, use.keys.size());
  const std::span<const BlockKey> keys = use.keys.subspan(loaded);
  if (const PoolCounts counts = device_->counts(); counts.available() < use.blocks.size() - loaded) {
    const std::size_t needed = use.blocks.size() - loaded - device_->count_prefix(keys);
    if (counts.available() < needed) {
      waits_for_copies_ = counts.free + counts.inactive >= needed;
      return 0;
    }
  }
  ImmutableBlocks hits = device_->match_prefix(keys);
  const std::uint32_t hit = hits.size();
  Result<MutableBlocks> room = device_->allocate(static_cast<std::uint32_t>(use.blocks.size() - loaded) - hit);
  if (!room) {
    // The hits were among the blocks that could be evicted.
    waits_for_copies_ = device_->counts().borrowed > 0;
    return 0;
  }
  join(std::move(hits), holding);
  const bool has_partial = use.blocks.size() > use.keys.size();
  MutableBlocks full = room->take_front(static_cast<std::uint32_t>(keys.size()) - hit);
  if (has_partial) {
    holding.partial.emplace(*std::move(room));
  }
  if (!full.empty()) {
    const std::size_t at = loaded + hit;
    const std::optional<SequenceHash> parent = at > 0       ? std::optional(use.keys[at - 1].sequence_hash())
                                               : use.parent ? std::optional(use.parent->hash())
                                                            : std::nullopt;
    add(std::move(full),
        {.keys = use.keys.subspan(at),
         .tokens_hashes = use.tokens_hashes.empty() ? use.tokens_hashes : use.tokens_hashes.subspan(at),
         .parent = parent},
        holding);
  }
  return use.blocks.size();
}

void ManagedCache::add(MutableBlocks blocks, const BlockNames& names, Holding& holding) {
  auto complete = std::move(blocks).complete(names);
  CAIRN_CHECK(complete.has_value(), "a move has one key for each block");
  auto registered = (*std::move(complete)).register_blocks();
  CAIRN_CHECK(registered.has_value(), "a sequence has each key once");
  join(*std::move(registered), holding);
}

void ManagedCache::join(ImmutableBlocks blocks, Holding& holding) {
  if (holding.blocks.empty()) {
    holding.blocks = std::move(blocks);
  } else if (!blocks.empty()) {
    CAIRN_CHECK(holding.blocks.append(std::move(blocks)).has_value(), "both are of the device");
  }
}

void ManagedCache::promote(const Promote& promote, Holding& holding) {
  CAIRN_CHECK(holding.partial.has_value(), "a block that is promoted was partial");
  MutableBlocks block = *std::move(holding.partial);
  holding.partial.reset();
  add(std::move(block),
      {.keys = {&promote.key, 1}, .tokens_hashes = {&promote.tokens_hash, 1}, .parent = promote.parent}, holding);
}

void ManagedCache::release(Holding& holding) {
  const std::uint32_t now = now_ms();
  for (std::uint32_t i = 0; i < holding.blocks.size(); ++i) {
    if (i + kAhead < holding.blocks.size()) {
      idle_since_.prefetch(holding.blocks.key(i + kAhead));
    }
    idle_since_.insert(holding.blocks.key(i), {now}).first->ms = now;
  }
  holding.partial.reset();
  holding.blocks = {};
}

std::size_t ManagedCache::cached_tokens(const ActiveSequence& sequence, const Holding& holding) const {
  const std::size_t held = std::min<std::size_t>(holding.blocks.size(), sequence.keys().size());
  const std::size_t blocks = held + device_->count_prefix(sequence.keys().subspan(held));
  return std::min(blocks * sequence.block_size(), sequence.num_input_tokens());
}

std::size_t ManagedCache::num_active_blocks() const {
  const PoolCounts counts = device_->counts();
  return counts.active + counts.quarantined;
}

std::size_t ManagedCache::num_resident_blocks() const {
  const PoolCounts counts = device_->counts();
  return counts.total - counts.free;
}

PerTier<std::uint64_t> ManagedCache::blocks_below() const {
  PerTier<std::uint64_t> blocks{};
  for (const CacheLevel level : {CacheLevel::kG2, CacheLevel::kG3}) {
    if (const BlockPool* const pool = manager_->pool(level)) {
      blocks[below_index(level)] = pool->counts().registered;
    }
  }
  return blocks;
}

// --- time ---

void ManagedCache::advance_to(TimePoint now) { site_.advance_to(now); }

std::optional<TimePoint> ManagedCache::settle() {
  for (bool more = true; more;) {
    more = manager_->pump();
    more |= executor_->run();
    forward_events();
  }
  std::optional<TimePoint> next = manager_->next_time();
  if (const std::optional<TimePoint> stalled = executor_->next_stalled(); stalled && (!next || *stalled < *next)) {
    next = stalled;
  }
  return next;
}

std::optional<TimePoint> ManagedCache::next_event_time() const {
  const std::optional<TimePoint> due = site_.due(member_);
  const std::optional<TimePoint> arrival = executor_->next_arrival();
  const std::optional<TimePoint> next = due && arrival ? std::min(due, arrival) : due ? due : arrival;
  return next ? std::optional(std::max(*next, site_.clock().now() + Duration(1))) : std::nullopt;
}

void ManagedCache::report(const EngineIteration& iteration, std::uint64_t times) {
  for (std::uint64_t i = 0; i < std::min(times, kReportsAtOnce); ++i) {
    manager_->report(iteration);
  }
}

// --- loads ---

LoadStart ManagedCache::start_load(const ActiveSequence& sequence, const LoadAsk& ask) {
  const std::span<const BlockKey> keys = sequence.keys();
  const PrefixLocation found = manager_->locate(keys);
  const auto is_below = [](CacheLevel level) { return level != CacheLevel::kG1; };
  if (std::ranges::none_of(found.levels, is_below)) {
    return {};
  }
  const LoadWorth worth = manager_->worth_loading(
      found, {.total_tokens = static_cast<std::uint32_t>(sequence.size()), .engine_is_busy = ask.busy});
  if (worth.to_prefetch > 0) {
    const std::span<const BlockKey> next = keys.subspan(worth.blocks, worth.to_prefetch);
    static_cast<void>(manager_->prefetch({.keys = {next.begin(), next.end()}}));
  }
  const std::span<const CacheLevel> all = found.levels;
  const auto count_below = [&](std::span<const CacheLevel> levels) {
    return static_cast<std::uint64_t>(std::ranges::count_if(levels, is_below));
  };
  const std::uint64_t to_load = count_below(all.first(worth.blocks));
  LoadStart start{.rejected_tokens = count_below(all.subspan(worth.blocks)) * sequence.block_size()};
  if (to_load == 0) {
    return start;
  }
  // The load takes the blocks that it writes, and those of the device that it holds meanwhile.
  if (const PoolCounts counts = device_->counts(); counts.available() < worth.blocks && !ask.must_not_wait) {
    waits_for_copies_ = counts.free + counts.inactive >= worth.blocks;
    start.outcome = LoadStart::Outcome::kBlocked;
    return start;
  }
  const TimePoint began = site_.clock().now();
  const Result<cairn::LoadId> id = manager_->load({.keys = {keys.begin(), keys.begin() + worth.blocks},
                                                   .weigh = false,
                                                   .done = [this, request = ask.request, began](LoadOutcome&& outcome) {
                                                     land(request, began, std::move(outcome));
                                                   }});
  if (!id) {
    return start;  // too many loads are in flight: the request is computed
  }
  start.outcome = LoadStart::Outcome::kScheduled;
  return start;
}

void ManagedCache::land(std::uint64_t request, TimePoint began, LoadOutcome&& outcome) {
  if (closing_) {
    return;
  }
  LandedLoad landed{.request = request, .blocks = std::move(outcome.blocks), .waited = site_.clock().now() - began};
  for (const CacheLevel level : {CacheLevel::kG2, CacheLevel::kG3}) {
    landed.tokens[below_index(level)] = std::uint64_t{outcome.from[index_of(level)]} * manager_->block_size();
  }
  landed_.push_back(std::move(landed));
}

// --- events ---

void ManagedCache::forward_events() {
  if (!events_) {
    return;
  }
  while (true) {
    const EventBatch batch = events_->poll();
    const auto* const events = std::get_if<std::vector<Event>>(&batch);
    CAIRN_CHECK(events != nullptr, "the log keeps all events between two moments of a simulation");
    if (events->empty()) {
      return;
    }
    for (const Event& event : *events) {
      forward(event);
    }
  }
}

void ManagedCache::forward(const Event& event) {
  if (const Stored* const stored = std::get_if<Stored>(&event.data)) {
    if (sink_ != nullptr) {
      stored_.clear();
      for (const StoredBlock& block : stored->blocks) {
        stored_.push_back({block.key.sequence_hash(), block.tokens_hash});
      }
      sink_->on_stored(event.sequence, event.tier, {.parent = stored->parent, .blocks = stored_, .token_ids = {}});
    }
  } else if (const Removed* const removed = std::get_if<Removed>(&event.data)) {
    removed_.clear();
    const std::span<const BlockKey> keys = removed->keys;
    for (std::size_t i = 0; i < keys.size(); ++i) {
      removed_.push_back(keys[i].sequence_hash());
      if (event.tier != CacheLevel::kG1) {
        continue;
      }
      if (i + kAhead < keys.size()) {
        idle_since_.prefetch(keys[i + kAhead]);
      }
      count_eviction(keys[i]);
    }
    if (sink_ != nullptr) {
      sink_->on_removed(event.sequence, event.tier, {.hashes = removed_});
    }
  }
}

void ManagedCache::count_eviction(const BlockKey& key) {
  const IdleSince since = idle_since_.erase(key);
  const std::uint32_t age = since.vacant() ? 0 : now_ms() - since.ms;
  ++eviction_ages_[static_cast<std::size_t>(std::bit_width(age))];
}

void ManagedCache::check_invariants() const {
  for (const CacheLevel level : {CacheLevel::kG1, CacheLevel::kG2, CacheLevel::kG3}) {
    if (const BlockPool* const pool = manager_->pool(level)) {
      pool->check_invariants();
    }
  }
}

}  // namespace cairn::sim
