// TransferLedger: the transfers that an executor has accepted, and who is told what became of them, and when. Every
// executor keeps one; none does this by itself.
//
// Does:     bounds and numbers them, hands them out in order, keeps the state of each block, expires and cancels, and
//           calls `done` once all blocks have an outcome and `settled` once no copy is under way any more.
// Threads:  any. Callbacks run on the ledger's own thread, in the order in which they became due, outside its lock; with
//           Callbacks::kOnRequest there is no thread, and run_callbacks() runs them: simulations are single-threaded.
// Ends:     close() cancels what has not begun; the destructor waits until everything has settled and been told.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <thread>
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

 private:
  friend class TransferLedger;
  enum class Phase : std::uint8_t { kWaiting, kBegun, kOver };
  // details are the implementation's: state per block, counts of blocks without an outcome and of copies under way
  Transfer transfer_;
  TransferId id_{};
  TransferLedger* ledger_ = nullptr;
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
};

}  // namespace cairn
