#include "cairn/manager/kv_block_manager.h"

#include <algorithm>
#include <cstdio>
#include <exception>
#include <new>
#include <thread>
#include <utility>

#include "cairn/base/deadline.h"
#include "cairn/base/end_within.h"
#include "cairn/base/own_thread.h"
#include "cairn/base/str_cat.h"
#include "cairn/manager/incident_log.h"
#include "cairn/manager/manager_fence.h"
#include "cairn/manager/manager_metrics.h"
#include "cairn/manager/manager_thread.h"
#include "cairn/manager/manager_tiers.h"
#include "cairn/manager/page_copies.h"
#include "cairn/manager/token_counter.h"

namespace cairn {

namespace {

Error no_tier(CacheLevel level) {
  constexpr const char* kKeys[kCacheLevels] = {"[device]", "[host]", "[disk]", "[remote]"};
  return {ErrorCode::kNotFound, str_cat("there is no ", to_string(level), " tier; configure ", kKeys[index_of(level)])};
}

}  // namespace

// What the copies of a manager share. Members are destroyed from the last to the first.
class KvBlockManager::State {
 public:
  [[nodiscard]] static Result<std::shared_ptr<State>> make(const ManagerConfig& config, const ManagerParts& parts);
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State();

  // Pages wait for the manager's thread.
  [[nodiscard]] Status check_pages() const {
    return parts.own_thread ? Status() : fail(ErrorCode::kFailedPrecondition, "pages need ManagerParts::own_thread");
  }

  // Blocks of a group say nothing of the tokens that they save: what is worth loading is weighed by prefix, not by block.
  [[nodiscard]] LoadRequest weighed(LoadRequest&& request) const {
    request.weigh = request.weigh && groups.is_plain();
    return std::move(request);
  }

  const ManagerConfig config;
  const CacheGroups groups;
  const ManagerParts parts;
  const TimePoint started;
  Metrics metrics;
  Histogram& load_seconds;
  const std::shared_ptr<IncidentLog> incidents;  // shared with end(), which may outlive this
  const std::shared_ptr<ResetChannel> resets = std::make_shared<ResetChannel>();
  ManagerThread thread;
  std::unique_ptr<ManagerTiers> tiers;
  std::optional<ManagerFence> fence;
  std::optional<PageCopies> pages;
  std::unique_ptr<EventStream> events;  // reads the pools

 private:
  State(const ManagerConfig& given_config, CacheGroups given_groups, const ManagerParts& given_parts)
      : config(given_config),
        groups(std::move(given_groups)),
        parts(given_parts),
        started(given_parts.clock->now()),
        metrics(given_config.dp_rank ? MetricLabels{{"dp_rank", std::to_string(*given_config.dp_rank)}}
                                     : MetricLabels()),
        load_seconds(metrics.histogram("cairn_load_seconds", "From the request of a load to its result")),
        incidents(std::make_shared<IncidentLog>(*given_parts.clock, given_parts.on_incident)),
        thread(*given_parts.clock) {}

  [[nodiscard]] Status start_events();

  // Called by the last copy of the manager. If copies or files do not come back, the state is left to a thread of its own,
  // with all memory that they may still touch, and no callback runs any more. In a callback, whose thread the stop would wait
  // for, another thread stops the state and nobody waits.
  static void end(State* state) noexcept;
  static void end_and_wait(State* state);
};

Result<std::shared_ptr<KvBlockManager::State>> KvBlockManager::State::make(const ManagerConfig& config,
                                                                           const ManagerParts& parts) {
  CAIRN_TRY(config.validate());
  CAIRN_TRY_ASSIGN(CacheGroups groups, config.groups());
  const std::shared_ptr<State> state(new State(config, std::move(groups), parts), &State::end);
  CAIRN_TRY_ASSIGN(state->tiers, ManagerTiers::make(state->config, state->parts, *state->incidents,
                                                    [thread = &state->thread] { thread->wake(); }));
  state->fence.emplace(state->config, *state->tiers, *state->resets);
  state->pages.emplace(*state->tiers, *parts.clock, state->metrics);
  state->tiers->add_metrics(state->metrics);
  state->metrics.counter_function(
      "cairn_incidents_total", "What an operator should know of", {},
      [incidents = state->incidents.get()] { return static_cast<double>(incidents->count()); });
  if (parts.tokens != nullptr) {
    add_token_metrics(state->metrics, *parts.tokens, *parts.clock);
  }
  if (parts.own_thread) {
    state->thread.start(*state->tiers);
    CAIRN_TRY(state->start_events());
  }
  return state;
}

Status KvBlockManager::State::start_events() {
  const EventsConfig& given = config.events;
  if (given.publish.empty()) {
    return {};
  }
  std::vector<const ResidentSource*> pools;
  for (const CacheLevel level : kManagedTiers) {
    if (const Tier* const tier = tiers->tier(level); tier != nullptr && tier->pool() != nullptr) {
      pools.push_back(tier->pool());
    }
  }
  const KeyScheme scheme = config.model.scheme;
  const bool has_keys = scheme == KeyScheme::kNative || scheme == KeyScheme::kDynamo;
  auto stream = EventStream::start({.publish = given.publish,
                                    .replay = given.replay,
                                    .topic = given.topic,
                                    .format = given.format,
                                    .mode = given.mode,
                                    .engine = given.engine,
                                    .engine_replay = given.engine_replay,
                                    .names = has_keys ? EventNames::kKeys : EventNames::kEngineHashes,
                                    .block_size = config.block_size,
                                    .library = given.library},
                                   *tiers->events(), std::move(pools));
  if (!stream) {
    return fail(stream.error().code, str_cat("[events]: ", stream.error().message));
  }
  events = *std::move(stream);
  add_event_metrics(metrics, *events);
  return {};
}

KvBlockManager::State::~State() {
  if (tiers == nullptr) {
    return;
  }
  tiers->end();
  const auto is_drained = [this] {
    try {
      return thread.drain(*tiers, config.shutdown).has_value();
    } catch (const std::bad_alloc&) {
      return false;  // as if the time had run out
    }
  };
  if (!is_drained() && parts.own_thread) {
    tiers->end_now();
  }
  thread.stop();
}

void KvBlockManager::State::end_and_wait(State* state) {
  std::unique_ptr<State> owned(state);
  if (!state->parts.own_thread || state->parts.clock != &steady_clock()) {
    return;  // in virtual time nothing hangs by itself, and the clock may not outlive this call
  }
  const Duration limit = end_limit(state->config.shutdown);
  const bool has_disk = state->config.disk.is_there();
  const std::shared_ptr<IncidentLog> incidents = state->incidents;
  Incident incident{
      .kind = Incident::Kind::kShutdownTimedOut,
      .level = has_disk ? CacheLevel::kG3 : CacheLevel::kG2,
      .text = str_cat("the shutdown of the manager timed out after ",
                      std::chrono::duration_cast<std::chrono::milliseconds>(limit).count(),
                      " ms: I/O has not returned; its memory", has_disk ? " and " + state->config.disk.path : "",
                      " stay in use until it does, or until the process ends")};
  if (!end_within(std::move(owned), limit)) {
    std::fprintf(stderr, "cairn: %s\n", incident.text.c_str());
    incidents->close(std::move(incident));
  }
}

void KvBlockManager::State::end(State* state) noexcept {
  if (is_own_thread()) {
    try {
      std::thread([state] { delete state; }).detach();
    } catch (const std::exception& none) {
      std::fprintf(
          stderr,
          "cairn: the last copy of a manager was destroyed in a callback, and no thread can be started to stop "
          "the manager (%s); it is not stopped, and its memory stays in use\n",
          none.what());
    }
    return;
  }
  try {
    end_and_wait(state);
  } catch (const std::bad_alloc&) {
    // The state was destroyed on the way out, however long that took.
  }
}

Result<KvBlockManager> KvBlockManager::make(const ManagerConfig& config, const ManagerParts& parts) {
  CAIRN_TRY_ASSIGN(std::shared_ptr<State> state, State::make(config, parts));
  return KvBlockManager(std::move(state));
}

BlockPool* KvBlockManager::pool(CacheLevel level) const {
  Tier* const tier = state_->tiers->tier(level);
  return tier != nullptr ? tier->pool() : nullptr;
}

BlockLayoutPtr KvBlockManager::layout(CacheLevel level) const {
  const Tier* const tier = state_->tiers->tier(level);
  return tier != nullptr ? tier->layout() : nullptr;
}

std::uint64_t KvBlockManager::worker_id() const { return state_->config.worker_id; }
std::uint32_t KvBlockManager::dp_rank() const { return state_->config.dp_rank.value_or(0); }
std::uint32_t KvBlockManager::block_size() const { return state_->config.block_size; }
const ManagerConfig& KvBlockManager::config() const { return state_->config; }
const KeyHasher& KvBlockManager::hasher() const { return state_->tiers->hasher(); }

// --- up ---

PrefixLocation KvBlockManager::locate(std::span<const BlockKey> keys) const {
  const PrefixLocation location = state_->tiers->onboarder().locate(keys);
  if (location.blocks() < keys.size()) {
    state_->tiers->want_unknown(keys.subspan(location.blocks()));
  }
  return location;
}

void KvBlockManager::find_remote(std::vector<BlockKey> keys, TimePoint deadline,
                                 std::function<void(std::uint32_t)> done) const {
  const std::shared_ptr<State> state = kept();
  if (RemoteLookup* const lookup = state->tiers->lookup()) {
    lookup->find(std::move(keys), deadline, std::move(done));
  } else {
    done(0);
  }
}

const CacheGroups& KvBlockManager::groups() const { return state_->groups; }

Result<GroupLocation> KvBlockManager::locate_groups(std::span<const BlockKey> keys, std::size_t local) const {
  if (local > keys.size() || local % groups().alignment() != 0) {
    return fail(
        ErrorCode::kInvalidArgument,
        str_cat("blocks 0 to ", local, " of ", keys.size(), " cannot be there: with these layer groups a prefix has a ",
                "multiple of ", groups().alignment(), " blocks, and no more than there are keys"));
  }
  return state_->tiers->onboarder().locate(groups(), keys, local);
}

LoadWorth KvBlockManager::worth_loading(const PrefixLocation& found, const LoadContext& context) const {
  return state_->tiers->onboarder().worth_loading(found, context);
}

void KvBlockManager::report(const EngineIteration& iteration) const {
  state_->tiers->prefill().add(iteration, state_->parts.clock->now());
}

void KvBlockManager::add_incident(Incident::Kind kind, CacheLevel level, std::string text) const {
  state_->incidents->add(kind, level, std::move(text));
}

namespace {

// The same request, whose time is measured.
LoadRequest measured(const Clock& clock, Histogram& seconds, LoadRequest&& request) {
  request.done = [&clock, &seconds, began = clock.now(), done = std::move(request.done)](LoadOutcome&& result) {
    seconds.record(clock.now() - began);
    if (done) {
      done(std::move(result));
    }
  };
  return std::move(request);
}

}  // namespace

Result<LoadId> KvBlockManager::load(LoadRequest&& request) const {
  const std::shared_ptr<State> state = kept();
  state->tiers->want_unknown(request.keys);
  return state->tiers->onboarder().load(
      measured(*state->parts.clock, state->load_seconds, state->weighed(std::move(request))));
}

Result<LoadId> KvBlockManager::load_into(EngineBlocks&& targets, LoadRequest&& request) const {
  const std::shared_ptr<State> state = kept();
  state->tiers->want_unknown(request.keys);
  return state->tiers->onboarder().load_into(
      std::move(targets), measured(*state->parts.clock, state->load_seconds, state->weighed(std::move(request))));
}

void KvBlockManager::cancel(LoadId load) const { kept()->tiers->onboarder().cancel(load); }

Result<LoadId> KvBlockManager::onboard_blocks(OnboardRequest&& request) const {
  return kept()->tiers->onboarder().onboard(std::move(request));
}

Result<LoadId> KvBlockManager::prefetch(PrefetchRequest&& request) const {
  return kept()->tiers->onboarder().prefetch(std::move(request));
}

Status KvBlockManager::wait_for(const std::atomic<int>& flag) const {
  while (!state_->parts.own_thread && flag.load(std::memory_order_acquire) == 0) {
    if (!pump()) {
      return fail(ErrorCode::kUnavailable,
                  "the request is in flight and nothing more can be done before the clock moves");
    }
  }
  flag.wait(0, std::memory_order_acquire);
  return {};
}

// --- down ---

Result<OffloadRequestId> KvBlockManager::offload(CacheLevel into, OffloadRequest&& request) const {
  const std::shared_ptr<State> state = kept();
  Offloader* const offloader = state->tiers->offloader_into(into);
  if (offloader == nullptr) {
    return Unexpected(no_tier(into));
  }
  return offloader->offload(std::move(request));
}

// --- pages ---

Result<std::vector<bool>> KvBlockManager::store_pages(const PageList& pages, TimePoint deadline) const {
  const std::shared_ptr<State> state = kept();
  CAIRN_TRY(state->check_pages());
  return state->pages->store(pages, deadline);
}

Result<std::vector<bool>> KvBlockManager::fetch_pages(const PageList& pages, TimePoint deadline) const {
  const std::shared_ptr<State> state = kept();
  CAIRN_TRY(state->check_pages());
  return state->pages->fetch(pages, deadline);
}

Result<std::uint32_t> KvBlockManager::hint(std::span<const BlockKey> keys, const RetentionHint& hint) const {
  if (!config().requests.retention) {
    return fail(ErrorCode::kFailedPrecondition, "the tiers keep no hints; set requests.retention");
  }
  std::uint32_t found = 0;
  for (const CacheLevel level : kManagedTiers) {
    if (BlockPool* const tier = pool(level)) {
      CAIRN_TRY_ASSIGN(const std::uint32_t here, tier->hint(keys, hint));
      found += here;
    }
  }
  return found;
}

std::uint32_t KvBlockManager::end_request(std::span<const BlockKey> keys, RequestEnding ending) const {
  std::uint32_t found = 0;
  for (const CacheLevel level : {CacheLevel::kG1, CacheLevel::kG2, CacheLevel::kG3}) {
    if (BlockPool* const tier = pool(level)) {
      found += tier->end_request(keys, ending);
    }
  }
  return found;
}

Result<OffloadRequestId> KvBlockManager::offload(CacheLevel into, EngineBlocks&& blocks,
                                                 OffloadRequest&& request) const {
  const std::shared_ptr<State> state = kept();
  Offloader* const offloader = state->tiers->offloader_into(into);
  if (offloader == nullptr) {
    return Unexpected(no_tier(into));
  }
  const RequestsConfig& allowed = config().requests;
  const auto has_time = [](const BlockFacts& facts) { return facts.priority_ms != 0 || facts.time_to_live_ms != 0; };
  if (!allowed.retention && std::ranges::any_of(blocks.facts, has_time)) {
    return fail(ErrorCode::kFailedPrecondition, "the tiers keep no times of blocks; set requests.retention");
  }
  if (index_of(blocks.tenant) > allowed.tenants.size()) {
    return fail(ErrorCode::kNotFound, str_cat("tenant ", index_of(blocks.tenant), " is not in requests.tenants"));
  }
  return offloader->offload(std::move(blocks), std::move(request));
}

void KvBlockManager::used(CacheLevel into, std::span<const BlockKey> keys) const {
  if (Offloader* const offloader = state_->tiers->offloader_into(into)) {
    offloader->used_by_engine(keys);
  }
}

void KvBlockManager::cancel(CacheLevel into, OffloadRequestId request) const {
  const std::shared_ptr<State> state = kept();
  if (Offloader* const offloader = state->tiers->offloader_into(into)) {
    offloader->cancel(request);
  }
}

// --- control ---

Result<ResetReport> KvBlockManager::reset(CacheLevel level) const { return state_->fence->reset(level); }
Result<ResetReport> KvBlockManager::reset_all() const { return state_->fence->reset_all(std::nullopt); }
Result<ResetReport> KvBlockManager::invalidate(std::uint64_t weights_generation) const {
  return state_->fence->reset_all(weights_generation);
}
std::uint64_t KvBlockManager::weights_generation() const { return state_->fence->weights_generation(); }
std::uint64_t KvBlockManager::fences() const { return state_->fence->count(); }

ResetOutcome KvBlockManager::reset(CacheLevel level, std::span<const BlockKey> keys) const {
  Tier* const tier = state_->tiers->tier(level);
  if (tier == nullptr || tier->pool() == nullptr) {
    return {.not_found = static_cast<std::uint32_t>(keys.size())};
  }
  return tier->reset(keys);
}

ResetReceiver KvBlockManager::resets() const { return state_->resets->subscribe(); }

Status KvBlockManager::pause(CacheLevel from, CacheLevel to) const { return state_->tiers->pause(from, to, true); }
Status KvBlockManager::resume(CacheLevel from, CacheLevel to) const { return state_->tiers->pause(from, to, false); }
Status KvBlockManager::resize_host(std::uint32_t blocks) const { return state_->tiers->resize_host(blocks); }

ManagerStatus KvBlockManager::status() const {
  ManagerStatus status{.worker_id = worker_id(),
                       .dp_rank = state_->config.dp_rank,
                       .uptime = state_->parts.clock->now() - state_->started};
  state_->tiers->add_to(status);
  state_->incidents->add_to(status);
  if (state_->parts.tokens != nullptr) {
    status.tokens = state_->parts.tokens->report(state_->parts.clock->now());
  }
  if (state_->events != nullptr) {
    status.events = state_->events->status();
  }
  return status;
}

EventLog* KvBlockManager::events() const { return state_->tiers->events(); }
const Metrics& KvBlockManager::metrics() const { return state_->metrics; }

Status KvBlockManager::drain(Duration longest) const {
  const std::shared_ptr<State> state = kept();
  return state->thread.drain(*state->tiers, longest);
}

bool KvBlockManager::pump() const { return kept()->tiers->pump(); }
std::optional<TimePoint> KvBlockManager::next_time() const { return state_->tiers->next_time(); }

}  // namespace cairn
