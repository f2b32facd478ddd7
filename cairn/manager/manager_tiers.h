// ManagerTiers: the tiers of a manager, the links between them, and what moves blocks over the links.
//
// Thread safety: any thread may call; pump() one thread at a time. The parts are made by make() and constant from then on.
// Ownership:     the destructor ends the copies in flight, whose callbacks still find everything they use, and flushes the
//                disk.
// Errors:        make(): memory, a GPU or a disk that cannot be had; names the key.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <vector>

#include "cairn/base/mutex.h"
#include "cairn/cluster/remote_lookup.h"
#include "cairn/cluster/remote_space.h"
#include "cairn/cluster/retrying_store.h"
#include "cairn/manager/executors.h"
#include "cairn/manager/host_size.h"
#include "cairn/manager/incident_log.h"
#include "cairn/manager/kv_block_manager.h"
#include "cairn/manager/returns_file.h"
#include "cairn/offload/offloader.h"
#include "cairn/onboard/onboarder.h"
#include "cairn/onboard/prefill_meter.h"
#include "cairn/pool/block_registry.h"
#include "cairn/tier/disk_scrub.h"
#include "cairn/tier/tier.h"
#include "cairn/tier/tier_link.h"

namespace cairn {

// From the top down.
inline constexpr CacheLevel kManagedTiers[] = {CacheLevel::kG1, CacheLevel::kG2, CacheLevel::kG3, CacheLevel::kG4};

class ManagerTiers {
 public:
  // `wake`: there is something to pump.
  [[nodiscard]] static Result<std::unique_ptr<ManagerTiers>> make(const ManagerConfig& config,
                                                                  const ManagerParts& parts, IncidentLog& incidents,
                                                                  std::function<void()> wake);
  ManagerTiers(const ManagerTiers&) = delete;
  ManagerTiers& operator=(const ManagerTiers&) = delete;
  ~ManagerTiers();

  // Null if there is no such tier, or link.
  [[nodiscard]] Tier* tier(CacheLevel level) const { return tiers_[index_of(level)].get(); }
  [[nodiscard]] TierLink* link(CacheLevel from, CacheLevel to) const {
    return links_[index_of(from)][index_of(to)].get();
  }
  // What moves blocks down into this tier.
  [[nodiscard]] Offloader* offloader_into(CacheLevel level) const { return offloaders_[index_of(level)].get(); }
  [[nodiscard]] Onboarder& onboarder() const { return *onboarder_; }
  // Finds out what the store has; null if there is no remote tier.
  [[nodiscard]] RemoteLookup* lookup() const { return lookup_.get(); }
  // Asks the store in the background for the keys from the first on that no tier is known to have.
  void want_unknown(std::span<const BlockKey> keys) const;
  [[nodiscard]] PrefillMeter& prefill() const { return *prefill_; }
  [[nodiscard]] BlockRegistry& registry() const { return *registry_; }
  [[nodiscard]] EventLog* events() const { return events_.get(); }
  [[nodiscard]] const KeyHasher& hasher() const { return hasher_; }

  [[nodiscard]] Status pause(CacheLevel from, CacheLevel to, bool paused);
  [[nodiscard]] Status resize_host(std::uint32_t blocks) CAIRN_EXCLUDES(host_mutex_);
  // Makes pump() give the blocks that a fence has dropped back to their pools.
  void reclaim_later() {
    may_reclaim_ = true;
    wake_();
  }

  // Does what can be done now. Returns whether anything was.
  bool pump() CAIRN_EXCLUDES(host_mutex_);
  // When pump() has something to do even if nobody calls `wake`.
  [[nodiscard]] std::optional<TimePoint> next_time() CAIRN_EXCLUDES(host_mutex_);
  // Whether nothing waits to be moved.
  [[nodiscard]] bool is_idle() const;
  // Copies begun on all links; std::nullopt while one is not settled.
  [[nodiscard]] std::optional<std::uint64_t> settled_copies() const;

  void add_metrics(Metrics& metrics);
  void add_to(ManagerStatus& status) const CAIRN_EXCLUDES(host_mutex_);

  // Nothing more is begun.
  void end();
  // Copies may never come back: all that wait for them get their outcome now, and are not called later.
  void end_now();

 private:
  // Tells the offloaders below a tier, which are made after the tier's pool, what happens in the pool: that to the next tier, and
  // that to the store. If memory runs out, the block is not copied down: the pool is in the middle of a change.
  class PoolListener final : public PoolObserver {
   public:
    void attach(Offloader* offloader) { offloaders_[offloaders_[0] == nullptr ? 0 : 1] = offloader; }
    void detach() {
      offloaders_[0] = nullptr;
      offloaders_[1] = nullptr;
    }
    void on_registered(CacheLevel, std::span<const ResidentBlock> blocks, std::span<const Token>) override {
      try {
        for (const std::atomic<Offloader*>& each : offloaders_) {
          if (Offloader* const offloader = each) {
            offloader->registered(blocks);
          }
        }
      } catch (const std::bad_alloc&) {
      }
    }
    void on_removed(CacheLevel, std::span<const BlockKey>) override {}
    void on_cleared(CacheLevel) override {}
    void on_loaded(CacheLevel level, std::span<const BlockKey> keys) override { on_matched(level, keys); }
    void on_matched(CacheLevel, std::span<const BlockKey> keys) override {
      try {
        for (const std::atomic<Offloader*>& each : offloaders_) {
          if (Offloader* const offloader = each) {
            offloader->used(keys);
          }
        }
      } catch (const std::bad_alloc&) {
      }
    }

   private:
    std::array<std::atomic<Offloader*>, 2> offloaders_ = {};
  };

  ManagerTiers(const ManagerConfig& config, const ManagerParts& parts, IncidentLog& incidents,
               std::function<void()> wake);
  [[nodiscard]] Status make_tiers();
  [[nodiscard]] Status make_link(CacheLevel from, CacheLevel to);
  [[nodiscard]] Status make_links();
  [[nodiscard]] Status make_offloader(CacheLevel from, CacheLevel to, const OffloadOptions& options);
  [[nodiscard]] Status make_movers();
  [[nodiscard]] Status make_scrub();
  [[nodiscard]] Status make_returns();
  [[nodiscard]] Status make_store();
  void report_recovery();
  [[nodiscard]] bool reclaim();
  // onboard.*_bytes_per_second of the configuration; 0 if the link is measured.
  [[nodiscard]] std::uint64_t pinned_speed(CacheLevel from, CacheLevel to) const;
  // The tier from which blocks move down into this one.
  [[nodiscard]] CacheLevel above(CacheLevel level) const;

  const ManagerConfig& config_;
  const ManagerParts& parts_;
  const Clock& clock_;
  IncidentLog& incidents_;
  const std::function<void()> wake_;
  KeyHasher hasher_ = KeyHasher::dynamo();  // until the tiers are made
  std::atomic<bool> may_reclaim_{false};    // pools may have blocks to reclaim
  const std::shared_ptr<PrefillMeter> prefill_;
  std::shared_ptr<ReturnModel> returns_;     // of all tiers
  std::optional<ReturnsFile> returns_file_;  // if there is a disk

  // In the order of their needs: what comes later is destroyed earlier.
  std::unique_ptr<BlockRegistry> registry_;
  std::unique_ptr<EventLog> events_;
  std::array<PoolListener, kCacheLevels> listeners_;
  std::array<std::unique_ptr<Tier>, kCacheLevels> tiers_;
  mutable Mutex host_mutex_{LockRank::kManager};
  std::optional<HostSize> host_size_ CAIRN_GUARDED_BY(host_mutex_);
  std::array<std::array<std::unique_ptr<TierLink>, kCacheLevels>, kCacheLevels> links_;
  std::array<std::unique_ptr<Offloader>, kCacheLevels> offloaders_;
  std::unique_ptr<Onboarder> onboarder_;
  std::unique_ptr<DiskScrub> scrub_;
  std::unique_ptr<RetryingStore> store_;
  std::unique_ptr<RemoteSpace> space_;
  std::unique_ptr<RemoteLookup> lookup_;
  std::unique_ptr<Executors> executors_;  // ends before all that its callbacks use
};

}  // namespace cairn
