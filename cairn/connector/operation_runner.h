// OperationRunner: carries loads and saves out with the manager, on a thread of its own: to hand 6,250 blocks over takes
// longer than a scheduler has.
//
// Does:     what one iteration gave out, in the order of iterations: saves, then cancels, then loads, each kind in the order
//           it was given in. Each carries the step that the engine has to reach before it begins.
// Owner:    SchedulerConnector; the manager outlives it. Threads: run() the scheduler's.
// Fails:    never: what the manager refuses is over at once (operation_inbox.h), and counted (save_counts.h).
// Ends:     the destructor drops what the thread has not begun.
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
#include "cairn/connector/operation_inbox.h"
#include "cairn/connector/save_counts.h"
#include "cairn/manager/kv_block_manager.h"
#include "cairn/tokens/block_key.h"
#include "cairn/tokens/hashes.h"
#include "cairn/transfer/step_mark.h"

namespace cairn {

class OperationRunner {
 public:
  // Into operation->slots.
  struct Load {
    OperationPtr operation;
    std::vector<BlockKey> keys;
  };
  // From operation->slots.
  struct Save {
    OperationPtr operation;
    std::vector<BlockKey> keys;
    std::vector<BlockHash> token_hashes;
    SequenceHash parent{0};   // of the first block
    std::uint64_t fence = 0;  // of its request: EngineBlocks::fence
  };
  // What one iteration gave out.
  struct Batch {
    std::uint64_t iteration = 0;
    StepMark saves_after;
    StepMark loads_after;
    TimePoint save_deadline{};
    TimePoint load_deadline{};
    std::vector<Save> saves = {};
    std::vector<OperationPtr> cancelled = {};  // loads; of batches before it
    std::vector<Load> loads = {};
    [[nodiscard]] bool empty() const { return saves.empty() && cancelled.empty() && loads.empty(); }
  };

  // `save_to`: the tier that saves go to; none: there are no saves.
  OperationRunner(const KvBlockManager& manager, std::shared_ptr<OperationInbox> inbox,
                  std::shared_ptr<SaveCounts> counts, std::optional<CacheLevel> save_to);
  OperationRunner(const OperationRunner&) = delete;
  OperationRunner& operator=(const OperationRunner&) = delete;
  ~OperationRunner();

  // Before the metadata goes out: what is given out is in the inbox's list when this returns. If there is no memory for it
  // (std::bad_alloc), `batch` is as it was.
  void run(Batch&& batch) CAIRN_EXCLUDES(mutex_);

 private:
  void serve() CAIRN_EXCLUDES(mutex_);
  void carry_out(Batch& batch);
  void begin(Save& save, StepMark mark, TimePoint deadline);
  void begin(Load& load, StepMark mark, TimePoint deadline);

  const KvBlockManager& manager_;
  const std::shared_ptr<OperationInbox> inbox_;
  const std::shared_ptr<SaveCounts> counts_;
  const std::optional<CacheLevel> save_to_;
  std::vector<OperationPtr> given_;  // of one batch; the scheduler's thread alone, its memory is used again

  Mutex mutex_{LockRank::kInbox};
  std::condition_variable_any called_;
  std::list<Batch> batches_ CAIRN_GUARDED_BY(mutex_);
  bool is_waiting_ CAIRN_GUARDED_BY(mutex_) = false;
  bool is_ending_ CAIRN_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace cairn
