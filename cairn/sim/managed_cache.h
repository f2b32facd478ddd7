// ManagedCache: the cache of a simulated worker with tiers below: a real KvBlockManager in virtual time, whose tiers have no
// bytes. The device is a pool of the manager; loads are weighed against computing as an engine's connector does.
//
// A block is registered when it is allocated, one pass before it is computed, as in a PlainCache.
//
// Thread safety: not thread-safe.
// Ownership:     the site and the sink outlive it; Holdings are destroyed before it.
// Errors:        make() fails as KvBlockManager::make() does; names the key.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "cairn/base/clock.h"
#include "cairn/base/result.h"
#include "cairn/manager/kv_block_manager.h"
#include "cairn/sim/kv_event_sink.h"
#include "cairn/sim/link_executor.h"
#include "cairn/sim/sim_table.h"
#include "cairn/sim/virtual_site.h"
#include "cairn/sim/worker_cache.h"

namespace cairn::sim {

class ManagedCache final : public WorkerCache, private SiteMember {
 public:
  struct Options {
    ManagerConfig config = {};  // with a device, and a tier below
    VirtualSite* site = nullptr;
    WorkerLinks links = {};
    std::vector<TierFault> faults = {};
    KvEventSink* sink = nullptr;
  };
  [[nodiscard]] static Result<std::unique_ptr<ManagedCache>> make(const Options& options);
  ~ManagedCache() override;

  [[nodiscard]] std::size_t process(const MoveBlock& move, Holding& holding) override;
  [[nodiscard]] bool waits_for_copies() const override { return waits_for_copies_; }
  [[nodiscard]] std::size_t cached_tokens(const ActiveSequence& sequence, const Holding& holding) const override;
  [[nodiscard]] std::size_t num_active_blocks() const override;
  [[nodiscard]] std::size_t num_resident_blocks() const override;
  [[nodiscard]] PerTier<std::uint64_t> blocks_below() const override;
  [[nodiscard]] const EvictionAges& eviction_ages() const override { return eviction_ages_; }
  void advance_to(TimePoint now) override;
  [[nodiscard]] std::optional<TimePoint> next_event_time() const override;
  [[nodiscard]] LoadStart start_load(const ActiveSequence& sequence, const LoadAsk& ask) override;
  [[nodiscard]] std::vector<LandedLoad> take_landed() override { return std::exchange(landed_, {}); }
  void report(const EngineIteration& iteration, std::uint64_t times) override;
  void end_pass() override { site_.settle(member_); }
  void check_invariants() const override;

  [[nodiscard]] const KvBlockManager& manager() const { return *manager_; }

 private:
  struct IdleSince {
    static constexpr std::uint32_t kNever = ~std::uint32_t{0};
    std::uint32_t ms = kNever;
    [[nodiscard]] bool vacant() const { return ms == kNever; }
  };

  explicit ManagedCache(const Options& options);
  [[nodiscard]] Status open(const Options& options);

  [[nodiscard]] std::optional<TimePoint> settle() override;
  [[nodiscard]] std::size_t use(const Use& use, Holding& holding);
  void promote(const Promote& promote, Holding& holding);
  void release(Holding& holding);
  // Registers the blocks and adds them to the holding.
  static void add(MutableBlocks blocks, const BlockNames& names, Holding& holding);
  static void join(ImmutableBlocks blocks, Holding& holding);
  void land(std::uint64_t request, TimePoint began, LoadOutcome&& outcome);
  void forward_events();
  void forward(const Event& event);
  void count_eviction(const BlockKey& key);
  [[nodiscard]] std::uint32_t now_ms() const {
    return static_cast<std::uint32_t>(site_.clock().now() / std::chrono::milliseconds(1));
  }

  VirtualSite& site_;
  const std::size_t member_;
  KvEventSink* const sink_;
  std::optional<KvBlockManager> manager_;
  LinkExecutor* executor_ = nullptr;  // the manager's
  BlockPool* device_ = nullptr;       // the manager's
  std::optional<EventSubscriber> events_;
  std::vector<LandedLoad> landed_;
  bool closing_ = false;
  bool waits_for_copies_ = false;
  internal::SimTable<BlockKey, IdleSince> idle_since_;
  EvictionAges eviction_ages_{};
  // Contents are valid during one call; members only to reuse their memory.
  std::vector<KvStoredBlock> stored_;
  std::vector<SequenceHash> removed_;
};

}  // namespace cairn::sim
