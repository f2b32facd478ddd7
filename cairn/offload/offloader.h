// Offloader: copies blocks of one tier down to the next, over one TierLink: ahead of eviction, as they are registered, or on
// request.
//
// OffloadMode::kAhead copies every registered block that the filters admit while the lower tier has free blocks. When the
// upper pool runs low on free or ready blocks, its next victims go first, free blocks below or not. The number of blocks kept
// ready follows the allocations; an allocation never waits for a transfer. A block is copied after the blocks before it in its
// sequence, and not at all if they are in neither tier. If the link is too slow, the heads of prefixes are below and the tails
// are lost. Blocks that were missed (queue full, lower tier full or out of use) are searched for later.
// OffloadMode::kOnRegistration copies every registered block, the most valuable first, free blocks below or not.
// offload() copies a list of keys in any mode.
//
// A key is copied by one transfer at a time, and not at all if it is below already. The numbers of pending blocks and of
// batches in flight are bounded; the least valuable pending blocks are shed and counted.
//
// Thread safety: any thread, but one pump() at a time. Work happens only in pump() and in the callbacks of transfers: the
// owner pumps when `wake` is called and when next_time() is due.
// Ownership: the manager. Link, registry and clock outlive it. Call end() and let all transfers end before destroying it.
// Errors: a block that cannot be copied is dropped and counted by OffloadRefusal. Nothing is retried forever.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cairn/base/clock.h"
#include "cairn/base/ids.h"
#include "cairn/base/result.h"
#include "cairn/offload/filter_caller.h"
#include "cairn/offload/offload_request.h"
#include "cairn/pool/block_registry.h"
#include "cairn/pool/pool_observer.h"
#include "cairn/tier/tier_link.h"

namespace cairn {

class Offloader {
 public:
  // A filter of the user's, which decides beside the filters of OffloadOptions. Called in pump() and in offload() of the
  // engine's blocks, with no lock held. An empty filter: there is none.
  using UserFilter = FilterCaller::Options;
  // `wake` is called when there is something to pump, from any thread, also under a pool's lock. It must return soon and
  // take only locks above LockRank::kRegistry.
  [[nodiscard]] static Result<std::unique_ptr<Offloader>> make(TierLink& link, BlockRegistry& registry,
                                                               const OffloadOptions& options, const Clock& clock,
                                                               std::function<void()> wake, UserFilter filter);
  ~Offloader();

  // What is registered and used in the upper pool; called under its lock. Only recorded: pump() looks at it.
  void registered(std::span<const ResidentBlock> blocks);
  void used(std::span<const BlockKey> keys);
  // Requests of the engine have these blocks in their sequences: one use of each. For a tier without a pool.
  void used_by_engine(std::span<const BlockKey> keys);

  // Copies blocks of the upper pool, whatever the mode and filters (except the write budget). kExhausted if the queue is
  // full of more valuable blocks; kFailedPrecondition while paused.
  [[nodiscard]] Result<OffloadRequestId> offload(OffloadRequest&& request);
  // Copies blocks that the engine holds in a tier without a pool, whatever the mode, as far as all filters admit them: the
  // keys of one sequence, in order, up to the first that is rejected; keys after it are refused as kNoParent unless they are
  // below already. EngineBlocks::held is released when nothing touches the blocks any more. Errors as above; also
  // kCancelled, if EngineBlocks::fence is older than the last fence.
  [[nodiscard]] Result<OffloadRequestId> offload(EngineBlocks&& blocks, OffloadRequest&& request);
  // Drops the request's pending blocks. Transfers in flight go on. The outcome comes as always.
  void cancel(OffloadRequestId request);

  // Call when the tiers are fenced and the fences of their pools are up. Nothing that was offered or requested before is
  // copied; requests end with that outcome. `fences` is the number of fences over all tiers so far: blocks of the engine
  // from before the latest are refused from now on.
  void fence(std::uint64_t fences);

  // Nothing new is begun while paused. Blocks that are registered meanwhile are skipped; in mode kAhead they are copied
  // after resume().
  void pause();
  void resume();
  [[nodiscard]] OffloadStatus status() const;

  // Does what can be done now. Returns whether it did anything.
  bool pump();
  // When pump() is due even if `wake` is not called: the deadline of a request, the retry of a full executor.
  [[nodiscard]] std::optional<TimePoint> next_time() const;
  // Nothing is pending or in flight.
  [[nodiscard]] bool is_idle() const;
  // Accepts nothing more and drops what is pending. Transfers in flight go on: pump until is_idle().
  void end();
  // Ends all requests as if their deadlines had passed. Call it after end(), if transfers do not end.
  void end_now();

 private:
  class Impl;
  explicit Offloader(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace cairn
