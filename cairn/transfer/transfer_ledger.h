// TransferLedger: the transfers that an executor has accepted, the state of each of their blocks, and the callbacks that are due.
// Every executor uses one. It bounds and numbers transfers, hands them out in order, expires and cancels blocks, and calls `done`
// when all blocks have an outcome and `settled` when no copy is in flight.
//
// A transfer has its place until it has settled. The place is free when its last callback begins, which may therefore
// submit the next transfer. Deadlines are checked when a block begins, by check_deadlines(), and with steady_clock() by
// the ledger's own thread; a block that ends before such a check is done.
//
// Thread safety: any thread. Callbacks run on the ledger's own thread in the order in which they became due, without its lock.
// With Callbacks::kOnRequest there is no thread: run_callbacks() runs them, for single-threaded simulations.
// Ownership: an executor. close() cancels what has not begun; the destructor waits until everything has settled. Every
// ActiveTransfer is released before. With kOnRequest what has begun must have ended before.
// Errors: accept() either takes a transfer, with all the memory that ending it needs, or throws std::bad_alloc. Expiring,
// cancelling and ending allocate nothing.
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

// An accepted transfer, for the executor that carries it out.
class ActiveTransfer {
 public:
  [[nodiscard]] const Transfer& transfer() const { return transfer_; }
  [[nodiscard]] TransferId id() const { return id_; }

  // Call before copying the block. False if it was cancelled or has expired: do not copy it.
  [[nodiscard]] bool begin(std::uint32_t block);
  // The same for consecutive blocks. Returns how many may be copied, from `first` on: stops before one that may not.
  [[nodiscard]] std::uint32_t begin_run(std::uint32_t first, std::uint32_t count);
  // The block was copied, and nothing touches its memory any more. Computes the checksum from the sums and compares it. Once for
  // each block that began: this, fail() or pass_on().
  void finish(std::uint32_t block, const BlockSums& sums);
  void fail(std::uint32_t block, const std::string& error);
  // Ends the block with the outcome of another executor; `error` if it is not done.
  void pass_on(std::uint32_t block, const BlockOutcome& outcome, const std::string& error);
  // Sets TransferOutcome::copied. Call it before the last block has its outcome.
  void set_copied(Duration took);
  // Gives consecutive blocks that began their outcomes although something may still touch their memory. `done` does not wait for
  // that, `settled` does. `error`: of the first block that is not done.
  void report_early(std::uint32_t first, std::span<const BlockOutcome> outcomes, const std::string& error);
  // Nothing touches the memory of these blocks any more. Once for each block of report_early().
  void release(std::uint32_t first, std::uint32_t count);

 private:
  friend class TransferLedger;
  enum class Phase : std::uint8_t { kWaiting, kBegun, kReported, kOver };
  enum class Event : std::uint8_t { kDone, kSettled };
  // A callback, and its place in the ledger's queue.
  struct Call {
    Event event = Event::kDone;
    std::shared_ptr<ActiveTransfer> transfer = {};  // while it is queued
    Call* next = nullptr;
  };

  Transfer transfer_;
  TransferId id_{};
  TransferLedger* ledger_ = nullptr;

  // Guarded by the ledger's lock; the outcome only until `done` is due, then it belongs to the callback.
  std::vector<Phase> phases_;
  std::size_t waiting_ = 0;    // blocks that have not begun, and may
  std::size_t in_flight_ = 0;  // blocks that have begun and not ended: their memory may be touched
  std::size_t reported_ = 0;   // of those in flight, blocks that have an outcome
  bool done_is_due_ = false;
  TransferOutcome outcome_;
  std::size_t error_block_ = 0;  // the block whose error the outcome has, if any
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

  // Checks the blocks against the plan. The executor has checked that it can carry the plan out.
  [[nodiscard]] Result<TransferId> accept(Transfer&& transfer);
  // The oldest transfer that nobody has taken. Waits for it; null if the ledger is closed.
  [[nodiscard]] std::shared_ptr<ActiveTransfer> take();
  // The same without waiting.
  [[nodiscard]] std::shared_ptr<ActiveTransfer> try_take();
  // Whether there are transfers with blocks to copy that nobody has taken.
  [[nodiscard]] bool has_untaken() const;
  void cancel(TransferId transfer);
  void check_deadlines();
  // Accepts nothing more, and cancels what has not begun.
  void close();
  // With kOnRequest: runs the callbacks that are due. Returns whether there were any.
  bool run_callbacks();
  [[nodiscard]] ExecutorLoad load() const;

 private:
  friend class ActiveTransfer;
  using Phase = ActiveTransfer::Phase;
  using Event = ActiveTransfer::Event;
  using Call = ActiveTransfer::Call;
  // The callbacks that are due, in order.
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
  void set_copied(ActiveTransfer& transfer, Duration took);
  void report_early(ActiveTransfer& transfer, std::uint32_t first, std::span<const BlockOutcome> outcomes,
                    const std::string& error);
  void release(ActiveTransfer& transfer, std::uint32_t first, std::uint32_t count);
  void resolve(ActiveTransfer& transfer, std::size_t block, const BlockOutcome& outcome,
               std::string_view error) noexcept CAIRN_REQUIRES(mutex_);
  void cancel_waiting(ActiveTransfer& transfer) noexcept CAIRN_REQUIRES(mutex_);
  void expire(ActiveTransfer& transfer) noexcept CAIRN_REQUIRES(mutex_);
  [[nodiscard]] bool expire_if_late(ActiveTransfer& transfer) CAIRN_REQUIRES(mutex_);
  // Queues the callbacks that have become due.
  void report(ActiveTransfer& transfer) noexcept CAIRN_REQUIRES(mutex_);
  bool run_next_callback() CAIRN_EXCLUDES(mutex_);
  void serve() CAIRN_EXCLUDES(mutex_);

  const Clock& clock_;
  const std::size_t limit_;
  const Callbacks callbacks_;
  mutable Mutex mutex_{LockRank::kTransfers};
  std::condition_variable_any untaken_;  // a transfer to take, or close()
  std::condition_variable_any news_;     // for the own thread: callbacks, deadlines, the destructor
  std::map<TransferId, std::shared_ptr<ActiveTransfer>> open_ CAIRN_GUARDED_BY(mutex_);  // not settled
  std::set<std::pair<TimePoint, TransferId>> deadlines_ CAIRN_GUARDED_BY(mutex_);  // of those whose `done` is not due
  CallQueue due_ CAIRN_GUARDED_BY(mutex_);
  std::size_t open_blocks_ CAIRN_GUARDED_BY(mutex_) = 0;
  std::uint64_t next_id_ CAIRN_GUARDED_BY(mutex_) = 1;
  std::uint64_t next_taken_ CAIRN_GUARDED_BY(mutex_) = 1;  // transfers are taken in the order of their ids
  bool closed_ CAIRN_GUARDED_BY(mutex_) = false;
  bool ending_ CAIRN_GUARDED_BY(mutex_) = false;  // the destructor waits
  std::thread thread_;                            // the last member: it uses the others
};

}  // namespace cairn
