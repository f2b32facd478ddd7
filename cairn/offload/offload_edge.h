// OffloadEdge: moves blocks of one tier down to the next: ahead of need, as they are registered, or when asked.
//
// Does:     Ahead: copies what is registered above, as far as the filters admit it, while the lower tier has free room; and
//           before that the next victims of the upper pool when it runs low on blocks that are free or ready to go, room or
//           not. How many are kept ready follows the allocations. An allocation never waits for a copy. A block is copied
//           after those before it in its sequence, and not at all if they are nowhere: when the link is too slow the heads
//           of prefixes are below and the tails are lost. What was missed because the edge or the lower tier could not
//           take it is looked for when they can. On registration: copies what is registered, most valuable first, room or
//           not. By request: a list of keys, with an owner who can take it back.
// Once:     one copy of a key is under way at a time, however many ask; what is below already is not copied.
// Bounds:   so many blocks wait and so many batches are under way; beyond that the least valuable waiting blocks are
//           shed and counted.
// Fails:    what cannot be copied is let go of, and counted by reason. Nothing is tried for ever.
// Owner:    the manager; link, registry and clock outlive it. end() comes before it is destroyed, and the executor's
//           copies are over.
// Threads:  any. Nothing happens but in pump() and in the callbacks of copies: whoever owns it pumps when `wake` is
//           called and when next_time() is due. One pump at a time.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "cairn/base/clock.h"
#include "cairn/base/result.h"
#include "cairn/offload/offload_options.h"
#include "cairn/pool/block_registry.h"
#include "cairn/pool/pool_observer.h"
#include "cairn/tier/tier_link.h"

namespace cairn {

// Why a block was not copied.
enum class OffloadRefusal : std::uint8_t {
  kTooShort,  // as evict/admission.h has them
  kNeverSeenTwice,
  kWouldNotLast,
  kOverBudget,
  kLowPriority,  // below the edge's least priority
  kAlreadyBelow,
  kUnderWay,  // another copy of it is
  kShed,      // the queue was full of more valuable ones
  kGone,      // evicted before its turn came
  kNoRoom,    // everything below is in use, or would have to make room for a block that is not about to go
  kTierOut,   // the tier below is not written to, or the one above not read, at present
  kFailed,    // the copy did
  kCancelled,
  kNoParent,  // the block before it in its sequence is in neither tier: nobody could load this one
};
inline constexpr std::size_t kOffloadRefusals = 14;
// "too short", "already below" and so on
[[nodiscard]] std::string_view to_string(OffloadRefusal refusal);

struct OffloadStatus {
  OffloadMode mode = OffloadMode::kAhead;
  bool is_paused = false;
  std::uint64_t offered = 0;  // blocks
  std::uint64_t copied = 0;
  std::array<std::uint64_t, kOffloadRefusals> refused = {};
  std::uint32_t waiting = 0;  // blocks
  std::uint32_t under_way = 0;
};

// Names a request of one edge; never used again.
enum class OffloadRequestId : std::uint64_t {};

class OffloadEdge {
 public:
  // `wake` is called when there is something to pump, from any thread, also under a pool's lock: it returns soon and
  // takes only locks above LockRank::kRegistry.
  [[nodiscard]] static Result<std::unique_ptr<OffloadEdge>> make(TierLink& link, BlockRegistry& registry,
                                                                 const OffloadOptions& options, const Clock& clock,
                                                                 std::function<void()> wake);
  ~OffloadEdge();

  // To be told, under the upper pool's lock, of what is registered and used there. Only noted; pump() looks at it.
  void registered(std::span<const ResidentBlock> blocks);
  void used(std::span<const BlockKey> keys);

  // What became of a request: for each key, in order, whether it is in the lower tier now.
  struct RequestOutcome {
    std::vector<bool> is_below;
    std::string error;  // of the first that is not; empty if all are
  };
  struct Request {
    std::vector<BlockKey> keys;
    std::uint32_t priority = 50;  // 0 to 100; before waiting blocks of a lower one
    TimePoint deadline = TimePoint::max();
    std::function<void(RequestOutcome&&)> done = {};  // once, in pump() or on an executor's thread
  };
  // Blocks of the upper pool, whatever the mode and filters (but for the write budget). kExhausted: the queue is full of
  // more valuable ones; kFailedPrecondition: paused; kCancelled: of the engine's blocks, see EngineBlocks::fence.
  [[nodiscard]] Result<OffloadRequestId> offload(Request&& request);
  // Blocks that the engine holds in a tier without a pool; they are `held` until nothing touches them any more.
  [[nodiscard]] Result<OffloadRequestId> offload(EngineBlocks&& blocks, Request&& request);
  // What waits of it will not be copied; what is under way ends by itself. Its outcome comes as always.
  void cancel(OffloadRequestId request);

  // The tiers are fenced, and their pools' fences are up: nothing that was offered or asked for before is copied, and
  // requests are answered so. `fences`: how many fences over all tiers there were; blocks of the engine that are of before
  // the latest are refused from now on.
  void fence(std::uint64_t fences);

  // While paused nothing new is begun. Blocks that are registered meanwhile are passed over; ahead of need they are
  // copied afterwards.
  void pause();
  void resume();
  [[nodiscard]] OffloadStatus status() const;

  // Does what can be done now; whether anything was.
  bool pump();
  // When pump() is due without being woken: a request's deadline, a tier that is to be tried again.
  [[nodiscard]] std::optional<TimePoint> next_time() const;
  // Nothing waits and nothing is under way.
  [[nodiscard]] bool is_idle() const;
  // Takes nothing any more and drops what waits. What is under way goes on: pump until is_idle().
  void end();
  // Answers all requests, as if their deadlines had passed. After end(), where copies do not come back.
  void end_now();

 private:
  class Impl;
  explicit OffloadEdge(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace cairn
