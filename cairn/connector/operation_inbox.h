// OperationInbox: loads and saves that are over, from whichever thread ended them to the scheduler's; and the ranks are told.
//
// Over:     an operation is over when nothing refers to its OperationHold any more. The manager lets go of what it was given
//           with the blocks when no copy touches them, and of the callback when there is nothing to tell: the hold stands
//           in both. So what was refused, cancelled or lost on the way is over as well, and none is over twice.
// Told:     ranks hear of an operation after it is in the inbox. Many that end together are told in one notice.
// Missed:   nothing is kept for ranks that are not ready. When one is, all hear what is under way (tell_under_way()), in
//           order with the ends: what else was given out is over.
// Owner:    SchedulerConnector, shared with the holds. Threads: any; take() the scheduler's.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
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
  std::vector<BlockId> slots = {};  // device blocks
  bool is_fenced = false;           // the scheduler's thread alone
  std::atomic<bool> is_over{false};
  std::optional<std::size_t> place = {};  // in the inbox's list of those under way; the inbox's own
  std::optional<LoadId> load = {};        // the manager's name for a load; the runner's thread alone
};
using OperationPtr = std::shared_ptr<Operation>;

class OperationInbox {
 public:
  struct Over {
    OperationPtr operation;
    std::uint32_t arrived = 0;  // blocks of a load, from the first on
  };
  // `tell` is called on the threads that end operations or say that a rank is ready, one call at a time, no lock held.
  using Tell = std::function<void(const OperationNotice&)>;
  explicit OperationInbox(Tell tell) : tell_(std::move(tell)) {}

  // Before the metadata of the iteration goes out: ranks may then be told of these.
  void given_out(std::uint64_t iteration, std::span<const OperationPtr> operations) CAIRN_EXCLUDES(mutex_);
  void post(OperationPtr operation, std::uint32_t arrived) CAIRN_EXCLUDES(mutex_);
  // Replaces `out` by what came since the last call, in its order; the memory of `out` is used again.
  void take(std::vector<Over>& out) CAIRN_EXCLUDES(mutex_);
  [[nodiscard]] bool empty() const CAIRN_EXCLUDES(mutex_);
  // A rank is ready, and may have missed what was told before. Does not wait.
  void tell_under_way() CAIRN_EXCLUDES(mutex_);
  // What comes from now on is dropped, and nobody is told of it: when this returns, `tell` is not running.
  void close() CAIRN_EXCLUDES(mutex_);

 private:
  // Whether the caller has to tell: nobody does.
  [[nodiscard]] bool begin_telling() CAIRN_REQUIRES(mutex_) { return !std::exchange(is_telling_, true); }
  // All there is, in order, until there is no more.
  void tell() CAIRN_EXCLUDES(mutex_);
  [[nodiscard]] OperationNotice take_untold() CAIRN_REQUIRES(mutex_);

  const Tell tell_;
  mutable Mutex mutex_{LockRank::kInbox};
  std::condition_variable_any told_;
  std::vector<Over> over_ CAIRN_GUARDED_BY(mutex_);
  std::vector<OperationPtr> under_way_ CAIRN_GUARDED_BY(mutex_);     // in no order
  std::optional<std::uint64_t> iteration_ CAIRN_GUARDED_BY(mutex_);  // the latest that gave something out
  OperationNotice untold_ CAIRN_GUARDED_BY(mutex_);
  bool is_under_way_untold_ CAIRN_GUARDED_BY(mutex_) = false;
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
