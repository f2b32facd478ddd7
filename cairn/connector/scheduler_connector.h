// SchedulerConnector: the scheduler's side of the connector. Says what requests can load instead of computing, and saves
// what they computed.
//
// An engine calls, for each request and in each iteration:
//   add()            once for each request
//   take_outcomes()  which loads have ended, and which finished requests are released
//   match()          before a request first runs: how many of its tokens the tiers have
//   allocated()      the engine gave it device blocks; its load goes into the next metadata
//   build()          the metadata of the iteration, for every worker
//   finish()         the request ended or was aborted
// Loads start in the order of allocated(), with at most Options::loading_blocks at once. The manager's cost model weighs
// loading against computing at match(). The manager keeps keys, policies and checksums; the bytes are with the ranks.
// In a model with layer groups (model.groups) a request has one block table for each group: allocated_groups() and
// Scheduled::new_group_blocks take the place of allocated() and new_blocks. Device block ids are of one pool: groups may lie in
// the same memory, and a block is one group's at a time.
//
// Thread safety: none; the scheduler's thread alone, except where a function says otherwise. No call waits for a copy.
// Ownership: the engine's scheduler.
// Errors: a failed call has no effect. A request with invalid input in build() continues without a cache, and
// refused() says why; other requests are not affected. make() fails as KvBlockManager and Leader do.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "cairn/base/ids.h"
#include "cairn/base/result.h"
#include "cairn/connector/request_id.h"
#include "cairn/connector/slot.h"
#include "cairn/evict/request_ending.h"
#include "cairn/evict/retention.h"
#include "cairn/manager/kv_block_manager.h"
#include "cairn/manager/token_counts.h"
#include "cairn/tokens/hashes.h"
#include "cairn/tokens/key_hasher.h"
#include "cairn/wire/rank_address.h"

namespace cairn {

class CallRecorder;
class LocalLeader;

enum class LoadMode : std::uint8_t {
  kAsync,   // the request waits until its blocks are loaded, and computes the rest then
  kInStep,  // it computes in the iteration that loads it, layer after layer as they arrive
};

class SchedulerConnector {
 public:
  struct Options {
    // Of the whole engine: [model] has all heads, sizes are of all ranks together, device.blocks is the number of blocks
    // that the engine has. The engine manages the device.
    ManagerConfig manager;
    // Clock, incidents, cost model. `elsewhere` moves the blocks instead of ranks, for simulations; with own_thread off as
    // well, everything happens in the calls of the scheduler and in manager().pump().
    ManagerParts parts = {};
    LeaderOptions ranks = {};
    LoadMode load = LoadMode::kAsync;      // a model with layer groups has kAsync
    std::uint32_t loading_blocks = 16384;  // in flight at once
    std::uint32_t least_blocks = 1;        // a load of fewer blocks is not worth it: they are computed
    std::uint32_t ask_again = 64;          // times that a request is put off because of other loads, then it computes
    Duration load_deadline = std::chrono::seconds(10);
    Duration save_deadline = std::chrono::seconds(30);
    // A request that fills at least so many blocks in an iteration is saved in that step: ranks copy each layer as soon as it
    // is computed. Needs Scheduled::scheduled_tokens and a host tier. 0: blocks are saved after their step, as they are in a
    // model with layer groups.
    std::uint32_t in_step_save_blocks = 8;
  };
  [[nodiscard]] static Result<std::unique_ptr<SchedulerConnector>> make(Options options);
  SchedulerConnector(const SchedulerConnector&) = delete;
  SchedulerConnector& operator=(const SchedulerConnector&) = delete;
  ~SchedulerConnector();

  // --- requests ---
  // The engine's own digests or hashes of full blocks, one after the other, each `size` bytes long: 16 to 32 bytes under
  // schemes vllm and sglang, 8 (a little-endian number) under router. Size 0: none are given.
  struct BlockDigests {
    std::span<const std::byte> bytes = {};
    std::size_t size = 0;
  };
  // What add() takes. Everything but the tokens has a default. Spans and texts are read during the call only.
  struct NewRequest {
    std::span<const Token> tokens = {};   // the prompt
    RequestSalt salt = {};                // salt and adapter
    std::span<const MmRun> mm_runs = {};  // multimodal items among the tokens
    // How blocks that are saved for it are kept. Unset: requests.priority and requests.time_to_live of the configuration.
    // Times need requests.retention.
    std::optional<std::uint32_t> priority = {};  // 0 to 100; the lowest is evicted first
    std::optional<Duration> priority_duration = {};
    std::optional<Duration> time_to_live = {};
    // One of requests.tenants, whose quota its saved blocks count for; "": the default one.
    std::string_view tenant = {};
    // Whether its blocks will be needed again; passed on to the tiers when the request has ended. Needs
    // requests.retention.
    RetentionHint hint = {};
    // The data parallel rank that the front end chose for it. add() refuses a request of another rank than this connector's.
    std::optional<std::uint32_t> dp_rank = {};
    // Of the full blocks of the prompt. Required under vllm, sglang and router, whose keys are not made from tokens.
    BlockDigests block_digests = {};
  };
  // Keys are made as manager.model.scheme says. kAlreadyExists if the id names a request that is not released;
  // kFailedPrecondition if digests are given or missing against the scheme, or times without requests.retention; kNotFound
  // for an unknown tenant; kInvalidArgument for a request of another data parallel rank.
  [[nodiscard]] Result<RequestHandle> add(const RequestId& id, const NewRequest& request);
  [[nodiscard]] std::optional<RequestHandle> find(const RequestId& id) const;
  [[nodiscard]] Result<SlotState> state(RequestHandle request) const;

  struct Match {
    enum class When : std::uint8_t {
      kNow,       // in the iteration that schedules it (LoadMode::kInStep), or nothing is to be loaded
      kLater,     // the request has to wait for its load
      kAskAgain,  // not known yet: leave the request in the queue and ask in the next iteration
    };
    std::size_t tokens = 0;       // that can be loaded, beyond those that the engine has
    std::size_t disk_tokens = 0;  // of those, on disk; the others are in host memory
    When when = When::kNow;
  };
  // How many tokens of the request the tiers have beyond the engine's first `local_tokens`. May be called again; the latest
  // call counts.
  [[nodiscard]] Result<Match> match(RequestHandle request, std::size_t local_tokens);
  // The engine gave the request these blocks, for its first tokens on: `local_tokens` are in them already, `loaded_tokens`
  // (0, what match() said, or fewer whole blocks) are to be loaded. The load goes into the next metadata.
  // Fails if a block is listed twice. Blocks that `local_tokens` fill may be in the tables of other requests too. If another
  // live request has one of the other blocks, or a load of another request still writes to a shared one, the next build()
  // refuses the request: only then is it known which requests were preempted.
  [[nodiscard]] Status allocated(RequestHandle request, std::span<const BlockId> blocks, std::size_t local_tokens,
                                 std::size_t loaded_tokens);
  // The same in a model with layer groups: the blocks of each group, in the order of model.groups, with kNoBlock where a group
  // that is not full has none. `loaded_tokens` is 0 or what match() said: a shorter prefix needs other blocks. Blocks that are to
  // be loaded must be there; those that `local_tokens` fill may be in the tables of other requests too.
  [[nodiscard]] Status allocated_groups(RequestHandle request, std::span<const std::span<const BlockId>> blocks,
                                        std::size_t local_tokens, std::size_t loaded_tokens);

  // --- an iteration ---
  struct Scheduled {
    RequestHandle request{};
    // Tokens, from the first on, whose KV is on the device when the iteration begins: before the iteration, not after it.
    // At most what earlier iterations scheduled; in the first one since the request was added or preempted, what was loaded
    // and what match() or allocated() said of the engine's own cache. Fewer than before: the engine computes them again,
    // after a failed load.
    std::size_t computed_tokens = 0;
    std::span<const Token> new_tokens = {};    // since the request was last scheduled
    std::span<const BlockId> new_blocks = {};  // since then
    // In a model with layer groups: one list for each, as in allocated_groups(); empty: none. Blocks of sliding and chunked
    // groups that no token after `computed_tokens` needs are the engine's again from this iteration on.
    std::span<const std::span<const BlockId>> new_group_blocks = {};
    // Draft tokens that this iteration computes and verifies. Those of the last iteration are settled first.
    std::span<const Token> draft_tokens = {};
    std::size_t accepted_draft_tokens = 0;  // of the last iteration; they are not among new_tokens
    std::span<const MmRun> new_runs = {};   // multimodal items among new_tokens; offsets from the start of the request
    // Tokens that this iteration computes, draft tokens included. 0: all that the request has. An engine that schedules a
    // token before it is known (asynchronous scheduling) has to give it, and in-step saves need it.
    std::size_t scheduled_tokens = 0;
    BlockDigests new_block_digests = {};  // of full blocks without one so far, if the engine gives digests
  };
  struct Iteration {
    std::uint64_t number = 0;                       // higher than the last one
    std::span<const RequestHandle> preempted = {};  // lose their device blocks, before anything else
    std::span<const Scheduled> scheduled = {};
    // How long the engine took to compute an earlier iteration, if it measures that. Loads are weighed against its speed.
    // Otherwise the time from a build() to the next one in which a request of it runs on.
    std::optional<Duration> duration = {};
    std::optional<std::uint64_t> duration_of = {};  // the number of that iteration; std::nullopt: the last one
  };
  struct Refused {
    RequestHandle request{};
    Error error;
  };
  // Replaces `metadata`. A request with invalid input is in refused() until the next call: it is unknown what its
  // blocks hold, so nothing is loaded or saved for it until it is finished. A request that cannot be preempted, because a
  // load writes to its blocks, is in refused() and unchanged. Fails without effect if the number is not higher than the last
  // one. kExhausted: no memory; the scheduled requests continue without a cache; build the iteration again.
  [[nodiscard]] Status build(const Iteration& iteration, std::vector<std::byte>& metadata);
  [[nodiscard]] std::span<const Refused> refused() const;

  // The request ended or was aborted. `computed_tokens`: as in Scheduled, if its last iteration computed tokens that were
  // not reported yet; full blocks of them are saved. Returns true if its device blocks must not change until
  // take_outcomes() names the request as released; its last saves are in the next metadata. False: it is gone.
  // `ending`: how it ended, if the engine knows. The tiers are told once its last save has ended, and keep blocks of
  // sessions that will return soon.
  [[nodiscard]] Result<bool> finish(RequestHandle request, std::optional<std::size_t> computed_tokens = {},
                                    RequestEnding ending = RequestEnding::kUnknown);

  struct Outcomes {
    struct Loaded {
      RequestHandle request{};
      std::size_t tokens = 0;   // whose KV is on the device now, from the first on
      std::size_t missing = 0;  // tokens that were to be loaded and were not: they have to be computed
    };
    struct Ended {
      RequestHandle request{};  // of a request that is gone
      TokenCounts counts = {};
    };
    std::vector<Loaded> loaded;       // their loads have ended: the requests can be scheduled
    std::vector<RequestId> released;  // finished, and nothing touches their blocks
    // The counts of all requests that are gone since the last call, whether finish() returned false for them or they were
    // released. At most kMostEnded: if there are more, the earlier ones are dropped.
    std::vector<Ended> ended;
    static constexpr std::size_t kMostEnded = 65536;
  };
  // What happened since the last call.
  [[nodiscard]] Outcomes take_outcomes();
  // True while a load or save is in flight or waits for the next metadata, or an outcome can be taken: the engine's loop
  // should go on, and build iterations even if nothing is scheduled.
  [[nodiscard]] bool has_work() const;

  // What became of saves, in blocks. A requested block counts as saved or refused when its save has ended. Any
  // thread.
  struct SaveStatus {
    std::uint64_t asked = 0;
    std::uint64_t saved = 0;   // in a tier when the save had ended
    std::uint64_t shed = 0;    // refused: the manager's queue was full of more valuable blocks
    std::uint64_t paused = 0;  // refused: offloading was paused or had ended
    std::uint64_t lost = 0;    // accepted and not saved: the figures of the link say why
    // Rejected by a filter (offload.* of the tier that saves go to).
    std::uint64_t too_short = 0;       // least_blocks
    std::uint64_t too_few_uses = 0;    // least_uses
    std::uint64_t would_not_last = 0;  // least_chance
    std::uint64_t over_budget = 0;     // bytes_per_day
    std::uint64_t low_priority = 0;    // least_priority
    std::uint64_t filtered = 0;        // ManagerParts::offload_filter
    std::uint64_t no_parent = 0;       // the block before it in its sequence was rejected, or is in no tier any more
    std::uint64_t in_step = 0;         // of those asked: given out with the step that computes them
    std::uint64_t withdrawn = 0;       // of those in step: the engine had not computed them, and they were not saved
  };
  [[nodiscard]] SaveStatus saves() const;

  // --- counts of tokens, see manager/token_counts.h ---
  // Of a request so far. When it is gone, take_outcomes() has them.
  [[nodiscard]] Result<TokenCounts> counts(RequestHandle request) const;
  // Of all requests. Any thread.
  [[nodiscard]] TokenReport counts() const;

  // KvBlockManager::reset_all(): nothing that was saved before is found after it, on any rank. Loads in flight end with
  // all of their tokens missing. Requests that were added before continue and may load what is saved afterwards, but
  // are no longer saved: they compute from blocks of before.
  Result<ResetReport> reset();
  // The engine has new weights: the same, by KvBlockManager::invalidate().
  Result<ResetReport> invalidate(std::uint64_t weights_generation);

  [[nodiscard]] const KvBlockManager& manager() const;  // status, metrics, events, control

  // --- ranks ---
  // Waits until all ranks have joined. kExpired names those that are missing.
  [[nodiscard]] Status wait_for_ranks(Duration longest) const;
  [[nodiscard]] std::vector<RankStatus> rank_status() const;
  // Where ranks connect to, with the port that the system chose; std::nullopt if all ranks are in this process.
  [[nodiscard]] std::optional<RankAddress> address() const;
  // For workers of this process: WorkerConnector::Options::leader.
  [[nodiscard]] LocalLeader& local_leader() const;

 private:
  class Impl;
  SchedulerConnector(std::unique_ptr<Impl> impl, std::unique_ptr<CallRecorder> recorder);
  // Calls `call` with the recorder, if there is one.
  template <typename Call>
  void record(Call call);

  std::unique_ptr<Impl> impl_;
  std::unique_ptr<CallRecorder> recorder_;  // null unless the configuration has record.path
};

}  // namespace cairn
