#include "cairn/sim/replay.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <numeric>
#include <queue>
#include <utility>

#include "cairn/base/str_cat.h"
#include "cairn/sim/arrivals.h"
#include "cairn/sim/engine.h"
#include "cairn/sim/link_executor.h"
#include "cairn/sim/prefix_index.h"
#include "cairn/sim/recorder.h"
#include "cairn/sim/virtual_site.h"

namespace cairn::sim {
namespace {

// Passes between two calls of ReplayOptions::progress.
constexpr std::uint64_t kPassesBetweenProgress = 256;
// Refused requests that a report lists.
constexpr std::size_t kListedRefusals = 10;
// A worker with up to this many requests is never skipped.
constexpr std::uint64_t kFreeLoad = 16;

// Counts the events of one worker and passes them on.
class WorkerEvents final : public KvEventSink {
 public:
  WorkerEvents(std::uint32_t worker, const TimePoint& now, PrefixIndex* index, ReplayEventSink* listener)
      : worker_(worker), now_(now), index_(index), listener_(listener) {}

  // Events get the time of this clock; without one, that of the pass.
  void follow(const Clock& clock) { clock_ = &clock; }

  void on_stored(std::uint64_t event_id, CacheLevel tier, const KvStored& stored) override {
    ++events_;
    stored_ += tier == CacheLevel::kG1 ? stored.blocks.size() : 0;
    if (index_ != nullptr && tier == CacheLevel::kG1) {
      index_->stored(worker_, stored);
    }
    if (listener_ != nullptr) {
      listener_->on_stored(worker_, time(), event_id, tier, stored);
    }
  }
  void on_removed(std::uint64_t event_id, CacheLevel tier, const KvRemoved& removed) override {
    ++events_;
    removed_ += tier == CacheLevel::kG1 ? removed.hashes.size() : 0;
    if (index_ != nullptr && tier == CacheLevel::kG1) {
      index_->removed(worker_, removed);
    }
    if (listener_ != nullptr) {
      listener_->on_removed(worker_, time(), event_id, tier, removed);
    }
  }
  void add_to(CacheCounts& counts) const {
    counts.events += events_;
    counts.stored_blocks += stored_;
    counts.removed_blocks += removed_;
  }

 private:
  [[nodiscard]] TimePoint time() const { return clock_ != nullptr ? clock_->now() : now_; }

  const std::uint32_t worker_;
  const TimePoint& now_;
  const Clock* clock_ = nullptr;
  PrefixIndex* index_;
  ReplayEventSink* listener_;
  std::uint64_t events_ = 0;
  std::uint64_t stored_ = 0;
  std::uint64_t removed_ = 0;
};

class Run {
 public:
  Run(const ReplayOptions& options, RequestSource& source)
      : options_(options), arrivals_(source, options.concurrency), index_(options.workers) {}

  Status build() {
    for (std::uint32_t i = 0; i < options_.workers; ++i) {
      worker_events_.push_back(std::make_unique<WorkerEvents>(
          i, now_, options_.placement == Placement::kPrefix ? &index_ : nullptr, options_.events));
      EngineTiers below{.config = options_.manager, .faults = options_.faults};
      if (has_tiers()) {
        CAIRN_TRY(add_links(i));
        below.site = &site_of(i);
        below.links = links_[i];
        worker_events_.back()->follow(below.site->clock());
      }
      CAIRN_TRY_ASSIGN(
          std::unique_ptr<Engine> engine,
          Engine::create(options_.engine, i, recorder_, worker_events_.back().get(), has_tiers() ? &below : nullptr));
      workers_.push_back({.engine = std::move(engine)});
    }
    return {};
  }

  Report run() {
    while (go_on_) {
      do {
        end_passes();
        place_arrivals();
        begin_passes();
      } while (go_on_ && !passes_.empty() && passes_.top().end <= now_);
      const std::optional<TimePoint> arrival = arrivals_.next_time();
      if (passes_.empty() && !arrival) {
        break;
      }
      now_ = passes_.empty() ? *arrival : arrival ? std::min(*arrival, passes_.top().end) : passes_.top().end;
    }
    return report();
  }

 private:
  struct Worker {
    std::unique_ptr<Engine> engine;
    bool is_busy = false;
    bool is_touched = false;
  };
  struct PassEnd {
    TimePoint end;
    std::uint32_t worker;
    friend bool operator>(const PassEnd& a, const PassEnd& b) {
      return a.end != b.end ? a.end > b.end : a.worker > b.worker;
    }
  };

  [[nodiscard]] bool has_tiers() const { return options_.manager.host.is_there() || options_.manager.disk.is_there(); }
  [[nodiscard]] bool shares_links() const {
    return options_.host_link.shared_by_all || options_.disk_link.shared_by_all;
  }
  // Workers that share no link have a site each.
  [[nodiscard]] VirtualSite& site_of(std::size_t worker) const { return *sites_[shares_links() ? 0 : worker]; }

  Result<WorkerLinks::Pair> add_link(std::uint32_t worker, const ReplayLink& link,
                                     WorkerLinks::Pair WorkerLinks::* which) {
    if (link.shared_by_all && worker > 0) {
      return links_[0].*which;
    }
    const LinkDiscipline discipline = link.in_order ? LinkDiscipline::kInOrder : LinkDiscipline::kShared;
    LinkNetwork& network = site_of(worker).network();
    WorkerLinks::Pair pair;
    CAIRN_TRY_ASSIGN(pair.down,
                     network.add_link({.bytes_per_second = from_gigabytes_per_second(link.gigabytes_per_s_down),
                                       .discipline = discipline,
                                       .latency = link.latency}));
    CAIRN_TRY_ASSIGN(pair.up, network.add_link({.bytes_per_second = from_gigabytes_per_second(link.gigabytes_per_s_up),
                                                .discipline = discipline,
                                                .latency = link.latency}));
    return pair;
  }

  Status add_links(std::uint32_t worker) {
    if (worker == 0 || !shares_links()) {
      sites_.push_back(std::make_unique<VirtualSite>());
    }
    WorkerLinks links;
    CAIRN_TRY_ASSIGN(links.host, add_link(worker, options_.host_link, &WorkerLinks::host));
    CAIRN_TRY_ASSIGN(links.disk, add_link(worker, options_.disk_link, &WorkerLinks::disk));
    links_.push_back(links);
    return {};
  }

  void end_passes() {
    while (!passes_.empty() && passes_.top().end <= now_) {
      const std::uint32_t number = passes_.top().worker;
      passes_.pop();
      workers_[number].is_busy = false;
      touch(number);
      for (const Ticket& ticket : workers_[number].engine->finished()) {
        arrivals_.completed(ticket.session, now_);
        --in_flight_;
      }
    }
  }

  void place_arrivals() {
    while (arrivals_.take(now_, request_)) {
      place();
    }
  }

  void place() {
    const std::uint64_t number = arrived_++;
    recorder_.arrived();
    Result<Prompt> prompt = check_request();
    if (!prompt) {
      refuse(prompt.error());
      return;
    }
    const std::uint32_t worker = options_.placement == Placement::kPrefix
                                     ? worker_for(*prompt)
                                     : static_cast<std::uint32_t>(next_in_turn_++ % workers_.size());
    workers_[worker].engine->submit({.number = number, .session = request_.session}, *std::move(prompt),
                                    request_.output_tokens, request_.arrival);
    ++in_flight_;
    touch(worker);
  }

  Result<Prompt> check_request() const {
    if (request_.delay) {
      return fail(ErrorCode::kInvalidArgument, "the first turn of a session has a delay; remove the delay");
    }
    if (request_.output_tokens == 0) {
      return fail(ErrorCode::kInvalidArgument, "no tokens are to be generated; ask for at least one");
    }
    std::uint64_t input = 0;
    for (const TokenRun& run : request_.prompt) {
      input += run.count;
    }
    CAIRN_TRY(Engine::check_fits(options_.engine, input, request_.output_tokens));
    return Prompt::hashed(request_.prompt, options_.engine.block_size);
  }

  void refuse(const Error& why) {
    recorder_.refused();
    if (refusals_.size() < kListedRefusals) {
      refusals_.push_back(str_cat("line ", request_.line, ": ", why.message));
    }
    arrivals_.completed(request_.session, now_);
  }

  std::uint32_t worker_for(const Prompt& prompt) {
    const std::span<const std::uint32_t> depths = index_.depths(prompt.keys);
    const std::uint64_t most = kFreeLoad + kMostLoad * in_flight_ / workers_.size();
    std::uint32_t best = 0;
    bool found = false;
    for (std::uint32_t i = 0; i < workers_.size(); ++i) {
      const std::size_t load = workers_[i].engine->num_requests();
      if (load > most) {
        continue;
      }
      const std::size_t best_load = workers_[best].engine->num_requests();
      if (!found || depths[i] > depths[best] || (depths[i] == depths[best] && load < best_load)) {
        best = i;
        found = true;
      }
    }
    return best;
  }

  void touch(std::uint32_t worker) {
    if (!std::exchange(workers_[worker].is_touched, true)) {
      touched_.push_back(worker);
    }
  }

  // The time before which no request can arrive. If requests follow the answers to others, that is now.
  TimePoint horizon() const {
    if (!arrivals_.is_open_loop()) {
      return now_;
    }
    return arrivals_.next_time().value_or(TimePoint::max());
  }

  void begin_passes() {
    const TimePoint until = horizon();
    std::ranges::sort(touched_);
    for (const std::uint32_t number : touched_) {
      Worker& worker = workers_[number];
      worker.is_touched = false;
      if (!worker.is_busy && worker.engine->has_requests()) {
        worker.is_busy = true;
        passes_.push({worker.engine->run_pass(now_, until), number});
        if (++passes_begun_ % kPassesBetweenProgress == 0 && options_.progress) {
          go_on_ = go_on_ && options_.progress({now_, arrived_, recorder_.num_finished()});
        }
      }
    }
    touched_.clear();
  }

  Report report() const {
    Report report = recorder_.report();
    report.complete = go_on_;
    report.refusals = refusals_;
    report.workers = options_.workers;
    report.cache.capacity = options_.engine.blocks;
    for (const std::unique_ptr<WorkerEvents>& events : worker_events_) {
      events->add_to(report.cache);
    }
    add_evictions(report);
    add_tiers(report);
    return report;
  }

  void add_tiers(Report& report) const {
    if (!has_tiers()) {
      return;
    }
    report.kv_bytes = options_.manager.shape().block_bytes() / options_.manager.block_size;
    for (const CacheLevel level : {CacheLevel::kG2, CacheLevel::kG3}) {
      const BlockPool* const pool = workers_[0].engine->manager()->pool(level);
      if (pool == nullptr) {
        continue;
      }
      TierCounts counts{.level = level, .capacity = pool->capacity()};
      for (std::size_t worker = 0; worker < workers_.size(); ++worker) {
        add_tier_of(worker, counts);
      }
      counts.loaded = report.loaded_tokens[below_index(level)] / options_.engine.block_size;
      report.tiers.push_back(counts);
    }
  }

  void add_tier_of(std::size_t worker, TierCounts& counts) const {
    const KvBlockManager& manager = *workers_[worker].engine->manager();
    const ManagerStatus status = manager.status();
    counts.evicted += manager.pool(counts.level)->stats().evicted;
    for (const OffloadStatus& offload : status.offload) {
      if (offload.to == counts.level) {
        counts.copied += offload.copied;
        counts.refused += std::accumulate(offload.refused.begin(), offload.refused.end(), std::uint64_t{0});
      }
    }
    for (const LinkStatus& link : status.links) {
      counts.bytes_written += link.to == counts.level ? link.totals.bytes : 0;
      counts.bytes_read += link.from == counts.level ? link.totals.bytes : 0;
      if (link.to == counts.level || link.from == counts.level) {
        counts.failed += link.totals.failed + link.totals.mismatched + link.totals.expired;
      }
    }
    for (const TierStatus& tier : status.tiers) {
      counts.times_out += tier.level == counts.level ? tier.reading.times_out + tier.writing.times_out : 0;
    }
    const bool is_disk = counts.level == CacheLevel::kG3;
    if (worker > 0 && (is_disk ? options_.disk_link : options_.host_link).shared_by_all) {
      return;
    }
    const WorkerLinks::Pair& pair = is_disk ? links_[worker].disk : links_[worker].host;
    const LinkNetwork& network = site_of(worker).network();
    counts.seconds_down += std::chrono::duration<double>(network.stats(pair.down).busy).count();
    counts.seconds_up += std::chrono::duration<double>(network.stats(pair.up).busy).count();
  }

  void add_evictions(Report& report) const {
    std::size_t bars = 0;
    EvictionAges ages{};
    for (const Worker& worker : workers_) {
      for (std::size_t i = 0; i < ages.size(); ++i) {
        const std::uint64_t count = worker.engine->cache().eviction_ages()[i];
        ages[i] += count;
        report.cache.evicted += count;
        bars = count > 0 ? std::max(bars, i + 1) : bars;
      }
    }
    for (std::size_t i = 0; i < bars; ++i) {
      report.eviction_histogram.push_back({static_cast<double>(std::uint64_t{1} << i), ages[i]});
    }
  }

  const ReplayOptions& options_;
  Recorder recorder_;
  Arrivals arrivals_;
  PrefixIndex index_;
  TimePoint now_{0};
  std::vector<std::unique_ptr<VirtualSite>> sites_;  // outlive the workers
  std::vector<WorkerLinks> links_;                   // by worker
  std::vector<std::unique_ptr<WorkerEvents>> worker_events_;
  std::vector<Worker> workers_;
  std::priority_queue<PassEnd, std::vector<PassEnd>, std::greater<>> passes_;
  std::vector<std::uint32_t> touched_;  // workers that may be able to begin a pass
  ReplayRequest request_;
  std::uint64_t arrived_ = 0;
  std::uint64_t next_in_turn_ = 0;
  std::uint64_t in_flight_ = 0;
  std::uint64_t passes_begun_ = 0;
  bool go_on_ = true;
  std::vector<std::string> refusals_;
};

}  // namespace

std::string_view to_string(Placement placement) { return placement == Placement::kPrefix ? "prefix" : "round-robin"; }

std::string_view to_string(TierFault::Kind kind) {
  constexpr std::string_view kNames[] = {"stall", "fail", "garbage"};
  return kNames[static_cast<std::size_t>(kind)];
}

std::optional<Placement> parse_placement(std::string_view name) {
  for (const Placement placement : {Placement::kRoundRobin, Placement::kPrefix}) {
    if (name == to_string(placement)) {
      return placement;
    }
  }
  return std::nullopt;
}

Result<Report> run_replay(const ReplayOptions& options, RequestSource& source) {
  if (options.workers == 0) {
    return fail(ErrorCode::kInvalidArgument, "a replay needs at least one worker");
  }
  const bool has_tiers = options.manager.host.is_there() || options.manager.disk.is_there();
  if (has_tiers && options.engine.profile == Profile::kSeed) {
    return fail(ErrorCode::kInvalidArgument,
                "tiers require the strict profile: under the seed profile workers have no manager");
  }
  if (has_tiers && !options.engine.prefix_caching) {
    return fail(ErrorCode::kInvalidArgument, "without prefix caching nothing is loaded from tiers; remove the tiers");
  }
  Run run(options, source);
  CAIRN_TRY(run.build());
  return run.run();
}

}  // namespace cairn::sim
