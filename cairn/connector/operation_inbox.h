// OperationInbox: loads and saves that are over, from whichever thread ended them to the scheduler's; and the ranks are told.
//
// Over:     an operation is over when nothing refers to its OperationHold any more. The manager lets go of what it was given
//           with the blocks when no copy touches them, and of the callback when there is nothing to tell: the hold stands
//           in both. So what was refused, cancelled or lost on the way is over as well, and none is over twice.
// Told:     ranks hear of an operation after it is in the inbox. Many that end together are told in one notice.
// Owner:    SchedulerConnector, shared with the holds. Threads: any; take() the scheduler's.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "cairn/base/ids.h"
#include "cairn/base/mutex.h"
#include "cairn/connector/operation_notice.h"
#include "cairn/connector/request_handle.h"
#include "cairn/connector/slot_operation.h"
#include "cairn/manager/kv_block_manager.h"

namespace cairn {

// A load or save that was given out.
struct Operation {
  RequestHandle request{};
  OperationId id;
  bool is_load = false;
  std::vector<SlotId> slots = {};  // device blocks
  bool is_fenced = false;          // the scheduler's thread alone
  std::atomic<bool> is_over{false};
  // The manager's names for it; the runner's thread alone.
  std::optional<LoadId> load = {};
  std::optional<OffloadRequestId> save = {};
};
using OperationPtr = std::shared_ptr<Operation>;

class OperationInbox {
 public:
  struct Over {
    OperationPtr operation;
    std::uint32_t arrived = 0;  // blocks of a load, from the first on
  };
  // `tell` is called on the threads that end operations, one call at a time, no lock held.
  using Tell = std::function<void(const OperationNotice&)>;
  explicit OperationInbox(Tell tell) : tell_(std::move(tell)) {}

  void post(OperationPtr operation, std::uint32_t arrived) CAIRN_EXCLUDES(mutex_);
  // Replaces `out` by what came since the last call, in its order; the memory of `out` is used again.
  void take(std::vector<Over>& out) CAIRN_EXCLUDES(mutex_);
  [[nodiscard]] bool empty() const CAIRN_EXCLUDES(mutex_);
  // What comes from now on is dropped, and nobody is told of it: when this returns, `tell` is not running.
  void close() CAIRN_EXCLUDES(mutex_);

 private:
  const Tell tell_;
  mutable Mutex mutex_{LockRank::kInbox};
  std::condition_variable_any told_;
  std::vector<Over> over_ CAIRN_GUARDED_BY(mutex_);
  OperationNotice untold_ CAIRN_GUARDED_BY(mutex_);
  bool is_telling_ CAIRN_GUARDED_BY(mutex_) = false;  // a thread is, and tells what comes meanwhile
  bool is_closed_ CAIRN_GUARDED_BY(mutex_) = false;
};

// Held by all that may touch the blocks of an operation, or has something to say of it.
class OperationHold {
 public:
  OperationHold(std::shared_ptr<OperationInbox> inbox, OperationPtr operation)
      : inbox_(std::move(inbox)), operation_(std::move(operation)) {}
  OperationHold(const OperationHold&) = delete;
  OperationHold& operator=(const OperationHold&) = delete;
  ~OperationHold() { inbox_->post(std::move(operation_), arrived_); }

  void arrived(std::uint32_t blocks) { arrived_ = blocks; }

 private:
  const std::shared_ptr<OperationInbox> inbox_;
  OperationPtr operation_;
  std::uint32_t arrived_ = 0;  // the last to let go of the hold reads it: its count orders the two
};

}  // namespace cairn
