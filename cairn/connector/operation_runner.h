// OperationRunner: starts loads and saves at the manager, on a thread of its own: to hand over 6,250 blocks takes longer
// than a scheduler has. In a simulation (own_thread off) run() starts them itself.
//
// Starts the operations of one iteration after those of the iterations before: saves, then cancels, then loads. Each carries
// the step that the engine has to reach before it begins. Saves are first, because a step may wait for saves of blocks that it
// overwrites, and its loads wait for the step: loads must not take the places of those saves in the executor. What the engine
// says of blocks that in-step saves read is passed on to the leader first.
//
// Thread safety: run() is the scheduler's.
// Ownership: SchedulerConnector; the manager outlives it. The destructor drops what the thread has not begun.
// Errors: none. An operation that the manager refuses is over at once (operation_inbox.h), and counted (save_counts.h).
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "cairn/base/clock.h"
#include "cairn/base/ids.h"
#include "cairn/base/mutex.h"
#include "cairn/connector/iteration_metadata.h"
#include "cairn/connector/operation_inbox.h"
#include "cairn/connector/save_counts.h"
#include "cairn/connector/slot.h"
#include "cairn/leader/leader.h"
#include "cairn/manager/kv_block_manager.h"

namespace cairn {

// Blocks of loads that were decided on and are not with the manager yet, by tier. Other loads are weighed behind them.
// Relaxed: the numbers order nothing.
struct PromisedBlocks {
  std::atomic<std::uint32_t> on_host{0};
  std::atomic<std::uint32_t> on_disk{0};
  void add(std::size_t blocks, std::uint32_t of_disk) {
    on_host.fetch_add(static_cast<std::uint32_t>(blocks) - of_disk, std::memory_order_relaxed);
    on_disk.fetch_add(of_disk, std::memory_order_relaxed);
  }
  void remove(std::size_t blocks, std::uint32_t of_disk) {
    on_host.fetch_sub(static_cast<std::uint32_t>(blocks) - of_disk, std::memory_order_relaxed);
    on_disk.fetch_sub(of_disk, std::memory_order_relaxed);
  }
};

class OperationRunner {
 public:
  using SettledSave = Slot::SettledSave;
  // The operations of one iteration.
  struct Batch {
    IterationMetadata iteration = {};
    std::vector<OperationPtr> cancelled = {};  // loads of earlier iterations
    TimePoint save_deadline{};
    TimePoint load_deadline{};
    std::vector<BlockKey> hinted = {};  // blocks that the hint is about
    RetentionHint hint = {};
    std::vector<BlockKey> ended = {};  // blocks of a request that ended as `ending` says
    RequestEnding ending = RequestEnding::kUnknown;
    std::vector<BlockKey> used = {};        // blocks that requests have in their sequences: one use of each
    std::vector<SettledSave> settled = {};  // of earlier iterations
    std::vector<BlockKey> prefetched = {};  // blocks that are to be copied from disk to host memory
    [[nodiscard]] bool empty() const {      // nothing is to be started, cancelled, counted or settled
      return iteration.loads.empty() && iteration.saves.empty() && cancelled.empty() && used.empty() && settled.empty();
    }
  };

  struct Options {
    std::optional<CacheLevel> save_to = {};  // the tier that saves go to; std::nullopt if there are no saves
    bool names_requests = false;             // saves say to the manager which request they are of
    // The blocks of each load that is started are taken from it. Outlives the runner.
    PromisedBlocks* promised = nullptr;
    bool own_thread = true;
  };
  OperationRunner(const KvBlockManager& manager, Leader& leader, std::shared_ptr<OperationInbox> inbox,
                  std::shared_ptr<SaveCounts> counts, const Options& options);
  OperationRunner(const OperationRunner&) = delete;
  OperationRunner& operator=(const OperationRunner&) = delete;
  ~OperationRunner();

  // Called before the metadata goes out: when it returns, the operations are in flight in the inbox. If there is no memory
  // (std::bad_alloc), `batch` is as it was.
  void run(Batch&& batch) CAIRN_EXCLUDES(mutex_);

  // Passes on what is known of the blocks of a request that has ended. Needs requests.retention.
  void hint(std::vector<BlockKey> keys, const RetentionHint& hint) CAIRN_EXCLUDES(mutex_);

  // Tells the tiers how the request of these blocks ended.
  void end_request(std::vector<BlockKey> keys, RequestEnding ending) CAIRN_EXCLUDES(mutex_);

  // After the loads that were handed over before, which hold their blocks then: a prefetch may evict others.
  void prefetch(std::vector<BlockKey> keys) CAIRN_EXCLUDES(mutex_);

  // As Batch::settled, between iterations. Clears `settled`, unless there is no memory (std::bad_alloc).
  void settle(std::vector<SettledSave>& settled) CAIRN_EXCLUDES(mutex_);

 private:
  void enqueue(std::list<Batch>& handed) CAIRN_EXCLUDES(mutex_);
  void serve() CAIRN_EXCLUDES(mutex_);
  void start(Batch& batch);
  void pass_on(const SettledSave& settled);
  void start_save(const OperationPtr& save, TimePoint deadline);
  void start_load(const OperationPtr& load, TimePoint deadline);

  const KvBlockManager& manager_;
  Leader& leader_;
  const std::shared_ptr<OperationInbox> inbox_;
  const std::shared_ptr<SaveCounts> counts_;
  const Options options_;

  Mutex mutex_{LockRank::kInbox};
  std::condition_variable_any called_;
  std::list<Batch> batches_ CAIRN_GUARDED_BY(mutex_);
  bool is_waiting_ CAIRN_GUARDED_BY(mutex_) = false;
  bool is_ending_ CAIRN_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // unless Options::own_thread is off
};

}  // namespace cairn
