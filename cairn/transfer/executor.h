// TransferExecutor: carries out transfers. There is one for host memory, files, GPUs, and for each kind of test.
//
// A transfer is a batch of blocks with the plan that copies them. `done` gets the outcome of each block, once. A block is done
// only when all its bytes have arrived and, if it was to be checked, are right. A failure of one block does not affect the
// others.
//
// When the deadline passes, the blocks that are not done yet expire, and `done` is called without waiting for them. A late copy
// may still write to their memory: `settled` is called when none can, which may be never. The same holds for a block that failed
// in one place and is copied in several.
//
// Thread safety: submit() and cancel() from any thread; they only queue. `done` and then `settled` run on a thread of the
// executor, one callback at a time, and may submit.
// Ownership: the memory of the caller on both sides belongs to the transfer from submit() until `settled`. The destructor cancels
// what has not begun, waits for what has, and runs the callbacks.
// Errors: see submit().
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cairn/base/clock.h"
#include "cairn/base/ids.h"
#include "cairn/base/result.h"
#include "cairn/transfer/checksum.h"
#include "cairn/transfer/copy_plan.h"

namespace cairn {

enum class Verify : std::uint8_t {
  kMake,   // compute the checksum of what was copied
  kCheck,  // and compare it with the expected one: another one is a mismatch
  kOff,
};

struct TransferBlock {
  BlockPair pair;
  BlockTag tag = {};  // kMake, kCheck
  // kCheck. With kMake, what the source is known to have, if anything: an executor whose bytes leave this process does not send
  // others.
  Checksum expected = {};
  std::uint64_t note = 0;  // kept beside the bytes by an executor that stores them under their tag (cluster/)
};

enum class BlockState : std::uint8_t {
  kDone,
  kFailed,
  kMismatch,
  kExpired,
  kCancelled,
  kGone,  // the source is a store, and no longer has the block
};
// "done", "failed", "mismatch", "expired", "cancelled", "gone"
[[nodiscard]] std::string_view to_string(BlockState state);

struct BlockOutcome {
  BlockState state = BlockState::kDone;
  Checksum checksum = {};  // of what was copied, unless kOff; set if the block is done or a mismatch
  BlockSums sums = {};     // what the checksum was computed from; the sums of parts of a block add up
};

struct TransferOutcome {
  std::vector<BlockOutcome> blocks;  // in the order of the transfer
  std::string error;                 // of the first block that is not done; empty if all are
  // How long the copy itself took, without the time that it was held back; std::nullopt if it began when it was submitted.
  std::optional<Duration> copied = {};
  [[nodiscard]] bool all_done() const { return error.empty(); }
};

// Names a transfer of one executor. Ids are never reused.
enum class TransferId : std::uint64_t {};

struct Transfer {
  CopyPlanPtr plan;
  std::vector<TransferBlock> blocks = {};
  Verify verify = Verify::kMake;
  TimePoint deadline = TimePoint::max();
  // The step that the engine must have reached before the transfer touches device blocks. Only the executor of a leader looks
  // at it: each rank holds its part of the transfer back.
  StepMark not_before = {};
  // Asked in submit() by an executor whose copies others may see before they are registered: false if a fence came over the
  // blocks, and the transfer is refused. Empty: it is current.
  std::function<bool()> is_current = {};
  std::function<void(TransferOutcome&&)> done = {};
  std::function<void()> settled = {};  // may be empty
};

struct ExecutorLoad {
  std::size_t transfers = 0;  // accepted and not settled
  std::size_t blocks = 0;     // of those
  std::size_t limit = 0;      // of transfers
};

class TransferExecutor {
 public:
  TransferExecutor() = default;
  TransferExecutor(const TransferExecutor&) = delete;
  TransferExecutor& operator=(const TransferExecutor&) = delete;
  virtual ~TransferExecutor() = default;

  // Takes the transfer only if it is accepted. kExhausted if the queue is full: try again after a `done`. kInvalidArgument for a
  // plan that it cannot move, blocks that do not exist, a destination that is written twice, or kCheck of a plan that moves a
  // part of each block (use kMake and add up the sums).
  [[nodiscard]] virtual Result<TransferId> submit(Transfer&& transfer) = 0;
  // Blocks that have not begun are cancelled; those that have go on. The outcome comes as always.
  virtual void cancel(TransferId transfer) = 0;
  // Expires what is late. Only needed with a clock that is moved by hand; with steady_clock() a thread of the executor does it.
  virtual void check_deadlines() = 0;
  // Whether transfers wait until the engine has reached their Transfer::not_before.
  [[nodiscard]] virtual bool holds_back() const { return false; }
  // Whether it can carry out this plan.
  [[nodiscard]] virtual bool can_move(const CopyPlan& plan) const = 0;
  [[nodiscard]] virtual ExecutorLoad load() const = 0;
  // How it works on this machine, for people: "io_uring, direct, 8 in flight, buffers registered".
  [[nodiscard]] virtual std::string describe() const = 0;
};

}  // namespace cairn
