// OperationInbox: brings loads and saves that have ended from the threads that ended them to the scheduler's, and reports
// them to the ranks.
//
// An operation has ended when the last copy of its hold (hold()) is gone. The manager drops the hold that it was
// given with the blocks when no copy touches them, and the one in its callback when there is nothing to report. So an
// operation that was refused, cancelled or lost ends too, and each ends once.
// Outcomes are sent to the ranks after they are in the inbox; operations that end together share one message. Nothing
// is kept for ranks that are not ready: when one becomes ready, all ranks get the list of operations in flight
// (report_in_flight()).
//
// Thread safety: any thread; take() the scheduler's.
// Ownership: SchedulerConnector, shared with the holds.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "cairn/base/mutex.h"
#include "cairn/connector/iteration_metadata.h"
#include "cairn/connector/operation_outcomes.h"
#include "cairn/connector/slot.h"

namespace cairn {

class OperationInbox {
 public:
  // `report` is called on the threads that end operations or report a rank as ready, one call at a time, with no lock held.
  using Report = std::function<void(const OperationOutcomes&)>;
  explicit OperationInbox(Report report) : report_(std::move(report)) {}

  // What everything holds that may touch the blocks of the operation or report on it. When the last copy goes, the
  // operation has ended.
  [[nodiscard]] static OperationPtr hold(const std::shared_ptr<OperationInbox>& inbox, OperationPtr operation);

  // The loads and saves of the iteration are in flight. Called before the metadata goes out: outcomes may then be sent.
  void add(const IterationMetadata& iteration) CAIRN_EXCLUDES(mutex_);
  // Replaces `out` by what has ended since the last call, in order; reuses the memory of `out`.
  void take(std::vector<OperationPtr>& out) CAIRN_EXCLUDES(mutex_);
  [[nodiscard]] bool empty() const CAIRN_EXCLUDES(mutex_);
  [[nodiscard]] bool is_over(const Operation& operation) const CAIRN_EXCLUDES(mutex_);
  // A rank is ready and may have missed outcomes. Does not wait.
  void report_in_flight() CAIRN_EXCLUDES(mutex_);
  // Operations that end from now on are dropped without a message. When this returns, `report` is not running.
  void close() CAIRN_EXCLUDES(mutex_);

 private:
  void post(OperationPtr operation) CAIRN_EXCLUDES(mutex_);
  // Whether the caller has to report: no other thread does.
  [[nodiscard]] bool begin_reporting() CAIRN_REQUIRES(mutex_) { return !std::exchange(is_reporting_, true); }
  // Reports everything, in order, until there is nothing left to report.
  void report() CAIRN_EXCLUDES(mutex_);
  [[nodiscard]] OperationOutcomes take_unreported() CAIRN_REQUIRES(mutex_);

  const Report report_;
  mutable Mutex mutex_{LockRank::kInbox};
  std::condition_variable_any reported_;
  std::vector<OperationPtr> over_ CAIRN_GUARDED_BY(mutex_);
  std::vector<OperationPtr> in_flight_ CAIRN_GUARDED_BY(mutex_);     // in any order; Operation::place is the index
  std::optional<std::uint64_t> iteration_ CAIRN_GUARDED_BY(mutex_);  // the latest that had operations
  OperationOutcomes unreported_ CAIRN_GUARDED_BY(mutex_);
  bool is_in_flight_unreported_ CAIRN_GUARDED_BY(mutex_) = false;
  bool is_reporting_ CAIRN_GUARDED_BY(mutex_) = false;  // a thread is reporting, also what comes meanwhile
  bool is_closed_ CAIRN_GUARDED_BY(mutex_) = false;
};

}  // namespace cairn
