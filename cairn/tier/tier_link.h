// TierLink: copies blocks from one tier to another and registers them there once their bytes are verified.
//
// A block whose checksum the source tier knows is checked on the way; for others the checksum is computed. A block is
// registered only when all its bytes have arrived, and in a file only after its entry is written. A block that failed
// registers nothing. A block whose bytes are wrong is dropped from the tier it was read from.
//
// If the target tier is fenced while a transfer is in flight, the transfer registers nothing and its blocks end as
// kCancelled. A transfer from or into fenced blocks is refused. If every block is done, the source is released before `done` is
// called. Otherwise the source stays pinned and late targets stay quarantined until the executor has settled the transfer,
// whatever its deadline.
//
// The link reports to the tier that is likelier to be at fault (a file before a GPU before memory) whether it worked, and
// refuses transfers while that tier is out of use.
//
// Thread safety: any thread. `done` runs on a thread of the executor and may submit further transfers.
// Ownership: the manager. Tiers and executor outlive the link; the link outlives its transfers (the executor's destructor
// ends them).
// Errors: see submit().
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "cairn/base/clock.h"
#include "cairn/base/mutex.h"
#include "cairn/base/result.h"
#include "cairn/pool/blocks.h"
#include "cairn/tier/link_meter.h"
#include "cairn/tier/tier.h"
#include "cairn/transfer/executor.h"

namespace cairn {

// What a transfer reads.
class CopySource {
 public:
  CopySource(PinnedBlocks blocks)  // NOLINT(google-explicit-constructor): either is a source
      : facts_(blocks.facts()), blocks_(std::move(blocks)) {}
  CopySource(EngineBlocks blocks)  // NOLINT(google-explicit-constructor): either is a source
      : facts_(std::move(blocks.facts)), blocks_(std::move(blocks)) {}
  explicit CopySource(std::shared_ptr<const BorrowedBlocks> blocks)
      : facts_(blocks->facts()), blocks_(std::move(blocks)) {}

  [[nodiscard]] std::size_t size() const { return facts_.size(); }
  [[nodiscard]] std::span<const BlockId> block_ids() const;
  [[nodiscard]] std::span<const BlockFacts> facts() const { return facts_; }
  // Of the engine's blocks; the earliest mark if the blocks are of a pool.
  [[nodiscard]] StepMark not_before() const;
  // Whether no fence came over the blocks' pool since they were taken; always true of the engine's blocks.
  [[nodiscard]] bool is_current() const;

 private:
  std::vector<BlockFacts> facts_;
  std::variant<PinnedBlocks, EngineBlocks, std::shared_ptr<const BorrowedBlocks>> blocks_;
};

// What a transfer writes: blocks of a pool, which are registered under the keys of the source, or blocks of the engine, which
// are only filled.
class CopyTargets {
 public:
  CopyTargets(MutableBlocks blocks)  // NOLINT(google-explicit-constructor): either is a target
      : blocks_(std::move(blocks)) {}
  CopyTargets(EngineBlocks blocks)  // NOLINT(google-explicit-constructor): either is a target
      : blocks_(std::move(blocks)) {}

  [[nodiscard]] std::size_t size() const { return block_ids().size(); }
  [[nodiscard]] std::span<const BlockId> block_ids() const;
  // As of CopySource.
  [[nodiscard]] StepMark not_before() const;
  // Null for blocks of the engine.
  [[nodiscard]] MutableBlocks* pool_blocks() { return std::get_if<MutableBlocks>(&blocks_); }
  [[nodiscard]] const MutableBlocks* pool_blocks() const { return std::get_if<MutableBlocks>(&blocks_); }
  [[nodiscard]] bool is_current() const { return pool_blocks() == nullptr || pool_blocks()->is_current(); }

 private:
  std::variant<MutableBlocks, EngineBlocks> blocks_;
};

struct LinkOutcome {
  ImmutableBlocks blocks;          // those that were registered, in order; empty if the targets are the engine's
  std::vector<BlockState> states;  // of every block of the source
  std::string error;               // of the first block that is not kDone; empty if all are
};

struct LinkTransfer {
  CopySource source;
  CopyTargets targets;  // as many blocks, of the tier that the link leads to
  TimePoint deadline = TimePoint::max();
  std::function<void(LinkOutcome&&)> done = {};
};

class TierLink {
 public:
  [[nodiscard]] static Result<std::unique_ptr<TierLink>> make(Tier& from, Tier& to, TransferExecutor& executor,
                                                              const Clock& clock);

  // A refused transfer is handed back. kUnavailable while a tier is out of use or the link is paused; kExhausted if the
  // executor is full; kInvalidArgument if source and targets differ in number, a key appears twice or a priority is out of
  // range; kCancelled for fenced blocks; the error of the file if its entries could not be updated. std::bad_alloc: the
  // transfer did not begin, its `done` is not called, and its blocks are released.
  [[nodiscard]] Result<TransferId, Rejected<LinkTransfer>> submit(LinkTransfer transfer);
  void cancel(TransferId transfer) { executor_.cancel(transfer); }

  // While paused, new transfers are refused; those in flight go on.
  void pause(bool paused) { is_paused_ = paused; }
  [[nodiscard]] bool is_paused() const { return is_paused_; }

  [[nodiscard]] Tier& from() const { return from_; }
  [[nodiscard]] Tier& to() const { return to_; }
  [[nodiscard]] TransferExecutor& executor() const { return executor_; }
  // Whether the link is not paused and no tier at fault is out of use.
  [[nodiscard]] bool is_up() const;
  // The same, but a tier that is out of use does not count if the time to try it again has come.
  [[nodiscard]] bool may_be_tried() const;
  [[nodiscard]] LinkMeter& meter() { return meter_; }
  [[nodiscard]] const LinkMeter& meter() const { return meter_; }

 private:
  struct InFlight;
  using InFlightPtr = std::shared_ptr<InFlight>;
  TierLink(Tier& from, Tier& to, TransferExecutor& executor, const Clock& clock, CopyPlanPtr plan);

  [[nodiscard]] static Status check(const LinkTransfer& transfer);
  // Asks the tiers at fault for permission. After success, report() has to be called once.
  [[nodiscard]] Status ask_tiers();
  // Tells the tiers at fault how a transfer went. `written`: whether the entries of what arrived could be written.
  void report(std::span<const BlockState> states, const std::string& error, const Status& written);
  [[nodiscard]] Result<TransferId> submit_to_executor(const InFlightPtr& in_flight);
  void on_done(InFlight& in_flight, TransferOutcome&& outcome);
  [[nodiscard]] std::vector<BlockFacts> verify(const InFlight& in_flight, TransferOutcome& outcome);
  [[nodiscard]] Status register_done(InFlight& in_flight, const std::vector<BlockFacts>& facts, LinkOutcome& outcome);
  [[nodiscard]] static ImmutableBlocks register_as(MutableBlocks blocks, std::span<const BlockFacts> facts);

  Tier& from_;
  Tier& to_;
  TransferExecutor& executor_;
  const Clock& clock_;
  const CopyPlanPtr plan_;
  const bool from_is_at_fault_;
  const bool to_is_at_fault_;
  std::atomic<bool> is_paused_{false};
  LinkMeter meter_;
};

}  // namespace cairn
