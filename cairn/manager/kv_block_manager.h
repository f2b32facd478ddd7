// KvBlockManager: the KV blocks of one worker over all its tiers: device, host, disk, and a store that others operate.
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
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cairn/base/clock.h"
#include "cairn/base/ids.h"
#include "cairn/base/metrics.h"
#include "cairn/base/result.h"
#include "cairn/events/event_log.h"
#include "cairn/manager/manager_config.h"
#include "cairn/manager/manager_status.h"
#include "cairn/memory/region.h"
#include "cairn/offload/offload_request.h"
#include "cairn/onboard/load_request.h"
#include "cairn/pool/block_pool.h"
#include "cairn/pool/blocks.h"
#include "cairn/tokens/block_key.h"
#include "cairn/tokens/cache_groups.h"
#include "cairn/tokens/key_hasher.h"

namespace cairn {

class BlockStore;
class LoadCostModel;
class ResetChannel;
class TokenCounter;
class TransferExecutor;

// What a reset of tiers did.
struct ResetReport {
  std::array<PoolFenceOutcome, kCacheLevels> tiers = {};  // by index_of(level)
  std::uint32_t reset = 0;                                // blocks that were not in use, of all tiers
  std::uint32_t in_use = 0;                               // blocks that stay with their holders; no lookup finds them
  std::uint64_t copies = 0;  // blocks in flight into a tier that was reset: they are not registered there
  std::uint32_t loads = 0;   // loads in flight, which end without blocks
};

// Learns which tiers of a manager were reset after the receiver was made, oldest first. The last 64 resets are kept for slow
// receivers.
//
// Thread safety: one thread at a time.
// Ownership: a value; it may outlive the manager.
class ResetReceiver {
 public:
  // std::nullopt if there is no further reset.
  [[nodiscard]] std::optional<CacheLevel> try_next();
  // How many resets were dropped before this receiver read them.
  [[nodiscard]] std::uint64_t missed() const { return missed_; }

 private:
  friend class ResetChannel;
  ResetReceiver(std::shared_ptr<const ResetChannel> channel, std::uint64_t next)
      : channel_(std::move(channel)), next_(next) {}

  std::shared_ptr<const ResetChannel> channel_;
  std::uint64_t next_;
  std::uint64_t missed_ = 0;
};

// Pages: blocks whose bytes are in the caller's memory, for an engine that has host memory of its own and hands over pages by
// address.
struct PageList {
  std::span<const BlockKey> keys = {};
  // Where the bytes are. Every page has the same number of parts; those of the first page come first. In the order in which they
  // are given, the parts of a page are the bytes of one block.
  std::span<std::byte* const> parts = {};
  std::span<const std::uint64_t> part_bytes = {};  // of each part; multiples of 8
};

enum class ExecutorKind : std::uint8_t { kHost, kFile, kGpu, kStore };

// What a manager needs besides its configuration. The defaults are this machine's.
struct ManagerParts {
  const Clock* clock = &steady_clock();
  // Seeds the pools' tables of keys; std::nullopt: random. A simulation gives one, and config.model.secret, to repeat a run.
  std::optional<KeySeed> seed = {};
  bool own_thread = true;  // off: the caller has to call pump()
  // For tests and simulations inside Cairn, because their types are not installed: `executor`, `around`, `elsewhere`, `store`,
  // `cost` and `tokens`. `executor` makes the executors, instead of this machine's. The manager owns them.
  std::function<std::unique_ptr<TransferExecutor>(ExecutorKind)> executor = {};
  // Wraps each of this machine's executors, to inject faults. The manager owns the result.
  std::function<std::unique_ptr<TransferExecutor>(ExecutorKind, std::unique_ptr<TransferExecutor>)> around = {};
  // The blocks are in other processes, and this executor moves them: tiers keep no bytes here, the disk file only its
  // entries. The manager owns it.
  std::function<std::unique_ptr<TransferExecutor>()> elsewhere = {};
  // Makes the store of the remote tier, instead of the one that remote.url names. The manager owns it.
  std::function<std::unique_ptr<BlockStore>()> store = {};
  // Whether the disk tier of such a manager has a file for its entries. Off: disk.path is not used, and a restart finds nothing;
  // for simulations.
  bool disk_entries_in_file = true;
  // Bytes that a block takes in those processes together, in host memory and on disk; 0: as many as here.
  std::uint64_t elsewhere_host_bytes = 0;
  std::uint64_t elsewhere_disk_bytes = 0;
  std::uint64_t elsewhere_disk_files = 1;          // of all processes, this one included
  std::shared_ptr<const LoadCostModel> cost = {};  // null: as the configuration says
  std::shared_ptr<TokenCounter> tokens = {};       // whose counts are shown in status and metrics, if it is given
  // The program calls report(): until it has reported enough, loads are weighed as if the engine were fast. Off: everything
  // is loaded until the first report.
  bool reports_iterations = false;
  std::function<void(const Incident&)> on_incident = {};  // on any thread; must not call the manager
  // Decides beside the filters of the configuration which blocks are copied to a tier below; see docs/manager.md. A call
  // that takes longer than the limit is an incident; one that does not return is given up.
  OffloadFilter offload_filter = {};
  Duration offload_filter_limit = std::chrono::milliseconds(1);
  MemoryProgress progress = {};  // while memory is allocated
};

class KvBlockManager {
 public:
  [[nodiscard]] static Result<KvBlockManager> make(const ManagerConfig& config, const ManagerParts& parts = {});

  // The pools of the tiers; null if there is no such tier, or the engine manages it.
  [[nodiscard]] BlockPool* device() const { return pool(CacheLevel::kG1); }
  [[nodiscard]] BlockPool* host() const { return pool(CacheLevel::kG2); }
  [[nodiscard]] BlockPool* disk() const { return pool(CacheLevel::kG3); }
  // What is known to be in the store.
  [[nodiscard]] BlockPool* remote() const { return pool(CacheLevel::kG4); }
  [[nodiscard]] BlockPool* pool(CacheLevel level) const;
  // Where the blocks of a tier lie, for code that fills and reads them; null if there is no such tier.
  [[nodiscard]] BlockLayoutPtr layout(CacheLevel level) const;
  [[nodiscard]] std::uint64_t worker_id() const;
  [[nodiscard]] std::uint32_t dp_rank() const;     // 0 if the configuration names none
  [[nodiscard]] std::uint32_t block_size() const;  // tokens
  [[nodiscard]] const ManagerConfig& config() const;
  // Makes the keys of this manager's blocks: TokenBlockSequence::create(tokens, block_size(), hasher().with({.salt = "a"})).
  [[nodiscard]] const KeyHasher& hasher() const;

  // --- up ---
  // Looks the keys up in all tiers, without an effect on them. Never waits: keys that no tier is known to have are asked for at the
  // store, if there is one, in the background; a later call knows the answer. So do load() and load_into().
  [[nodiscard]] PrefixLocation locate(std::span<const BlockKey> keys) const;
  // Asks the store which of the keys it has, all of them now, and calls `done` with the number of keys from the first on that the
  // remote tier has: when the store has answered, at the deadline or after remote.timeout; 0 if there is no remote tier. `done`
  // runs on the caller's thread, a thread of the manager or in pump().
  void find_remote(std::vector<BlockKey> keys, TimePoint deadline, std::function<void(std::uint32_t)> done) const;
  // The layer groups of the model (model.groups), which say the keys of the blocks of each.
  [[nodiscard]] const CacheGroups& groups() const;
  // Of a model with layer groups: how far the tiers have all that every group needs, and the blocks to load for it.
  // `keys` are the request's, from the first block on; the device has what is needed after `local` of them.
  // kInvalidArgument if `local` is no boundary, or beyond the keys.
  [[nodiscard]] Result<GroupLocation> locate_groups(std::span<const BlockKey> keys, std::size_t local = 0) const;
  // How many of the found blocks are worth loading rather than computing.
  [[nodiscard]] LoadWorth worth_loading(const PrefixLocation& found, const LoadContext& context) const;
  // The engine has computed this. Loads are weighed against its speed; SchedulerConnector reports by itself.
  void report(const EngineIteration& iteration) const;
  // What an operator should know of the processes that hold the bytes (ManagerParts::elsewhere).
  void add_incident(Incident::Kind kind, CacheLevel level, std::string text) const;
  // Each call starts a request and returns; the request's `done` gets the outcome, once (OutcomeWaiter waits for it). A
  // request that is refused has no effect, and its `done` is not called. `done` is called on the caller's thread if there was
  // nothing to move, else on a thread of the manager or in pump().
  // Loads the longest prefix of the keys to the device, or into the engine's blocks.
  [[nodiscard]] Result<LoadId> load(LoadRequest&& request) const;
  [[nodiscard]] Result<LoadId> load_into(EngineBlocks&& targets, LoadRequest&& request) const;
  // Copies blocks that the caller holds in a lower tier to the device, into given blocks or into new ones.
  [[nodiscard]] Result<LoadId> onboard_blocks(OnboardRequest&& request) const;
  // Copies blocks from disk and from the store to host memory before they are needed.
  [[nodiscard]] Result<LoadId> prefetch(PrefetchRequest&& request) const;
  // Parts that have not begun are dropped. `done` still gets the outcome.
  void cancel(LoadId load) const;

  // --- down ---
  // Copies blocks of the tier above `into` now, whatever the mode of the link: blocks of its pool whatever the filters (except
  // the write budget), blocks that the engine manages as far as the filters admit them; see docs/manager.md.
  [[nodiscard]] Result<OffloadRequestId> offload(CacheLevel into, OffloadRequest&& request) const;
  [[nodiscard]] Result<OffloadRequestId> offload(CacheLevel into, EngineBlocks&& blocks,
                                                 OffloadRequest&& request) const;
  void cancel(CacheLevel into, OffloadRequestId request) const;
  // Requests of an engine that manages the device have these blocks in their sequences: one use of each, for the filters of
  // what is copied into the tier. Uses of blocks of a pool are counted by their lookups and loads.
  void used(CacheLevel into, std::span<const BlockKey> keys) const;

  // --- pages in the caller's memory ---
  // Copies pages to the host tier and from there to the tier below, and waits until they are there. For each page, whether a
  // tier has it now. A page that the lowest tier has already is not copied again. The tier may be small: pages go through
  // it a few at a time.
  [[nodiscard]] Result<std::vector<bool>> store_pages(const PageList& pages, TimePoint deadline) const;
  // Copies pages from the tiers and verifies their bytes on the way. For each page, whether it is there now; if not, its memory
  // may have changed and must not be used. Nothing writes to that memory once the call has returned.
  [[nodiscard]] Result<std::vector<bool>> fetch_pages(const PageList& pages, TimePoint deadline) const;

  // What is known of the blocks of these keys in every tier (BlockPool::hint()): shifts when they are evicted. The number
  // of blocks found, in all tiers together. kFailedPrecondition unless requests.retention is on.
  [[nodiscard]] Result<std::uint32_t> hint(std::span<const BlockKey> keys, const RetentionHint& hint) const;

  // The request whose sequence these keys are ended like this. The eviction policies of all tiers use it (kAdaptive). Call
  // it when the request's blocks are where they will stay: before or after they are released, and after their saves. The
  // number of blocks found, in all tiers together.
  std::uint32_t end_request(std::span<const BlockKey> keys, RequestEnding ending) const;

  // --- control, while requests run ---
  // A fence: once it returns, nothing that was stored in the tiers before is found there, in this process, after a restart
  // or after a loss of power. That holds for copies in flight, which register nothing, and for blocks in use: they stay
  // with their holders, unchanged, no lookup finds them, and they are free when the last holder releases them. Blocks that
  // were allocated before can be registered, but no lookup finds them. Takes the same time however many blocks there are:
  // they are reclaimed afterwards.
  // reset_all() is one fence over all tiers: loads in flight end without blocks. reset(level) leaves other tiers as they
  // are: blocks that were copied there before, or are in flight to there, are found there and may come back from there.
  // With a remote tier the call waits for the store, up to remote.timeout; the fence holds for this process and for those that
  // start later.
  // Errors: no memory, then nothing has changed; or the file or the store could not be written, then the reset holds in this
  // process, but blocks from before may be found after a restart.
  Result<ResetReport> reset(CacheLevel level) const;
  Result<ResetReport> reset_all() const;
  // The weights of the model have changed: reset_all(), and blocks stored from now on are of this generation, in files
  // too. A file is opened afterwards only by a configuration with model.weights_generation as given here. Followers of
  // events get an event. kInvalidArgument if the generation is not higher than the present one.
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
  template <typename Outcome>
  friend class OutcomeWaiter;
  class State;
  explicit KvBlockManager(std::shared_ptr<State> state) : state_(std::move(state)) {}
  // Waits until the flag is not 0.
  [[nodiscard]] Status wait_for(const std::atomic<int>& flag) const;
  // For calls that may run callbacks: a callback may destroy the last copy, this one included.
  [[nodiscard]] std::shared_ptr<State> kept() const { return state_; }
  std::shared_ptr<State> state_;
};

// OutcomeWaiter: waits for the outcome of one request to a manager.
//
//   OutcomeWaiter<LoadOutcome> waiter(manager);
//   CAIRN_TRY(manager.load({.keys = keys, .done = waiter.done()}));
//   CAIRN_TRY_ASSIGN(LoadOutcome loaded, waiter.wait());
//
// Thread safety: one thread waits, not in a callback of the manager. With ManagerParts::own_thread off, wait() pumps.
// Errors: wait() returns the error of the outcome if it has one, kUnavailable if the request was destroyed without an outcome
// (because it was refused), and kUnavailable if own_thread is off and nothing can be done before the clock moves; then
// wait() may be called again.
template <typename Outcome>
class OutcomeWaiter {
 public:
  explicit OutcomeWaiter(const KvBlockManager& manager) : manager_(manager) {}

  // For `done` of the request. Call it once.
  [[nodiscard]] auto done() {
    std::shared_ptr<State> ends(state_.get(), [state = state_](State*) { state->end(); });  // called or not
    return [ends = std::move(ends)](Result<Outcome>&& outcome) {
      ends->outcome.emplace(std::move(outcome));
      ends->end();
    };
  }
  [[nodiscard]] Result<Outcome> wait() {
    CAIRN_TRY(manager_.wait_for(state_->is_over));
    if (!state_->outcome) {
      return fail(ErrorCode::kUnavailable, "the request was refused and has no outcome");
    }
    return *std::move(state_->outcome);
  }

 private:
  struct State {
    std::optional<Result<Outcome>> outcome;
    std::atomic<int> is_over{0};  // release and acquire: `outcome` is written before
    void end() {
      is_over.store(1, std::memory_order_release);
      is_over.notify_one();
    }
  };
  const KvBlockManager manager_;
  const std::shared_ptr<State> state_ = std::make_shared<State>();
};

}  // namespace cairn
