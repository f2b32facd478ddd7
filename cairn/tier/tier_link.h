// TierLink: copies blocks from one tier to another, and makes them known there once their bytes are verified.
//
// Does:     checks on the way what the source knows the checksum of, and makes it of what has none yet. A block is
//           registered only when all of it is known to have arrived, and in a file only after its entry is written. What
//           failed registers nothing. A block whose bytes are wrong is dropped from the tier it was read from.
// Fences:   a copy that is in flight when the tier it goes to is fenced registers nothing there: its blocks end as
//           kCancelled. A copy of blocks that were fenced, or into such, does not begin.
// Memory:   the source stays pinned and late targets quarantined until no copy can touch them any more, whatever the
//           deadline said.
// Health:   says of the tier at fault (a file before a GPU before memory) whether it worked; refuses to use it while it is
//           out.
// Owner:    the manager; tiers and executor outlive it, and it outlives its copies (the executor's destructor ends them).
// Threads:  any. `done` runs on a thread of the executor and may start further copies.
// Fails:    bring(), fill(): kUnavailable while a tier is out; kExhausted when the executor is full; kInvalidArgument for
//           counts that differ, a key that stands there twice, a priority that is none; kCancelled for blocks that were
//           fenced; what the entries of a file could not be told. The job comes back with the error. std::bad_alloc: no
//           copy has begun, its `done` is not called, and what the job held is let go of.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
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

// Blocks that the engine holds in a tier without a pool: it keeps them as they are until the copy has settled.
struct EngineBlocks {
  std::vector<BlockId> block_ids = {};
  std::vector<BlockFacts> facts = {};  // one for each; as far as they are known
  std::shared_ptr<void> held = {};     // let go of when nothing touches the blocks any more
  // KvBlockManager::fences() when what the blocks hold was begun. A save of blocks from before a fence is refused.
  // std::nullopt: they are of now.
  std::optional<std::uint64_t> fence = {};
  // Copies from and to the blocks do not begin before the engine has reached this step.
  StepMark not_before = {};
};

// What a copy reads.
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
  // Whether their pool still has them; always true of the engine's own.
  [[nodiscard]] bool is_current() const;

 private:
  std::vector<BlockFacts> facts_;
  std::variant<PinnedBlocks, EngineBlocks, std::shared_ptr<const BorrowedBlocks>> blocks_;
};

class TierLink {
 public:
  // What became of a copy.
  struct Arrived {
    ImmutableBlocks
        blocks;  // registered in the tier they were brought to, in order; none where the engine's were filled
    std::vector<BlockState> states;  // of every block of the source
    std::string error;               // of the first that is not done; empty if all are
  };
  using Done = std::function<void(Arrived&&)>;

  [[nodiscard]] static Result<std::unique_ptr<TierLink>> make(Tier& from, Tier& to, TransferExecutor& executor,
                                                              const Clock& clock);

  struct Bring {
    CopySource source;
    MutableBlocks targets;  // of the other tier's pool, as many
    TimePoint deadline = TimePoint::max();
    Done done = {};
  };
  [[nodiscard]] Result<TransferId, Rejected<Bring>> bring(Bring job);

  struct Fill {
    CopySource source;
    EngineBlocks targets;  // of the other tier, as many; facts are not looked at
    TimePoint deadline = TimePoint::max();
    Done done = {};
  };
  // The same into blocks of the engine: nothing is registered.
  [[nodiscard]] Result<TransferId, Rejected<Fill>> fill(Fill job);

  void cancel(TransferId copy) { executor_.cancel(copy); }

  // While paused, copies are refused as if a tier were out; those under way go on.
  void pause(bool paused) { is_paused_ = paused; }
  [[nodiscard]] bool is_paused() const { return is_paused_; }

  [[nodiscard]] Tier& from() const { return from_; }
  [[nodiscard]] Tier& to() const { return to_; }
  [[nodiscard]] TransferExecutor& executor() const { return executor_; }
  // Whether a copy would be let through now, trials not asked for.
  [[nodiscard]] bool is_up() const;
  // Whether a copy has a chance now: it is not paused, and no tier at fault is out, or the time to try it again has come.
  [[nodiscard]] bool may_be_tried() const;
  [[nodiscard]] LinkMeter& meter() { return meter_; }
  [[nodiscard]] const LinkMeter& meter() const { return meter_; }

 private:
  struct Flight;
  using FlightPtr = std::shared_ptr<Flight>;
  TierLink(Tier& from, Tier& to, TransferExecutor& executor, const Clock& clock, CopyPlanPtr plan);

  [[nodiscard]] Status may_copy();
  void report(std::span<const BlockState> states, const std::string& error, const Status& written);
  [[nodiscard]] Result<TransferId> submit(const FlightPtr& flight, std::span<const BlockId> targets,
                                          TimePoint deadline);
  void landed(Flight& flight, TransferOutcome&& outcome);
  [[nodiscard]] std::vector<BlockFacts> compare(const Flight& flight, TransferOutcome& outcome);
  [[nodiscard]] Status sort_out(Flight& flight, const std::vector<BlockFacts>& facts, Arrived& arrived);
  [[nodiscard]] static ImmutableBlocks name(MutableBlocks blocks, std::span<const BlockFacts> facts);

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
