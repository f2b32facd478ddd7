#include "cairn/onboard/onboarder.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <new>
#include <utility>

#include "cairn/base/check.h"
#include "cairn/base/deadline.h"
#include "cairn/base/mutex.h"
#include "cairn/base/str_cat.h"
#include "cairn/onboard/group_prefix.h"
#include "cairn/onboard/load_mover.h"
#include "cairn/onboard/onboard_plan.h"

namespace cairn {

namespace {

// How long before its load a transfer expires, at most.
constexpr Duration kBeforeTheDeadline = std::chrono::milliseconds(1);
// The largest part of a load that goes through host memory.
constexpr std::uint32_t kMaxPartBlocks = 32;
// When a link that is not used because it was slow is measured again, in seconds since the last time: at least so many, and
// so many times what the measurement takes.
constexpr double kLeastAge = 60;
constexpr double kAgeOfProbe = 1000;

Onboarder::Parts with_cost_model(Onboarder::Parts parts, const OnboardOptions& options) {
  if (parts.cost == nullptr) {
    parts.cost = measured_cost_model(options.prefill_tokens_per_second);
  }
  return parts;
}

Status check_tier(const char* name, const Tier* tier, CacheLevel level) {
  if (tier != nullptr && tier->level() != level) {
    return fail(ErrorCode::kInvalidArgument,
                str_cat("the ", name, " is ", to_string(tier->level()), "; it has to be ", to_string(level)));
  }
  if (tier != nullptr && tier->pool() == nullptr && level != CacheLevel::kG1) {
    return fail(ErrorCode::kInvalidArgument, str_cat("the ", name, " has no pool; only a device may have none"));
  }
  return {};
}

Status check_link(const char* name, const TierLink* link, const Tier* from, const Tier* to) {
  if (link != nullptr && (&link->from() != from || &link->to() != to)) {
    return fail(ErrorCode::kInvalidArgument, str_cat("the link ", name, " joins other tiers"));
  }
  return {};
}

Status check_unique(std::span<const BlockKey> keys) {
  const auto not_before = [](const BlockKey& a, const BlockKey& b) { return a.position() >= b.position(); };
  if (std::adjacent_find(keys.begin(), keys.end(), not_before) == keys.end()) {
    return {};  // the keys of one sequence, in order
  }
  std::vector<BlockKey> sorted(keys.begin(), keys.end());
  std::sort(sorted.begin(), sorted.end());
  if (const auto twice = std::adjacent_find(sorted.begin(), sorted.end()); twice != sorted.end()) {
    return fail(ErrorCode::kInvalidArgument,
                str_cat("key ", twice->to_string(), " is in the list twice; name it once"));
  }
  return {};
}

bool may_be_tried(const TierLink* link) { return link != nullptr && link->may_be_tried(); }
BlockPool* pool_of(Tier* tier) { return tier != nullptr ? tier->pool() : nullptr; }

// Calls the callback of a load that has ended.
void notify(Load& load) {
  const Load::Done done = std::exchange(load.done, {});  // destroyed when the load holds no blocks any more
  if (const auto* prefetch = std::get_if<std::function<void(std::uint32_t)>>(&done); prefetch != nullptr && *prefetch) {
    (*prefetch)(load.outcome.prefix);  // it may hold what has arrived before others can evict it
  }
  // What is beyond the outcome is released before the caller gets it.
  load.arrived.clear();
  load.present.clear();
  load.base = {};
  if (const auto* prefix = std::get_if<std::function<void(LoadOutcome&&)>>(&done)) {
    if (*prefix) {
      (*prefix)(std::move(load.outcome));
    }
  } else if (const auto* given = std::get_if<std::function<void(Result<ImmutableBlocks>&&)>>(&done)) {
    if (*given && load.outcome.blocks.empty() && !load.keys.empty()) {
      (*given)(fail(ErrorCode::kUnavailable, std::move(load.outcome.why)));
    } else if (*given) {
      (*given)(std::move(load.outcome.blocks));
    }
  }
}

}  // namespace

// The lock around the LoadMover, and what plans for it. Shared with the transfers in flight: the thread that brings the last
// outcome is still in here when the Onboarder is seen to be idle.
class Onboarder::Impl : public std::enable_shared_from_this<Onboarder::Impl> {
 public:
  Impl(const Parts& parts, const OnboardOptions& options);

  // What a load is begun with beside its Load.
  struct Start {
    const LoadRequest* request = nullptr;             // of a prefix
    std::optional<MutableBlocks>* targets = nullptr;  // of blocks that are given; taken once the load is accepted
  };
  // `fill` gives the load what only its kind has. A load that is refused leaves its arguments as they were.
  template <typename Fill>
  [[nodiscard]] Result<LoadId> begin(Load::Kind kind, std::vector<BlockKey>&& keys, TimePoint deadline, Start start,
                                     Fill fill) CAIRN_EXCLUDES(mutex_);
  // For a load that finds all its blocks on the device.
  [[nodiscard]] LoadId end_at_once(const LoadRequest& request, ImmutableBlocks blocks) CAIRN_EXCLUDES(mutex_);

  // Calls `event` with the mover under the lock and does what follows from it. notify_all() has to be called for what it
  // returns.
  template <typename Event>
  [[nodiscard]] LoadMover::Ended handle(Event event) CAIRN_EXCLUDES(mutex_);
  // Calls the callbacks of loads that have ended, and destroys what may run code of the caller.
  void notify_all(LoadMover::Ended& ended) CAIRN_EXCLUDES(mutex_);

  [[nodiscard]] PrefixLocation locate(std::span<const BlockKey> keys) const;
  [[nodiscard]] GroupLocation locate(const CacheGroups& groups, std::span<const BlockKey> keys,
                                     std::size_t local) const;
  [[nodiscard]] LoadWorth worth_loading(const PrefixLocation& found, const LoadContext& context) const;
  [[nodiscard]] OnboardStatus status() const CAIRN_EXCLUDES(mutex_);
  [[nodiscard]] std::optional<TimePoint> next_time() const CAIRN_EXCLUDES(mutex_);
  [[nodiscard]] bool is_idle() const CAIRN_EXCLUDES(mutex_);
  bool pump() CAIRN_EXCLUDES(mutex_);
  // Refuses loads from now on.
  void close() CAIRN_EXCLUDES(mutex_);

  [[nodiscard]] const Parts& parts() const { return parts_; }
  [[nodiscard]] std::uint64_t fences() const { return fences_; }
  void count_fence() { ++fences_; }
  template <typename Request>
  [[nodiscard]] TimePoint deadline_of(const Request& request) const {
    return request.deadline.value_or(deadline_after(parts_.clock->now(), options_.deadline));
  }

 private:
  [[nodiscard]] Status admit() CAIRN_REQUIRES(mutex_);
  [[nodiscard]] LoadLinks links() const;
  [[nodiscard]] TierSet readable_tiers(const LoadLinks& links, bool is_prefetch) const;
  [[nodiscard]] LoadCosts costs(const LoadContext& context) const;
  [[nodiscard]] std::uint32_t max_part_blocks() const;
  [[nodiscard]] std::vector<KeyRun> locate(const Load& load, std::uint32_t first, std::uint32_t last,
                                           std::uint32_t attempt, const LoadLinks& links) const CAIRN_REQUIRES(mutex_);
  [[nodiscard]] LoadPlanRequest plan_request(const Load& load, std::uint32_t first) const;
  void plan_first(const LoadPtr& load, Start&& start) CAIRN_REQUIRES(mutex_);
  // What the part was joined to has ended, well or not: its keys are located once more.
  void plan_again(const LoadPartPtr& woken) CAIRN_REQUIRES(mutex_);
  // Does what can be done now. Returns whether it did anything.
  bool run() CAIRN_REQUIRES(mutex_);
  [[nodiscard]] LoadMover::Ended take_ended() CAIRN_REQUIRES(mutex_);

  const Parts parts_;
  const OnboardOptions options_;
  // Written with the lock held. Sequentially consistent: a load reads it before it asks the device's pool, which is fenced
  // before it grows.
  std::atomic<std::uint64_t> fences_{0};
  mutable Mutex mutex_{LockRank::kOnboard};
  LoadMover::Queued queued_;
  LoadMover mover_ CAIRN_GUARDED_BY(mutex_);
  std::uint32_t notifying_ CAIRN_GUARDED_BY(mutex_) = 0;  // threads
  std::uint64_t next_id_ CAIRN_GUARDED_BY(mutex_) = 1;
  bool is_closed_ CAIRN_GUARDED_BY(mutex_) = false;
};

Onboarder::Impl::Impl(const Parts& parts, const OnboardOptions& options)
    : parts_(with_cost_model(parts, options)),
      options_(options),
      mover_(parts, queued_, [this](const LoadPartPtr& part) {
        return [self = shared_from_this(), part](LinkOutcome&& outcome) {
          // The outcome holds the blocks that arrived until parts that joined this one were planned again.
          LoadMover::Ended ended = self->handle([&](LoadMover& mover) { mover.transferred(part, outcome); });
          self->notify_all(ended);
        };
      }) {}

template <typename Event>
LoadMover::Ended Onboarder::Impl::handle(Event event) {
  const MutexLock lock(mutex_);
  event(mover_);
  run();
  return take_ended();
}

bool Onboarder::Impl::run() {
  bool any = false;
  for (bool again = true; again;) {
    again = mover_.step();
    while (const LoadPartPtr woken = mover_.take_woken()) {
      plan_again(woken);
      again = true;
    }
    any = any || again;
  }
  return any;
}

LoadMover::Ended Onboarder::Impl::take_ended() {
  LoadMover::Ended ended = mover_.take_ended();
  notifying_ += ended.loads.empty() ? 0 : 1;
  return ended;
}

void Onboarder::Impl::notify_all(LoadMover::Ended& ended) {
  ended.parts.clear();
  for (const LoadPtr& load : ended.loads) {
    load->targets.held.reset();
  }
  std::exception_ptr thrown;
  for (const LoadPtr& load : ended.loads) {
    try {
      notify(*load);
    } catch (...) {
      thrown = std::current_exception();  // of one callback: the others are called all the same
    }
  }
  if (!ended.loads.empty()) {
    ended.loads.clear();
    const MutexLock lock(mutex_);
    --notifying_;
  }
  if (ended.wake && parts_.wake) {
    parts_.wake();
  }
  if (thrown != nullptr) {
    std::rethrow_exception(thrown);
  }
}

Status Onboarder::Impl::admit() {
  if (is_closed_) {
    return fail(ErrorCode::kUnavailable, "the manager is shutting down; the load was not started");
  }
  if (const std::size_t loads = mover_.loads().size(); loads >= options_.loads) {
    ++mover_.totals().refused;
    return fail(ErrorCode::kExhausted, str_cat(loads, " loads are in flight; try again when one has ended"));
  }
  return {};
}

template <typename Fill>
Result<LoadId> Onboarder::Impl::begin(Load::Kind kind, std::vector<BlockKey>&& keys, TimePoint deadline, Start start,
                                      Fill fill) {
  CAIRN_TRY(check_unique(keys));
  const auto load = std::make_shared<Load>();
  load->kind = kind;
  load->deadline = deadline;
  const Duration left = time_until(deadline, parts_.clock->now());
  load->transfers_by = deadline != TimePoint::max() ? deadline - std::min(kBeforeTheDeadline, left / 8) : deadline;
  load->node.emplace_back();
  LoadMover::Ended ended;
  {
    const MutexLock lock(mutex_);
    CAIRN_TRY(admit());
    load->id = LoadId{next_id_++};
    load->keys = std::move(keys);
    fill(*load);
    mover_.add(load);
    // From here on it ends like any other, with what there was memory for.
    try {
      plan_first(load, std::move(start));
    } catch (const std::bad_alloc&) {
      mover_.out_of_memory(load);
    }
    run();
    ended = take_ended();
    ended.wake = ended.wake || !load->is_over;
  }
  const LoadId id = load->id;
  notify_all(ended);
  return id;
}

LoadId Onboarder::Impl::end_at_once(const LoadRequest& request, ImmutableBlocks blocks) {
  LoadId id{};
  LoadOutcome outcome;
  outcome.prefix = blocks.size();
  outcome.from[index_of(CacheLevel::kG1)] = blocks.size();
  outcome.blocks = std::move(blocks);
  {
    const MutexLock lock(mutex_);
    id = LoadId{next_id_++};
    ++mover_.totals().finished;
    mover_.totals().hits[index_of(CacheLevel::kG1)] += outcome.prefix;
  }
  if (request.done) {
    request.done(std::move(outcome));
  }
  return id;
}

LoadLinks Onboarder::Impl::links() const {
  return {.host_to_device = may_be_tried(parts_.host_to_device),
          .disk_to_device = may_be_tried(parts_.disk_to_device),
          .disk_to_host = may_be_tried(parts_.disk_to_host),
          .remote_to_host = may_be_tried(parts_.remote_to_host) && pool_of(parts_.host) != nullptr,
          .through_host = options_.through_host && pool_of(parts_.host) != nullptr};
}

TierSet Onboarder::Impl::readable_tiers(const LoadLinks& links, bool is_prefetch) const {
  TierSet tiers;
  const auto add = [&tiers](Tier* tier, bool is_readable) {
    if (is_readable && pool_of(tier) != nullptr) {
      tiers.insert(tier->level());
    }
  };
  add(parts_.device, true);
  add(parts_.host, is_prefetch || links.host_to_device);
  add(parts_.disk, is_prefetch ? links.disk_to_host : links.reads_disk());
  add(parts_.remote, is_prefetch ? links.remote_to_host : links.reads_remote());
  return tiers;
}

LoadCosts Onboarder::Impl::costs(const LoadContext& context) const {
  const std::uint64_t block_bytes = parts_.device != nullptr ? parts_.device->block_bytes() : 0;
  LoadCosts costs{.model = options_.weigh ? parts_.cost.get() : nullptr,
                  .block_bytes = static_cast<std::uint64_t>(static_cast<double>(block_bytes) * context.copies_each),
                  .block_size = parts_.block_size,
                  .first_token = context.first_block * parts_.block_size,
                  .total_tokens = context.total_tokens,
                  .engine_is_busy = context.engine_is_busy,
                  .max_part_blocks = max_part_blocks()};
  if (costs.model == nullptr) {
    return costs;
  }
  const TimePoint now = parts_.clock->now();
  const auto measure = [&](LoadLink which, const TierLink* link, std::uint64_t pinned, std::uint32_t promised) {
    if (link == nullptr) {
      return;
    }
    const LinkMeter::Estimate estimate = link->meter().estimate(now);
    LinkSpeed& speed = costs.speeds[index_of(which)];
    const std::uint64_t blocks = queued_.blocks[index_of(which)].load(std::memory_order_relaxed) + promised;
    speed.bytes_ahead = estimate.bytes_in_flight + blocks * block_bytes;
    speed.bytes_per_second = pinned > 0 ? static_cast<double>(pinned) : estimate.bytes_per_second;
    // Measuring again costs a request little time in relation to the time that has passed since.
    const double probe = static_cast<double>(kProbeBytes) / std::max(speed.bytes_per_second, 1.0);
    const double age = std::chrono::duration<double>(estimate.age).count();
    speed.is_old = pinned == 0 && age > std::max(kLeastAge, kAgeOfProbe * probe);
  };
  const std::uint32_t from_host = context.promised[index_of(CacheLevel::kG2)];
  const std::uint32_t from_disk = context.promised[index_of(CacheLevel::kG3)];
  const std::uint32_t from_remote = context.promised[index_of(CacheLevel::kG4)];
  const bool through_host = links().goes_through_host();
  measure(LoadLink::kHostToDevice, parts_.host_to_device, options_.host_to_device_bytes_per_second,
          from_host + from_remote + (through_host ? from_disk : 0));
  measure(LoadLink::kDiskToDevice, parts_.disk_to_device, options_.disk_to_device_bytes_per_second,
          through_host ? 0 : from_disk);
  measure(LoadLink::kDiskToHost, parts_.disk_to_host, options_.disk_to_host_bytes_per_second,
          through_host ? from_disk : 0);
  measure(LoadLink::kRemoteToHost, parts_.remote_to_host, options_.remote_to_host_bytes_per_second, from_remote);
  return costs;
}

PrefixLocation Onboarder::Impl::locate(std::span<const BlockKey> keys) const {
  // Without a device, blocks are brought to host memory at most.
  const TierSet tiers = readable_tiers(links(), parts_.device == nullptr);
  return {.levels = parts_.registry->nearest_of_each(keys, tiers)};
}

GroupLocation Onboarder::Impl::locate(const CacheGroups& groups, std::span<const BlockKey> keys,
                                      std::size_t local) const {
  const TierSet tiers = readable_tiers(links(), parts_.device == nullptr);
  const BlockRegistry& registry = *parts_.registry;
  GroupLocation location{.local = local};
  // Full groups first, each in runs: they say how far the others have to be looked at.
  std::size_t most = std::max(local, groups.boundary_before(keys.size()));
  std::vector<BlockKey> own;
  for (std::uint32_t group = 0; group < groups.size(); ++group) {
    if (groups[group].kind != GroupKind::kFull) {
      continue;
    }
    const std::size_t each = groups.each(group);
    own.clear();
    groups.append_keys(group, {local / each, most / each}, keys, own);
    std::span<const BlockKey> left = own;
    while (const auto run = left.empty() ? std::nullopt : registry.nearest_run(left, tiers)) {
      left = left.subspan(run->keys);
    }
    most = groups.boundary_before(local + (own.size() - left.size()) * each);
  }
  location.full_boundary = most;
  location.boundary = longest_usable_prefix(groups, local, most, [&](GroupBlock block) {
    const BlockKey key = groups.key(block, keys);
    return groups[block.group].kind == GroupKind::kFull || registry.nearest_run({&key, 1}, tiers).has_value();
  });
  location.blocks = blocks_to_load(groups, local, location.boundary);
  for (const GroupBlock& block : location.blocks) {
    location.keys.push_back(groups.key(block, keys));
  }
  for (std::span<const BlockKey> left = location.keys; !left.empty();) {
    // One that was evicted meanwhile ends the load early. Until then the slowest tier stands for it.
    const BlockRegistry::Run run =
        registry.nearest_run(left, tiers).value_or(BlockRegistry::Run{.tier = CacheLevel::kG3, .keys = 1});
    location.levels.insert(location.levels.end(), run.keys, run.tier);
    left = left.subspan(run.keys);
  }
  return location;
}

LoadWorth Onboarder::Impl::worth_loading(const PrefixLocation& found, const LoadContext& context) const {
  std::vector<KeyRun> runs;
  for (const CacheLevel level : found.levels) {
    if (runs.empty() || runs.back().tier != level) {
      runs.push_back({.blocks = 0, .tier = level});
    }
    ++runs.back().blocks;
  }
  const LoadLinks now = links();
  LoadCosts cost = costs(context);
  cost.may_prefetch = true;
  LoadWorth worth{.blocks = cairn::worth_loading(runs, now, cost)};
  const LinkSpeed& disk = cost.speeds[index_of(LoadLink::kDiskToHost)];
  if (now.goes_through_host() && disk.is_old && disk.bytes_ahead == 0) {
    const auto rest = std::span(found.levels).subspan(worth.blocks);
    const auto other = std::ranges::find_if(rest, [](CacheLevel level) { return level != CacheLevel::kG3; });
    worth.to_prefetch = std::min(static_cast<std::uint32_t>(other - rest.begin()), probe_blocks(cost.block_bytes));
  }
  return worth;
}

std::vector<KeyRun> Onboarder::Impl::locate(const Load& load, std::uint32_t first, std::uint32_t last,
                                            std::uint32_t attempt, const LoadLinks& links) const {
  const bool is_prefetch = load.kind == Load::Kind::kPrefetch;
  const TierSet tiers = readable_tiers(links, is_prefetch);
  const bool may_join = attempt + 1 < kLoadAttempts;
  std::vector<KeyRun> runs;
  while (first < last) {
    std::span<const BlockKey> keys = load.keys_of(first, last - first);
    KeyRun run;
    const auto join_at = [&](CacheLevel tier, std::uint32_t most) {
      const LoadMover::InFlight in_flight = mover_.find_in_flight(tier, keys.first(most));
      run.blocks = in_flight.blocks;
      if (in_flight.part != nullptr) {
        run.tier = in_flight.part->from;
        run.joined_at = tier;
      }
    };
    if (const std::optional<CacheLevel> tier = load.joinable_at(); tier && may_join) {
      join_at(*tier, last - first);
      keys = keys.first(run.blocks);
    }
    if (!run.joined_at) {
      const std::optional<BlockRegistry::Run> found = parts_.registry->nearest_run(keys, tiers);
      run = found ? KeyRun{.blocks = found->keys, .tier = found->tier} : KeyRun{.blocks = 1};
      const bool goes_through_host =
          run.tier == CacheLevel::kG4 || (run.tier == CacheLevel::kG3 && links.goes_through_host());
      if (goes_through_host && may_join && !is_prefetch) {
        join_at(CacheLevel::kG2, run.blocks);
      }
    }
    runs.push_back(run);
    first += run.blocks;
    if (!run.tier && load.is_prefix()) {
      break;
    }
  }
  return runs;
}

std::uint32_t Onboarder::Impl::max_part_blocks() const {
  const BlockPool* const host = pool_of(parts_.host);
  return host != nullptr ? std::clamp(host->capacity() / 4, 1U, kMaxPartBlocks) : 1;
}

LoadPlanRequest Onboarder::Impl::plan_request(const Load& load, std::uint32_t first) const {
  return {.first = first,
          .is_prefix = load.is_prefix(),
          .is_prefetch = load.kind == Load::Kind::kPrefetch,
          .max_part_blocks = max_part_blocks()};
}

void Onboarder::Impl::plan_first(const LoadPtr& load, Start&& start) {
  const auto all = static_cast<std::uint32_t>(load->keys.size());
  const std::uint32_t first = load->kind == Load::Kind::kPrefix ? load->base.size() : 0;
  const LoadLinks now = links();
  OnboardStatus& totals = mover_.totals();
  LoadPlan plan{.found = first, .end = first};
  load->found.assign(load->is_prefix() ? first : 0, CacheLevel::kG1);
  if (parts_.clock->now() >= load->deadline) {
    load->why = "the deadline had passed before the load began";
  } else {
    const std::vector<KeyRun> runs = locate(*load, first, all, 0, now);
    LoadPlanRequest request = plan_request(*load, first);
    LoadCosts cost;
    if (load->is_prefix()) {
      request.max_blocks = start.request->most;
      cost = costs({.first_block = first});
      cost.model = start.request->weigh ? cost.model : nullptr;
    }
    plan = plan_load(request, runs, now, cost);
    for (const KeyRun& run : runs) {
      if (load->is_prefix() && run.tier) {
        load->found.insert(load->found.end(), run.blocks, *run.tier);
      }
    }
    totals.misses += load->is_prefix() ? all - plan.found : 0;
  }
  for (const CacheLevel level : load->found) {
    ++totals.hits[index_of(level)];
  }
  load->not_worth_it = plan.not_worth_it;
  totals.not_worth_it += plan.not_worth_it;
  load->planned = load->kind == Load::Kind::kPrefetch ? plan.blocks_to_bring()
                  : load->kind == Load::Kind::kGiven  ? all
                                                      : plan.end;
  load->limit = load->planned;
  mover_.start(load, plan,
               {.first = first, .targets = start.targets != nullptr ? std::move(*start.targets) : std::nullopt});
}

void Onboarder::Impl::plan_again(const LoadPartPtr& woken) {
  const LoadPtr load = woken->load;
  const std::uint32_t last = woken->first + woken->count;
  try {
    const LoadLinks now = links();
    const std::vector<KeyRun> runs = locate(*load, woken->first, last, woken->attempt + 1, now);
    const LoadPlan plan = plan_load(plan_request(*load, woken->first), runs, now, {});
    if (plan.found < last) {
      mover_.limit(*load, plan.found, "a transfer of another load failed, and its source is gone");
    }
    mover_.start(load, plan,
                 {.first = woken->first, .attempt = woken->attempt + 1, .targets = std::move(woken->targets)});
  } catch (const std::bad_alloc&) {
    mover_.out_of_memory(load);
  }
  mover_.end_part(woken);
}

bool Onboarder::Impl::pump() {
  LoadMover::Ended ended;
  bool any = false;
  {
    const MutexLock lock(mutex_);
    any = mover_.check_deadlines(parts_.clock->now());
    any = run() || any;
    ended = take_ended();
    ended.wake = false;  // the caller of pump() asks for next_time()
  }
  notify_all(ended);
  return any;
}

OnboardStatus Onboarder::Impl::status() const {
  const MutexLock lock(mutex_);
  OnboardStatus status = mover_.totals();
  status.loads = static_cast<std::uint32_t>(mover_.loads().size());
  return status;
}

std::optional<TimePoint> Onboarder::Impl::next_time() const {
  const MutexLock lock(mutex_);
  return mover_.next_time();
}

bool Onboarder::Impl::is_idle() const {
  const MutexLock lock(mutex_);
  return mover_.is_idle() && notifying_ == 0;
}

void Onboarder::Impl::close() {
  const MutexLock lock(mutex_);
  is_closed_ = true;
}

Onboarder::Onboarder(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

Onboarder::~Onboarder() { CAIRN_CHECK(impl_->is_idle(), "an onboarder is ended and pumped until it is idle"); }

Result<std::unique_ptr<Onboarder>> Onboarder::make(const Parts& parts, const OnboardOptions& options) {
  CAIRN_CHECK(parts.clock != nullptr && parts.registry != nullptr, "an onboarder has a clock and a registry");
  CAIRN_TRY(check_tier("device", parts.device, CacheLevel::kG1));
  CAIRN_TRY(check_tier("host", parts.host, CacheLevel::kG2));
  CAIRN_TRY(check_tier("disk", parts.disk, CacheLevel::kG3));
  CAIRN_TRY(check_tier("store", parts.remote, CacheLevel::kG4));
  CAIRN_TRY(check_link("host to device", parts.host_to_device, parts.host, parts.device));
  CAIRN_TRY(check_link("disk to device", parts.disk_to_device, parts.disk, parts.device));
  CAIRN_TRY(check_link("disk to host", parts.disk_to_host, parts.disk, parts.host));
  CAIRN_TRY(check_link("store to host", parts.remote_to_host, parts.remote, parts.host));
  if (options.loads == 0) {
    return fail(ErrorCode::kInvalidArgument, "loads is 0; at least one load has to be possible");
  }
  return std::unique_ptr<Onboarder>(new Onboarder(std::make_shared<Impl>(parts, options)));
}

Result<LoadId> Onboarder::load(LoadRequest&& request) {
  BlockPool* const device = pool_of(impl_->parts().device);
  if (device == nullptr) {
    return fail(ErrorCode::kInvalidArgument, "there is no device with a pool to load into");
  }
  const std::uint64_t fences = impl_->fences();
  ImmutableBlocks base = device->match_prefix(request.keys);
  if (base.size() == request.keys.size()) {
    return impl_->end_at_once(request, std::move(base));
  }
  return impl_->begin(Load::Kind::kPrefix, std::move(request.keys), impl_->deadline_of(request), {.request = &request},
                      [&](Load& load) {
                        load.done = std::move(request.done);
                        if (impl_->fences() == fences) {
                          load.base = std::move(base);
                        }
                      });
}

Result<LoadId> Onboarder::load_into(EngineBlocks&& targets, LoadRequest&& request) {
  const Parts& parts = impl_->parts();
  if (parts.device == nullptr || parts.device->pool() != nullptr) {
    return fail(ErrorCode::kInvalidArgument, "there is no device of the engine's own to load into");
  }
  if (targets.block_ids.size() != request.keys.size()) {
    return fail(ErrorCode::kInvalidArgument, str_cat(request.keys.size(), " keys for ", targets.block_ids.size(),
                                                     " blocks; give one block for each key"));
  }
  return impl_->begin(Load::Kind::kEngine, std::move(request.keys), impl_->deadline_of(request), {.request = &request},
                      [&](Load& load) {
                        load.done = std::move(request.done);
                        load.targets = std::move(targets);
                        load.is_there.assign(load.keys.size(), false);
                      });
}

Result<LoadId> Onboarder::onboard(OnboardRequest&& request) {
  const Parts& parts = impl_->parts();
  const ImmutableBlocks& blocks = request.blocks;
  if (pool_of(parts.device) == nullptr) {
    return fail(ErrorCode::kInvalidArgument, "there is no device with a pool to load into");
  }
  const std::optional<CacheLevel> from = blocks.tier();
  if (from && (from != CacheLevel::kG2 || parts.host == nullptr) &&
      (from != CacheLevel::kG3 || parts.disk == nullptr) && (from != CacheLevel::kG4 || parts.remote == nullptr)) {
    return fail(ErrorCode::kInvalidArgument, str_cat("there is no tier ", to_string(*from), " below the device"));
  }
  if (request.targets && request.targets->size() != blocks.size()) {
    return fail(ErrorCode::kInvalidArgument, str_cat(blocks.size(), " blocks for ", request.targets->size(),
                                                     " targets; give one target for each block"));
  }
  std::vector<BlockKey> keys;
  keys.reserve(blocks.size());
  for (const BlockFacts& facts : blocks.facts()) {
    keys.push_back(facts.block.key);
  }
  const bool has_targets = request.targets.has_value();
  return impl_->begin(Load::Kind::kGiven, std::move(keys), impl_->deadline_of(request), {.targets = &request.targets},
                      [&](Load& load) {
                        load.done = std::move(request.done);
                        load.base = std::move(request.blocks);
                        load.has_targets = has_targets;
                      });
}

Result<LoadId> Onboarder::prefetch(PrefetchRequest&& request) {
  return impl_->begin(Load::Kind::kPrefetch, std::move(request.keys), impl_->deadline_of(request), {}, [&](Load& load) {
    load.is_there.assign(load.keys.size(), false);
    load.done = std::move(request.done);
  });
}

void Onboarder::cancel(LoadId load) {
  LoadMover::Ended ended = impl_->handle([load](LoadMover& mover) {
    const auto found = mover.loads().find(load);
    if (found != mover.loads().end()) {
      mover.cancel(LoadPtr(found->second), "it was cancelled");
    }
  });
  impl_->notify_all(ended);
}

Onboarder::Fenced Onboarder::fence() {
  const auto ended = std::make_shared<LoadMover::Ended>();
  Fenced fenced{.tell = [impl = impl_, ended] { impl->notify_all(*ended); }};
  *ended = impl_->handle([&](LoadMover& mover) {
    impl_->count_fence();
    for (const auto& [id, load] : mover.loads()) {
      load->is_fenced = true;
      ++fenced.loads;
      mover.cancel(load, "the cache was reset while the load was in flight");
    }
  });
  return fenced;
}

void Onboarder::end() {
  impl_->close();
  LoadMover::Ended ended = impl_->handle([](LoadMover& mover) {
    for (const auto& [id, load] : mover.loads()) {
      mover.cancel(load, "the manager is shutting down");
    }
  });
  impl_->notify_all(ended);
}

void Onboarder::end_now() {
  LoadMover::Ended ended = impl_->handle([](LoadMover& mover) {
    while (!mover.loads().empty()) {
      mover.finish(LoadPtr(mover.loads().begin()->second));
    }
  });
  impl_->notify_all(ended);
}

PrefixLocation Onboarder::locate(std::span<const BlockKey> keys) const { return impl_->locate(keys); }
GroupLocation Onboarder::locate(const CacheGroups& groups, std::span<const BlockKey> keys, std::size_t local) const {
  return impl_->locate(groups, keys, local);
}
LoadWorth Onboarder::worth_loading(const PrefixLocation& found, const LoadContext& context) const {
  return impl_->worth_loading(found, context);
}
OnboardStatus Onboarder::status() const { return impl_->status(); }
bool Onboarder::pump() { return impl_->pump(); }
std::optional<TimePoint> Onboarder::next_time() const { return impl_->next_time(); }
bool Onboarder::is_idle() const { return impl_->is_idle(); }

}  // namespace cairn
