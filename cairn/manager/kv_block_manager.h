// KvBlockManager: the KV blocks of one worker over all its tiers: device, host, disk.
//
// Does:     joins pools, memory and copies: what is registered on the device comes to be below it (offload), what is below
//           comes up when it is wanted (load, onboard_blocks, prefetch), and nothing is served whose bytes are not those
//           that were registered. Any tier may be missing.
// Owner:    a value; copies share one manager. The last one stops it in order: nothing more is taken, what is under way is
//           waited for or cancelled (config.shutdown), the disk is flushed, memory is freed. Handles to blocks go before it.
//           The last one may go in a callback of the manager: a thread of its own stops it then, after the callback.
// Threads:  any. One thread of its own moves blocks along; with ManagerParts::own_thread off, whoever calls pump() does.
// Fails:    make(): a configuration that makes no sense, memory or a disk that is not to be had; names the key.
//           Afterwards a tier that errs or stalls is taken out and tried again: callers see misses, not waits.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cairn/base/clock.h"
#include "cairn/base/ids.h"
#include "cairn/base/metrics.h"
#include "cairn/base/result.h"
#include "cairn/events/event_log.h"
#include "cairn/hash/key_seed.h"
#include "cairn/manager/manager_config.h"
#include "cairn/manager/manager_status.h"
#include "cairn/manager/reset_channel.h"
#include "cairn/offload/offload_edge.h"
#include "cairn/onboard/onboarder.h"
#include "cairn/pool/block_pool.h"
#include "cairn/tokens/key_hasher.h"
#include "cairn/transfer/executor.h"

namespace cairn {

class ManagerState;

// What a reset of tiers did.
struct ResetReport {
  std::array<PoolFenceOutcome, kCacheLevels> tiers = {};  // by index_of(level)
  std::uint32_t reset = 0;                                // blocks that nobody used, of all tiers together
  std::uint32_t in_use = 0;  // blocks that stay with their holders, and that nobody else finds
  std::uint64_t copies = 0;  // blocks in flight into a tier that was reset: they are not registered there
  std::uint32_t loads = 0;   // loads in flight that end without blocks
};

enum class ExecutorKind : std::uint8_t { kHost, kFile, kGpu };

// What a manager stands on that is not configuration. The defaults are this machine's.
struct ManagerParts {
  const Clock* clock = &steady_clock();
  // Of what pools remember of keys. None: random. A simulation gives one, and config.model.secret, to repeat a run.
  std::optional<KeySeed> seed = {};
  bool own_thread = true;  // off: pump() is called by whoever made it
  // Carries copies out in the place of this machine's executors: simulations. Owned by the manager.
  std::function<std::unique_ptr<TransferExecutor>(ExecutorKind)> executor = {};
  // Put around each of this machine's executors: faults. Owned by the manager.
  std::function<std::unique_ptr<TransferExecutor>(ExecutorKind, std::unique_ptr<TransferExecutor>)> around = {};
  // The blocks are in other processes and this moves all of them: tiers keep no bytes here, a disk's file only its
  // entries. Owned by the manager.
  std::function<std::unique_ptr<TransferExecutor>()> elsewhere = {};
  std::shared_ptr<const LoadCostModel> cost = {};         // none: as the configuration says
  std::function<void(const Incident&)> on_incident = {};  // on any thread; must not call the manager
  MemoryProgress progress = {};                           // while memory is made ready
};

class KvBlockManager {
 public:
  [[nodiscard]] static Result<KvBlockManager> make(const ManagerConfig& config, const ManagerParts& parts = {});

  // The pools of the tiers; none where there is no such tier, or the engine manages it.
  [[nodiscard]] BlockPool* device() const { return pool(CacheLevel::kG1); }
  [[nodiscard]] BlockPool* host() const { return pool(CacheLevel::kG2); }
  [[nodiscard]] BlockPool* disk() const { return pool(CacheLevel::kG3); }
  [[nodiscard]] BlockPool* pool(CacheLevel level) const;
  // Where their blocks lie; none where there is no such tier. For whoever fills blocks and reads them.
  [[nodiscard]] BlockLayoutPtr layout(CacheLevel level) const;
  [[nodiscard]] std::uint64_t worker_id() const;
  [[nodiscard]] std::uint32_t block_size() const;  // tokens
  [[nodiscard]] const ManagerConfig& config() const;
  // Makes the keys of this manager's blocks: TokenBlockSequence::create(tokens, block_size(), hasher().with({.salt = "a"})).
  [[nodiscard]] const KeyHasher& hasher() const;

  // --- up ---
  // Presence over all tiers, nothing taken or touched.
  [[nodiscard]] PrefixLocation locate(std::span<const BlockKey> keys) const;
  // How many of the blocks that were found, the first of which is block `first_block` of its sequence, are worth loading.
  [[nodiscard]] std::uint32_t worth_loading(const PrefixLocation& found, std::uint32_t first_block) const;
  // The longest prefix of the keys to the device; see onboard/onboarder.h.
  [[nodiscard]] Result<LoadId> load(LoadRequest&& request) const;
  [[nodiscard]] Result<LoadId> load_into(EngineBlocks&& targets, LoadRequest&& request) const;
  void cancel(LoadId load) const;
  // The same, and waits for it. Not from a callback. With own_thread off it pumps, and a clock that does not move by
  // itself is not waited for: kUnavailable.
  [[nodiscard]] Result<LoadResult> load_and_wait(LoadRequest&& request) const;
  // Blocks that the caller holds in a lower tier, to the device: into `targets`, as many, or blocks allocated for it.
  [[nodiscard]] std::future<Result<ImmutableBlocks>> onboard_blocks(
      ImmutableBlocks blocks, std::optional<MutableBlocks> targets = std::nullopt) const;
  // From disk to host memory, before they are asked for; how many arrived.
  [[nodiscard]] std::future<Result<std::uint32_t>> prefetch(std::vector<BlockKey> keys) const;

  // --- down ---
  // Now, whatever the mode of the edge: blocks of the tier above `into`.
  [[nodiscard]] Result<OffloadRequestId> offload(CacheLevel into, OffloadEdge::Request&& request) const;
  [[nodiscard]] Result<OffloadRequestId> offload(CacheLevel into, EngineBlocks&& blocks,
                                                 OffloadEdge::Request&& request) const;
  void cancel(CacheLevel into, OffloadRequestId request) const;

  // --- control, all while traffic goes on ---
  // A fence: once it returns, nothing that was stored in the tiers before is found there, in this process, after a restart
  // or after a loss of power. That holds for copies in flight, which register nothing, and for blocks in use: they stay
  // with their holders, unchanged, nobody else finds them, and they are free when the last holder lets go. Blocks that were
  // allocated before can be registered, and are found by nobody. Takes the same time however many blocks there are: their
  // blocks are reclaimed afterwards.
  // reset_all() is one fence over all tiers: loads in flight end without blocks. reset(level) leaves other tiers as they
  // are: what was copied there before, or is on its way there from this one, is found there and may come back from there.
  // An error: no memory, and nothing has changed; or the file could not be written: the reset holds in this process, but
  // blocks from before may be found after a restart.
  Result<ResetReport> reset(CacheLevel level) const;
  Result<ResetReport> reset_all() const;
  // The weights of the model have changed: reset_all(), and what is stored from now on is of this generation, in files too.
  // A file is opened afterwards only by a configuration with model.weights_generation as given here. Followers of events
  // are told. kInvalidArgument if the generation is not higher than the present one.
  Result<ResetReport> invalidate(std::uint64_t weights_generation) const;
  [[nodiscard]] std::uint64_t weights_generation() const;
  // How often reset_all() and invalidate() were called; see EngineBlocks::fence.
  [[nodiscard]] std::uint64_t fences() const;
  // Of these blocks alone, and no fence: blocks in use stay, and a copy in flight may store one again.
  ResetOutcome reset(CacheLevel level, std::span<const BlockKey> keys) const;
  [[nodiscard]] ResetReceiver resets() const;
  // An edge is named by the tiers it joins. kNotFound: there is none such.
  [[nodiscard]] Status pause(CacheLevel from, CacheLevel to) const;
  [[nodiscard]] Status resume(CacheLevel from, CacheLevel to) const;
  // How many blocks of the host tier may be used: 1 to what host.max_size allows. Fewer: those in excess are given up as
  // their users let go of them, and their pages go back to the system where neither GPU nor disk uses them; status shows how far it is.
  [[nodiscard]] Status resize_host(std::uint32_t blocks) const;
  [[nodiscard]] ManagerStatus status() const;
  // Of all tiers, in order, with snapshots; none where config.event_log is 0.
  [[nodiscard]] EventLog* events() const;
  [[nodiscard]] const Metrics& metrics() const;

  // Waits until nothing waits or is under way on any edge and no late copy may touch memory any more; for tests and
  // orderly stops. kExpired: it still does.
  [[nodiscard]] Status drain(Duration longest) const;

  // With own_thread off: does what can be done now; whether anything was.
  bool pump() const;
  // When pump() has something to do by itself.
  [[nodiscard]] std::optional<TimePoint> next_time() const;

 private:
  explicit KvBlockManager(std::shared_ptr<ManagerState> state) : state_(std::move(state)) {}
  // For calls that may run callbacks: one of them may drop the last copy, this one included.
  [[nodiscard]] std::shared_ptr<ManagerState> kept() const { return state_; }
  std::shared_ptr<ManagerState> state_;
};

}  // namespace cairn
