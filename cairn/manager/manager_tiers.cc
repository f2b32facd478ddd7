#include "cairn/manager/manager_tiers.h"

#include <algorithm>
#include <limits>
#include <new>
#include <random>
#include <utility>

#include "cairn/base/str_cat.h"
#include "cairn/cluster/open_store.h"
#include "cairn/hash/secret_bytes.h"
#include "cairn/manager/manager_metrics.h"
#include "cairn/manager/tier_maker.h"
#include "cairn/memory/preallocate.h"

namespace cairn {

namespace {

constexpr CacheLevel kDevice = CacheLevel::kG1;
constexpr CacheLevel kHost = CacheLevel::kG2;
constexpr CacheLevel kDisk = CacheLevel::kG3;
constexpr CacheLevel kRemote = CacheLevel::kG4;

// Nobody reports when blocks that a resize wants are released: how often pump() looks.
constexpr Duration kResizeStep = std::chrono::milliseconds(20);
constexpr std::uint32_t kReclaimStep = 4096;  // blocks: an allocation waits no longer than these take

}  // namespace

ManagerTiers::ManagerTiers(const ManagerConfig& config, const ManagerParts& parts, IncidentLog& incidents,
                           std::function<void()> wake)
    : config_(config),
      parts_(parts),
      clock_(*parts.clock),
      incidents_(incidents),
      wake_(std::move(wake)),
      prefill_(std::make_shared<PrefillMeter>(config.onboard.prefill_tokens_per_second,
                                              static_cast<double>(config.shape().block_bytes()) / config.block_size)),
      executors_(std::make_unique<Executors>(config_, parts_)) {
  if (parts.reports_iterations) {
    prefill_->expect_iterations();
  }
}

Result<std::unique_ptr<ManagerTiers>> ManagerTiers::make(const ManagerConfig& config, const ManagerParts& parts,
                                                         IncidentLog& incidents, std::function<void()> wake) {
  std::unique_ptr<ManagerTiers> tiers(new ManagerTiers(config, parts, incidents, std::move(wake)));
  CAIRN_TRY(tiers->make_returns());
  CAIRN_TRY(tiers->make_store());
  CAIRN_TRY(tiers->make_tiers());
  CAIRN_TRY(tiers->make_links());
  CAIRN_TRY(tiers->make_movers());
  CAIRN_TRY(tiers->make_scrub());
  tiers->report_recovery();
  return tiers;
}

ManagerTiers::~ManagerTiers() {
  if (store_ != nullptr) {
    store_->close();  // what its executor has in flight ends
  }
  executors_.reset();  // ends the copies in flight; their callbacks find everything they use
  for (PoolListener& listener : listeners_) {
    listener.detach();
  }
  if (Tier* const disk = tier(kDisk)) {
    // Blocks that cannot be flushed are found by their checksums at the next start.
    try {
      (void)disk->sync();
      if (returns_file_) {
        (void)returns_file_->save();  // else the return times are learned anew
      }
    } catch (const std::bad_alloc&) {
    }
  }
  const MutexLock lock(host_mutex_);
  host_size_.reset();
}

// --- making ---

Status ManagerTiers::make_returns() {
  CAIRN_TRY_ASSIGN(returns_, ReturnModel::create());
  const DiskConfig& disk = config_.disk;
  if (!disk.is_there() || (parts_.elsewhere && !parts_.disk_entries_in_file)) {
    return {};
  }
  returns_file_.emplace(disk.path, returns_, clock_.now());
  if (disk.opening == DiskOpening::kFresh) {
    return {};
  }
  if (const Status loaded = returns_file_->load(); !loaded) {
    incidents_.add(Incident::Kind::kDamagedFile, kDisk, loaded.error().message);
  }
  return {};
}

Status ManagerTiers::make_store() {
  const RemoteConfig& remote = config_.remote;
  if (!remote.is_there()) {
    return {};
  }
  if (parts_.elsewhere) {
    return fail(
        ErrorCode::kInvalidArgument,
        "remote.url is given, but the blocks of this manager are in the memory of its ranks, which do not use a "
        "store yet; leave it out");
  }
  std::uint64_t seed = 0;
  internal::fill_random(std::as_writable_bytes(std::span(&seed, 1)));
  std::unique_ptr<BlockStore> opened = parts_.store ? parts_.store() : nullptr;
  if (opened == nullptr) {
    CAIRN_TRY_ASSIGN(std::string password, config_.remote_password());
    Result<std::unique_ptr<BlockStore>> made =
        open_store({.url = remote.url,
                    .user = remote.user,
                    .password = std::move(password),
                    .ca_file = remote.ca_file,
                    .time_to_live = remote.time_to_live.value_or(Duration::zero()),
                    .timeout = remote.timeout,
                    .connections = remote.connections,
                    .seed = seed},
                   clock_);
    if (!made) {
      return fail(made.error().code, str_cat("remote: ", made.error().message));
    }
    opened = *std::move(made);
  }
  const auto jitter = std::make_shared<std::minstd_rand>(static_cast<std::minstd_rand::result_type>(seed));
  store_ = std::make_unique<RetryingStore>(
      std::move(opened), clock_,
      RetryingStore::Options{.attempts = remote.attempts,
                             .random = [jitter] { return std::uniform_real_distribution<double>(0.0, 1.0)(*jitter); },
                             .wake = wake_});
  // Without retries: the thread that waits for the era may be the one that pumps them.
  space_ = std::make_unique<RemoteSpace>(
      store_->direct(), clock_,
      RemoteSpace::Options{.tenant = config_.model.tenant, .space = config_.space().id(), .timeout = remote.timeout});
  executors_->use_store(*store_, *space_);
  (void)space_->prefix();  // asks for the era
  return {};
}

Status ManagerTiers::make_tiers() {
  CAIRN_TRY_ASSIGN(const std::optional<KeySecret> secret, config_.key_secret());
  const TierMaker maker(config_, parts_, secret);
  const bool has[] = {config_.device.is_there() || config_.device.engine_layout != nullptr, config_.host.is_there(),
                      config_.disk.is_there(), store_ != nullptr};
  CAIRN_TRY_ASSIGN(registry_, BlockRegistry::create(maker.blocks()));
  if (config_.event_log != 0) {
    EventLogOptions options{.blocks = config_.event_log,
                            .block_size = config_.block_size,
                            .source = {.worker_id = config_.worker_id, .dp_rank = config_.dp_rank.value_or(0)}};
    if (config_.event_token_ids) {
      constexpr std::uint64_t kMost = std::numeric_limits<std::uint32_t>::max() / 2;
      options.token_ids =
          static_cast<std::uint32_t>(std::min(std::uint64_t{config_.event_log} * config_.block_size, kMost));
      options.known_blocks = maker.blocks();
    }
    CAIRN_TRY_ASSIGN(events_, EventLog::create(options));
  }
  for (const CacheLevel level : kManagedTiers) {
    if (!has[index_of(level)]) {
      continue;
    }
    TierMaker::Followers followers;
    followers.when_low = wake_;
    followers.returns = returns_;
    followers.on_change = [this](const TierChange& change) {
      if (events_ != nullptr && change.use == TierUse::kReading) {
        change.is_up ? events_->resume(change.level) : events_->suspend(change.level);
      }
      incidents_.add(change.is_up ? Incident::Kind::kTierBack : Incident::Kind::kTierOut, change.level,
                     change.is_up ? str_cat(to_string(change.use), " works again")
                                  : str_cat(to_string(change.use), ": ", change.reason));
    };
    followers.on_dropped = [this](CacheLevel where, std::span<const BlockKey> keys) {
      for (const BlockKey& key : keys) {
        incidents_.add(Incident::Kind::kWrongBytes, where,
                       str_cat("block ", key.to_string(), " has other bytes than were stored; it was dropped"));
      }
    };
    followers.observers = {registry_.get(), &listeners_[index_of(level)]};
    if (events_ != nullptr) {
      followers.observers.push_back(events_.get());
    }
    const bool to_host = level == kDevice && has[index_of(kHost)];
    const bool to_disk = index_of(level) < index_of(kDisk) && !to_host && has[index_of(kDisk)];
    const OffloadOptions& offload = to_host ? config_.offload_to_host : config_.offload_to_disk;
    if ((to_host || to_disk) && offload.mode == OffloadMode::kAhead) {
      followers.low_water = offload.low_water;
    }
    if (level == kRemote) {
      followers.fence_store = [this](const std::optional<TierNewWeights>& weights) {
        if (weights) {
          space_->enter(weights->space);
          return Status();
        }
        return space_->begin_era();
      };
    }
    CAIRN_TRY_ASSIGN(tiers_[index_of(level)], level == kDevice ? maker.device(followers)
                                              : level == kHost ? maker.host(followers)
                                              : level == kDisk ? maker.disk(followers)
                                                               : maker.remote(followers));
  }
  const Tier* const disk = tier(kDisk);
  hasher_ =
      KeyHasher::make(config_.space(), disk != nullptr && parts_.disk_entries_in_file ? disk->key_secret() : secret);
  if (Tier* host = tier(kHost)) {
    const MutexLock lock(host_mutex_);
    host_size_.emplace(*host, maker.host_blocks(),
                       !has[index_of(kDisk)] && !has[index_of(kRemote)] && !parts_.elsewhere);
  }
  return {};
}

Status ManagerTiers::make_link(CacheLevel from, CacheLevel to) {
  Tier* const source = tier(from);
  Tier* const destination = tier(to);
  if (source == nullptr || destination == nullptr) {
    return {};
  }
  CAIRN_TRY_ASSIGN(TransferExecutor* const executor, executors_->for_copy(*source->layout(), *destination->layout()));
  CAIRN_TRY_ASSIGN(links_[index_of(from)][index_of(to)], TierLink::make(*source, *destination, *executor, clock_));
  return {};
}

Status ManagerTiers::make_links() {
  constexpr std::pair<CacheLevel, CacheLevel> kLinks[] = {{kDevice, kHost}, {kHost, kDevice}, {kHost, kDisk},
                                                          {kDisk, kHost},   {kDisk, kDevice}, {kHost, kRemote},
                                                          {kRemote, kHost}};
  for (const auto& [from, to] : kLinks) {
    CAIRN_TRY(make_link(from, to));
  }
  // Blocks go from the device straight to the disk only if there is no host tier.
  return tier(kHost) == nullptr ? make_link(kDevice, kDisk) : Status();
}

CacheLevel ManagerTiers::above(CacheLevel level) const {
  return index_of(level) >= index_of(kDisk) && tier(kHost) != nullptr ? kHost : kDevice;
}

std::uint64_t ManagerTiers::pinned_speed(CacheLevel from, CacheLevel to) const {
  const OnboardOptions& onboard = config_.onboard;
  if (to == kDevice) {
    return from == kHost ? onboard.host_to_device_bytes_per_second : onboard.disk_to_device_bytes_per_second;
  }
  if (to == kHost && from == kRemote) {
    return onboard.remote_to_host_bytes_per_second;
  }
  return from == kDisk ? onboard.disk_to_host_bytes_per_second : 0;
}

Status ManagerTiers::make_offloader(CacheLevel from, CacheLevel to, const OffloadOptions& options) {
  TierLink* const down = link(from, to);
  if (down == nullptr) {
    return {};
  }
  std::unique_ptr<Offloader>& offloader = offloaders_[index_of(to)];
  CAIRN_TRY_ASSIGN(offloader, Offloader::make(*down, *registry_, options, clock_, wake_,
                                              {.filter = parts_.offload_filter,
                                               .limit = parts_.offload_filter_limit,
                                               .report =
                                                   [this, to](std::string text) {
                                                     incidents_.add(Incident::Kind::kOffloadFilter, to,
                                                                    std::move(text));
                                                   },
                                               .own_thread = parts_.own_thread}));
  listeners_[index_of(from)].attach(offloader.get());
  return {};
}

Status ManagerTiers::make_movers() {
  CAIRN_TRY(make_offloader(kDevice, kHost, config_.offload_to_host));
  CAIRN_TRY(make_offloader(above(kDisk), kDisk, config_.offload_to_disk));
  CAIRN_TRY(make_offloader(kHost, kRemote, config_.offload_to_remote));
  if (Tier* const remote = tier(kRemote)) {
    lookup_ = std::make_unique<RemoteLookup>(
        *remote, *store_, *space_, clock_,
        RemoteLookup::Options{.timeout = config_.remote.timeout, .priority = config_.requests.priority}, wake_);
  }
  const Onboarder::Parts parts{.device = tier(kDevice),
                               .host = tier(kHost),
                               .disk = tier(kDisk),
                               .remote = tier(kRemote),
                               .host_to_device = link(kHost, kDevice),
                               .disk_to_device = link(kDisk, kDevice),
                               .disk_to_host = link(kDisk, kHost),
                               .remote_to_host = link(kRemote, kHost),
                               .registry = registry_.get(),
                               .cost = parts_.cost != nullptr ? parts_.cost : metered_cost_model(prefill_),
                               .block_size = config_.block_size,
                               .clock = &clock_,
                               .wake = wake_};
  CAIRN_TRY_ASSIGN(onboarder_, Onboarder::make(parts, config_.onboard));
  return {};
}

Status ManagerTiers::make_scrub() {
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
  CAIRN_TRY_ASSIGN(TransferExecutor* const executor, executors_->for_copy(*disk->layout(), **buffer));
  CAIRN_TRY_ASSIGN(scrub_, DiskScrub::make(*disk, *std::move(buffer), *executor, clock_,
                                           {.bytes_per_second = config_.disk.scrub_rate}, wake_));
  return {};
}

void ManagerTiers::report_recovery() {
  const Tier* const disk = tier(kDisk);
  if (disk == nullptr) {
    return;
  }
  const TierRecovered& found = disk->recovered();
  if (!found.damage.empty()) {
    incidents_.add(
        Incident::Kind::kDamagedFile, kDisk,
        str_cat(found.damage, found.cut_off == 0 ? "" : str_cat("; ", found.cut_off, " blocks were cut off")));
  }
  if (!found.is_reserved) {
    incidents_.add(Incident::Kind::kNotReserved, kDisk, str_cat(config_.disk.path, ": ", kNotReserved));
  }
  if (!found.clean) {
    incidents_.add(Incident::Kind::kStartedUnclean, kDisk,
                   str_cat(config_.disk.path, " was not closed in order; ", found.blocks, " blocks were found in it"));
  }
  if (found.damaged > 0) {
    incidents_.add(Incident::Kind::kDamagedEntries, kDisk,
                   str_cat(found.damaged, " entries of ", config_.disk.path, " were damaged; their blocks are lost"));
  }
}

// --- control ---

Status ManagerTiers::pause(CacheLevel from, CacheLevel to, bool paused) {
  TierLink* const found = link(from, to);
  if (found == nullptr) {
    return fail(ErrorCode::kNotFound, str_cat("there is no link from ", to_string(from), " to ", to_string(to)));
  }
  found->pause(paused);
  if (Offloader* const offloader = offloader_into(to); offloader != nullptr && index_of(from) < index_of(to)) {
    paused ? offloader->pause() : offloader->resume();
  }
  wake_();
  return {};
}

Status ManagerTiers::resize_host(std::uint32_t blocks) {
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
    const MutexLock lock(host_mutex_);
    host_size_->set(blocks);
  }
  wake_();
  return {};
}

void ManagerTiers::want_unknown(std::span<const BlockKey> keys) const {
  if (lookup_ == nullptr) {
    return;
  }
  constexpr TierSet kAll(0xF);
  while (!keys.empty()) {
    const std::optional<BlockRegistry::Run> run = registry_->nearest_run(keys, kAll);
    if (!run) {
      lookup_->want(keys);
      return;
    }
    keys = keys.subspan(run->keys);
  }
}

// --- moving ---

bool ManagerTiers::pump() {
  bool any = false;
  if (!parts_.own_thread) {
    executors_->check_deadlines();
  }
  for (const std::unique_ptr<Offloader>& offloader : offloaders_) {
    any |= offloader != nullptr && offloader->pump();
  }
  any |= onboarder_->pump();
  any |= scrub_ != nullptr && scrub_->pump();
  any |= store_ != nullptr && store_->pump();
  any |= lookup_ != nullptr && lookup_->pump();
  any |= may_reclaim_ && reclaim();
  if (returns_file_) {
    (void)returns_file_->save_if_due(clock_.now());  // tried again later
  }
  const MutexLock lock(host_mutex_);
  return (host_size_ && host_size_->advance()) || any;
}

// Returns whether there is more to reclaim.
bool ManagerTiers::reclaim() {
  may_reclaim_ = false;  // first: a fence that comes meanwhile sets it again
  bool more = false;
  for (const CacheLevel level : kManagedTiers) {
    Tier* const each = tier(level);
    more |= each != nullptr && each->pool() != nullptr && each->pool()->reclaim(kReclaimStep);
  }
  if (more) {
    may_reclaim_ = true;
  }
  return more;
}

std::optional<TimePoint> ManagerTiers::next_time() {
  std::optional<TimePoint> next = onboarder_->next_time();
  const auto sooner = [&next](std::optional<TimePoint> time) {
    if (time && (!next || *time < *next)) {
      next = time;
    }
  };
  for (const std::unique_ptr<Offloader>& offloader : offloaders_) {
    if (offloader != nullptr) {
      sooner(offloader->next_time());
    }
  }
  if (scrub_ != nullptr) {
    sooner(scrub_->next_time());
  }
  if (store_ != nullptr) {
    sooner(store_->next_time());
  }
  const MutexLock lock(host_mutex_);
  if (host_size_ && host_size_->to_withhold() > 0) {
    sooner(clock_.now() + kResizeStep);
  }
  return next;
}

bool ManagerTiers::is_idle() const {
  return onboarder_->is_idle() && (lookup_ == nullptr || lookup_->is_idle()) &&
         std::ranges::all_of(offloaders_,
                             [](const auto& offloader) { return offloader == nullptr || offloader->is_idle(); });
}

std::optional<std::uint64_t> ManagerTiers::settled_copies() const {
  std::uint64_t copies = 0;
  for (const auto& from : links_) {
    for (const std::unique_ptr<TierLink>& each : from) {
      const LinkTotals totals = each != nullptr ? each->meter().totals() : LinkTotals();
      if (totals.unsettled != 0) {
        return std::nullopt;
      }
      copies += totals.copies;
    }
  }
  return copies;
}

void ManagerTiers::end() {
  if (scrub_ != nullptr) {
    scrub_->end();
  }
  if (lookup_ != nullptr) {
    lookup_->end();
  }
  onboarder_->end();
  for (const std::unique_ptr<Offloader>& offloader : offloaders_) {
    if (offloader != nullptr) {
      offloader->end();
    }
  }
}

void ManagerTiers::end_now() {
  onboarder_->end_now();
  for (const std::unique_ptr<Offloader>& offloader : offloaders_) {
    if (offloader != nullptr) {
      offloader->end_now();
    }
  }
}

// --- for operators ---

void ManagerTiers::add_metrics(Metrics& metrics) {
  for (const CacheLevel level : kManagedTiers) {
    if (tier(level) != nullptr) {
      add_tier_metrics(metrics, *tier(level));
    }
    if (offloader_into(level) != nullptr) {
      add_offload_metrics(metrics, level, *offloader_into(level));
      const bool is_counted = level == kRemote && offloader_into(kDisk) != nullptr;  // above the disk already
      if (tier(above(level))->pool() != nullptr && !is_counted) {
        add_loss_metrics(metrics, above(level), *registry_);
      }
    }
    for (const CacheLevel to : kManagedTiers) {
      if (link(level, to) != nullptr) {
        add_link_metrics(metrics, *link(level, to));
      }
    }
  }
  add_onboard_metrics(metrics, *onboarder_);
  add_prefill_metrics(metrics, *prefill_);
  if (scrub_ != nullptr) {
    add_scrub_metrics(metrics, *scrub_);
  }
  if (lookup_ != nullptr) {
    add_remote_metrics(metrics, *lookup_, *store_);
  }
}

void ManagerTiers::add_to(ManagerStatus& status) const {
  for (const CacheLevel level : kManagedTiers) {
    if (const Tier* const each = tier(level)) {
      TierStatus& added = status.tiers.emplace_back(tier_status(*each));
      if (level == kDisk) {
        added.path = config_.disk.path;
      } else if (level == kRemote) {
        added.path = store_->describe();
      }
      const MutexLock lock(host_mutex_);
      if (level == kHost && host_size_) {
        added.withheld = host_size_->withheld();
        added.to_withhold = host_size_->to_withhold();
      }
    }
    if (const Offloader* const offloader = offloader_into(level)) {
      status.offload.push_back(offloader->status());
    }
    for (const CacheLevel to : kManagedTiers) {
      if (const TierLink* const each = link(level, to)) {
        status.links.push_back(link_status(*each));
        status.links.back().pinned_bytes_per_second = static_cast<double>(pinned_speed(level, to));
      }
    }
  }
  status.onboard = onboarder_->status();
  status.prefill = prefill_->status();
  if (scrub_ != nullptr) {
    status.scrub = scrub_->status();
  }
}

}  // namespace cairn
