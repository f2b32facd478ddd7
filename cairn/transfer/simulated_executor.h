// SimulatedExecutor: copies between host memory and files on the caller's thread, in virtual time: for simulations and
// tests that must come out the same every time.
//
// Does:     everything that an executor promises, without a thread: a copy is begun when the one before it has ended,
//           takes latency + bytes / speed by the clock, and is made at its end, when run() is called at or after it.
//           The blocks of a transfer come one by one, each at the end of its share of that time. Copies and deadlines
//           come in the order of their times, however far the clock went between two calls; callbacks see the clock as
//           it is. Checksums are made as the real ones make them. Files that are opened past the page cache it leaves
//           to the file executor.
// Faults:   with a FaultExecutor around it, run() comes before that one's check_deadlines(): what was copied by a deadline
//           is then heard of before the rest is said to be late.
// Owner:    whoever made it; the clock outlives it.
// Threads:  one: submit(), cancel(), run() and the callbacks all happen on the thread that simulates.
// Fails:    what submit() refuses; of a block: what the system said when its file was read or written.
// Ends:     what is under way is carried out by the destructor; its callbacks run.
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
    double bytes_per_second = 0;  // 0: copies take the latency alone
    Duration latency = Duration::zero();
    std::size_t limit = 256;  // transfers accepted and not settled
  };
  SimulatedExecutor(const Clock& clock, const Options& options);
  ~SimulatedExecutor() override;

  [[nodiscard]] Result<TransferId> submit(Transfer&& transfer) override;
  void cancel(TransferId transfer) override;
  void check_deadlines() override;
  [[nodiscard]] bool can_move(const CopyPlan& plan) const override;
  [[nodiscard]] ExecutorLoad load() const override;
  [[nodiscard]] std::string describe() const override;

  // Carries out what is due by the clock, and runs callbacks that are; whether there was anything.
  bool run();
  // When run() will have something to do next: the end of a copy, a deadline, or now, for callbacks that may be due.
  [[nodiscard]] std::optional<TimePoint> next_time() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace cairn
