// FaultExecutor: another executor with injected faults, for tests of what has to survive broken disks, lost devices and flipped
// bits. Blocks are counted from 1 over all transfers in the order of their acceptance. Whether a rule strikes a block depends
// only on that number and on the seed. Blocks that no rule strikes go to the executor inside unchanged.
//
// With the steady clock delays end by themselves; a clock that is moved by hand needs check_deadlines(). Blocks that hang or
// are lost fail when the executor is destroyed; nothing of them is copied.
//
// Thread safety: as TransferExecutor. With Callbacks::kOnRequest there is no thread here: run_callbacks() runs what is due.
// Ownership: owns the executor inside; nobody else may submit to it.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "cairn/base/clock.h"
#include "cairn/base/mutex.h"
#include "cairn/transfer/executor.h"
#include "cairn/transfer/transfer_ledger.h"

namespace cairn {

enum class Fault : std::uint8_t {
  kNone,
  kFail,             // not copied; fails
  kShort,            // about half of it is copied; fails
  kDelay,            // begins after FaultOptions::delay
  kCorrupt,          // done with the right checksum, but the destination has other bytes: for a later check to find
  kCorruptInFlight,  // other bytes arrive than were sent: kCheck finds a mismatch, kMake computes another checksum
  kHang,             // begins, and is copied when release() is called, however late
  kLose,             // begins, and never ends
};
// "none", "fail", "short", "delay", "corrupt", "corrupt in flight", "hang", "lose"
[[nodiscard]] std::string_view to_string(Fault fault);

// Which blocks a fault strikes: by number, by chance, or both.
struct FaultRule {
  Fault fault = Fault::kNone;
  std::uint64_t at = 0;     // the number of a block; 0 for none
  std::uint64_t every = 0;  // and every `every`-th block after it
  double chance = 0;        // and this share of all blocks
};

struct FaultOptions {
  std::vector<FaultRule> rules = {};  // the first that strikes a block counts
  std::uint64_t seed = 1;
  Duration delay = Duration(0);
  TransferLedger::Callbacks callbacks = TransferLedger::Callbacks::kOwnThread;
  // Flips a bit of a byte. Needed for memory that the processor does not reach; the default is for host memory and files.
  std::function<Status(const Region& region, std::uint64_t offset)> flip = {};
};

class FaultExecutor final : public TransferExecutor {
 public:
  // Accepts as many transfers as the executor inside.
  FaultExecutor(const Clock& clock, std::unique_ptr<TransferExecutor> inside, FaultOptions options);
  ~FaultExecutor() override;

  [[nodiscard]] Result<TransferId> submit(Transfer&& transfer) override;
  void cancel(TransferId transfer) override;
  void check_deadlines() override;
  [[nodiscard]] bool can_move(const CopyPlan& plan) const override { return inside_->can_move(plan); }
  [[nodiscard]] ExecutorLoad load() const override { return ledger_.load(); }
  [[nodiscard]] std::string describe() const override;

  // Copies all blocks that hang.
  void release();
  // The fault of the block with this number, also if it was not submitted yet.
  [[nodiscard]] Fault fault_of(std::uint64_t block_number) const;
  // The number of blocks that the fault has struck.
  [[nodiscard]] std::uint64_t struck(Fault fault) const;
  // With kOnRequest: runs the callbacks that are due. Returns whether there were any.
  bool run_callbacks() { return ledger_.run_callbacks(); }

 private:
  // Blocks of one transfer that go inside together.
  struct Part {
    std::shared_ptr<ActiveTransfer> active;
    std::vector<std::uint32_t> blocks = {};
    Fault fault = Fault::kNone;
    std::uint64_t number = 0;  // of its first block
    bool begun = false;
  };
  // A part that the executor inside has.
  struct InFlight {
    Part part;
    TransferId inside{};
    bool is_known = false;                    // `inside` is set
    bool is_cancelled = false;                // before `inside` was set
    std::vector<std::uint32_t> expired = {};  // blocks that end only when the transfer inside has settled
  };
  using InFlightPtr = std::shared_ptr<InFlight>;

  void assign_faults(const std::shared_ptr<ActiveTransfer>& active) CAIRN_REQUIRES(mutex_);
  void strike(Part&& part) CAIRN_REQUIRES(mutex_);
  // Submits the parts that are ready, as long as the executor inside accepts them; the rest when a transfer has settled.
  void send() CAIRN_EXCLUDES(mutex_);
  void wake_delayed() CAIRN_EXCLUDES(mutex_);
  [[nodiscard]] InFlightPtr next_in_flight() CAIRN_REQUIRES(mutex_);
  [[nodiscard]] Transfer transfer_for(const InFlightPtr& in_flight);
  void on_done(InFlight& in_flight, const TransferOutcome& outcome);
  void tell(InFlight& in_flight, std::uint32_t block, const BlockOutcome& outcome, const std::string& error);
  [[nodiscard]] Status corrupt(const Part& part) const;
  void wait_for_delays() CAIRN_EXCLUDES(mutex_);

  const Clock& clock_;
  const FaultOptions options_;
  mutable Mutex mutex_{LockRank::kExecutor};
  std::condition_variable_any timer_;
  std::uint64_t next_number_ CAIRN_GUARDED_BY(mutex_) = 1;
  std::map<Fault, std::uint64_t> struck_ CAIRN_GUARDED_BY(mutex_);
  std::deque<Part> ready_ CAIRN_GUARDED_BY(mutex_);
  std::multimap<TimePoint, Part> delayed_ CAIRN_GUARDED_BY(mutex_);
  std::vector<Part> hung_ CAIRN_GUARDED_BY(mutex_);
  std::vector<Part> lost_ CAIRN_GUARDED_BY(mutex_);
  std::list<InFlightPtr> in_flight_ CAIRN_GUARDED_BY(mutex_);
  bool ending_ CAIRN_GUARDED_BY(mutex_) = false;
  std::unique_ptr<TransferExecutor> inside_;
  TransferLedger ledger_;  // destroyed first: then no transfer is left inside
  std::thread timer_thread_;
};

}  // namespace cairn
