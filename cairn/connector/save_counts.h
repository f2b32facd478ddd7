// SaveCounts: what became of the blocks that a connector gave its manager to save. When a save has ended, each of its
// blocks is counted as saved or as refused.
//
// Thread safety: any thread; the numbers order nothing.
// Ownership: shared by the connector and the callbacks of saves.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "cairn/base/result.h"
#include "cairn/connector/scheduler_connector.h"
#include "cairn/manager/kv_block_manager.h"

namespace cairn {

class SaveCounts {
 public:
  void asked(std::size_t blocks) { asked_ += blocks; }
  void asked_in_step(std::size_t blocks) { in_step_ += blocks; }
  void withdrawn(std::size_t blocks) { withdrawn_ += blocks; }
  // The manager refused the save.
  void turned_away(const Error& error, std::size_t blocks) {
    (error.code == ErrorCode::kExhausted            ? shed_
     : error.code == ErrorCode::kFailedPrecondition ? paused_
                                                    : lost_) += blocks;
  }
  void over(const OffloadOutcome& outcome) {
    saved_ += static_cast<std::uint64_t>(std::ranges::count(outcome.is_below, true));
    for (std::size_t i = 0; i < kOffloadRefusals; ++i) {
      if (outcome.refused[i] > 0) {
        refused_[i] += outcome.refused[i];
      }
    }
  }
  [[nodiscard]] SchedulerConnector::SaveStatus status() const {
    SchedulerConnector::SaveStatus status{.asked = asked_,
                                          .saved = saved_,
                                          .shed = shed_ + refused(OffloadRefusal::kShed),
                                          .paused = paused_,
                                          .lost = lost_,
                                          .too_short = refused(OffloadRefusal::kTooShort),
                                          .too_few_uses = refused(OffloadRefusal::kNeverSeenTwice),
                                          .would_not_last = refused(OffloadRefusal::kWouldNotLast),
                                          .over_budget = refused(OffloadRefusal::kOverBudget),
                                          .low_priority = refused(OffloadRefusal::kLowPriority),
                                          .filtered = refused(OffloadRefusal::kFiltered),
                                          .no_parent = refused(OffloadRefusal::kNoParent),
                                          .in_step = in_step_,
                                          .withdrawn = withdrawn_};
    for (const OffloadRefusal reason :
         {OffloadRefusal::kInFlight, OffloadRefusal::kGone, OffloadRefusal::kNoRoom, OffloadRefusal::kTierOut,
          OffloadRefusal::kFailed, OffloadRefusal::kCancelled}) {
      status.lost += refused(reason);
    }
    return status;
  }

 private:
  [[nodiscard]] std::uint64_t refused(OffloadRefusal reason) const {
    return refused_[static_cast<std::size_t>(reason)];
  }

  std::atomic<std::uint64_t> asked_{0};
  std::atomic<std::uint64_t> saved_{0};
  std::atomic<std::uint64_t> shed_{0};
  std::atomic<std::uint64_t> paused_{0};
  std::atomic<std::uint64_t> lost_{0};
  std::array<std::atomic<std::uint64_t>, kOffloadRefusals> refused_ = {};
  std::atomic<std::uint64_t> in_step_{0};
  std::atomic<std::uint64_t> withdrawn_{0};
};

}  // namespace cairn
