// StoreExecutor: moves blocks between host memory and a BlockStore. A block is one value: its bytes as they lie in host memory, with
// a label that names it and holds its checksum.
//
// The block ids on the store's side say nothing: what a block is called in the store follows from its tag. A block that is put is
// compared with the checksum that the source knows, so that damaged bytes do not leave the process. A block that was got
// has to have the tag and the checksum of its label; one that is not there any more is kGone.
//
// Thread safety, ownership: as TransferExecutor. Store and space outlive it; close the store before it is destroyed, or its
// destructor waits for what is in flight.
// Errors: submit() returns kCancelled for blocks that were fenced. What was submitted before a reset and has not begun is cancelled.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cairn/base/clock.h"
#include "cairn/base/mutex.h"
#include "cairn/cluster/block_store.h"
#include "cairn/cluster/remote_space.h"
#include "cairn/transfer/executor.h"
#include "cairn/transfer/transfer_ledger.h"
#include "cairn/transfer/work_threads.h"

namespace cairn {

class StoreExecutor final : public TransferExecutor {
 public:
  struct Options {
    std::uint32_t threads = 2;  // that compute checksums
    std::size_t limit = 256;    // transfers that are accepted and not settled
  };
  StoreExecutor(const Clock& clock, BlockStore& store, RemoteSpace& space, const Options& options);
  ~StoreExecutor() override;

  [[nodiscard]] Result<TransferId> submit(Transfer&& transfer) override;
  void cancel(TransferId transfer) override { ledger_.cancel(transfer); }
  void check_deadlines() override { ledger_.check_deadlines(); }
  [[nodiscard]] bool can_move(const CopyPlan& plan) const override;
  [[nodiscard]] ExecutorLoad load() const override { return ledger_.load(); }
  [[nodiscard]] std::string describe() const override;

 private:
  using ActivePtr = std::shared_ptr<ActiveTransfer>;
  void work();
  void begin(const ActivePtr& transfer, const std::optional<std::string>& prefix, bool is_changed);
  void put(const ActivePtr& transfer, const std::string& prefix);
  void get(const ActivePtr& transfer, const std::string& prefix);
  // A block that was begun; of one that is put, what its checksum was computed from.
  struct Begun {
    std::uint32_t block = 0;
    BlockSums sums = {};
  };
  void send(const ActivePtr& transfer, StoreRequest&& request, std::vector<Begun> blocks);
  void answered(const ActivePtr& transfer, StoreOperation operation, const Begun& begun, StoreOutcome&& outcome);
  void verify(const ActivePtr& transfer, std::uint32_t block, const StoreOutcome& outcome);

  BlockStore& store_;
  RemoteSpace& space_;
  TransferLedger ledger_;  // destroyed after the threads: they end blocks
  Mutex mutex_{LockRank::kExecutor};
  std::map<TransferId, std::uint64_t> changes_ CAIRN_GUARDED_BY(mutex_);  // of the space, when each was submitted
  WorkThreads threads_;
};

}  // namespace cairn
