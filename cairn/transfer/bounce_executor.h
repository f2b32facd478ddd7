// BounceExecutor: moves blocks that no one executor can, through a ring of blocks in between: from a GPU into a file and
// back.
//
// Does:     two hops, each by the executor that can make it. A block's second hop starts when its first is done, while
//           others are on their first: both sides work at once. The ring is bounded; what does not fit waits. Blocks lie
//           in the ring as they lie in the file, so that a file's blocks are written and read in one piece and the
//           other side rearranges.
// Verified: both hops add the block up by themselves, and must agree; the outcome is that of the second. So a block is
//           checked from end to end, the ring included.
// Deadline: both hops have the transfer's. A place in the ring that a late copy may still touch is not used again until
//           that copy has settled.
// Owner:    the caller's executors outlive it. The ring's region is held.
// Threads:  as TransferExecutor says. One thread hands blocks from hop to hop.
// Fails:    make(): a ring without room for a block. submit(): as TransferExecutor says; also a block larger than a
//           place in the ring.
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
#include "cairn/transfer/executor.h"
#include "cairn/transfer/transfer_ledger.h"

namespace cairn {

class BounceExecutor final : public TransferExecutor {
 public:
  struct Options {
    RegionPtr ring;                 // host memory, pinned where a GPU is to be fast
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
  struct Leg {
    CopyPlanPtr plan;
    TransferExecutor* executor = nullptr;
  };
  struct Route {
    Leg in;   // into the ring
    Leg out;  // of the ring
  };
  struct KnownRoute {
    std::weak_ptr<const CopyPlan> plan;
    Route route;
  };
  // A transfer under way.
  struct Passage {
    std::shared_ptr<ActiveTransfer> active;
    Route route;
    std::uint32_t next_block = 0;
  };
  struct Entry {
    std::uint32_t block = 0;  // of the transfer
    std::uint32_t place = 0;  // in the ring
    BlockSums sums = {};      // of the first hop
  };
  // Some blocks of a passage on one of their hops.
  struct Hop {
    std::shared_ptr<Passage> passage;
    bool second = false;
    std::vector<Entry> entries;
    std::vector<Entry> late;  // expired: theirs until the hop has settled
    std::string late_error;
  };
  using HopPtr = std::shared_ptr<Hop>;

  BounceExecutor(const Clock& clock, TransferExecutor& one, TransferExecutor& other, const Options& options,
                 std::uint32_t places);
  // Holds neither of the plan's layouts: valid as long as the plan is.
  [[nodiscard]] Result<Route> find_route(const CopyPlan& plan) const;
  [[nodiscard]] Result<Leg> find_leg(CopyPlanPtr plan) const;
  // The same, kept for the next transfer of the plan, and holding it.
  [[nodiscard]] Result<Route> route_of(const CopyPlanPtr& plan);

  void run();
  void post(std::function<void()> news);
  void begin_hops();
  void launch(const HopPtr& hop);
  void finish_hop(const HopPtr& hop, const TransferOutcome& outcome);
  void settle_hop(const HopPtr& hop);
  void fail_entry(const Hop& hop, const Entry& entry, const std::string& error);
  void end_entry(const Hop& hop, const Entry& entry, const BlockSums& sums);

  const Options options_;
  TransferExecutor& one_;
  TransferExecutor& other_;
  const std::uint32_t places_;
  const std::uint64_t place_bytes_;

  mutable Mutex mutex_{LockRank::kExecutor};
  std::condition_variable_any posted_;
  std::deque<std::function<void()>> news_ CAIRN_GUARDED_BY(mutex_);
  std::vector<KnownRoute> routes_ CAIRN_GUARDED_BY(mutex_);
  bool looking_ CAIRN_GUARDED_BY(mutex_) = true;  // there may be a transfer to take
  bool closing_ CAIRN_GUARDED_BY(mutex_) = false;
  // Of the thread alone.
  std::deque<std::shared_ptr<Passage>> passages_;  // with blocks that have not begun
  std::deque<HopPtr> refused_;                     // an executor was full: to be tried again
  std::deque<std::uint32_t> free_places_;
  std::size_t hops_ = 0;  // launched and not settled
  // Callbacks of hops that are in post(): the last thing that they touch, and what the destructor waits for.
  std::atomic<std::uint32_t> posting_{0};
  TransferLedger ledger_;  // after what its callbacks use when they submit
  std::thread thread_;
};

}  // namespace cairn
