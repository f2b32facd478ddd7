// OperationRunner: starts loads and saves at the manager, on a thread of its own: to hand over 6,250 blocks takes longer
// than a scheduler has.
//
// Starts the operations of one iteration after those of the iterations before: saves, then cancels, then loads. Each carries
// the step that the engine has to reach before it begins.
//
// Thread safety: run() is the scheduler's.
// Ownership: SchedulerConnector; the manager outlives it. The destructor drops what the thread has not begun.
// Errors: none. An operation that the manager refuses is over at once (operation_inbox.h), and counted (save_counts.h).
#pragma once

#include <condition_variable>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "cairn/base/clock.h"
#include "cairn/base/mutex.h"
#include "cairn/connector/iteration_metadata.h"
#include "cairn/connector/operation_inbox.h"
#include "cairn/connector/save_counts.h"
#include "cairn/manager/kv_block_manager.h"
#include "cairn/transfer/step_mark.h"

namespace cairn {

class OperationRunner {
 public:
  // The operations of one iteration.
  struct Batch {
    IterationMetadata iteration = {};
    std::vector<OperationPtr> cancelled = {};  // loads of earlier iterations
    StepMark saves_after = {};
    StepMark loads_after = {};
    TimePoint save_deadline{};
    TimePoint load_deadline{};
    std::vector<BlockKey> hinted = {};  // blocks that the hint is about
    RetentionHint hint = {};
    [[nodiscard]] bool empty() const {  // nothing is to be started or cancelled
      return iteration.loads.empty() && iteration.saves.empty() && cancelled.empty();
    }
  };

  // `save_to`: the tier that saves go to; std::nullopt if there are no saves.
  OperationRunner(const KvBlockManager& manager, std::shared_ptr<OperationInbox> inbox,
                  std::shared_ptr<SaveCounts> counts, std::optional<CacheLevel> save_to);
  OperationRunner(const OperationRunner&) = delete;
  OperationRunner& operator=(const OperationRunner&) = delete;
  ~OperationRunner();

  // Called before the metadata goes out: when it returns, the operations are in flight in the inbox. If there is no memory
  // (std::bad_alloc), `batch` is as it was.
  void run(Batch&& batch) CAIRN_EXCLUDES(mutex_);

  // Passes on what is known of the blocks of a request that is over. Needs requests.retention.
  void hint(std::vector<BlockKey> keys, const RetentionHint& hint) CAIRN_EXCLUDES(mutex_);

 private:
  void enqueue(std::list<Batch>& handed) CAIRN_EXCLUDES(mutex_);
  void serve() CAIRN_EXCLUDES(mutex_);
  void start(Batch& batch);
  void start_save(const OperationPtr& save, StepMark mark, TimePoint deadline);
  void start_load(const OperationPtr& load, StepMark mark, TimePoint deadline);

  const KvBlockManager& manager_;
  const std::shared_ptr<OperationInbox> inbox_;
  const std::shared_ptr<SaveCounts> counts_;
  const std::optional<CacheLevel> save_to_;

  Mutex mutex_{LockRank::kInbox};
  std::condition_variable_any called_;
  std::list<Batch> batches_ CAIRN_GUARDED_BY(mutex_);
  bool is_waiting_ CAIRN_GUARDED_BY(mutex_) = false;
  bool is_ending_ CAIRN_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace cairn
