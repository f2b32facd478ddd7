// TransferExecutor: what carries transfers out. Host copies, files, GPUs and faults all stand behind it.
//
// Does:     takes a batch of blocks with the plan that moves them, and says for each block what became of it, once, in
//           `done`. A block is done only when every byte of it is known to have arrived and, if it was to be checked,
//           to be right. What fails of a block is that block's result and nobody else's.
// Deadline: passes, and the blocks not yet done are expired: `done` is called without waiting for them. Their memory may
//           still be written by a copy that is late: `settled` says when that is over, which may be never. So may be that
//           of a block which failed in one place and is copied in several.
// Owner:    the caller's memory on both sides belongs to the transfer from submit() until `settled`.
// Threads:  submit() and cancel() from any thread; they take no longer than queueing takes. `done` and then `settled`
//           run on a thread of the executor, one transfer at a time, and may submit.
// Fails:    submit(): kExhausted when the queue is full, to be tried again after a `done`; kInvalidArgument for a plan of
//           another kind of memory, blocks that are not there, a destination written twice, a check of a plan that
//           moves a part of a block (kMake gives its sums). The transfer is then as it was.
// Ends:     the destructor cancels what has not begun, waits for what has, and calls what is due.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "cairn/base/clock.h"
#include "cairn/base/result.h"
#include "cairn/transfer/checksum.h"
#include "cairn/transfer/copy_plan.h"
#include "cairn/transfer/step_mark.h"

namespace cairn {

enum class Verify : std::uint8_t {
  kMake,   // compute the checksum of what was copied and report it
  kCheck,  // and compare it with the one that is expected: another one is a failed block
  kOff,
};

struct TransferBlock {
  BlockPair pair;
  BlockTag tag = {};       // kMake, kCheck
  Checksum expected = {};  // kCheck
};

enum class BlockState : std::uint8_t { kDone, kFailed, kMismatch, kExpired, kCancelled };
// "done", "failed", "mismatch", "expired", "cancelled"
[[nodiscard]] std::string_view to_string(BlockState state);

struct BlockOutcome {
  BlockState state = BlockState::kDone;
  Checksum checksum = {};  // of what was copied; where it was made or checked and the block is done or a mismatch
  BlockSums sums = {};     // the same before it was finished: parts of a block are added up by the caller
};

struct TransferOutcome {
  std::vector<BlockOutcome> blocks;  // as they were submitted
  std::string error;                 // of the first block that is not done: what happened, to what; empty if all are
  [[nodiscard]] bool all_done() const { return error.empty(); }
};

// Names a transfer of one executor; never used again.
enum class TransferId : std::uint64_t {};

struct Transfer {
  CopyPlanPtr plan;
  std::vector<TransferBlock> blocks = {};
  Verify verify = Verify::kMake;
  TimePoint deadline = TimePoint::max();
  // The engine's step that must be reached before the copy touches device blocks. Only the executor of a leader looks at it:
  // each rank holds its part of the copy back.
  StepMark not_before = {};
  std::function<void(TransferOutcome&&)> done = {};
  std::function<void()> settled = {};  // may be left out
};

struct ExecutorLoad {
  std::size_t transfers = 0;  // accepted and not settled
  std::size_t blocks = 0;     // of those
  std::size_t limit = 0;      // transfers that are accepted at most
};

class TransferExecutor {
 public:
  TransferExecutor() = default;
  TransferExecutor(const TransferExecutor&) = delete;
  TransferExecutor& operator=(const TransferExecutor&) = delete;
  virtual ~TransferExecutor() = default;

  // Consumes the transfer only when it is accepted.
  [[nodiscard]] virtual Result<TransferId> submit(Transfer&& transfer) = 0;
  // Blocks that have not begun will not; those that have go on to their end. The outcome comes as always.
  virtual void cancel(TransferId transfer) = 0;
  // Expires what is due by its clock. Where that is the machine's clock the executor's own thread does it in time; a
  // clock that is moved by hand needs the call.
  virtual void check_deadlines() = 0;
  // Whether it moves blocks between such regions.
  [[nodiscard]] virtual bool can_move(const CopyPlan& plan) const = 0;
  [[nodiscard]] virtual ExecutorLoad load() const = 0;
  // How it works here, and what it fell back to, for people: "io_uring, direct, 8 in flight, buffers registered".
  [[nodiscard]] virtual std::string describe() const = 0;
};

}  // namespace cairn
