// HostExecutor: copies between regions that the processor reads and writes, by threads of its own.
//
// Does:     carries out one transfer after the other, each cut so that all threads work on it at once. Checksums are made
//           of the bytes on their way through the registers. Large transfers are stored past the caches.
// Owner:    whoever made it; the clock outlives it.
// Threads:  any, as TransferExecutor says.
// Fails:    what submit() refuses; a copy in memory does not fail.
// Costs:    a queue and a lock a transfer, a lock for each 64 KiB to 4 MiB of it.
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
    std::uint32_t threads = 0;  // 0: one for each core, and 16 at most: a few saturate the memory
    std::size_t limit = 256;    // transfers accepted and not settled
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
  class Job;
  // What a thread does between two looks at the lock: whole blocks, or a slice of one.
  struct Share {
    std::shared_ptr<Job> job;
    std::uint32_t first = 0;
    std::uint32_t blocks = 0;
    std::uint64_t slice = 0;
  };

  void work();
  void stop();
  [[nodiscard]] std::optional<Share> next_share() CAIRN_EXCLUDES(mutex_);
  [[nodiscard]] std::optional<Share> share_of_job() CAIRN_REQUIRES(mutex_);
  void copy_blocks(const Share& share);
  void copy_slice(const Share& share);

  const Clock& clock_;
  TransferLedger ledger_;  // ends last: its callbacks may submit
  Mutex mutex_{LockRank::kExecutor};
  std::condition_variable_any more_;
  std::shared_ptr<Job> job_ CAIRN_GUARDED_BY(mutex_);  // that has shares left
  bool taking_ CAIRN_GUARDED_BY(mutex_) = false;       // one thread waits for the next transfer, the others for it
  bool ended_ CAIRN_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace cairn
