#include "cairn/connector/scheduler_connector.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <new>
#include <utility>

#include "cairn/base/check.h"
#include "cairn/base/deadline.h"
#include "cairn/connector/call_recorder.h"
#include "cairn/connector/device_block_use.h"
#include "cairn/connector/iteration_timer.h"
#include "cairn/connector/operation_inbox.h"
#include "cairn/connector/operation_runner.h"
#include "cairn/connector/refuse.h"
#include "cairn/connector/request_table.h"
#include "cairn/connector/save_counts.h"
#include "cairn/leader/block_footprint.h"
#include "cairn/leader/leader.h"
#include "cairn/manager/token_counter.h"
#include "cairn/memory/preallocate.h"
#include "cairn/transfer/in_step_mark.h"

namespace cairn {

namespace {

constexpr std::size_t kRequestsAhead = 4;  // requests that are prefetched into the cache

std::optional<CacheLevel> save_tier(const KvBlockManager& manager) {
  if (manager.host() != nullptr) {
    return CacheLevel::kG2;
  }
  return manager.disk() != nullptr ? std::optional(CacheLevel::kG3) : std::nullopt;
}

// The configuration of a manager whose blocks the ranks hold: it counts the engine's device blocks and has no memory.
Result<ManagerConfig> without_bytes(ManagerConfig config) {
  if (config.device.blocks == 0) {
    return fail(ErrorCode::kInvalidArgument, "device.blocks is 0; give the number of blocks that the engine has");
  }
  CAIRN_TRY_ASSIGN(config.device.engine_layout,
                   BlockLayout::elsewhere(config.shape(), config.device.blocks, MemoryKind::kDevice));
  config.device.blocks = 0;
  config.device.managed_by_engine = true;
  return config;
}

const OffloadOptions& save_options(const ManagerConfig& config, CacheLevel save_to) {
  return save_to == CacheLevel::kG3 ? config.offload_to_disk : config.offload_to_host;
}

// The configuration that ranks get: sizes in blocks, since a rank has a part of each block, and no secret, since ranks make
// no keys.
ManagerConfig in_blocks(ManagerConfig config, const KvBlockManager& manager) {
  const auto count = [](TierConfig& tier, const BlockPool* pool) {
    if (pool != nullptr) {
      tier.blocks = pool->capacity();
      tier.size = 0;
    }
  };
  count(config.host, manager.host());
  count(config.disk, manager.disk());
  config.model.secret.clear();
  config.model.secret_file.clear();
  return config;
}

Status check_size(const char* key, const TierConfig& tier, std::uint64_t block_bytes) {
  if (tier.size == 0 || tier.size >= block_bytes) {
    return {};
  }
  return fail(ErrorCode::kInvalidArgument,
              str_cat(key, " is ", tier.size, " bytes, less than the ", block_bytes,
                      " bytes that one block takes on all ranks together, headers of files included; give more"));
}

// So that the sizes of tiers are those of all ranks together. Ranks with several kinds of layers hold what they hold, whether or
// not the model's heads can be dealt to them; then a block counts as the model says.
Status set_footprint(const ManagerConfig& config, const LeaderOptions& ranks, ManagerParts& parts) {
  CAIRN_TRY(ranks.ranks.validate());
  const Result<BlockFootprint> footprint = footprint_of(config, ranks);
  if (!footprint) {
    return {};
  }
  parts.elsewhere_host_bytes = footprint->host_bytes;
  parts.elsewhere_disk_bytes = footprint->disk.block_bytes;
  parts.elsewhere_disk_files = footprint->disk.files;
  CAIRN_TRY(check_size("host.size", config.host, footprint->host_bytes));
  return check_size("disk.size", config.disk, footprint->disk.bytes_of(1));
}

// As BlockFacts keeps times: rounded up to milliseconds; 0: none.
Result<std::uint32_t> milliseconds_of(const std::optional<Duration>& time) {
  if (!time) {
    return 0U;
  }
  const auto ms = std::chrono::ceil<std::chrono::milliseconds>(*time).count();
  if (ms <= 0 || ms > std::numeric_limits<std::uint32_t>::max()) {
    return refuse(ErrorCode::kInvalidArgument, "a priority duration or time to live of ", ms,
                  " ms; give 1 ms to 49 days, or none");
  }
  return static_cast<std::uint32_t>(ms);
}

Unexpected<Error> unknown_request(RequestHandle request) {
  return refuse(ErrorCode::kNotFound, "handle ", static_cast<std::uint64_t>(request),
                " names no request; it was released, or never added");
}

Unexpected<Error> listed_twice(const RequestEntry& entry, BlockId block) {
  return refuse(ErrorCode::kInvalidArgument, "device block ", index_of(block), " is listed twice for request ",
                entry.id->to_string(), "; a block stands in the table of a request once");
}

}  // namespace

// From the leader's thread to the scheduler.
struct RankNews {
  std::atomic<bool> came_back{false};
  std::atomic<bool> is_not_reserved{false};  // the space of the file of a rank that is there now
};

class SchedulerConnector::Impl {
 public:
  Impl(const Options& options, std::shared_ptr<const CacheGroups> groups, RequestTable slots, KvBlockManager manager,
       std::unique_ptr<Leader> ranks, std::shared_ptr<OperationInbox> inbox, std::shared_ptr<RankNews> rank_news);
  ~Impl();

  [[nodiscard]] Result<RequestHandle> add(const RequestId& id, const NewRequest& request);
  [[nodiscard]] std::optional<RequestHandle> find(const RequestId& id) const { return slots_.handle_of(id); }
  [[nodiscard]] Result<SlotState> state(RequestHandle request) const;
  // Null if there is no such request.
  [[nodiscard]] const TokenBlockSequence* sequence(RequestHandle request) const {
    const RequestEntry* const entry = slots_.find(request);
    return entry != nullptr ? &entry->slot.sequence() : nullptr;
  }
  [[nodiscard]] Result<Match> match(RequestHandle request, std::size_t local_tokens);
  [[nodiscard]] Status allocated(RequestHandle request, std::span<const BlockId> blocks, std::size_t local_tokens,
                                 std::size_t loaded_tokens);
  [[nodiscard]] Status allocated_groups(RequestHandle request, std::span<const std::span<const BlockId>> blocks,
                                        std::size_t local_tokens, std::size_t loaded_tokens);
  [[nodiscard]] Status build(const Iteration& iteration, std::vector<std::byte>& metadata);
  [[nodiscard]] std::span<const Refused> refused() const { return refused_; }
  [[nodiscard]] Result<bool> finish(RequestHandle request, std::optional<std::size_t> computed_tokens,
                                    RequestEnding ending);
  [[nodiscard]] Outcomes take_outcomes();
  [[nodiscard]] bool has_work() const;
  [[nodiscard]] SaveStatus saves() const { return save_counts_->status(); }
  [[nodiscard]] Result<TokenCounts> counts(RequestHandle request) const;
  [[nodiscard]] TokenReport counts() const { return tokens_->report(clock_.now()); }
  [[nodiscard]] const KvBlockManager& manager() const { return *manager_; }
  [[nodiscard]] Leader& ranks() const { return *ranks_; }

 private:
  void report_not_reserved();
  using Kind = SlotState::Kind;

  // --- requests ---
  struct ToLoad {
    std::size_t blocks = 0;       // of the sequence
    std::size_t copies = 0;       // blocks that are loaded for them: as many, unless the model has layer groups
    std::uint32_t on_disk = 0;    // of those
    std::size_t disk_tokens = 0;  // that come from disk
  };
  // The blocks that the tiers have and that are worth loading. Says in `lookup` what was found.
  [[nodiscard]] ToLoad blocks_to_load(Slot& slot, std::size_t local_tokens, RequestCounts::Lookup& lookup);
  [[nodiscard]] ToLoad group_blocks_to_load(Slot& slot, std::size_t local_tokens, RequestCounts::Lookup& lookup);
  [[nodiscard]] LoadContext load_context(const Slot& slot, std::size_t local_tokens) const;
  // How many tokens of the first `tokens` stand for `some` of `all` blocks that were copied, in whole blocks.
  [[nodiscard]] std::size_t share(std::size_t tokens, std::size_t some, std::size_t all) const {
    return all == 0 ? 0 : tokens / block_size_ * some / all * block_size_;
  }
  // Adds the blocks to the request's table, unless one is in it already.
  [[nodiscard]] Status add_blocks(RequestEntry& entry, std::span<const BlockId> blocks, std::size_t local_tokens);
  // The same in a model with layer groups. `added`: the blocks, those that may be shared first, and how many these are.
  struct AddedBlocks {
    std::vector<BlockId> blocks = {};
    std::size_t shared = 0;
  };
  [[nodiscard]] Status add_group_blocks(RequestEntry& entry, std::span<const std::span<const BlockId>> blocks,
                                        std::size_t local_tokens, AddedBlocks& added);
  // A block that the request may not have; see DeviceBlockUse::find_conflict().
  [[nodiscard]] Status check_conflict(const RequestEntry& entry, std::span<const BlockId> blocks,
                                      std::size_t shared) const;
  // Whether the request may have the blocks of its table from `first` on, the first `shared` of them together with others.
  [[nodiscard]] Status check_table(const RequestEntry& entry, std::size_t first, std::size_t shared) const;
  // Counts what the request has open. `device`: tokens from the engine's own cache.
  void count(RequestEntry& entry, std::size_t device, const RequestCounts::Load& load);
  void count_save(RequestEntry& entry, const Operation& save);
  // What allocated() and allocated_groups() do once the request has the blocks. `loading`: the device blocks of its load.
  [[nodiscard]] Status stage_load(RequestEntry& entry, std::size_t local_tokens, std::size_t loaded_tokens,
                                  std::span<const BlockId> loading);
  void note_operations(RequestEntry& entry) {
    if (!entry.has_operations && !entry.slot.pending_operations().empty()) {
      with_operations_.push_back(entry.handle);
      entry.has_operations = true;
    }
  }
  // Keeps the device blocks of a slot that is about to drop them, in had_blocks_.
  void remember_blocks(const RequestEntry& entry) {
    had_blocks_.clear();
    make_room(had_blocks_, entry.slot.num_device_blocks_allocated());
    entry.slot.append_device_blocks(had_blocks_);
  }
  // Appends the keys of all blocks of the request, of all groups, that end after `begin` and not after `end`.
  void append_keys(const RequestEntry& entry, std::size_t begin, std::size_t end, std::vector<BlockKey>& out) const {
    const std::span<const BlockKey> keys = entry.slot.sequence().keys();
    if (groups_ == nullptr) {
      out.insert(out.end(), keys.begin() + static_cast<std::ptrdiff_t>(begin),
                 keys.begin() + static_cast<std::ptrdiff_t>(end));
      return;
    }
    for (std::uint32_t group = 0; group < groups_->size(); ++group) {
      const std::size_t each = groups_->each(group);
      groups_->append_keys(group, {begin / each, end / each}, keys, out);
    }
  }
  // Memory for count_uses() up to this block of the request's sequence.
  void reserve_uses(const RequestEntry& entry, std::size_t end) {
    if (counts_uses_ && end > entry.uses_counted) {
      const std::size_t groups = groups_ != nullptr ? groups_->size() : 1;
      make_room(batch_.used, batch_.used.size() + (end - entry.uses_counted + 1) * groups);
    }
  }
  // The request has these blocks, up to this one, in its sequence: one use of each, once for each request.
  void count_uses(RequestEntry& entry, std::size_t end) {
    if (counts_uses_ && end > entry.uses_counted) {
      append_keys(entry, entry.uses_counted, end, batch_.used);
      entry.uses_counted = end;
    }
  }
  // Requires: remember_blocks() before the slot was finished.
  RequestId remove(RequestEntry& entry);
  // Drops a load whose blocks are allocated and which is not started. `blocks`: the request's table.
  void drop_load(RequestEntry& entry, std::span<const BlockId> blocks);
  // The request continues without a cache.
  void give_up(RequestEntry& entry);
  // The engine's input for the request is invalid: it is unknown which block holds what.
  void abandon(RequestEntry& entry, Error error);

  // --- an iteration ---
  void build_all(const Iteration& iteration, std::vector<std::byte>& metadata);
  // There was no memory: the iteration was applied in part and cannot be applied again. Loads, saves and fences stay
  // for the next iteration that is built.
  void lose_iteration(const Iteration& iteration);
  void preempt(RequestHandle request, std::uint64_t number);
  // Of a model with layer groups: blocks that the scheduled requests no longer need are the engine's again, which may have
  // given them to others in this iteration.
  void release_skipped_blocks(const Iteration& iteration);
  // Checks the calls of allocated() since the last iteration, now that the preemptions are known.
  void check_new_tables();
  void schedule(const Scheduled& scheduled, std::uint64_t number);
  // What the request computes in the iteration, unless it is one token.
  void add_work(const RequestEntry& entry, const Scheduled& scheduled, std::size_t tokens);
  // Whether the engine computes a token after one that it does not know yet.
  [[nodiscard]] bool schedules_ahead(const Iteration& iteration) const;
  [[nodiscard]] inline Status step(RequestEntry& entry, const Scheduled& scheduled, std::uint64_t number);
  // What few requests have in an iteration: draft tokens, new blocks, a load that is not needed after all.
  [[nodiscard]] Status prepare(RequestEntry& entry, const Scheduled& scheduled, std::uint64_t number);
  [[nodiscard]] Status step_beside_load(RequestEntry& entry, const Scheduled& scheduled);
  [[nodiscard]] Status take_digests(RequestEntry& entry, const Scheduled& scheduled);
  [[nodiscard]] Status take_new_blocks(RequestEntry& entry, const Scheduled& scheduled, std::size_t local_tokens);
  // Marks requests that ran in the last iteration and do not run in this one.
  void pass_over(std::uint64_t number);
  void start_loads(std::uint64_t number);
  // Offers the blocks that the iteration computes for saving, if there are enough.
  void offer_in_step_save(RequestEntry& entry);
  // The engine has computed so many tokens of a request with an in-step save. Returns whether all of the save stands.
  bool settle_in_step_save(RequestEntry& entry, std::size_t computed_tokens);
  // Withdraws the in-step saves of requests that were given up, or have not run again for too long: nobody says whether they
  // were computed. A request need not be in the next iteration: a pipeline runs several batches by turns.
  void withdraw_in_step_saves();
  // Moves the operations of a slot into the batch of the iteration: all of them or, if there is no memory, none.
  void collect(RequestEntry& entry, std::uint64_t number);
  void hand_over();
  void prefetch();

  // --- outcomes ---
  void finish_load(RequestEntry& entry, const Operation& load, Outcomes& outcomes);

  const LoadMode load_mode_;
  const std::uint32_t loading_blocks_limit_;
  const std::uint32_t least_blocks_;
  const std::uint32_t ask_again_;
  const Duration load_deadline_;
  const Duration save_deadline_;
  const Clock& clock_;
  const std::size_t block_size_;
  const std::shared_ptr<const CacheGroups> groups_;  // null if the model has one block table
  const std::uint32_t device_blocks_;
  const std::optional<CacheLevel> save_to_;  // std::nullopt: there is no tier, nothing is saved
  const bool rejects_saves_;                 // a filter may reject saves
  const bool counts_uses_;                   // a filter looks at how often blocks were used
  const bool events_have_token_ids_;
  const std::size_t in_step_save_blocks_;
  const std::size_t in_step_save_tokens_;  // an iteration of fewer tokens fills fewer blocks

  RequestTable slots_;
  DeviceBlockUse device_use_;
  std::vector<BlockId> had_blocks_;  // memory that is used again
  // What allocated() added to tables. Whether another request has a block is known with the preemptions of the iteration:
  // an engine gives the blocks of a request that it preempts to the next one before it says so.
  struct NewBlocks {
    RequestHandle request{};
    std::size_t first = 0;             // in the request's table
    std::size_t shared = 0;            // of the blocks from there on
    std::vector<BlockId> blocks = {};  // in a model with layer groups: the blocks; `first` is not used
  };
  std::vector<NewBlocks> unchecked_;
  std::optional<std::uint64_t> iteration_ = {};  // the latest
  std::vector<RequestHandle> running_;           // in the latest iteration
  std::vector<RequestHandle> running_before_;    // memory that is used again
  std::size_t running_on_ = 0;                   // of those, how many run in this iteration too
  std::optional<std::uint64_t> runs_on_from_;    // the latest iteration of which a request runs in this one too
  std::size_t running_now_ = 0;                  // of the latest iteration, how many have not ended
  EngineIteration work_;                         // of the iteration that is built
  bool waits_ = false;                           // it waits for loads or saves
  IterationTimer timer_;
  std::vector<RequestHandle> to_load_;          // allocated, for the next metadata, in that order
  std::vector<RequestHandle> with_operations_;  // for the next metadata
  std::vector<RequestHandle> saving_in_step_;   // those with RequestEntry::in_step_until
  std::vector<Refused> refused_;
  OperationRunner::Batch batch_;    // of the next metadata
  std::size_t loading_blocks_ = 0;  // allocated for loads that are not over
  PromisedBlocks promised_;
  std::vector<BlockKey> to_prefetch_;     // after the next metadata, to measure the disk
  std::size_t operations_in_flight_ = 0;  // handed out and not taken as over
  std::vector<OperationPtr> over_;        // taken from the inbox
  SlotOperations taken_;                  // by collect(): its memory is reused
  std::vector<Outcomes::Ended> ended_;    // not taken
  const std::shared_ptr<TokenCounter> tokens_;
  const std::shared_ptr<RankNews> rank_news_;
  std::vector<char> not_reserved_;  // by rank: an incident says so

  // Destroyed in the reverse order.
  std::unique_ptr<Leader> ranks_;
  std::shared_ptr<OperationInbox> inbox_;
  std::optional<KvBlockManager> manager_;
  std::shared_ptr<SaveCounts> save_counts_;
  std::optional<OperationRunner> runner_;
};

Result<std::unique_ptr<SchedulerConnector>> SchedulerConnector::make(Options options) {
  if (options.loading_blocks == 0) {
    return fail(ErrorCode::kInvalidArgument, "loading_blocks is 0; give at least 1");
  }
  CAIRN_TRY_ASSIGN(CacheGroups groups, options.manager.groups());
  std::shared_ptr<const CacheGroups> grouped;
  if (!groups.is_plain()) {
    grouped = std::make_shared<const CacheGroups>(std::move(groups));
    if (options.load == LoadMode::kInStep) {
      return fail(ErrorCode::kInvalidArgument,
                  "a model with layer groups (model.groups) cannot be loaded in the step that computes it; use "
                  "LoadMode::kAsync");
    }
    if (!options.manager.record.path.empty()) {
      return fail(ErrorCode::kInvalidArgument,
                  "calls of a model with layer groups (model.groups) cannot be recorded; remove record.path");
    }
    options.in_step_save_blocks = 0;  // a layer of the ranks is a layer of several groups
  }
  std::unique_ptr<CallRecorder> recorder;
  if (!options.manager.record.path.empty()) {
    CAIRN_TRY_ASSIGN(recorder, CallRecorder::open(options));
  }
  // The inbox tells the group of outcomes, and the group tells the inbox of ranks that are ready: none is before open().
  const auto group = std::make_shared<Leader*>(nullptr);
  const auto inbox = std::make_shared<OperationInbox>(
      [group](const OperationOutcomes& outcomes) { (*group)->broadcast(RankBroadcast{outcomes.encode()}); });
  const auto rank_news = std::make_shared<RankNews>();
  CAIRN_TRY(set_footprint(options.manager, options.ranks, options.parts));
  options.ranks.on_change = [inbox, rank_news, was_there = std::vector<char>(options.ranks.ranks.count()),
                             on_change = std::move(options.ranks.on_change)](const RankChange& change) mutable {
    if (change.is_there && std::exchange(was_there[change.rank], 1) != 0) {
      rank_news->came_back = true;
    }
    if (!change.is_reserved) {
      rank_news->is_not_reserved = true;
    }
    if (change.is_there) {
      inbox->report_in_flight();
    }
    if (on_change) {
      on_change(change);
    }
  };
  Result<std::unique_ptr<Leader>> made = Leader::make(std::move(options.ranks));
  if (!made && made.error().code == ErrorCode::kAlreadyExists) {
    return fail(made.error().code, str_cat(made.error().message,
                                           "; give each engine, and each data parallel rank of one, an address of its "
                                           "own: another path, or port 0 for one that the system chooses"));
  }
  CAIRN_TRY_ASSIGN(std::unique_ptr<Leader> ranks, std::move(made));
  *group = ranks.get();
  CAIRN_TRY_ASSIGN(const ManagerConfig logical, without_bytes(options.manager));
  options.parts.reports_iterations = true;
  if (options.parts.elsewhere) {
    options.in_step_save_blocks = 0;  // only ranks know the engine's steps
  } else {
    options.parts.elsewhere = [&group = *ranks] { return group.make_executor(); };
  }
  options.parts.tokens = std::make_shared<TokenCounter>(options.manager.requests);
  CAIRN_TRY_ASSIGN(KvBlockManager manager, KvBlockManager::make(logical, options.parts));
  CAIRN_TRY_ASSIGN(RequestTable slots,
                   RequestTable::make(options.manager.block_size, manager.hasher(), logical.space().id(), grouped));
  ranks->open(
      in_blocks(options.manager, manager),
      {.host = std::max(options.manager.host.size, options.manager.host.max_size), .disk = options.manager.disk.size});
  return std::unique_ptr<SchedulerConnector>(
      new SchedulerConnector(std::make_unique<Impl>(options, grouped, std::move(slots), std::move(manager),
                                                    std::move(ranks), inbox, rank_news),
                             std::move(recorder)));
}

SchedulerConnector::Impl::Impl(const Options& options, std::shared_ptr<const CacheGroups> groups, RequestTable slots,
                               KvBlockManager manager, std::unique_ptr<Leader> ranks,
                               std::shared_ptr<OperationInbox> inbox, std::shared_ptr<RankNews> rank_news)
    : load_mode_(options.load),
      loading_blocks_limit_(options.loading_blocks),
      least_blocks_(options.least_blocks),
      ask_again_(options.ask_again),
      load_deadline_(options.load_deadline),
      save_deadline_(options.save_deadline),
      clock_(*options.parts.clock),
      block_size_(options.manager.block_size),
      groups_(std::move(groups)),
      device_blocks_(options.manager.device.blocks),
      save_to_(save_tier(manager)),
      rejects_saves_(save_to_ &&
                     (options.parts.offload_filter || save_options(options.manager, *save_to_).is_selective())),
      counts_uses_(save_to_ &&
                   (options.parts.offload_filter || save_options(options.manager, *save_to_).counts_uses())),
      events_have_token_ids_(options.manager.event_token_ids),
      in_step_save_blocks_(options.in_step_save_blocks),
      in_step_save_tokens_(save_to_ == CacheLevel::kG2 && in_step_save_blocks_ > 0
                               ? (in_step_save_blocks_ - 1) * block_size_ + 1
                               : std::numeric_limits<std::size_t>::max()),
      slots_(std::move(slots)),
      device_use_(device_blocks_),
      tokens_(options.parts.tokens),
      rank_news_(std::move(rank_news)),
      ranks_(std::move(ranks)),
      inbox_(std::move(inbox)),
      manager_(std::move(manager)),
      save_counts_(std::make_shared<SaveCounts>()) {
  batch_.iteration.leader = ranks_->id();
  runner_.emplace(*manager_, *ranks_, inbox_, save_counts_,
                  OperationRunner::Options{.save_to = save_to_,
                                           .names_requests = options.parts.offload_filter != nullptr,
                                           .promised = &promised_,
                                           .own_thread = options.parts.own_thread});
}

// Nothing new is started, and what is in flight ends with the manager. An operation that could not be proven over, because
// its rank is gone, finds the inbox closed. In-step saves that the engine has not spoken of are withdrawn: the manager does
// not have to wait for them.
SchedulerConnector::Impl::~Impl() {
  try {
    for (const RequestHandle request : saving_in_step_) {
      if (RequestEntry* const entry = slots_.find(request); entry != nullptr && entry->slot.has_in_step_save()) {
        settle_in_step_save(*entry, 0);
      }
    }
    runner_->settle(batch_.settled);
  } catch (const std::bad_alloc&) {
    // It waits up to its limit, then.
  }
  runner_.reset();
  manager_.reset();
  inbox_->close();
}

// --- requests ---

Result<RequestHandle> SchedulerConnector::Impl::add(const RequestId& id, const NewRequest& request) {
  // All requests may have operations and a load that is to start: noting them must not allocate.
  make_room(with_operations_, slots_.size() + 1);
  make_room(to_load_, slots_.size() + 1);
  const RequestsConfig& defaults = manager_->config().requests;
  if (request.dp_rank && *request.dp_rank != manager_->dp_rank()) {
    return refuse(ErrorCode::kInvalidArgument, "request ", id.to_string(), " is for data parallel rank ",
                  *request.dp_rank, ", but this connector is of rank ", manager_->dp_rank(),
                  " (dp_rank of the configuration); add it to the connector of its rank");
  }
  const std::uint32_t priority = request.priority.value_or(defaults.priority);
  if (priority > Retention::kMaxPriority) {
    return refuse(ErrorCode::kInvalidArgument, "request ", id.to_string(), " has priority ", priority,
                  "; the highest is ", Retention::kMaxPriority);
  }
  if ((request.priority_duration || request.time_to_live || request.hint.kind != RetentionHint::Kind::kNone) &&
      !defaults.retention) {
    return refuse(
        ErrorCode::kFailedPrecondition, "request ", id.to_string(),
        " has a time to live, a priority for a time or a hint, but requests.retention is off; set it to true");
  }
  CAIRN_TRY_ASSIGN(const std::uint32_t priority_ms, milliseconds_of(request.priority_duration));
  CAIRN_TRY_ASSIGN(const std::uint32_t time_to_live_ms,
                   milliseconds_of(request.time_to_live ? request.time_to_live : defaults.time_to_live));
  CAIRN_TRY_ASSIGN(const TenantId tenant, defaults.tenant_id(request.tenant));
  CAIRN_TRY_ASSIGN(RequestEntry* const entry,
                   slots_.create(id, request.tokens, request.salt, request.mm_runs, request.block_digests));
  entry->fence = manager_->fences();
  entry->priority = priority;
  entry->priority_ms = priority_ms;
  entry->time_to_live_ms = time_to_live_ms;
  entry->tenant = tenant;
  entry->hint = request.hint;
  if (rejects_saves_) {
    entry->slot.offer_cached_blocks();
  }
  return entry->handle;
}

Result<SlotState> SchedulerConnector::Impl::state(RequestHandle request) const {
  const RequestEntry* const entry = slots_.find(request);
  return entry != nullptr ? Result<SlotState>(entry->slot.state()) : unknown_request(request);
}

Result<TokenCounts> SchedulerConnector::Impl::counts(RequestHandle request) const {
  const RequestEntry* const entry = slots_.find(request);
  return entry != nullptr ? Result<TokenCounts>(entry->counting.counts()) : unknown_request(request);
}

void SchedulerConnector::Impl::count(RequestEntry& entry, std::size_t device, const RequestCounts::Load& load) {
  entry.may_count = false;
  if (entry.counting.is_open()) {
    const TokenCounts more = entry.counting.count(device, load);
    entry.counting.add(more, tokens_->add(entry.tenant, entry.counting.number(), more, clock_.now()));
  }
}

void SchedulerConnector::Impl::count_save(RequestEntry& entry, const Operation& save) {
  if (groups_ != nullptr && save.group != groups_->counted_group()) {
    return;  // the same tokens
  }
  const std::size_t tokens = save.each * block_size_;
  const SavedBlocks& saved = save.saved;
  const TokenCounts more{.saved = saved.saved * tokens,
                         .dropped_filtered = saved.filtered * tokens,
                         .dropped_shed = saved.shed * tokens,
                         .dropped_unavailable = saved.unavailable * tokens,
                         .dropped_failed = saved.failed * tokens};
  entry.counting.add(more, tokens_->add(entry.tenant, entry.counting.number(), more, clock_.now()));
}

LoadContext SchedulerConnector::Impl::load_context(const Slot& slot, std::size_t local_tokens) const {
  LoadContext context{.first_block = static_cast<std::uint32_t>(local_tokens / block_size_),
                      .total_tokens = static_cast<std::uint32_t>(slot.sequence().size()),
                      .engine_is_busy = load_mode_ == LoadMode::kAsync && running_now_ > 0};
  context.promised[index_of(CacheLevel::kG2)] = promised_.on_host.load(std::memory_order_relaxed);
  context.promised[index_of(CacheLevel::kG3)] = promised_.on_disk.load(std::memory_order_relaxed);
  return context;
}

SchedulerConnector::Impl::ToLoad SchedulerConnector::Impl::group_blocks_to_load(Slot& slot, std::size_t local_tokens,
                                                                                RequestCounts::Lookup& lookup) {
  const std::size_t local = local_tokens / block_size_;
  std::size_t end = local + slot.keys_to_match(local_tokens).size();
  const auto locate = [&](std::size_t blocks) {
    return manager_->locate_groups(slot.sequence().keys().first(blocks), local).value();  // it is a boundary
  };
  GroupLocation found = locate(end);
  // The next request with these tokens may branch off where only windows and states are missing.
  slot.keep_boundary(found.full_boundary > found.boundary ? found.full_boundary : 0);
  const auto on_disk = [&found] { return static_cast<std::size_t>(std::ranges::count(found.levels, CacheLevel::kG3)); };
  const std::size_t tokens = (found.boundary - local) * block_size_;
  lookup.disk = share(tokens, on_disk(), found.blocks.size());
  lookup.host = tokens - lookup.disk;
  // The cost model weighs blocks of tokens: each is on disk if a block that covers it is, and costs as much as the next.
  if (found.boundary > local) {
    PrefixLocation covered{.levels = std::vector<CacheLevel>(found.boundary - local, CacheLevel::kG2)};
    for (std::size_t i = 0; i < found.blocks.size(); ++i) {
      const std::size_t each = groups_->each(found.blocks[i].group);
      const std::size_t first = found.blocks[i].block * each;
      if (found.levels[i] == CacheLevel::kG3) {
        std::fill_n(covered.levels.begin() + static_cast<std::ptrdiff_t>(first - local), each, CacheLevel::kG3);
      }
    }
    LoadContext context = load_context(slot, local_tokens);
    context.copies_each = static_cast<double>(found.blocks.size()) / static_cast<double>(found.boundary - local);
    end = local + manager_->worth_loading(covered, context).blocks;
    if (end < found.boundary) {
      found = locate(end);
    }
    lookup.too_slow = tokens - (found.boundary - local) * block_size_;
  }
  // A load that is larger than the limit is cut, as one of a model with one block table is.
  while (found.blocks.size() > loading_blocks_limit_) {
    const std::size_t most = (found.boundary - local) * loading_blocks_limit_ / found.blocks.size();
    found = locate(local + std::min(most, found.boundary - local - 1));
  }
  const std::size_t blocks = found.boundary - local;
  if (blocks == 0 || blocks < least_blocks_) {
    return {};
  }
  return {.blocks = blocks,
          .copies = found.blocks.size(),
          .on_disk = static_cast<std::uint32_t>(on_disk()),
          .disk_tokens = share(blocks * block_size_, on_disk(), found.blocks.size())};
}

SchedulerConnector::Impl::ToLoad SchedulerConnector::Impl::blocks_to_load(Slot& slot, std::size_t local_tokens,
                                                                          RequestCounts::Lookup& lookup) {
  lookup.asked = slot.sequence().size();
  const std::span<const BlockKey> keys = slot.keys_to_match(local_tokens);
  if (keys.empty() || !save_to_) {
    return {};
  }
  if (groups_ != nullptr) {
    return group_blocks_to_load(slot, local_tokens, lookup);
  }
  const PrefixLocation found = manager_->locate(keys);
  const LoadWorth worth = manager_->worth_loading(found, load_context(slot, local_tokens));
  if (worth.to_prefetch > 0 && to_prefetch_.empty()) {
    const std::span<const BlockKey> next = keys.subspan(worth.blocks, worth.to_prefetch);
    to_prefetch_.assign(next.begin(), next.end());
  }
  const auto on_disk = static_cast<std::size_t>(std::ranges::count(found.levels, CacheLevel::kG3));
  lookup.disk = on_disk * block_size_;
  lookup.host = (found.blocks() - on_disk) * block_size_;
  lookup.too_slow = (found.blocks() - worth.blocks) * block_size_;
  const std::uint32_t blocks = std::min(worth.blocks, loading_blocks_limit_);
  if (blocks < least_blocks_) {
    return {};
  }
  const auto staged_on_disk = std::ranges::count(std::span(found.levels).first(blocks), CacheLevel::kG3);
  return {.blocks = blocks,
          .copies = blocks,
          .on_disk = static_cast<std::uint32_t>(staged_on_disk),
          .disk_tokens = static_cast<std::size_t>(staged_on_disk) * block_size_};
}

Result<SchedulerConnector::Match> SchedulerConnector::Impl::match(RequestHandle request, std::size_t local_tokens) {
  RequestEntry* const entry = slots_.find(request);
  if (entry == nullptr) {
    return unknown_request(request);
  }
  if (entry->is_abandoned) {
    return Match{};
  }
  if (entry->wants_load) {
    return refuse(ErrorCode::kFailedPrecondition, "the blocks of request ", entry->id->to_string(),
                  " are allocated; its load is in the next metadata");
  }
  reserve_uses(*entry, entry->slot.sequence().block_count());
  RequestCounts::Lookup lookup;
  const ToLoad found = blocks_to_load(entry->slot, local_tokens, lookup);
  std::size_t blocks = found.blocks;
  const bool has_room = loading_blocks_ == 0 || loading_blocks_ + found.copies <= loading_blocks_limit_;
  const bool asks_again = blocks > 0 && !has_room && entry->times_put_off < ask_again_;
  if (!has_room) {
    blocks = 0;
  }
  CAIRN_TRY(entry->slot.acquire_all_local_matches(local_tokens, blocks));
  count_uses(*entry, entry->slot.sequence().block_count());
  entry->matched_at = local_tokens;
  entry->staged_on_disk = found.on_disk;
  entry->counting.matched(lookup, entry->slot.has_run());
  entry->may_count = true;
  if (!entry->slot.has_run()) {
    entry->computable = local_tokens;
  }
  if (asks_again) {
    ++entry->times_put_off;
    return Match{.when = Match::When::kAskAgain};
  }
  const bool waits = blocks > 0 && load_mode_ == LoadMode::kAsync;
  return Match{.tokens = blocks * block_size_,
               .disk_tokens = blocks > 0 ? found.disk_tokens : 0,
               .when = waits ? Match::When::kLater : Match::When::kNow};
}

Status SchedulerConnector::Impl::add_blocks(RequestEntry& entry, std::span<const BlockId> blocks,
                                            std::size_t local_tokens) {
  for (const BlockId block : blocks) {
    if (index_of(block) >= device_blocks_) {
      return refuse(ErrorCode::kInvalidArgument, "device block ", index_of(block), " is beyond the ", device_blocks_,
                    " blocks of the engine; device.blocks is how many it has");
    }
  }
  // A block that the request shares with others is counted more than once: look for it in the request's own table.
  const std::span<const BlockId> before = entry.slot.device_blocks();
  const std::size_t shared = entry.shared_blocks(blocks.size(), local_tokens);
  for (std::size_t i = 0; i < shared && !before.empty(); ++i) {
    if (std::ranges::find(before, blocks[i]) != before.end()) {
      return listed_twice(entry, blocks[i]);
    }
  }
  if (const std::optional<BlockId> twice = device_use_.add(blocks)) {
    return listed_twice(entry, *twice);
  }
  try {
    Status appended = entry.slot.append_mutable_device_blocks(blocks);
    if (!appended) {
      device_use_.remove(blocks);
    }
    return appended;
  } catch (...) {
    device_use_.remove(blocks);
    throw;
  }
}

Status SchedulerConnector::Impl::add_group_blocks(RequestEntry& entry, std::span<const std::span<const BlockId>> blocks,
                                                  std::size_t local_tokens, AddedBlocks& added) {
  std::vector<BlockId> own;
  for (std::uint32_t group = 0; group < blocks.size() && group < groups_->size(); ++group) {
    std::size_t end = entry.slot.group_table(group).size();
    for (const BlockId block : blocks[group]) {
      ++end;
      if (block == kNoBlock) {
        continue;
      }
      if (index_of(block) >= device_blocks_) {
        return refuse(ErrorCode::kInvalidArgument, "device block ", index_of(block), " is beyond the ", device_blocks_,
                      " blocks of the engine; device.blocks is how many it has");
      }
      const bool is_shared = end * (*groups_)[group].block_size <= local_tokens;
      if (is_shared && entry.slot.has_device_block(block)) {
        return listed_twice(entry, block);
      }
      (is_shared ? added.blocks : own).push_back(block);
    }
  }
  added.shared = added.blocks.size();
  added.blocks.insert(added.blocks.end(), own.begin(), own.end());
  if (const std::optional<BlockId> twice = device_use_.add(added.blocks)) {
    return listed_twice(entry, *twice);
  }
  try {
    Status appended = entry.slot.append_group_blocks(blocks);
    if (!appended) {
      device_use_.remove(added.blocks);
    }
    return appended;
  } catch (...) {
    device_use_.remove(added.blocks);
    throw;
  }
}

Status SchedulerConnector::Impl::check_table(const RequestEntry& entry, std::size_t first, std::size_t shared) const {
  return check_conflict(entry, entry.slot.device_blocks().subspan(first), shared);
}

// The request that has the block is looked for only to name it.
Status SchedulerConnector::Impl::check_conflict(const RequestEntry& entry, std::span<const BlockId> blocks,
                                                std::size_t shared) const {
  const std::optional<BlockId> found = device_use_.find_conflict(blocks, shared);
  if (!found) {
    return {};
  }
  const RequestEntry* const other = slots_.find_if(
      [&](const RequestEntry& each) { return each.handle != entry.handle && each.slot.has_device_block(*found); });
  if (other == nullptr) {
    return listed_twice(entry, *found);
  }
  return refuse(ErrorCode::kInvalidArgument, "device block ", index_of(*found), " of request ", entry.id->to_string(),
                " is in use by request ", other->id->to_string(), ", which is ", other->slot.state().to_string(),
                "; requests share only blocks whose KV was computed before");
}

Status SchedulerConnector::Impl::allocated(RequestHandle request, std::span<const BlockId> blocks,
                                           std::size_t local_tokens, std::size_t loaded_tokens) {
  RequestEntry* const entry = slots_.find(request);
  if (entry == nullptr) {
    return unknown_request(request);
  }
  if (groups_ != nullptr) {
    return refuse(ErrorCode::kFailedPrecondition,
                  "the model has layer groups (model.groups); give the blocks of each with allocated_groups()");
  }
  if (entry->is_abandoned) {
    return {};
  }
  CAIRN_TRY(entry->check_allocated(blocks.size(), local_tokens, loaded_tokens));
  ExternallyManagedDeviceSlot& slot = entry->slot;
  make_room(unchecked_, unchecked_.size() + 1);
  const NewBlocks added{request, slot.num_device_blocks_allocated(), entry->shared_blocks(blocks.size(), local_tokens)};
  CAIRN_TRY(add_blocks(*entry, blocks, local_tokens));
  unchecked_.push_back(added);
  return stage_load(*entry, local_tokens, loaded_tokens,
                    slot.device_blocks().subspan(local_tokens / block_size_, loaded_tokens / block_size_));
}

Status SchedulerConnector::Impl::allocated_groups(RequestHandle request,
                                                  std::span<const std::span<const BlockId>> blocks,
                                                  std::size_t local_tokens, std::size_t loaded_tokens) {
  RequestEntry* const entry = slots_.find(request);
  if (entry == nullptr) {
    return unknown_request(request);
  }
  if (groups_ == nullptr) {
    return refuse(
        ErrorCode::kFailedPrecondition,
        "the model has one block table; give its blocks with allocated(), or name the groups in model.groups");
  }
  if (entry->is_abandoned) {
    return {};
  }
  std::vector<BlockId> loading;
  CAIRN_TRY(entry->check_allocated(*groups_, blocks, local_tokens, loaded_tokens, loading));
  make_room(unchecked_, unchecked_.size() + 1);
  AddedBlocks added;
  CAIRN_TRY(add_group_blocks(*entry, blocks, local_tokens, added));
  unchecked_.push_back({.request = request, .shared = added.shared, .blocks = std::move(added.blocks)});
  entry->loading = std::move(loading);
  return stage_load(*entry, local_tokens, loaded_tokens, entry->loading);
}

Status SchedulerConnector::Impl::stage_load(RequestEntry& entry, std::size_t local_tokens, std::size_t loaded_tokens,
                                            std::span<const BlockId> loading) {
  ExternallyManagedDeviceSlot& slot = entry.slot;
  // Checked before: neither fails.
  CAIRN_TRY(slot.acquire_all_local_matches(local_tokens, loaded_tokens / block_size_));
  CAIRN_TRY(slot.advance_computed_position(local_tokens - slot.computed_tokens()));
  entry.times_put_off = 0;
  entry.load_fell_short = false;
  if (!slot.has_run()) {
    entry.computable = local_tokens;
  }
  if (loaded_tokens > 0) {
    entry.wants_load = true;
    entry.staged_blocks = loading.size();
    entry.staged_on_disk = std::min(entry.staged_on_disk, static_cast<std::uint32_t>(entry.staged_blocks));
    promised_.add(entry.staged_blocks, entry.staged_on_disk);
    loading_blocks_ += entry.staged_blocks;
    device_use_.begin_load(loading);
    to_load_.push_back(entry.handle);
  }
  note_operations(entry);
  return {};
}

Result<bool> SchedulerConnector::Impl::finish(RequestHandle request, std::optional<std::size_t> computed_tokens,
                                              RequestEnding ending) {
  RequestEntry* const entry = slots_.find(request);
  if (entry == nullptr) {
    return unknown_request(request);
  }
  make_room(ended_, ended_.size() + 1);
  ExternallyManagedDeviceSlot& slot = entry->slot;
  const Kind kind = slot.state().kind();
  const bool is_computing = kind == Kind::kPrefilling || kind == Kind::kDecoding || kind == Kind::kNotScheduled;
  const bool is_told = computed_tokens && is_computing && !entry->is_abandoned;
  if (is_told) {
    CAIRN_TRY(entry->set_computed(*computed_tokens));
    slot.offer_last_states();
  }
  if (slot.has_in_step_save()) {
    settle_in_step_save(*entry, is_told ? slot.computed_tokens() : 0);
    try {
      runner_->settle(batch_.settled);  // the next iteration may be far off
    } catch (const std::bad_alloc&) {
      // They go with the next iteration.
    }
  }
  if (entry->wants_load) {
    drop_load(*entry, slot.device_blocks());
  }
  remember_blocks(*entry);
  CAIRN_TRY(slot.mark_as_finished(iteration_.value_or(0)));
  entry->ending = ending;
  if (iteration_ && entry->scheduled_in == *iteration_ && running_now_ > 0 && --running_now_ == 0) {
    timer_.idle(clock_.now());
  }
  if (!save_to_) {
    collect(*entry, iteration_.value_or(0));  // there is no tier: its saves have ended
  }
  if (slot.state() == SlotState::finished()) {
    (void)remove(*entry);
    return false;
  }
  note_operations(*entry);
  return true;
}

RequestId SchedulerConnector::Impl::remove(RequestEntry& entry) {
  device_use_.remove(had_blocks_);
  if (entry.hint.kind != RetentionHint::Kind::kNone) {
    try {
      std::vector<BlockKey> keys;
      append_keys(entry, 0, entry.slot.sequence().block_count(), keys);
      runner_->hint(std::move(keys), entry.hint);
    } catch (const std::bad_alloc&) {
      entry.hint = {};  // the blocks are evicted in the usual order
    }
  }
  if (entry.ending != RequestEnding::kUnknown) {
    try {
      std::vector<BlockKey> keys;
      append_keys(entry, 0, entry.slot.sequence().block_count(), keys);
      runner_->end_request(std::move(keys), entry.ending);
    } catch (const std::bad_alloc&) {
      entry.ending = RequestEnding::kUnknown;
    }
  }
  if (ended_.size() == Outcomes::kMostEnded) {
    ended_.clear();
  }
  ended_.push_back({entry.handle, entry.counting.counts()});
  return slots_.remove(entry);
}

void SchedulerConnector::Impl::drop_load(RequestEntry& entry, std::span<const BlockId> blocks) {
  const auto place = std::ranges::find(to_load_, entry.handle);
  CAIRN_CHECK(place != to_load_.end(), "a load that is wanted is in the list");
  to_load_.erase(place);
  loading_blocks_ -= entry.staged_blocks;
  promised_.remove(entry.staged_blocks, entry.staged_on_disk);
  device_use_.end_load(groups_ != nullptr ? std::span<const BlockId>(entry.loading)
                                          : blocks.subspan(entry.matched_at / block_size_, entry.staged_blocks));
  entry.wants_load = false;
  entry.computes_beside_load = false;
  entry.late_tokens.clear();
  entry.late_runs.clear();
  entry.late_names = {};
}

void SchedulerConnector::Impl::give_up(RequestEntry& entry) {
  entry.is_abandoned = true;
  if (entry.wants_load) {
    drop_load(entry, entry.slot.device_blocks());
  }
  if (entry.may_count && entry.slot.state().kind() != Kind::kOnboarding) {
    count(entry, entry.slot.computed_tokens(), {});
  }
}

void SchedulerConnector::Impl::abandon(RequestEntry& entry, Error error) {
  give_up(entry);
  error.message += "; the request goes on without a cache";
  refused_.push_back({entry.handle, std::move(error)});
  note_operations(entry);
}

// --- an iteration ---

Status SchedulerConnector::Impl::build(const Iteration& iteration, std::vector<std::byte>& metadata) {
  const std::uint64_t number = iteration.number;
  if (iteration_ && number <= *iteration_) {
    return refuse(ErrorCode::kInvalidArgument, "iteration ", number, " follows iteration ", *iteration_,
                  "; give every iteration a higher number");
  }
  refused_.clear();
  std::swap(running_, running_before_);
  running_.clear();
  running_on_ = 0;
  runs_on_from_.reset();
  try {
    build_all(iteration, metadata);
  } catch (const std::bad_alloc&) {
    lose_iteration(iteration);
    return refuse(ErrorCode::kExhausted, "no memory for iteration ", number,
                  "; the requests that it schedules go on without a cache; build it again");
  }
  if (iteration.duration) {
    const std::optional<std::uint64_t> of = iteration.duration_of ? iteration.duration_of : iteration_;
    if (const auto measured = of ? timer_.measured(*of, *iteration.duration) : std::nullopt) {
      manager_->report(*measured);
    }
  }
  const auto timed = timer_.built({.number = number,
                                   .work = work_,
                                   .runs_on_from = runs_on_from_,
                                   .is_ahead = schedules_ahead(iteration),
                                   .waits = waits_},
                                  clock_.now());
  if (timed) {
    manager_->report(*timed);
  }
  if (!to_prefetch_.empty()) {
    prefetch();
  }
  running_now_ = running_.size();
  iteration_ = number;
  return {};
}

void SchedulerConnector::Impl::lose_iteration(const Iteration& iteration) {
  for (const Scheduled& scheduled : iteration.scheduled) {
    if (RequestEntry* const entry = slots_.find(scheduled.request)) {
      give_up(*entry);
    }
  }
  running_.clear();
  std::swap(running_, running_before_);
  std::erase_if(with_operations_, [this](RequestHandle request) {
    const RequestEntry* const entry = slots_.find(request);
    return entry == nullptr || !entry->has_operations;
  });
}

void SchedulerConnector::Impl::build_all(const Iteration& iteration, std::vector<std::byte>& metadata) {
  const std::uint64_t number = iteration.number;
  work_ = {};
  waits_ = false;
  running_.reserve(iteration.scheduled.size());
  for (const RequestHandle request : iteration.preempted) {
    preempt(request, number);
  }
  if (groups_ != nullptr) {
    release_skipped_blocks(iteration);
  }
  check_new_tables();
  for (std::size_t i = 0; i < iteration.scheduled.size(); ++i) {
    if (i + kRequestsAhead < iteration.scheduled.size()) {
      slots_.prefetch(iteration.scheduled[i + kRequestsAhead].request);
    }
    schedule(iteration.scheduled[i], number);
  }
  if (running_on_ < running_before_.size()) {
    pass_over(number);
  }
  if (!saving_in_step_.empty()) {
    withdraw_in_step_saves();
  }
  start_loads(number);
  for (const RequestHandle request : with_operations_) {
    if (RequestEntry* const entry = slots_.find(request)) {
      collect(*entry, number);
    }
  }
  with_operations_.clear();
  batch_.iteration.iteration = number;
  batch_.iteration.encode(metadata);
  hand_over();
}

void SchedulerConnector::Impl::preempt(RequestHandle request, std::uint64_t number) {
  RequestEntry* const entry = slots_.find(request);
  if (entry == nullptr) {
    refused_.push_back({request, unknown_request(request).error()});
    return;
  }
  remember_blocks(*entry);
  const std::size_t computed = entry->tokens_on_device();
  const bool has_run = entry->slot.has_run();
  if (entry->slot.has_in_step_save()) {
    settle_in_step_save(*entry, 0);
  }
  if (Status preempted = entry->slot.preempt(number); !preempted) {
    refused_.push_back({request, std::move(preempted).error()});
    return;
  }
  device_use_.remove(had_blocks_);
  entry->counting.preempted(computed, has_run);
  entry->may_count = true;
  entry->computable = 0;
  if (entry->wants_load) {
    drop_load(*entry, had_blocks_);
  }
  entry->drafts_are_aside = !entry->draft_tokens.empty();
  entry->load_fell_short = false;
  entry->times_put_off = 0;
  note_operations(*entry);
}

void SchedulerConnector::Impl::release_skipped_blocks(const Iteration& iteration) {
  for (const Scheduled& scheduled : iteration.scheduled) {
    RequestEntry* const entry = slots_.find(scheduled.request);
    const std::size_t tokens = scheduled.computed_tokens;
    // A request that goes on without a cache frees blocks as any other.
    if (entry == nullptr || (!entry->is_abandoned && (entry->wants_load || tokens > entry->most_computed() ||
                                                      entry->slot.state().kind() == Kind::kOnboarding))) {
      continue;
    }
    // What is worth saving of the blocks that leave is offered first, unless drafts have to be settled before: their saves are
    // fenced then.
    ExternallyManagedDeviceSlot& slot = entry->slot;
    const bool can_advance = !entry->is_abandoned && slot.has_run() && entry->draft_tokens.empty() &&
                             !entry->load_fell_short && tokens > slot.computed_tokens() &&
                             tokens <= slot.sequence().size();
    if (can_advance && !slot.advance_computed_position(tokens - slot.computed_tokens())) {
      continue;  // schedule() says why
    }
    had_blocks_.clear();
    slot.release_skipped_blocks(tokens, had_blocks_);
    device_use_.remove(had_blocks_);
    note_operations(*entry);
  }
}

void SchedulerConnector::Impl::check_new_tables() {
  for (const NewBlocks& each : unchecked_) {
    RequestEntry* const entry = slots_.find(each.request);
    if (entry == nullptr || entry->is_abandoned || each.first >= entry->slot.num_device_blocks_allocated()) {
      continue;  // it is gone, or was preempted
    }
    if (Status checked = groups_ != nullptr ? check_conflict(*entry, each.blocks, each.shared)
                                            : check_table(*entry, each.first, each.shared);
        !checked) {
      abandon(*entry, std::move(checked).error());
    }
  }
  unchecked_.clear();
}

void SchedulerConnector::Impl::schedule(const Scheduled& scheduled, std::uint64_t number) {
  RequestEntry* const entry = slots_.find(scheduled.request);
  if (entry == nullptr) {
    refused_.push_back({scheduled.request, unknown_request(scheduled.request).error()});
    return;
  }
  if (entry->is_abandoned) {
    return;
  }
  const bool runs_on = entry->slot.has_run();
  if (Status stepped = step(*entry, scheduled, number); !stepped) {
    abandon(*entry, std::move(stepped).error());
    return;
  }
  if (entry->may_count && !entry->wants_load && entry->slot.state().kind() != Kind::kOnboarding) {
    count(*entry, entry->slot.computed_tokens(), {});
  }
  running_on_ += entry->scheduled_in == iteration_ ? 1 : 0;
  if (runs_on) {
    runs_on_from_ = std::max(runs_on_from_, std::optional(entry->scheduled_in));
  }
  entry->scheduled_in = number;
  running_.push_back(entry->handle);
  const std::size_t tokens = entry->computable - scheduled.computed_tokens;
  if (tokens == 1) {
    work_.add_decode(scheduled.computed_tokens, 1);
  } else {
    add_work(*entry, scheduled, tokens);
  }
  note_operations(*entry);
}

void SchedulerConnector::Impl::add_work(const RequestEntry& entry, const Scheduled& scheduled, std::size_t tokens) {
  switch (entry.slot.state().kind()) {
    case Kind::kPrefilling:
      work_.add_prefill(scheduled.computed_tokens, tokens);
      work_.is_full |= entry.computable < entry.slot.sequence().size();
      break;
    case Kind::kDecoding:
      work_.add_decode(scheduled.computed_tokens, tokens);
      break;
    default:  // it computes beside its load
      waits_ = true;
  }
}

bool SchedulerConnector::Impl::schedules_ahead(const Iteration& iteration) const {
  if (iteration.scheduled.empty() || iteration.scheduled.back().scheduled_tokens == 0) {
    return false;
  }
  const RequestEntry* const entry = slots_.find(iteration.scheduled.back().request);
  return entry != nullptr && entry->slot.state().kind() == Kind::kDecoding &&
         entry->computable > entry->slot.sequence().size();
}

Status SchedulerConnector::Impl::step(RequestEntry& entry, const Scheduled& scheduled, std::uint64_t number) {
  if (entry.scheduled_in == number) {
    return refuse(ErrorCode::kInvalidArgument, "request ", entry.id->to_string(), " is in the iteration twice");
  }
  ExternallyManagedDeviceSlot& slot = entry.slot;
  const Kind kind = slot.state().kind();
  if (entry.wants_load || kind == Kind::kOnboarding) {
    return step_beside_load(entry, scheduled);
  }
  const bool only_computes = kind != Kind::kOnboardStaged && entry.draft_tokens.empty() &&
                             scheduled.accepted_draft_tokens == 0 && scheduled.new_blocks.empty() &&
                             scheduled.new_group_blocks.empty();
  if (!only_computes) {
    CAIRN_TRY(prepare(entry, scheduled, number));
  }
  if (!scheduled.new_tokens.empty()) {
    CAIRN_TRY(slot.append_tokens(scheduled.new_tokens, scheduled.new_runs));
  } else if (!scheduled.new_runs.empty()) {
    return refuse(ErrorCode::kInvalidArgument,
                  "new_runs come without new_tokens; give the placeholder tokens of the items with them");
  }
  if (scheduled.new_block_digests.size != 0) {
    CAIRN_TRY(take_digests(entry, scheduled));
  }
  CAIRN_TRY(entry.set_computed(scheduled.computed_tokens));
  CAIRN_TRY(slot.mark_as_scheduled(number));
  entry.note_scheduled(scheduled, slot.sequence().size() + scheduled.draft_tokens.size());
  // What was withdrawn is saved after its step: the copies of the step that failed still hold its keys.
  const bool stands = !slot.has_in_step_save() || settle_in_step_save(entry, slot.computed_tokens());
  if (stands && scheduled.scheduled_tokens >= in_step_save_tokens_) {
    offer_in_step_save(entry);
  }
  if (!scheduled.draft_tokens.empty()) {
    entry.draft_tokens.assign(scheduled.draft_tokens.begin(), scheduled.draft_tokens.end());
    return slot.append_draft_tokens(scheduled.draft_tokens);
  }
  return {};
}

void SchedulerConnector::Impl::offer_in_step_save(RequestEntry& entry) {
  make_room(saving_in_step_, saving_in_step_.size() + 1);
  if (entry.slot.offer_in_step_save(entry.computable, in_step_save_blocks_) &&
      !std::exchange(entry.in_step_until, deadline_after(clock_.now(), save_deadline_))) {
    saving_in_step_.push_back(entry.handle);
  }
}

bool SchedulerConnector::Impl::settle_in_step_save(RequestEntry& entry, std::size_t computed_tokens) {
  make_room(batch_.settled, batch_.settled.size() + 1);
  const Slot::SettledSave& settled = batch_.settled.emplace_back(entry.slot.settle_in_step_save(computed_tokens));
  return settled.confirmed == settled.save->block_ids.size();
}

void SchedulerConnector::Impl::withdraw_in_step_saves() {
  const TimePoint now = clock_.now();
  make_room(batch_.settled, batch_.settled.size() + saving_in_step_.size());
  std::erase_if(saving_in_step_, [&](RequestHandle request) {
    RequestEntry* const entry = slots_.find(request);
    if (entry == nullptr) {
      return true;
    }
    if (entry->slot.has_in_step_save()) {
      if (!entry->is_abandoned && now < *entry->in_step_until) {
        return false;
      }
      settle_in_step_save(*entry, 0);
    }
    entry->in_step_until.reset();
    return true;
  });
}

Status SchedulerConnector::Impl::prepare(RequestEntry& entry, const Scheduled& scheduled, std::uint64_t number) {
  ExternallyManagedDeviceSlot& slot = entry.slot;
  if (slot.state().kind() == Kind::kOnboardStaged) {  // the engine computes instead of loading
    CAIRN_TRY(slot.mark_as_not_scheduled(number));
  }
  if (!entry.draft_tokens.empty() || scheduled.accepted_draft_tokens != 0) {
    std::vector<Token> kept;
    CAIRN_TRY(entry.settle_drafts(scheduled.accepted_draft_tokens, kept));
    CAIRN_TRY(slot.append_tokens(kept));
  }
  // Before it first runs, what is computed is in the engine's own cache.
  const std::size_t local = slot.has_run() ? 0 : std::min(scheduled.computed_tokens, entry.computable);
  return take_new_blocks(entry, scheduled, local);
}

Status SchedulerConnector::Impl::step_beside_load(RequestEntry& entry, const Scheduled& scheduled) {
  if (load_mode_ == LoadMode::kAsync || (!entry.wants_load && !entry.computes_beside_load)) {
    return refuse(ErrorCode::kFailedPrecondition, "the load of request ", entry.id->to_string(),
                  " is in flight; schedule the request when take_outcomes() says that the load has ended");
  }
  CAIRN_TRY(entry.begin_step_beside_load(scheduled));
  CAIRN_TRY(take_new_blocks(entry, scheduled, 0));
  if (scheduled.new_block_digests.size != 0) {
    CAIRN_TRY(take_digests(entry, scheduled));
  }
  entry.end_step_beside_load(scheduled);
  return {};
}

// Keys of the engine's digests. While the request is loaded they wait beside the slot, with its tokens.
Status SchedulerConnector::Impl::take_digests(RequestEntry& entry, const Scheduled& scheduled) {
  const std::span<const BlockKey> known = entry.slot.sequence().keys();
  const std::vector<BlockKey>& late = entry.late_names.keys;
  const std::optional<BlockKey> parent = !late.empty()    ? std::optional(late.back())
                                         : !known.empty() ? std::optional(known.back())
                                                          : std::nullopt;
  CAIRN_TRY_ASSIGN(const EngineBlockNames names, slots_.adopt(parent, scheduled.new_block_digests));
  if (entry.wants_load || entry.slot.state().kind() == Kind::kOnboarding) {
    entry.late_names.append(names);
    return {};
  }
  return entry.slot.append_block_names(names);
}

Status SchedulerConnector::Impl::take_new_blocks(RequestEntry& entry, const Scheduled& scheduled,
                                                 std::size_t local_tokens) {
  if (groups_ != nullptr ? !scheduled.new_blocks.empty() : !scheduled.new_group_blocks.empty()) {
    return refuse(ErrorCode::kInvalidArgument, groups_ != nullptr
                                                   ? "new_blocks are given, but the model has layer groups; give "
                                                     "new_group_blocks"
                                                   : "new_group_blocks are given, but the model has one block table; "
                                                     "give new_blocks");
  }
  if (groups_ != nullptr) {
    if (scheduled.new_group_blocks.empty()) {
      return {};
    }
    AddedBlocks added;
    CAIRN_TRY(add_group_blocks(entry, scheduled.new_group_blocks, local_tokens, added));
    return check_conflict(entry, added.blocks, added.shared);
  }
  const std::span<const BlockId> blocks = scheduled.new_blocks;
  const std::size_t first = entry.slot.num_device_blocks_allocated();
  const std::size_t shared = entry.shared_blocks(blocks.size(), local_tokens);
  CAIRN_TRY(add_blocks(entry, blocks, local_tokens));
  return check_table(entry, first, shared);
}

void SchedulerConnector::Impl::pass_over(std::uint64_t number) {
  for (const RequestHandle request : running_before_) {
    RequestEntry* const entry = slots_.find(request);
    if (entry == nullptr || entry->scheduled_in == number) {
      continue;
    }
    const Kind kind = entry->slot.state().kind();
    if (kind == Kind::kPrefilling || kind == Kind::kDecoding) {
      CAIRN_CHECK(entry->slot.mark_as_not_scheduled(number).has_value(), "a request that runs can be passed over");
    }
  }
}

void SchedulerConnector::Impl::start_loads(std::uint64_t number) {
  std::size_t started = 0;
  try {
    for (const RequestHandle request : to_load_) {
      RequestEntry& entry = *slots_.find(request);
      CAIRN_CHECK(entry.slot.mark_as_onboarding(number).has_value(), "a request with its blocks can be loaded");
      entry.wants_load = false;
      ++started;
      note_operations(entry);
      collect(entry, number);  // now: loads start in the order of this list
    }
  } catch (...) {
    to_load_.erase(to_load_.begin(), to_load_.begin() + static_cast<std::ptrdiff_t>(started));
    throw;
  }
  to_load_.clear();
}

void SchedulerConnector::Impl::collect(RequestEntry& entry, std::uint64_t number) {
  const SlotOperations& pending = entry.slot.pending_operations();
  IterationMetadata& iteration = batch_.iteration;
  make_room(iteration.loads, iteration.loads.size() + pending.start.size());
  make_room(iteration.saves, iteration.saves.size() + pending.start.size());
  make_room(iteration.fences, iteration.fences.size() + pending.fence.size());
  make_room(batch_.cancelled, batch_.cancelled.size() + pending.cancel.size());
  for (const OperationPtr& operation : pending.start) {
    if (!operation->is_load) {
      reserve_uses(entry, operation->end_block());  // of one sequence: the last one reaches furthest
    }
    operation->request = *entry.id;
    if (operation->is_load) {
      operation->in_step = entry.computes_beside_load;
      operation->not_before = StepMark::begun(number);
      operation->on_disk = entry.staged_on_disk;
    } else if (operation->in_step) {
      operation->not_before = in_step_mark(number);
    } else {
      operation->not_before = iteration_ ? StepMark::computed(*iteration_) : StepMark();
    }
    operation->fence = entry.fence;
    operation->priority = entry.priority;
    operation->priority_ms = entry.priority_ms;
    operation->time_to_live_ms = entry.time_to_live_ms;
    operation->tenant = entry.tenant;
    operation->sequence_tokens = entry.slot.sequence().size();
    if (events_have_token_ids_ && !operation->is_load) {
      const auto tokens = entry.slot.sequence().tokens().subspan(operation->first_block * block_size_,
                                                                 operation->block_ids.size() * block_size_);
      operation->token_ids.assign(tokens.begin(), tokens.end());
    }
  }
  entry.has_operations = false;
  entry.slot.take_pending_operations(taken_);
  for (const OperationPtr& operation : taken_.start) {
    if (!operation->is_load && !save_to_) {
      CAIRN_CHECK(entry.slot.offload_done(operation->id).has_value(), "a save that was taken can be over");
      continue;
    }
    if (!operation->is_load) {
      count_uses(entry, operation->end_block());
    }
    (operation->is_load ? iteration.loads : iteration.saves).push_back(operation);
    ++operations_in_flight_;
  }
  batch_.cancelled.insert(batch_.cancelled.end(), taken_.cancel.begin(), taken_.cancel.end());
  for (const OperationPtr& save : taken_.fence) {
    // Each save once: its blocks may be another request's by the next time.
    if (save_to_ && !save->is_fenced && !inbox_->is_over(*save)) {
      save->is_fenced = true;
      waits_ = true;
      iteration.fences.push_back(save);
    }
  }
}

void SchedulerConnector::Impl::hand_over() {
  if (batch_.empty()) {
    batch_.iteration.fences.clear();
    return;
  }
  const TimePoint now = clock_.now();
  batch_.save_deadline = deadline_after(now, save_deadline_);
  batch_.load_deadline = deadline_after(now, load_deadline_);
  runner_->run(std::move(batch_));
  batch_ = {.iteration = {.leader = ranks_->id()}};
}

void SchedulerConnector::Impl::prefetch() {
  try {
    runner_->prefetch(std::exchange(to_prefetch_, {}));
  } catch (const std::bad_alloc&) {
    to_prefetch_.clear();  // the disk is measured another time
  }
}

// --- outcomes ---

void SchedulerConnector::Impl::report_not_reserved() {
  try {
    const std::vector<RankStatus> all = ranks_->status();
    not_reserved_.resize(all.size());
    for (std::size_t rank = 0; rank < all.size(); ++rank) {
      if (!all[rank].is_reserved && not_reserved_[rank] == 0) {
        manager_->add_incident(Incident::Kind::kNotReserved, CacheLevel::kG3,
                               str_cat("the disk file of rank ", rank, ": ", kNotReserved));
        not_reserved_[rank] = 1;
      }
    }
  } catch (...) {
    rank_news_->is_not_reserved = true;
    throw;
  }
}

SchedulerConnector::Outcomes SchedulerConnector::Impl::take_outcomes() {
  Outcomes outcomes;
  // The host memory of a rank that came back is empty. None of it would be read, and it need not be found either.
  if (rank_news_->came_back.load(std::memory_order_relaxed) && rank_news_->came_back.exchange(false) &&
      save_to_ == CacheLevel::kG2) {
    try {
      (void)manager_->reset(CacheLevel::kG2);
    } catch (...) {
      rank_news_->came_back = true;
      throw;
    }
  }
  if (rank_news_->is_not_reserved.load(std::memory_order_relaxed) && rank_news_->is_not_reserved.exchange(false)) {
    report_not_reserved();
  }
  if (over_.empty()) {  // otherwise a call that failed left them
    inbox_->take(over_);
  }
  // All memory first: what is taken here is reported once.
  outcomes.loaded.reserve(over_.size());
  outcomes.released.reserve(over_.size());
  make_room(ended_, ended_.size() + over_.size());
  for (const OperationPtr& operation : over_) {
    const RequestEntry* const entry = slots_.find(RequestHandle{operation->id.slot});
    CAIRN_CHECK(entry != nullptr, "a request stays until its operations have ended");
    make_room(had_blocks_, entry->slot.num_device_blocks_allocated());
  }
  for (const OperationPtr& operation : over_) {
    RequestEntry* const entry = slots_.find(RequestHandle{operation->id.slot});
    --operations_in_flight_;
    if (entry->slot.state() == SlotState::finishing()) {
      remember_blocks(*entry);
    }
    if (operation->is_load) {
      device_use_.end_load(operation->block_ids);
      finish_load(*entry, *operation, outcomes);
    } else {
      CAIRN_CHECK(entry->slot.offload_done(operation->id).has_value(), "a save ends once");
      count_save(*entry, *operation);
    }
    if (entry->slot.state() == SlotState::finished()) {
      outcomes.released.push_back(remove(*entry));
    }
  }
  over_.clear();
  std::swap(outcomes.ended, ended_);
  return outcomes;
}

void SchedulerConnector::Impl::finish_load(RequestEntry& entry, const Operation& load, Outcomes& outcomes) {
  ExternallyManagedDeviceSlot& slot = entry.slot;
  std::size_t wanted = load.block_ids.size();
  std::size_t loaded = std::min<std::size_t>(load.loaded_blocks, wanted);
  std::size_t from_disk = std::min<std::size_t>(load.loaded_from_disk, loaded);
  loading_blocks_ -= wanted;
  entry.staged_blocks = 0;
  const bool is_waited_for = slot.state().kind() == Kind::kOnboarding;
  const std::size_t staged = slot.staged_blocks();
  const std::size_t copied = loaded;
  CAIRN_CHECK(slot.onboard_done(load.id, loaded).has_value(), "a load ends once");
  if (!is_waited_for) {
    return;
  }
  if (groups_ != nullptr) {  // from here on in blocks of the sequence
    wanted = staged;
    loaded = slot.computed_tokens() / block_size_ - load.first_block;
    from_disk = share(loaded * block_size_, from_disk, copied) / block_size_;
  }
  entry.load_fell_short = loaded < wanted;
  const std::size_t end = (load.first_block + wanted) * block_size_;
  if (loaded < wanted && entry.computes_beside_load && entry.computable > end) {
    entry.counting.computes_again(entry.computable - end);  // what it computed on top of the missing tokens
    entry.computable = slot.computed_tokens();
  }
  count(entry, load.first_block * block_size_,
        {.wanted = wanted * block_size_,
         .from_host = (loaded - from_disk) * block_size_,
         .from_disk = from_disk * block_size_});
  outcomes.loaded.push_back(
      {.request = entry.handle, .tokens = slot.computed_tokens(), .missing = (wanted - loaded) * block_size_});
  if (std::exchange(entry.computes_beside_load, false) && !entry.catch_up(*iteration_)) {
    entry.is_abandoned = true;
  }
}

bool SchedulerConnector::Impl::has_work() const {
  return operations_in_flight_ > 0 || !to_load_.empty() || !with_operations_.empty() || !inbox_->empty();
}

// --- the public class ---

SchedulerConnector::SchedulerConnector(std::unique_ptr<Impl> impl, std::unique_ptr<CallRecorder> recorder)
    : impl_(std::move(impl)), recorder_(std::move(recorder)) {}
SchedulerConnector::~SchedulerConnector() = default;

template <typename Call>
void SchedulerConnector::record(Call call) {
  if (recorder_ == nullptr) {
    return;
  }
  try {
    call(*recorder_);
  } catch (const std::bad_alloc&) {
    recorder_.reset();  // a recording with a gap would mislead
  }
}

Result<RequestHandle> SchedulerConnector::add(const RequestId& id, const NewRequest& request) {
  Result<RequestHandle> added = impl_->add(id, request);
  record([&](CallRecorder& to) { to.added(id, request, added, added ? impl_->sequence(*added) : nullptr); });
  return added;
}
std::optional<RequestHandle> SchedulerConnector::find(const RequestId& id) const { return impl_->find(id); }
Result<SlotState> SchedulerConnector::state(RequestHandle request) const { return impl_->state(request); }
Result<SchedulerConnector::Match> SchedulerConnector::match(RequestHandle request, std::size_t local_tokens) {
  Result<Match> match = impl_->match(request, local_tokens);
  record([&](CallRecorder& to) { to.matched(request, local_tokens, match); });
  return match;
}
Status SchedulerConnector::allocated(RequestHandle request, std::span<const BlockId> blocks, std::size_t local_tokens,
                                     std::size_t loaded_tokens) {
  Status status = impl_->allocated(request, blocks, local_tokens, loaded_tokens);
  record([&](CallRecorder& to) { to.allocated(request, blocks, local_tokens, loaded_tokens, status); });
  return status;
}
Status SchedulerConnector::allocated_groups(RequestHandle request, std::span<const std::span<const BlockId>> blocks,
                                            std::size_t local_tokens, std::size_t loaded_tokens) {
  return impl_->allocated_groups(request, blocks, local_tokens, loaded_tokens);
}
Status SchedulerConnector::build(const Iteration& iteration, std::vector<std::byte>& metadata) {
  Status status = impl_->build(iteration, metadata);
  record([&](CallRecorder& to) {
    to.built(iteration, status, impl_->refused(), [&](RequestHandle request) { return impl_->sequence(request); });
  });
  return status;
}
std::span<const SchedulerConnector::Refused> SchedulerConnector::refused() const { return impl_->refused(); }
Result<bool> SchedulerConnector::finish(RequestHandle request, std::optional<std::size_t> computed_tokens,
                                        RequestEnding ending) {
  Result<bool> is_held = impl_->finish(request, computed_tokens, ending);
  record([&](CallRecorder& to) { to.finished(request, computed_tokens, ending, is_held); });
  return is_held;
}
SchedulerConnector::Outcomes SchedulerConnector::take_outcomes() {
  Outcomes outcomes = impl_->take_outcomes();
  record([&](CallRecorder& to) { to.took(outcomes); });
  return outcomes;
}
bool SchedulerConnector::has_work() const { return impl_->has_work(); }
SchedulerConnector::SaveStatus SchedulerConnector::saves() const { return impl_->saves(); }
Result<TokenCounts> SchedulerConnector::counts(RequestHandle request) const { return impl_->counts(request); }
TokenReport SchedulerConnector::counts() const { return impl_->counts(); }
Result<ResetReport> SchedulerConnector::reset() {
  Result<ResetReport> report = impl_->manager().reset_all();
  record([&](CallRecorder& to) { to.reset(std::nullopt, report); });
  return report;
}
Result<ResetReport> SchedulerConnector::invalidate(std::uint64_t weights_generation) {
  Result<ResetReport> report = impl_->manager().invalidate(weights_generation);
  record([&](CallRecorder& to) { to.reset(weights_generation, report); });
  return report;
}
const KvBlockManager& SchedulerConnector::manager() const { return impl_->manager(); }
Status SchedulerConnector::wait_for_ranks(Duration longest) const { return impl_->ranks().wait_for_ranks(longest); }
std::vector<RankStatus> SchedulerConnector::rank_status() const { return impl_->ranks().status(); }
std::optional<RankAddress> SchedulerConnector::address() const { return impl_->ranks().address(); }
LocalLeader& SchedulerConnector::local_leader() const { return impl_->ranks(); }

}  // namespace cairn
