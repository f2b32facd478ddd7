#include "cairn/manager/manager_state.h"

#include <algorithm>
#include <cstdio>
#include <exception>
#include <new>
#include <utility>

#include "cairn/base/deadline.h"
#include "cairn/base/end_within.h"
#include "cairn/base/own_thread.h"
#include "cairn/base/str_cat.h"
#include "cairn/manager/manager_metrics.h"
#include "cairn/manager/tier_maker.h"

namespace cairn {

namespace {

constexpr CacheLevel kDevice = CacheLevel::kG1;
constexpr CacheLevel kHost = CacheLevel::kG2;
constexpr CacheLevel kDisk = CacheLevel::kG3;

constexpr std::size_t kIncidentsKept = 64;
// Nobody says when blocks that are to be withheld are let go of: how often that is looked at.
constexpr Duration kResizeStep = std::chrono::milliseconds(20);
// While it waits for what is under way.
constexpr Duration kDrainStep = std::chrono::milliseconds(1);

}  // namespace

ManagerState::ManagerState(const ManagerConfig& config, const ManagerParts& parts)
    : config_(config),
      parts_(parts),
      clock_(*parts.clock),
      started_(parts.clock->now()),
      weights_generation_(config.model.weights_generation) {}

Result<std::shared_ptr<ManagerState>> ManagerState::make(const ManagerConfig& config, const ManagerParts& parts) {
  if (const Status status = config.validate(); !status) {
    return Unexpected(Error(status.error()));
  }
  const std::shared_ptr<ManagerState> state(new ManagerState(config, parts), &ManagerState::end);
  state->executors_ = std::make_unique<Executors>(state->config_, state->parts_);
  for (const auto step :
       {&ManagerState::make_tiers, &ManagerState::make_links, &ManagerState::make_movers, &ManagerState::make_scrub}) {
    if (const Status status = (state.get()->*step)(); !status) {
      return Unexpected(Error(status.error()));
    }
  }
  state->make_metrics();
  state->note_recovery();
  if (parts.own_thread) {
    state->thread_ = start_own_thread("cairn-manager", [raw = state.get()] { raw->run(); });
  }
  return state;
}

Status ManagerState::make_tiers() {
  const Result<std::optional<KeySecret>> secret = config_.key_secret();
  if (!secret) {
    return Unexpected(secret.error());
  }
  const TierMaker maker(config_, parts_, *secret);
  const bool has[] = {config_.device.is_there() || config_.device.engine_layout != nullptr, config_.host.is_there(),
                      config_.disk.is_there()};
  Result<std::unique_ptr<BlockRegistry>> registry = BlockRegistry::create(maker.blocks());
  if (!registry) {
    return Unexpected(std::move(registry).error());
  }
  registry_ = *std::move(registry);
  if (config_.event_log != 0) {
    Result<std::unique_ptr<EventLog>> events = EventLog::create({.blocks = config_.event_log});
    if (!events) {
      return Unexpected(std::move(events).error());
    }
    events_ = *std::move(events);
  }
  for (const CacheLevel level : kManagedTiers) {
    if (!has[index_of(level)]) {
      continue;
    }
    TierMaker::Followers followers;
    followers.when_low = [this] { wake(); };
    followers.told = [this](const TierChange& change) {
      if (events_ != nullptr && change.use == TierUse::kReading) {
        change.is_up ? events_->resume(change.level) : events_->suspend(change.level);
      }
      add_incident(change.is_up ? Incident::Kind::kTierBack : Incident::Kind::kTierOut, change.level,
                   change.is_up ? str_cat(to_string(change.use), " works again")
                                : str_cat(to_string(change.use), ": ", change.reason));
    };
    followers.dropped = [this](CacheLevel where, std::span<const BlockKey> keys) {
      for (const BlockKey& key : keys) {
        add_incident(Incident::Kind::kWrongBytes, where,
                     str_cat("block ", key.to_string(), " had other bytes than it was stored with, and is dropped"));
      }
    };
    followers.observers = {registry_.get(), &listeners_[index_of(level)]};
    if (events_ != nullptr) {
      followers.observers.push_back(events_.get());
    }
    const bool to_host = level == kDevice && has[index_of(kHost)];
    const bool to_disk = level != kDisk && !to_host && has[index_of(kDisk)];
    const OffloadOptions& offload = to_host ? config_.offload_to_host : config_.offload_to_disk;
    if ((to_host || to_disk) && offload.mode == OffloadMode::kAhead) {
      followers.low_water = offload.low_water;
    }
    Result<std::unique_ptr<Tier>> tier = level == kDevice ? maker.device(followers)
                                         : level == kHost ? maker.host(followers)
                                                          : maker.disk(followers);
    if (!tier) {
      return Unexpected(std::move(tier).error());
    }
    tiers_[index_of(level)] = *std::move(tier);
  }
  const Tier* const disk = tier(kDisk);
  hasher_ = KeyHasher::make(config_.space(), disk != nullptr ? disk->key_secret() : *secret);
  if (Tier* host = tier(kHost)) {
    const MutexLock lock(mutex_);
    host_size_.emplace(*host, maker.host_blocks(), !has[index_of(kDisk)] && !parts_.elsewhere);
  }
  return {};
}

Status ManagerState::make_link(CacheLevel from, CacheLevel to) {
  Tier* const above = tier(from);
  Tier* const below = tier(to);
  if (above == nullptr || below == nullptr) {
    return {};
  }
  Result<TransferExecutor*> executor = executors_->for_copy(*above->layout(), *below->layout());
  if (!executor) {
    return Unexpected(std::move(executor).error());
  }
  Result<std::unique_ptr<TierLink>> made = TierLink::make(*above, *below, **executor, clock_);
  if (!made) {
    return Unexpected(std::move(made).error());
  }
  links_[index_of(from)][index_of(to)] = *std::move(made);
  return {};
}

Status ManagerState::make_links() {
  constexpr std::pair<CacheLevel, CacheLevel> kLinks[] = {
      {kDevice, kHost}, {kHost, kDevice}, {kHost, kDisk}, {kDisk, kHost}, {kDisk, kDevice}};
  for (const auto& [from, to] : kLinks) {
    if (Status status = make_link(from, to); !status) {
      return status;
    }
  }
  // A device is saved to the disk straight only where there is nothing between.
  return tier(kHost) == nullptr ? make_link(kDevice, kDisk) : Status();
}

Status ManagerState::make_edge(CacheLevel from, CacheLevel to, const OffloadOptions& options) {
  TierLink* const down = link(from, to);
  if (down == nullptr) {
    return {};
  }
  Result<std::unique_ptr<OffloadEdge>> edge = OffloadEdge::make(*down, *registry_, options, clock_, [this] { wake(); });
  if (!edge) {
    return Unexpected(std::move(edge).error());
  }
  listeners_[index_of(from)].attach(edge->get());
  edges_[index_of(to)] = *std::move(edge);
  return {};
}

Status ManagerState::make_movers() {
  if (Status status = make_edge(kDevice, kHost, config_.offload_to_host); !status) {
    return status;
  }
  if (Status status = make_edge(tier(kHost) != nullptr ? kHost : kDevice, kDisk, config_.offload_to_disk); !status) {
    return status;
  }
  const Onboarder::Parts parts{.device = tier(kDevice),
                               .host = tier(kHost),
                               .disk = tier(kDisk),
                               .host_to_device = link(kHost, kDevice),
                               .disk_to_device = link(kDisk, kDevice),
                               .disk_to_host = link(kDisk, kHost),
                               .registry = registry_.get(),
                               .cost = parts_.cost,
                               .block_size = config_.block_size,
                               .clock = &clock_,
                               .wake = [this] { wake(); }};
  Result<std::unique_ptr<Onboarder>> made = Onboarder::make(parts, config_.onboard);
  if (!made) {
    return Unexpected(std::move(made).error());
  }
  onboarder_ = *std::move(made);
  return {};
}

Status ManagerState::make_scrub() {
  Tier* const disk = tier(kDisk);
  if (disk == nullptr || config_.disk.scrub_rate == 0) {
    return {};
  }
  if (parts_.elsewhere) {
    return fail(
        ErrorCode::kInvalidArgument,
        "disk.scrub_rate is given, but the blocks of this disk tier are in the files of its ranks, which a leader "
        "cannot scrub; leave it out");
  }
  Result<BlockLayoutPtr> buffer = DiskScrub::make_buffer(*disk, config_.disk.scrub_rate);
  if (!buffer) {
    return fail(buffer.error().code, str_cat("disk.scrub_rate: ", buffer.error().message));
  }
  Result<TransferExecutor*> executor = executors_->for_copy(*disk->layout(), **buffer);
  if (!executor) {
    return Unexpected(std::move(executor).error());
  }
  Result<std::unique_ptr<DiskScrub>> made = DiskScrub::make(
      *disk, *std::move(buffer), **executor, clock_, {.bytes_per_second = config_.disk.scrub_rate}, [this] { wake(); });
  if (!made) {
    return Unexpected(std::move(made).error());
  }
  scrub_ = *std::move(made);
  return {};
}

void ManagerState::make_metrics() {
  load_seconds_ = &metrics_.histogram("cairn_load_seconds", "From the request of a load to its result");
  for (const CacheLevel level : kManagedTiers) {
    if (tier(level) != nullptr) {
      add_tier_metrics(metrics_, *tier(level));
    }
    if (edge_into(level) != nullptr) {
      add_offload_metrics(metrics_, level, *edge_into(level));
      const Tier& above = *tier(level == kDisk && tier(kHost) != nullptr ? kHost : kDevice);
      if (above.pool() != nullptr) {
        add_loss_metrics(metrics_, above.level(), *registry_);
      }
    }
    for (const CacheLevel to : kManagedTiers) {
      if (link(level, to) != nullptr) {
        add_link_metrics(metrics_, *link(level, to));
      }
    }
  }
  add_onboard_metrics(metrics_, *onboarder_);
  if (scrub_ != nullptr) {
    add_scrub_metrics(metrics_, *scrub_);
  }
  metrics_.counter_function("cairn_incidents_total", "What an operator should know of", {}, [this] {
    const MutexLock lock(incidents_mutex_);
    return static_cast<double>(incident_count_);
  });
}

void ManagerState::note_recovery() {
  const Tier* const disk = tier(kDisk);
  if (disk == nullptr) {
    return;
  }
  const Tier::Recovered& found = disk->recovered();
  if (!found.damage.empty()) {
    add_incident(Incident::Kind::kDamagedFile, kDisk,
                 str_cat(found.damage, found.cut_off == 0 ? "" : str_cat("; ", found.cut_off, " blocks were cut off")));
  }
  if (!found.clean) {
    add_incident(Incident::Kind::kStartedUnclean, kDisk,
                 str_cat(config_.disk.path, " was not closed in order; ", found.blocks, " blocks were found in it"));
  }
  if (found.damaged > 0) {
    add_incident(Incident::Kind::kDamagedEntries, kDisk,
                 str_cat(found.damaged, " entries of ", config_.disk.path, " were damaged and are passed over"));
  }
}

void ManagerState::add_incident(Incident::Kind kind, CacheLevel level, std::string text) {
  const Incident incident{.when = clock_.now(), .kind = kind, .level = level, .text = std::move(text)};
  {
    const MutexLock lock(incidents_mutex_);
    incidents_.push_back(incident);
    ++incident_count_;
    if (incidents_.size() > kIncidentsKept) {
      incidents_.pop_front();
    }
  }
  if (parts_.on_incident && !*is_left_) {
    parts_.on_incident(incident);
  }
}

Status ManagerState::pause(CacheLevel from, CacheLevel to, bool paused) {
  TierLink* const edge = link(from, to);
  if (edge == nullptr) {
    return fail(ErrorCode::kNotFound, str_cat("there is no edge from ", to_string(from), " to ", to_string(to)));
  }
  edge->pause(paused);
  if (OffloadEdge* const offload = edge_into(to); offload != nullptr && index_of(from) < index_of(to)) {
    paused ? offload->pause() : offload->resume();
  }
  wake();
  return {};
}

Status ManagerState::resize_host(std::uint32_t blocks) {
  const Tier* const host = tier(kHost);
  if (host == nullptr) {
    return fail(ErrorCode::kNotFound, "there is no host tier to resize; configure host.size");
  }
  const std::uint32_t most = host->pool()->capacity();
  if (blocks == 0 || blocks > most) {
    return fail(ErrorCode::kOutOfRange, str_cat("a host tier of ", blocks, " blocks: it can have 1 to ", most,
                                                "; host.max_size sets the most when the manager is made"));
  }
  {
    const MutexLock lock(mutex_);
    host_size_->set(blocks);
  }
  wake();
  return {};
}

void ManagerState::wake() {
  if (woken_.exchange(true)) {
    return;
  }
  const MutexLock lock(wake_mutex_);
  woken_up_.notify_one();
}

void ManagerState::run() {
  while (true) {
    const std::optional<TimePoint> next = next_time();
    {
      MutexLock lock(wake_mutex_);
      const auto due = [this]() CAIRN_REQUIRES(wake_mutex_) { return ending_ || woken_; };
      is_asleep_ = true;
      ++sleeps_;
      went_to_sleep_.notify_all();
      if (!next) {
        woken_up_.wait(wake_mutex_, due);
      } else {
        woken_up_.wait_for(wake_mutex_, time_until(*next, clock_.now()), due);
      }
      if (ending_) {
        return;
      }
      is_asleep_ = false;
    }
    woken_ = false;
    while (pump()) {
    }
  }
}

bool ManagerState::pump() {
  bool any = false;
  if (!parts_.own_thread) {
    executors_->check_deadlines();
  }
  for (const std::unique_ptr<OffloadEdge>& edge : edges_) {
    any |= edge != nullptr && edge->pump();
  }
  any |= onboarder_->pump();
  any |= scrub_ != nullptr && scrub_->pump();
  any |= may_reclaim_ && reclaim();
  const MutexLock lock(mutex_);
  return (host_size_ && host_size_->advance()) || any;
}

std::optional<TimePoint> ManagerState::next_time() {
  std::optional<TimePoint> next = onboarder_->next_time();
  const auto sooner = [&next](std::optional<TimePoint> time) {
    if (time && (!next || *time < *next)) {
      next = time;
    }
  };
  for (const std::unique_ptr<OffloadEdge>& edge : edges_) {
    if (edge != nullptr) {
      sooner(edge->next_time());
    }
  }
  if (scrub_ != nullptr) {
    sooner(scrub_->next_time());
  }
  const MutexLock lock(mutex_);
  if (host_size_ && host_size_->to_withhold() > 0) {
    sooner(clock_.now() + kResizeStep);
  }
  return next;
}

std::optional<ManagerState::Rest> ManagerState::rest() {
  Rest rest;
  for (const auto& from : links_) {
    for (const std::unique_ptr<TierLink>& each : from) {
      const LinkTotals totals = each != nullptr ? each->meter().totals() : LinkTotals();
      if (totals.unsettled != 0) {
        return std::nullopt;
      }
      rest.copies += totals.copies;
    }
  }
  const MutexLock lock(wake_mutex_);
  if (thread_.joinable() && (!is_asleep_ || woken_)) {
    return std::nullopt;
  }
  rest.sleeps = sleeps_;
  return rest;
}

bool ManagerState::is_idle() {
  const std::optional<Rest> before = rest();
  return before && onboarder_->is_idle() &&
         std::all_of(edges_.begin(), edges_.end(),
                     [](const auto& edge) { return edge == nullptr || edge->is_idle(); }) &&
         rest() == before;
}

Status ManagerState::drain(Duration longest) {
  const TimePoint deadline = deadline_after(clock_.now(), longest);
  while (!is_idle()) {
    if (clock_.now() >= deadline) {
      return fail(ErrorCode::kExpired, "copies are still waiting or under way; status() says which");
    }
    if (!parts_.own_thread) {
      if (!pump()) {
        return fail(ErrorCode::kUnavailable, "nothing more can be done before the clock moves");
      }
      continue;
    }
    wake();
    MutexLock lock(wake_mutex_);
    went_to_sleep_.wait_for(wake_mutex_, kDrainStep);
  }
  return {};
}

ManagerStatus ManagerState::status() {
  ManagerStatus status{.worker_id = config_.worker_id, .uptime = clock_.now() - started_};
  for (const CacheLevel level : kManagedTiers) {
    if (const Tier* const each = tier(level)) {
      status.tiers.push_back(tier_status(*each));
    }
    if (const OffloadEdge* const edge = edge_into(level)) {
      const CacheLevel from = level == kDisk && tier(kHost) != nullptr ? kHost : kDevice;
      status.offload.push_back({.from = from, .to = level, .offload = edge->status()});
    }
    for (const CacheLevel to : kManagedTiers) {
      if (const TierLink* const each = link(level, to)) {
        status.edges.push_back(edge_status(*each));
      }
    }
  }
  status.onboard = onboarder_->status();
  if (scrub_ != nullptr) {
    status.scrub = scrub_->status();
  }
  {
    const MutexLock lock(mutex_);
    for (TierStatus& each : status.tiers) {
      if (each.level == kHost && host_size_) {
        each.withheld = host_size_->withheld();
        each.to_withhold = host_size_->to_withhold();
      }
    }
  }
  const MutexLock lock(incidents_mutex_);
  status.incidents.assign(incidents_.begin(), incidents_.end());
  status.incident_count = incident_count_;
  return status;
}

void ManagerState::end_and_wait(ManagerState* state) {
  std::unique_ptr<ManagerState> owned(state);
  if (!state->parts_.own_thread || state->parts_.clock != &steady_clock()) {
    return;  // in virtual time nothing hangs by itself, and the clock may not outlive this
  }
  const Duration limit = end_limit(state->config_.shutdown);
  const auto on_incident = state->parts_.on_incident;
  const std::shared_ptr<std::atomic<bool>> is_left = state->is_left_;
  Incident incident{.kind = Incident::Kind::kStopGivenUp,
                    .level = state->config_.disk.is_there() ? kDisk : kHost,
                    .text = str_cat("the stop of the manager was given up after ",
                                    std::chrono::duration_cast<std::chrono::milliseconds>(limit).count(),
                                    " ms: I/O has not returned; its memory",
                                    state->config_.disk.is_there() ? " and " + state->config_.disk.path : "",
                                    " stay in use until it does, or until the process ends")};
  if (end_within(std::move(owned), limit)) {
    return;
  }
  *is_left = true;
  std::fprintf(stderr, "cairn: %s\n", incident.text.c_str());
  if (on_incident) {
    incident.when = steady_clock().now();
    on_incident(incident);
  }
}

void ManagerState::end(ManagerState* state) noexcept {
  if (is_own_thread()) {
    try {
      std::thread([state] { delete state; }).detach();
    } catch (const std::exception& none) {
      std::fprintf(
          stderr,
          "cairn: the last copy of a manager went in a callback, and no thread can be started to stop it (%s); it "
          "is not stopped, and its memory stays\n",
          none.what());
    }
    return;
  }
  try {
    end_and_wait(state);
  } catch (const std::bad_alloc&) {
    // The state went on the way out, with whatever time that took.
  }
}

ManagerState::~ManagerState() { stop(); }

void ManagerState::stop() {
  if (scrub_ != nullptr) {
    scrub_->end();
  }
  if (onboarder_ != nullptr) {
    onboarder_->end();
  }
  for (const std::unique_ptr<OffloadEdge>& edge : edges_) {
    if (edge != nullptr) {
      edge->end();
    }
  }
  const auto is_drained = [this] {
    try {
      return drain(config_.shutdown).has_value();
    } catch (const std::bad_alloc&) {
      return false;  // as if the time were over
    }
  };
  if (onboarder_ != nullptr && !is_drained() && parts_.own_thread) {
    // Copies may never come back: whoever waits for them hears of it now, and of nothing after this.
    onboarder_->end_now();
    for (const std::unique_ptr<OffloadEdge>& edge : edges_) {
      if (edge != nullptr) {
        edge->end_now();
      }
    }
  }
  if (thread_.joinable()) {
    {
      const MutexLock lock(wake_mutex_);
      ending_ = true;
      woken_up_.notify_one();
    }
    thread_.join();
  }
  // What is still under way ends here; its callbacks find everything they use.
  executors_.reset();
  for (EdgeListener& listener : listeners_) {
    listener.attach(nullptr);
  }
  if (Tier* const disk = tier(kDisk)) {
    // What cannot be flushed is found out by its checksum at the next start.
    try {
      (void)disk->sync();
    } catch (const std::bad_alloc&) {
    }
  }
  const MutexLock lock(mutex_);
  host_size_.reset();
}

}  // namespace cairn
