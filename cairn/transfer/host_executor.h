// HostExecutor: copies between system and pinned memory, on threads of its own. Carries out one transfer after the other, each
// cut so that all threads work on it at once. Checksums are computed while the bytes are in registers. Large
// transfers are stored past the caches.
//
// Thread safety: as TransferExecutor.
// Ownership: the caller of make(); the clock outlives it.
// Errors: those of submit(); a copy in memory does not fail.
// Complexity: a queue and a lock for each transfer, a lock for each 64 KiB to 4 MiB of it.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "cairn/base/clock.h"
#include "cairn/base/mutex.h"
#include "cairn/transfer/executor.h"
#include "cairn/transfer/transfer_ledger.h"

namespace cairn {

class HostExecutor final : public TransferExecutor {
 public:
  struct Options {
    std::uint32_t threads = 0;  // 0: one for each core, at most 16: a few saturate the memory
    std::size_t limit = 256;    // transfers that are accepted and not settled
  };
  HostExecutor(const Clock& clock, const Options& options);
  ~HostExecutor() override;

  [[nodiscard]] Result<TransferId> submit(Transfer&& transfer) override;
  void cancel(TransferId transfer) override { ledger_.cancel(transfer); }
  void check_deadlines() override { ledger_.check_deadlines(); }
  [[nodiscard]] bool can_move(const CopyPlan& plan) const override;
  [[nodiscard]] ExecutorLoad load() const override { return ledger_.load(); }
  [[nodiscard]] std::string describe() const override;

 private:
  class InFlight;
  // What a thread copies without taking the lock: whole blocks, or a slice of one.
  struct Part {
    std::shared_ptr<InFlight> transfer;
    std::uint32_t first = 0;
    std::uint32_t blocks = 0;
    std::uint64_t slice = 0;
  };

  void work();
  void stop();
  [[nodiscard]] std::optional<Part> next_part() CAIRN_EXCLUDES(mutex_);
  [[nodiscard]] std::optional<Part> part_of_current() CAIRN_REQUIRES(mutex_);
  void copy_blocks(const Part& share);
  void copy_slice(const Part& share);

  const Clock& clock_;
  TransferLedger ledger_;  // destroyed last: its callbacks may submit
  Mutex mutex_{LockRank::kExecutor};
  std::condition_variable_any more_;
  std::shared_ptr<InFlight> current_ CAIRN_GUARDED_BY(mutex_);  // the transfer that has parts left
  bool taking_ CAIRN_GUARDED_BY(mutex_) = false;  // one thread waits for the next transfer, the others for that thread
  bool ended_ CAIRN_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace cairn
