// ManagerState: the parts of a KvBlockManager, and the thread that moves blocks along.
//
// Owner:    shared by the copies of the manager; the last one's destructor stops it in order.
// Threads:  any; see KvBlockManager. The parts are made before the thread starts and constant from then on.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "cairn/base/mutex.h"
#include "cairn/manager/executors.h"
#include "cairn/manager/host_size.h"
#include "cairn/manager/kv_block_manager.h"
#include "cairn/pool/block_registry.h"
#include "cairn/tier/disk_scrub.h"
#include "cairn/tier/tier.h"
#include "cairn/tier/tier_link.h"

namespace cairn {

// Follows the pool of a tier for the edge that leads down from it, which is made after the pool. What there is no memory to
// note is not copied down: the pool that tells it is in the middle of a change.
class EdgeListener final : public PoolObserver {
 public:
  void attach(OffloadEdge* edge) { edge_ = edge; }

  void on_registered(CacheLevel, std::span<const ResidentBlock> blocks, std::span<const Token>) override {
    try {
      if (OffloadEdge* edge = edge_) {
        edge->registered(blocks);
      }
    } catch (const std::bad_alloc&) {
    }
  }
  void on_removed(CacheLevel, std::span<const BlockKey>) override {}
  void on_cleared(CacheLevel) override {}
  void on_matched(CacheLevel, std::span<const BlockKey> keys) override {
    try {
      if (OffloadEdge* edge = edge_) {
        edge->used(keys);
      }
    } catch (const std::bad_alloc&) {
    }
  }

 private:
  std::atomic<OffloadEdge*> edge_{nullptr};
};

// The tiers of a manager, from the top down.
inline constexpr CacheLevel kManagedTiers[] = {CacheLevel::kG1, CacheLevel::kG2, CacheLevel::kG3};

class ManagerState {
 public:
  [[nodiscard]] static Result<std::shared_ptr<ManagerState>> make(const ManagerConfig& config,
                                                                  const ManagerParts& parts);
  ManagerState(const ManagerState&) = delete;
  ManagerState& operator=(const ManagerState&) = delete;
  ~ManagerState();
  // What the last copy of a manager does. If copies or files do not come back, the state is left to a thread of its own,
  // with all memory that they may still touch, and nothing is called any more. In a callback, which runs on a thread that the
  // stop would wait for, a thread of its own stops it and nobody waits.
  static void end(ManagerState* state) noexcept;

  [[nodiscard]] const ManagerConfig& config() const { return config_; }
  [[nodiscard]] const ManagerParts& parts() const { return parts_; }
  [[nodiscard]] const KeyHasher& hasher() const { return hasher_; }
  [[nodiscard]] Tier* tier(CacheLevel level) const { return tiers_[index_of(level)].get(); }
  [[nodiscard]] TierLink* link(CacheLevel from, CacheLevel to) const {
    return links_[index_of(from)][index_of(to)].get();
  }
  // The one that leads into this tier.
  [[nodiscard]] OffloadEdge* edge_into(CacheLevel level) const { return edges_[index_of(level)].get(); }
  [[nodiscard]] Onboarder& onboarder() const { return *onboarder_; }
  [[nodiscard]] EventLog* events() const { return events_.get(); }
  [[nodiscard]] Metrics& metrics() { return metrics_; }
  [[nodiscard]] ResetChannel& resets() { return *resets_; }
  [[nodiscard]] Histogram& load_seconds() { return *load_seconds_; }

  [[nodiscard]] Result<ResetReport> reset(CacheLevel level) CAIRN_EXCLUDES(fence_mutex_);
  // Of new weights, if a generation is given.
  [[nodiscard]] Result<ResetReport> reset_all(std::optional<std::uint64_t> weights_generation)
      CAIRN_EXCLUDES(fence_mutex_);
  [[nodiscard]] std::uint64_t weights_generation() const { return weights_generation_; }
  [[nodiscard]] std::uint64_t fences() const { return fences_; }
  [[nodiscard]] Status pause(CacheLevel from, CacheLevel to, bool paused);
  [[nodiscard]] Status resize_host(std::uint32_t blocks) CAIRN_EXCLUDES(mutex_);
  [[nodiscard]] ManagerStatus status() CAIRN_EXCLUDES(mutex_);

  bool pump() CAIRN_EXCLUDES(mutex_);
  [[nodiscard]] std::optional<TimePoint> next_time() CAIRN_EXCLUDES(mutex_);
  // Nothing waits, nothing is under way, and no late copy may touch memory any more.
  // What has to be the same before and after a look at the parts: they are looked at one after the other, and work goes
  // from one to the next. None while any copy is unsettled, or the thread awake: it holds blocks while it decides.
  struct Rest {
    std::uint64_t sleeps = 0;  // of the thread
    std::uint64_t copies = 0;  // begun on all edges
    bool operator==(const Rest&) const = default;
  };
  [[nodiscard]] std::optional<Rest> rest();
  [[nodiscard]] bool is_idle();
  [[nodiscard]] Status drain(Duration longest);

 private:
  ManagerState(const ManagerConfig& config, const ManagerParts& parts);
  [[nodiscard]] Status make_tiers();
  [[nodiscard]] Status make_link(CacheLevel from, CacheLevel to);
  [[nodiscard]] Status make_links();
  [[nodiscard]] Status make_edge(CacheLevel from, CacheLevel to, const OffloadOptions& options);
  [[nodiscard]] Status make_movers();
  [[nodiscard]] Status make_scrub();
  void make_metrics();
  void note_recovery();
  void add_incident(Incident::Kind kind, CacheLevel level, std::string text);

  // One fence over these tiers. All of them: over the registry and loads too.
  struct Fence {
    std::vector<CacheLevel> levels = {};
    bool is_of_all = false;
    std::optional<Tier::NewWeights> weights = {};
  };
  [[nodiscard]] Result<ResetReport> raise(const Fence& fence, std::function<void()>& tell) CAIRN_REQUIRES(fence_mutex_);
  [[nodiscard]] std::uint64_t in_flight_into(CacheLevel level) const;
  [[nodiscard]] bool reclaim();

  static void end_and_wait(ManagerState* state);
  // There is something to pump. Also under a pool's lock.
  void wake();
  void run();
  void stop();

  const ManagerConfig config_;
  const ManagerParts parts_;
  const Clock& clock_;
  const TimePoint started_;
  KeyHasher hasher_ = KeyHasher::dynamo();  // until the tiers are made
  Metrics metrics_;
  Histogram* load_seconds_ = nullptr;
  // Nobody is there any more to be told of incidents. Shared with end(), which the state may outlive or not.
  const std::shared_ptr<std::atomic<bool>> is_left_ = std::make_shared<std::atomic<bool>>(false);
  const std::shared_ptr<ResetChannel> resets_ = std::make_shared<ResetChannel>();

  Mutex fence_mutex_{LockRank::kManager};  // one reset at a time
  // Both are written with fence_mutex_ held; they order nothing.
  std::atomic<std::uint64_t> weights_generation_;
  std::atomic<std::uint64_t> fences_{0};
  std::atomic<bool> may_reclaim_{false};  // pools may have blocks to reclaim

  mutable Mutex incidents_mutex_{LockRank::kHealth};
  std::deque<Incident> incidents_ CAIRN_GUARDED_BY(incidents_mutex_);
  std::uint64_t incident_count_ CAIRN_GUARDED_BY(incidents_mutex_) = 0;

  Mutex wake_mutex_{LockRank::kWake};
  std::condition_variable_any woken_up_;
  std::atomic<bool> woken_{false};
  bool ending_ CAIRN_GUARDED_BY(wake_mutex_) = false;
  bool is_asleep_ CAIRN_GUARDED_BY(wake_mutex_) = false;
  std::uint64_t sleeps_ CAIRN_GUARDED_BY(wake_mutex_) = 0;
  std::condition_variable_any went_to_sleep_;

  // From here on in the order of their needs; what comes later goes earlier.
  std::unique_ptr<BlockRegistry> registry_;
  std::unique_ptr<EventLog> events_;
  std::array<EdgeListener, kCacheLevels> listeners_;
  std::array<std::unique_ptr<Tier>, kCacheLevels> tiers_;
  Mutex mutex_{LockRank::kManager};
  std::optional<HostSize> host_size_ CAIRN_GUARDED_BY(mutex_);
  std::array<std::array<std::unique_ptr<TierLink>, kCacheLevels>, kCacheLevels> links_;
  std::array<std::unique_ptr<OffloadEdge>, kCacheLevels> edges_;
  std::unique_ptr<Onboarder> onboarder_;
  std::unique_ptr<DiskScrub> scrub_;
  // Ends before all that its callbacks use.
  std::unique_ptr<Executors> executors_;
  std::thread thread_;
};

}  // namespace cairn
