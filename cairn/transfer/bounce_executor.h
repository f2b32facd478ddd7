// BounceExecutor: copies blocks that no single executor can copy, through a ring of blocks in host memory: from a GPU
// into a file and back. Each block is copied twice, by the executor that can do it. Its copy out of the ring starts
// when the copy into the ring has ended, while other blocks are copied in: both executors work at once. Blocks that do
// not fit in the ring wait.
//
// Both copies sum the block, and the sums must agree: so a block is checked from end to end, the ring included. Both copies
// have the deadline of the transfer. A place in the ring that a late copy may still touch is not used again until that copy
// has settled.
//
// Thread safety: as TransferExecutor. One thread of its own hands blocks from one copy to the next.
// Ownership: the two executors and the clock outlive it; the ring's region is held.
// Errors: make() if the ring has no room for a block. submit() as TransferExecutor, and for a block that is larger than a place
// in the ring.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "cairn/base/clock.h"
#include "cairn/base/mutex.h"
#include "cairn/base/result.h"
#include "cairn/memory/region.h"
#include "cairn/transfer/bounce_routes.h"
#include "cairn/transfer/executor.h"
#include "cairn/transfer/transfer_ledger.h"

namespace cairn {

class BounceExecutor final : public TransferExecutor {
 public:
  struct Options {
    RegionPtr ring;                 // host memory; pinned, if a GPU is to be fast
    std::uint64_t block_bytes = 0;  // of the largest block; places in the ring are that large, in whole pages
    std::size_t transfers = 256;    // accepted at most
  };
  // `clock` and both executors outlive it. The two may be one.
  [[nodiscard]] static Result<std::unique_ptr<BounceExecutor>> make(const Clock& clock, TransferExecutor& one,
                                                                    TransferExecutor& other, const Options& options);
  ~BounceExecutor() override;

  [[nodiscard]] Result<TransferId> submit(Transfer&& transfer) override;
  void cancel(TransferId transfer) override;
  void check_deadlines() override;
  [[nodiscard]] bool can_move(const CopyPlan& plan) const override;
  [[nodiscard]] ExecutorLoad load() const override;
  [[nodiscard]] std::string describe() const override;

 private:
  struct InFlight {
    std::shared_ptr<ActiveTransfer> active;
    BounceRoutes::Route route;
    std::uint32_t next_block = 0;
  };
  struct Block {
    std::uint32_t index = 0;  // in the transfer
    std::uint32_t place = 0;  // in the ring
    BlockSums sums = {};      // of the copy into the ring
  };
  // Some blocks of a transfer that are copied into the ring or out of it.
  struct Part {
    std::shared_ptr<InFlight> transfer;
    bool is_out = false;
    std::vector<Block> blocks;
    std::vector<Block> late;  // expired: they keep their places until the copy has settled
    std::string late_error;
  };
  using PartPtr = std::shared_ptr<Part>;

  BounceExecutor(const Clock& clock, TransferExecutor& one, TransferExecutor& other, const Options& options);
  void run();
  // Hands work to the thread.
  void post(std::function<void()> work);
  void begin_parts();
  void submit_part(const PartPtr& part);
  void on_done(const PartPtr& part, const TransferOutcome& outcome);
  void on_settled(const PartPtr& part);
  void fail_block(const Part& part, const Block& block, const std::string& error);
  void finish_block(const Part& part, const Block& block, const BlockSums& sums);

  const Options options_;
  TransferExecutor& one_;
  TransferExecutor& other_;
  BounceRoutes routes_;

  mutable Mutex mutex_{LockRank::kExecutor};
  std::condition_variable_any posted_;
  std::deque<std::function<void()>> posts_ CAIRN_GUARDED_BY(mutex_);
  bool looking_ CAIRN_GUARDED_BY(mutex_) = true;  // there may be a transfer to take
  bool closing_ CAIRN_GUARDED_BY(mutex_) = false;
  // Used by the thread only.
  std::deque<std::shared_ptr<InFlight>> waiting_;  // transfers with blocks that have not begun
  std::deque<PartPtr> refused_;                    // an executor was full: to be submitted again
  std::deque<std::uint32_t> free_places_;
  std::size_t in_flight_ = 0;  // parts that are submitted and not settled
  // Callbacks that are inside post(), which the destructor waits for.
  std::atomic<std::uint32_t> posting_{0};
  TransferLedger ledger_;  // after what its callbacks use when they submit
  std::thread thread_;
};

}  // namespace cairn
