// SimulatedExecutor: copies between host memory and files on the caller's thread in virtual time, for simulations and tests that
// must be reproducible.
//
// A transfer begins when the one before it has ended, takes latency + bytes / speed by the clock, and is copied at its end, when
// run() is called at or after that time. Its blocks are done one by one, each at the end of its share of that time. Transfers and
// deadlines are handled in the order of their times, however far the clock went between two calls; callbacks see the clock as it
// is. Checksums are those of the real executors. It refuses files that are opened for direct I/O. If a FaultExecutor is around
// it, call run() before the FaultExecutor's check_deadlines(): blocks that were copied by a deadline are then not late.
//
// Thread safety: none; everything, the callbacks included, happens on the thread that simulates.
// Ownership: the caller; the clock outlives it. The destructor carries out what is in flight and runs its callbacks.
// Errors: those of submit(); for a block, the error of the system when its file was read or written.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>

#include "cairn/base/clock.h"
#include "cairn/transfer/executor.h"
#include "cairn/transfer/transfer_ledger.h"

namespace cairn {

class SimulatedExecutor final : public TransferExecutor {
 public:
  struct Options {
    double bytes_per_second = 0;  // 0: a transfer takes only the latency
    Duration latency = Duration::zero();
    std::size_t limit = 256;  // transfers that are accepted and not settled
  };
  SimulatedExecutor(const Clock& clock, const Options& options);
  ~SimulatedExecutor() override;

  [[nodiscard]] Result<TransferId> submit(Transfer&& transfer) override;
  void cancel(TransferId transfer) override;
  void check_deadlines() override;
  [[nodiscard]] bool can_move(const CopyPlan& plan) const override;
  [[nodiscard]] ExecutorLoad load() const override;
  [[nodiscard]] std::string describe() const override;

  // Carries out what is due by the clock and runs its callbacks. Returns whether there was anything.
  bool run();
  // When run() has something to do next: the end of a transfer, a deadline, or now if callbacks may be due.
  [[nodiscard]] std::optional<TimePoint> next_time() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace cairn
