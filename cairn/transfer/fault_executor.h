// FaultExecutor: another executor, with faults. What has to live with broken disks, lost devices and flipped bits is
// tested against it.
//
// Does:     hands blocks on to the executor inside, but for those that a rule strikes. Blocks are counted from 1 over all
//           transfers in the order of their acceptance; whether a rule strikes a block depends on that number and on the
//           seed, and on nothing else.
// Time:     by the clock that is handed in. Delays end on the machine's clock by themselves; a clock that is moved by
//           hand needs check_deadlines().
// Threads:  any, as TransferExecutor says. With Callbacks::kOnRequest there is no thread here, and run_callbacks() runs
//           what is due.
// Owner:    owns the executor inside, which nobody else may submit to: it ends with this one.
// Ends:     what hangs or is lost fails when the executor is destroyed; nothing of it is copied.
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
  kFail,             // it is not copied, and fails
  kShort,            // about half of it is copied, and it fails
  kDelay,            // it begins after a while
  kCorrupt,          // it is done, its checksum is right, and the destination is not: for a later check to find
  kCorruptInFlight,  // other bytes arrive than were sent: kCheck finds a mismatch, kMake a checksum of its own
  kHang,             // it begins, and is copied when release() is called, however late
  kLose,             // it begins, and nothing more is ever heard of it
};
// "none", "fail", "short", "delay", "corrupt", "corrupt in flight", "hang", "lose"
[[nodiscard]] std::string_view to_string(Fault fault);

// Strikes by number, by chance, or both.
struct FaultRule {
  Fault fault = Fault::kNone;
  std::uint64_t at = 0;     // this block
  std::uint64_t every = 0;  // and each so many-th after it
  double chance = 0;        // and of all blocks this share
};

struct FaultOptions {
  std::vector<FaultRule> rules = {};  // the first that strikes counts
  std::uint64_t seed = 1;
  Duration delay = Duration(0);
  TransferLedger::Callbacks callbacks = TransferLedger::Callbacks::kOwnThread;
  // Flips a bit of that byte. Left out: memory of the host and files, which is all that the processor reaches.
  std::function<Status(const Region& region, std::uint64_t offset)> flip = {};
};

class FaultExecutor final : public TransferExecutor {
 public:
  // It has as many places for transfers as the one inside.
  FaultExecutor(const Clock& clock, std::unique_ptr<TransferExecutor> inside, FaultOptions options);
  ~FaultExecutor() override;

  [[nodiscard]] Result<TransferId> submit(Transfer&& transfer) override;
  void cancel(TransferId transfer) override;
  void check_deadlines() override;
  [[nodiscard]] bool can_move(const CopyPlan& plan) const override { return inside_->can_move(plan); }
  [[nodiscard]] ExecutorLoad load() const override { return ledger_.load(); }
  [[nodiscard]] std::string describe() const override;

  // Lets go of everything that hangs: it is copied now.
  void release();
  // What strikes this block, whether it has come or not.
  [[nodiscard]] Fault fault_of(std::uint64_t block_number) const;
  // Blocks that a fault has struck.
  [[nodiscard]] std::uint64_t struck(Fault fault) const;
  // With kOnRequest: runs what is due; whether there was anything.
  bool run_callbacks() { return ledger_.run_callbacks(); }

 private:
  // Blocks of one transfer that go inside together.
  struct Errand {
    std::shared_ptr<ActiveTransfer> active;
    std::vector<std::uint32_t> blocks = {};
    Fault fault = Fault::kNone;
    std::uint64_t number = 0;  // of its first block
    bool begun = false;
  };
  // An errand that is inside.
  struct Flight {
    Errand errand;
    TransferId inside{};
    bool is_known = false;                    // `inside` is
    bool is_cancelled = false;                // before it was
    std::vector<std::uint32_t> expired = {};  // over only when the flight has settled
  };
  using FlightPtr = std::shared_ptr<Flight>;

  void sort_out(const std::shared_ptr<ActiveTransfer>& active) CAIRN_REQUIRES(mutex_);
  void strike(Errand&& errand) CAIRN_REQUIRES(mutex_);
  // Sends inside what is ready and finds room; the rest when a flight has settled.
  void send() CAIRN_EXCLUDES(mutex_);
  void wake_delayed() CAIRN_EXCLUDES(mutex_);
  [[nodiscard]] FlightPtr next_flight() CAIRN_REQUIRES(mutex_);
  [[nodiscard]] Transfer transfer_for(const FlightPtr& flight);
  void landed(Flight& flight, const TransferOutcome& outcome);
  void tell(Flight& flight, std::uint32_t block, const BlockOutcome& outcome, const std::string& error);
  [[nodiscard]] Status corrupt(const Errand& errand) const;
  void wait_for_delays() CAIRN_EXCLUDES(mutex_);

  const Clock& clock_;
  const FaultOptions options_;
  mutable Mutex mutex_{LockRank::kExecutor};
  std::condition_variable_any timer_;
  std::uint64_t next_number_ CAIRN_GUARDED_BY(mutex_) = 1;
  std::map<Fault, std::uint64_t> struck_ CAIRN_GUARDED_BY(mutex_);
  std::deque<Errand> ready_ CAIRN_GUARDED_BY(mutex_);
  std::multimap<TimePoint, Errand> delayed_ CAIRN_GUARDED_BY(mutex_);
  std::vector<Errand> hung_ CAIRN_GUARDED_BY(mutex_);
  std::vector<Errand> lost_ CAIRN_GUARDED_BY(mutex_);
  std::list<FlightPtr> flights_ CAIRN_GUARDED_BY(mutex_);
  bool ending_ CAIRN_GUARDED_BY(mutex_) = false;
  std::unique_ptr<TransferExecutor> inside_;
  TransferLedger ledger_;  // ends first: when it has, nothing is inside any more
  std::thread timer_thread_;
};

}  // namespace cairn
