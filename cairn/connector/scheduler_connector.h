// SchedulerConnector: the scheduler's side of an engine: what its requests can load instead of computing, and what is
// saved of what they computed.
//
// Does:     owns the slots of the requests, the manager of the tiers (logical: the bytes are the ranks') and the group of
//           ranks. In the order of an engine's iteration:
//             take_results()      what loads and saves came to
//             match()             for each request that is about to start: how much tiers have of it
//             allocated()         the engine has given it device blocks
//             build()             the metadata of the iteration, from what is scheduled in it
//             finish()            the engine is done with a request
// Loads:    are begun in the order in which requests were scheduled, and at most Options::loading_blocks at once; what does
//           not fit is asked again later or computed. Load or compute is weighed by the manager's cost model at match().
// Errors:   of one request are that request's: it goes on without a cache and `refused` says why. Nothing of a bad call
//           changes anything.
// Owner:    the engine's scheduler. Threads: one at a time, the scheduler's; nothing waits for a copy.
// Fails:    make(): as KvBlockManager and Leader say.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cairn/base/ids.h"
#include "cairn/base/result.h"
#include "cairn/connector/request_handle.h"
#include "cairn/connector/request_id.h"
#include "cairn/connector/slot_error.h"
#include "cairn/connector/slot_state.h"
#include "cairn/leader/leader.h"
#include "cairn/manager/kv_block_manager.h"
#include "cairn/tokens/hashes.h"
#include "cairn/tokens/key_hasher.h"
#include "cairn/tokens/mm_run.h"

namespace cairn {

enum class LoadMode : std::uint8_t {
  kAsync,   // the request waits until its blocks are there, and computes the rest then
  kInStep,  // it computes in the same iteration, layer after layer as they come
};

class SchedulerConnector {
 public:
  struct Options {
    // Of the whole engine: [model] has all heads, sizes are of all ranks together, device.blocks is how many the engine
    // has. The engine manages the device.
    ManagerConfig manager;
    ManagerParts parts = {};  // clock, incidents; `elsewhere` is set here
    Leader::Options ranks = {};
    LoadMode load = LoadMode::kAsync;
    std::uint32_t loading_blocks = 16384;  // at once
    std::uint32_t least_blocks = 1;        // that a load is worth its while
    std::uint32_t ask_again = 64;          // times that a request is put off for loads of others, then it computes
    Duration load_deadline = std::chrono::seconds(10);
    Duration save_deadline = std::chrono::seconds(30);
  };
  [[nodiscard]] static Result<std::unique_ptr<SchedulerConnector>> make(Options options);
  SchedulerConnector(const SchedulerConnector&) = delete;
  SchedulerConnector& operator=(const SchedulerConnector&) = delete;
  ~SchedulerConnector();

  // --- requests ---
  // Keys are made as manager.model.scheme says. InvalidOperation under vllm, sglang and router: these have no keys for
  // tokens.
  [[nodiscard]] SlotResult<RequestHandle> add(const RequestId& request, std::span<const Token> tokens,
                                              const RequestSalt& salt = {}, std::span<const MmRun> runs = {});
  [[nodiscard]] std::optional<RequestHandle> find(const RequestId& request) const;
  [[nodiscard]] SlotResult<SlotState> state(RequestHandle request) const;

  struct Match {
    enum class When : std::uint8_t {
      kNow,       // in the iteration that it is scheduled in (LoadMode::kInStep); also where there is nothing to load
      kLater,     // it has to wait for its load
      kAskAgain,  // not known yet: leave the request where it is and ask in the next iteration
    };
    std::size_t tokens = 0;  // beyond those that the engine has
    When when = When::kNow;
  };
  // How much of the request tiers have beyond the engine's first `local_tokens`. May be asked again; the latest counts.
  [[nodiscard]] SlotResult<Match> match(RequestHandle request, std::size_t local_tokens);
  // The engine has given the request these blocks, for its first tokens on: `local_tokens` are in them already,
  // `loaded_tokens` (0, or what match() said, or fewer whole blocks) are to be loaded. The load goes into the next metadata.
  // Fails if a block is listed twice. Blocks that `local_tokens` fill may stand in the tables of other requests too; where
  // another live request has one of the other blocks, or a load of another request still writes to a shared one, the next
  // build() refuses the request: only then is it known who was preempted.
  [[nodiscard]] SlotStatus allocated(RequestHandle request, std::span<const BlockId> blocks, std::size_t local_tokens,
                                     std::size_t loaded_tokens);

  // --- an iteration ---
  struct Scheduled {
    RequestHandle request{};
    // Tokens, from the first on, whose KV is on the device when the iteration begins, as the engine counts them: before
    // the iteration, not after it. At most what earlier iterations scheduled; in the first one since the request was added
    // or preempted, what was loaded and what match() or allocated() said of the engine's own cache. Fewer than before: the
    // engine took them back (a failed load) and computes them again.
    std::size_t computed_tokens = 0;
    std::span<const Token> new_tokens = {};    // that the request has since it was last told
    std::span<const BlockId> new_blocks = {};  // since then
    std::span<const Token> guesses = {};   // computed and checked in this iteration; the last ones are settled first
    std::size_t accepted_guesses = 0;      // of the last ones; they are not among new_tokens
    std::span<const MmRun> new_runs = {};  // multimodal items among new_tokens; offsets from the start of the request
    // Tokens that this iteration computes, guesses included. 0: not said, all that the request has. An engine that
    // schedules a token before it is known (asynchronous scheduling) has to say it.
    std::size_t scheduled_tokens = 0;
  };
  struct Iteration {
    std::uint64_t number = 0;                       // grows
    std::span<const RequestHandle> preempted = {};  // their device blocks are taken away, before anything else
    std::span<const Scheduled> scheduled = {};
  };
  struct Refused {
    RequestHandle request{};
    Error error;
  };
  // Replaces `metadata`. What could not be done for a request is in refused(), until the next call: what was told of it made
  // no sense, so that nobody knows what its blocks hold; from then on nothing is loaded or saved for it, until it is
  // finished. A request that cannot be preempted, since a load writes to its blocks, is as it was. An error: the number did
  // not grow, and nothing changed.
  [[nodiscard]] Status build(const Iteration& iteration, std::vector<std::byte>& metadata);
  [[nodiscard]] std::span<const Refused> refused() const;

  // The engine is done with it, by its end or an abort. `computed_tokens`: as in Scheduled, where its last iteration
  // computed what was not told yet; what it filled is saved then. True: its device blocks must stay as they are until
  // take_results() names it as released, and its last saves are in the next metadata. False: it is gone.
  [[nodiscard]] SlotResult<bool> finish(RequestHandle request, std::optional<std::size_t> computed_tokens = {});

  struct Results {
    struct Loaded {
      RequestHandle request{};
      std::size_t tokens = 0;   // whose KV is on the device now, from the first on
      std::size_t missing = 0;  // tokens that were to come and did not: they have to be computed
    };
    std::vector<Loaded> loaded;       // its load is over: it can be scheduled
    std::vector<RequestId> released;  // finished, and nothing touches their blocks any more
  };
  // What came in since the last call.
  [[nodiscard]] Results take_results();
  // A load or save is under way or waits for the next metadata, or a result waits: the engine's loop should not go to
  // sleep for long, and build iterations also where nothing is scheduled.
  [[nodiscard]] bool has_work() const;

  // What became of saves, in blocks. What is asked is saved or refused when its save is over; on any thread.
  struct SaveStatus {
    std::uint64_t asked = 0;
    std::uint64_t saved = 0;   // in a tier when the save was over
    std::uint64_t shed = 0;    // refused: the manager's queue was full of more valuable ones
    std::uint64_t paused = 0;  // refused: the link was paused, or its offloader had ended
    std::uint64_t lost = 0;    // taken, and not saved: the offloader's own figures say why
  };
  [[nodiscard]] SaveStatus saves() const;

  // KvBlockManager::reset_all(): nothing that was saved before is found after it, on any rank. Loads in flight end with all
  // of their tokens missing. Requests that were added before go on, may load what is saved afterwards, and are not saved any
  // more: what they compute stands on what is on the device from before.
  Result<ResetReport> reset();
  // The engine has new weights: the same, by KvBlockManager::invalidate().
  Result<ResetReport> invalidate(std::uint64_t weights_generation);

  [[nodiscard]] const KvBlockManager& manager() const;  // status, metrics, events, control
  [[nodiscard]] Leader& ranks() const;

 private:
  class Impl;
  explicit SchedulerConnector(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace cairn
