// SaveCounts: what became of the blocks that a connector asked its manager to save. When a save is over, each of its blocks
// is counted as saved or as refused.
//
// Thread safety: any thread; the numbers order nothing.
// Ownership: shared by the connector and the callbacks of saves.
#pragma once

#include <algorithm>
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
  // The manager refused the save.
  void turned_away(const Error& error, std::size_t blocks) {
    (error.code == ErrorCode::kExhausted            ? shed_
     : error.code == ErrorCode::kFailedPrecondition ? paused_
                                                    : lost_) += blocks;
  }
  void over(const OffloadOutcome& outcome) {
    const auto saved = static_cast<std::uint64_t>(std::ranges::count(outcome.is_below, true));
    saved_ += saved;
    lost_ += outcome.is_below.size() - saved;
  }
  [[nodiscard]] SchedulerConnector::SaveStatus status() const {
    return {.asked = asked_, .saved = saved_, .shed = shed_, .paused = paused_, .lost = lost_};
  }

 private:
  std::atomic<std::uint64_t> asked_{0};
  std::atomic<std::uint64_t> saved_{0};
  std::atomic<std::uint64_t> shed_{0};
  std::atomic<std::uint64_t> paused_{0};
  std::atomic<std::uint64_t> lost_{0};
};

}  // namespace cairn
