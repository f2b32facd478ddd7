// KvBlockManager: the KV blocks of one worker over all its tiers: device, host, disk.
//
// It joins pools, memory and copies. Blocks that are registered on the device are copied to the tiers below (offload);
// blocks of lower tiers are copied up when they are needed (load, onboard_blocks, prefetch). A block is served only if its
// bytes are those that were registered. Any tier may be missing.
//
// Thread safety: any thread may call. One thread of its own moves blocks; with ManagerParts::own_thread off, the caller of
//                pump() does.
// Ownership:     a value; copies share one manager. The last copy stops it in order: nothing new begins, copies in flight are
//                waited for or cancelled (config.shutdown), the disk is flushed, memory is freed. Destroy handles to blocks
//                before. If the last copy is destroyed in a callback of the manager, a separate thread stops the manager
//                after the callback.
// Errors:        make(): an invalid configuration, or memory or a disk that cannot be had; names the key. Later a tier that
//                fails or stalls is taken out and tried again: callers see misses, not waits.
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
#include "cairn/memory/memory_progress.h"
#include "cairn/offload/offload_request.h"
#include "cairn/onboard/load_request.h"
#include "cairn/pool/block_pool.h"
#include "cairn/tier/engine_blocks.h"
#include "cairn/tokens/key_hasher.h"

namespace cairn {

class LoadCostModel;
class TransferExecutor;

// What a reset of tiers did.
struct ResetReport {
  std::array<PoolFenceOutcome, kCacheLevels> tiers = {};  // by index_of(level)
  std::uint32_t reset = 0;                                // blocks that were not in use, of all tiers
  std::uint32_t in_use = 0;                               // blocks that stay with their holders; no lookup finds them
  std::uint64_t copies = 0;  // blocks in flight into a tier that was reset: they are not registered there
  std::uint32_t loads = 0;   // loads in flight, which end without blocks
};

enum class ExecutorKind : std::uint8_t { kHost, kFile, kGpu };

// What a manager needs besides its configuration. The defaults are this machine's.
struct ManagerParts {
  const Clock* clock = &steady_clock();
  // Seeds the pools' tables of keys; std::nullopt: random. A simulation gives one, and config.model.secret, to repeat a run.
  std::optional<KeySeed> seed = {};
  bool own_thread = true;  // off: the caller has to call pump()
  // Makes the executors, instead of this machine's: for simulations. The manager owns them.
  std::function<std::unique_ptr<TransferExecutor>(ExecutorKind)> executor = {};
  // Wraps each of this machine's executors, to inject faults. The manager owns the result.
  std::function<std::unique_ptr<TransferExecutor>(ExecutorKind, std::unique_ptr<TransferExecutor>)> around = {};
  // The blocks are in other processes, and this executor moves them: tiers keep no bytes here, the disk file only its
  // entries. The manager owns it.
  std::function<std::unique_ptr<TransferExecutor>()> elsewhere = {};
  std::shared_ptr<const LoadCostModel> cost = {};         // null: as the configuration says
  std::function<void(const Incident&)> on_incident = {};  // on any thread; must not call the manager
  MemoryProgress progress = {};                           // while memory is allocated
};

class KvBlockManager {
 public:
  [[nodiscard]] static Result<KvBlockManager> make(const ManagerConfig& config, const ManagerParts& parts = {});

  // The pools of the tiers; null if there is no such tier, or the engine manages it.
  [[nodiscard]] BlockPool* device() const { return pool(CacheLevel::kG1); }
  [[nodiscard]] BlockPool* host() const { return pool(CacheLevel::kG2); }
  [[nodiscard]] BlockPool* disk() const { return pool(CacheLevel::kG3); }
  [[nodiscard]] BlockPool* pool(CacheLevel level) const;
  // Where the blocks of a tier lie, for code that fills and reads them; null if there is no such tier.
  [[nodiscard]] BlockLayoutPtr layout(CacheLevel level) const;
  [[nodiscard]] std::uint64_t worker_id() const;
  [[nodiscard]] std::uint32_t block_size() const;  // tokens
  [[nodiscard]] const ManagerConfig& config() const;
  // Makes the keys of this manager's blocks: TokenBlockSequence::create(tokens, block_size(), hasher().with({.salt = "a"})).
  [[nodiscard]] const KeyHasher& hasher() const;

  // --- up ---
  // Looks the keys up in all tiers, without an effect on them.
  [[nodiscard]] PrefixLocation locate(std::span<const BlockKey> keys) const;
  // How many of the found blocks are worth loading. The first of them is block `first_block` of its sequence.
  [[nodiscard]] std::uint32_t worth_loading(const PrefixLocation& found, std::uint32_t first_block) const;
  // Loads the longest prefix of the keys to the device; see onboard/onboarder.h.
  [[nodiscard]] Result<LoadId> load(LoadRequest&& request) const;
  [[nodiscard]] Result<LoadId> load_into(EngineBlocks&& targets, LoadRequest&& request) const;
  void cancel(LoadId load) const;
  // Loads and waits. Not from a callback. With own_thread off it pumps; returns kUnavailable if the load cannot go on before
  // the clock moves.
  [[nodiscard]] Result<LoadOutcome> load_and_wait(LoadRequest&& request) const;
  // Copies blocks that the caller holds in a lower tier to the device: into `targets`, as many, or into new blocks.
  [[nodiscard]] std::future<Result<ImmutableBlocks>> onboard_blocks(
      ImmutableBlocks blocks, std::optional<MutableBlocks> targets = std::nullopt) const;
  // Copies blocks from disk to host memory before they are needed. Returns how many arrived.
  [[nodiscard]] std::future<Result<std::uint32_t>> prefetch(std::vector<BlockKey> keys) const;

  // --- down ---
  // Copies blocks of the tier above `into` now, whatever the mode of the link.
  [[nodiscard]] Result<OffloadRequestId> offload(CacheLevel into, OffloadRequest&& request) const;
  [[nodiscard]] Result<OffloadRequestId> offload(CacheLevel into, EngineBlocks&& blocks,
                                                 OffloadRequest&& request) const;
  void cancel(CacheLevel into, OffloadRequestId request) const;

  // What is known of the blocks of these keys in every tier (BlockPool::hint()): shifts when they are evicted. The number
  // of blocks found, in all tiers together. kFailedPrecondition unless requests.retention is on.
  [[nodiscard]] Result<std::uint32_t> hint(std::span<const BlockKey> keys, const RetentionHint& hint) const;

  // --- control, all while traffic goes on ---
  // A fence: once it returns, nothing that was stored in the tiers before is found there, in this process, after a restart
  // or after a loss of power. That holds for copies in flight, which register nothing, and for blocks in use: they stay
  // with their holders, unchanged, no lookup finds them, and they are free when the last holder releases them. Blocks that
  // were allocated before can be registered, but no lookup finds them. Takes the same time however many blocks there are:
  // they are reclaimed afterwards.
  // reset_all() is one fence over all tiers: loads in flight end without blocks. reset(level) leaves other tiers as they
  // are: blocks that were copied there before, or are in flight to there, are found there and may come back from there.
  // Errors: no memory, then nothing has changed; or the file could not be written, then the reset holds in this process,
  // but blocks from before may be found after a restart.
  Result<ResetReport> reset(CacheLevel level) const;
  Result<ResetReport> reset_all() const;
  // The weights of the model have changed: reset_all(), and blocks stored from now on are of this generation, in files too.
  // A file is opened afterwards only by a configuration with model.weights_generation as given here. Followers of events
  // are told. kInvalidArgument if the generation is not higher than the present one.
  Result<ResetReport> invalidate(std::uint64_t weights_generation) const;
  [[nodiscard]] std::uint64_t weights_generation() const;
  // How often reset_all() and invalidate() were called; see EngineBlocks::fence.
  [[nodiscard]] std::uint64_t fences() const;
  // Drops only these blocks, without a fence: blocks in use stay, and a copy in flight may store one again.
  ResetOutcome reset(CacheLevel level, std::span<const BlockKey> keys) const;
  [[nodiscard]] ResetReceiver resets() const;
  // A link is named by the tiers it joins. kNotFound: there is no such link.
  [[nodiscard]] Status pause(CacheLevel from, CacheLevel to) const;
  [[nodiscard]] Status resume(CacheLevel from, CacheLevel to) const;
  // Sets how many blocks of the host tier may be used: 1 to what host.max_size allows. Blocks in excess are withheld as they
  // are released, and their pages go back to the system unless a GPU or the disk uses them; status() shows the progress.
  [[nodiscard]] Status resize_host(std::uint32_t blocks) const;
  [[nodiscard]] ManagerStatus status() const;
  // The events of all tiers, in order, with snapshots; null if config.event_log is 0.
  [[nodiscard]] EventLog* events() const;
  [[nodiscard]] const Metrics& metrics() const;

  // Waits until nothing waits or is in flight on any link and no late copy may touch memory any more; for tests and orderly
  // stops. kExpired: copies are still waiting or in flight.
  [[nodiscard]] Status drain(Duration longest) const;

  // With own_thread off: does what can be done now. Returns whether anything was.
  bool pump() const;
  // When pump() has something to do even if nothing happens before.
  [[nodiscard]] std::optional<TimePoint> next_time() const;

 private:
  class State;
  explicit KvBlockManager(std::shared_ptr<State> state) : state_(std::move(state)) {}
  // For calls that may run callbacks: a callback may destroy the last copy, this one included.
  [[nodiscard]] std::shared_ptr<State> kept() const { return state_; }
  std::shared_ptr<State> state_;
};

}  // namespace cairn
