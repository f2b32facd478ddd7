// TransferLedger: the transfers that an executor has accepted, and who is told what became of them, and when. Every
// executor keeps one; none does this by itself.
//
// Does:     bounds and numbers them, hands them out in order, keeps the state of each block, expires and cancels, and
//           calls `done` once all blocks have an outcome and `settled` once no copy is under way any more.
// Threads:  any. Callbacks run on the ledger's own thread, in the order in which they became due, outside its lock; with
//           Callbacks::kOnRequest there is no thread, and run_callbacks() runs them: simulations are single-threaded.
// Bound:    a transfer has its place until it has settled; the place is free when the last of its callbacks begins, which
//           may therefore submit the next.
// Deadline: seen when a block begins, by check_deadlines(), and on the machine's clock (base/clock.h) by the ledger's own
//           thread. A block that is finished before anybody saw the deadline pass is done.
// Ends:     close() cancels what has not begun; the destructor waits until everything has settled and been told. Whoever
//           holds an ActiveTransfer lets go of it before. With kOnRequest nobody else could end what has begun: it has
//           to be over.
// Memory:   accept() either takes a transfer, with all that it takes to end it, or throws std::bad_alloc and has not taken it.
//           To expire, cancel and end one needs none: at worst the outcome names its error in two words.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "cairn/base/clock.h"
#include "cairn/base/mutex.h"
#include "cairn/base/result.h"
#include "cairn/transfer/executor.h"

namespace cairn {

class TransferLedger;

// One accepted transfer, in the hands of whoever carries it out.
class ActiveTransfer {
 public:
  [[nodiscard]] const Transfer& transfer() const { return transfer_; }
  [[nodiscard]] TransferId id() const { return id_; }

  // A copy of this block is about to be made. False: it was cancelled or has expired, and is to be left alone.
  [[nodiscard]] bool begin(std::uint32_t block);
  // For runs of blocks: begins those that may, from `first` on, and says how many: it stops before one that may not.
  [[nodiscard]] std::uint32_t begin_run(std::uint32_t first, std::uint32_t count);
  // Nothing touches the memory of this block any more, and this is what became of it. Once for each that began. Sums of
  // a block that was copied are finished and compared here.
  void finish(std::uint32_t block, const BlockSums& sums);
  void fail(std::uint32_t block, const std::string& error);
  // The same with an outcome that another executor gave it; `error` where it is not done.
  void pass_on(std::uint32_t block, const BlockOutcome& outcome, const std::string& error);
  // For copies that others make: what became of a run of blocks that began, while it is not proven that nothing touches
  // their memory. The outcome does not wait for that, `settled` does. `error`: of the first that is not done.
  void tell_early(std::uint32_t first, std::span<const BlockOutcome> outcomes, const std::string& error);
  // Nothing touches the memory of these blocks any more. Once for each that was told early.
  void let_go(std::uint32_t first, std::uint32_t count);

 private:
  friend class TransferLedger;
  enum class Phase : std::uint8_t { kWaiting, kBegun, kTold, kOver };
  enum class Event : std::uint8_t { kDone, kSettled };
  // A callback that is due, or will be: its place in the ledger's queue is made with the transfer.
  struct Call {
    Event event = Event::kDone;
    std::shared_ptr<ActiveTransfer> transfer = {};  // while it is queued
    Call* next = nullptr;
  };

  Transfer transfer_;
  TransferId id_{};
  TransferLedger* ledger_ = nullptr;

  // Under the ledger's lock; the outcome until `done` is due, and from then on the callback's alone.
  std::vector<Phase> phases_;
  std::size_t waiting_ = 0;    // blocks that have not begun, and may
  std::size_t under_way_ = 0;  // blocks that have begun and are not over: their memory may be touched
  std::size_t told_ = 0;       // of those under way: what became of them is known
  bool done_is_due_ = false;
  TransferOutcome outcome_;
  std::size_t error_block_ = 0;  // whose error the outcome names, where it names one
  Call done_call_ = {.event = Event::kDone};
  Call settled_call_ = {.event = Event::kSettled};
};

class TransferLedger {
 public:
  enum class Callbacks : std::uint8_t { kOwnThread, kOnRequest };
  TransferLedger(const Clock& clock, std::size_t limit, Callbacks callbacks = Callbacks::kOwnThread);
  TransferLedger(const TransferLedger&) = delete;
  TransferLedger& operator=(const TransferLedger&) = delete;
  ~TransferLedger();

  // Checks the blocks against the plan; the rest is the executor's to check.
  [[nodiscard]] Result<TransferId> accept(Transfer&& transfer);
  // The next one that nobody has taken, oldest first; waits for it. None: the ledger is closed.
  [[nodiscard]] std::shared_ptr<ActiveTransfer> take();
  // The same without waiting.
  [[nodiscard]] std::shared_ptr<ActiveTransfer> try_take();
  void cancel(TransferId transfer);
  void check_deadlines();
  // Nothing is accepted or taken any more.
  void close();
  // With kOnRequest: runs what is due; whether there was anything.
  bool run_callbacks();
  [[nodiscard]] ExecutorLoad load() const;

 private:
  friend class ActiveTransfer;
  using Phase = ActiveTransfer::Phase;
  using Event = ActiveTransfer::Event;
  using Call = ActiveTransfer::Call;
  // The calls that are due, in that order.
  class CallQueue {
   public:
    [[nodiscard]] std::size_t size() const { return size_; }
    void push(Call& call, const std::shared_ptr<ActiveTransfer>& transfer) noexcept;
    // Requires: size() > 0.
    [[nodiscard]] std::pair<std::shared_ptr<ActiveTransfer>, Event> pop() noexcept;

   private:
    Call* first_ = nullptr;
    Call* last_ = nullptr;
    std::size_t size_ = 0;
  };

  [[nodiscard]] Status check(const Transfer& transfer) const;
  [[nodiscard]] Status check_room() const CAIRN_REQUIRES(mutex_);
  [[nodiscard]] std::shared_ptr<ActiveTransfer> next_untaken() CAIRN_REQUIRES(mutex_);
  [[nodiscard]] std::uint32_t begin_run(ActiveTransfer& transfer, std::uint32_t first, std::uint32_t count);
  void end_block(ActiveTransfer& transfer, std::uint32_t block, const BlockOutcome& outcome, const std::string& error);
  void tell_early(ActiveTransfer& transfer, std::uint32_t first, std::span<const BlockOutcome> outcomes,
                  const std::string& error);
  void let_go(ActiveTransfer& transfer, std::uint32_t first, std::uint32_t count);
  void resolve(ActiveTransfer& transfer, std::size_t block, const BlockOutcome& outcome,
               std::string_view error) noexcept CAIRN_REQUIRES(mutex_);
  void cancel_waiting(ActiveTransfer& transfer) noexcept CAIRN_REQUIRES(mutex_);
  void expire(ActiveTransfer& transfer) noexcept CAIRN_REQUIRES(mutex_);
  [[nodiscard]] bool expire_if_late(ActiveTransfer& transfer) CAIRN_REQUIRES(mutex_);
  // Queues the callbacks that have become due by the last change.
  void tell(ActiveTransfer& transfer) noexcept CAIRN_REQUIRES(mutex_);
  bool run_next_callback() CAIRN_EXCLUDES(mutex_);
  void serve() CAIRN_EXCLUDES(mutex_);

  const Clock& clock_;
  const std::size_t limit_;
  const Callbacks callbacks_;
  mutable Mutex mutex_{LockRank::kTransfers};
  std::condition_variable_any untaken_;  // a transfer to take, or the end of them
  std::condition_variable_any news_;     // for the own thread: callbacks, deadlines, the end
  std::map<TransferId, std::shared_ptr<ActiveTransfer>> open_ CAIRN_GUARDED_BY(mutex_);  // that have a place
  std::set<std::pair<TimePoint, TransferId>> deadlines_ CAIRN_GUARDED_BY(mutex_);        // of those without an outcome
  CallQueue due_ CAIRN_GUARDED_BY(mutex_);
  std::size_t open_blocks_ CAIRN_GUARDED_BY(mutex_) = 0;
  std::uint64_t next_id_ CAIRN_GUARDED_BY(mutex_) = 1;
  std::uint64_t next_taken_ CAIRN_GUARDED_BY(mutex_) = 1;  // transfers are taken in the order of their numbers
  bool closed_ CAIRN_GUARDED_BY(mutex_) = false;
  bool ending_ CAIRN_GUARDED_BY(mutex_) = false;  // the destructor waits
  std::thread thread_;                            // the last member: it uses the others
};

}  // namespace cairn
