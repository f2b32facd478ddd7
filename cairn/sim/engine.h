// Engine: one simulated worker. Requests wait, run together in passes, and are preempted if blocks run out.
//
// A pass gives tokens of its budget to the running requests in order, then admits waiting ones, first come first
// served; a prompt may take several passes. A request whose tokens are all computed generates a token. If no block is
// left for a request, the one that was admitted last is preempted: it loses all its blocks, goes to the front of the
// queue, keeps its tokens and computes them again. A pass has its effects when it begins; its tokens get the time at
// which it ends. Details: docs/replay.md. Two things depend on the profile:
//
// |                                | kStrict                            | kSeed                                       |
// | a waiting request without room | waits until blocks are released    | preempts running ones, as the original does |
// | prefill counts                 | the tokens computed; the last one  | mean lengths in whole tokens; 0 for a       |
// |                                | of a prompt is always computed     | prompt that is completely cached            |
//
// With kSeed two requests may preempt each other forever before either has a token. After kMaxFruitlessPreemptions
// preemptions without a token the engine reports a livelock and continues as with kStrict; if no running request is left
// to preempt, a waiting one that was granted blocks returns them.
//
// With tiers below (managed_cache.h), a waiting request is loaded before it is admitted, as far as that is faster than
// computing. It leaves the queue while the load is in flight, so that others may overtake it. A request that gets too few
// blocks only because some are being copied down waits for the copies and preempts nobody. A pass that could do nothing
// ends when a copy or load makes progress.
//
// Thread safety: not thread-safe.
// Ownership:  owns its cache; recorder, event sink and site must outlive it.
// Errors:     create() fails as KvManager::create() and ManagedCache::make() do, and for limits of 0. check_fits() fails for a request that no
//             pass could ever serve.
// Complexity: a decode step of a request that needs no block takes a few instructions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "cairn/base/clock.h"
#include "cairn/base/result.h"
#include "cairn/manager/kv_block_manager.h"
#include "cairn/sim/active_sequence.h"
#include "cairn/sim/engine_options.h"
#include "cairn/sim/identity_source.h"
#include "cairn/sim/kv_event_sink.h"
#include "cairn/sim/link_executor.h"
#include "cairn/sim/recorder.h"
#include "cairn/sim/virtual_site.h"
#include "cairn/sim/worker_cache.h"

namespace cairn::sim {

// The tiers below an engine's cache.
struct EngineTiers {
  ManagerConfig config = {};  // block size and device are those of the engine
  VirtualSite* site = nullptr;
  WorkerLinks links = {};
  std::vector<TierFault> faults = {};
};

// Identifies a request to the caller that submitted it.
struct Ticket {
  std::uint64_t number = 0;
  std::uint64_t session = 0;
};

class Engine {
 public:
  // `seed` determines the tokens that are generated. If `tiers` is null, there are no tiers below.
  [[nodiscard]] static Result<std::unique_ptr<Engine>> create(const EngineOptions& options, std::uint64_t seed,
                                                              Recorder& recorder, KvEventSink* sink,
                                                              const EngineTiers* tiers = nullptr);
  [[nodiscard]] static Status check_fits(const EngineOptions& options, std::uint64_t input_tokens,
                                         std::uint64_t output_tokens);

  // Requires: check_fits() of the request; the prompt was hashed at this block size.
  void submit(const Ticket& ticket, Prompt prompt, std::uint64_t output_tokens, TimePoint arrival);
  [[nodiscard]] bool has_requests() const { return num_requests() > 0; }
  [[nodiscard]] std::size_t num_requests() const { return running_.size() + waiting_.size() + loading_; }

  // Runs one pass and returns the time at which it ends. Runs several passes if each only generates tokens that need no
  // block and the later ones begin before `horizon`. Requires: has_requests(); nothing is submitted before `horizon`.
  [[nodiscard]] TimePoint run_pass(TimePoint now, TimePoint horizon);
  // The requests that the last pass finished.
  [[nodiscard]] std::span<const Ticket> finished() const { return finished_; }

  static constexpr std::uint64_t kMaxFruitlessPreemptions = 1'000;

  [[nodiscard]] const WorkerCache& cache() const { return *cache_; }
  // Null without tiers below.
  [[nodiscard]] const KvBlockManager* manager() const { return manager_; }

 private:
  using RequestId = std::uint32_t;
  static constexpr RequestId kNoRequest = ~RequestId{0};

  struct Request {
    Request(ActiveSequence its_sequence, const Ticket& its_ticket, TimePoint its_arrival)
        : sequence(std::move(its_sequence)), ticket(its_ticket) {
      figures.arrival = its_arrival;
      figures.input_tokens = sequence.num_input_tokens();
    }
    ActiveSequence sequence;
    Ticket ticket;
    RequestFigures figures = {};
    Holding holding = {};
    std::uint64_t computed = 0;          // tokens
    bool was_loaded = false;             // since it last had no blocks: it is not loaded again
    PerTier<std::uint64_t> loaded = {};  // tokens, by that load
    std::uint64_t rejected = 0;          // tokens that were faster to compute
    std::uint32_t quiet = 0;             // Row::quiet when it was last set
    TimePoint last_token{0};
  };
  // A running request. Tokens that need no block are only counted down here; settle() brings the request up to date
  // before anything else happens to it.
  struct Row {
    RequestId request = kNoRequest;
    std::uint32_t quiet = 0;          // remaining tokens that need no block
    std::uint32_t used = 0;           // tokens of this pass's budget
    std::uint32_t prompt_before = 0;  // prompt tokens computed before this pass, and after it; both 0 if the pass
    std::uint32_t prompt_after = 0;   // computes none
    std::uint32_t cached = 0;         // prompt tokens that were in the cache at admission
    bool ready = false;               // generates in this pass
  };
  enum class Outcome : std::uint8_t { kScheduled, kBlocked, kPreempted };
  // Which request released its blocks.
  enum class Yielded : std::uint8_t { kOther, kItself, kNobody };
  // What the current pass has scheduled so far.
  struct Pass {
    TimePoint begin{0};
    std::uint64_t budget = 0;
    std::uint64_t prompts = 0;  // requests whose prompts it computes
    std::uint64_t prompt_after = 0;
    std::uint64_t prompt_before = 0;
    std::uint64_t preempted = 0;
    bool admitting = false;  // schedules waiting requests, not running ones
  };

  Engine(const EngineOptions& options, std::uint64_t seed, Recorder& recorder, std::unique_ptr<WorkerCache> cache);

  // How many passes from now on only generate tokens that need no block.
  [[nodiscard]] std::uint64_t count_quiet_passes(TimePoint now, TimePoint horizon);
  [[nodiscard]] TimePoint run_quiet_passes(TimePoint now, std::uint64_t count);
  // The time of one decode step with the blocks that are in use now.
  [[nodiscard]] Duration decode_time();
  [[nodiscard]] bool may_admit() const {
    return !waiting_.empty() && !waits_for_room_ && running_.size() < options_.max_num_seqs;
  }
  void schedule_running();
  void admit_waiting();
  // Advances the time of the tiers; requests whose loads have landed go to the front of the queue.
  void take_landed(TimePoint now);
  // Starts to load what the tiers below have of a waiting request.
  [[nodiscard]] LoadStart::Outcome start_load(RequestId id);
  // When a pass ends that begins now; a pass that takes no time lasts until the next event of the tiers.
  [[nodiscard]] TimePoint end_of_pass(TimePoint now, Duration taken) const;
  // Tells the cache what the engine computes in a pass, so that it can weigh loads.
  void report_pass(Duration taken, std::uint64_t times);
  void record_admission(const Row& row);
  // Schedules as many tokens of a request as budget and blocks allow. The row need not be in running_ yet.
  [[nodiscard]] Outcome schedule(Row& row);
  // Allocates blocks for all tokens up to `target`, or for as many as possible.
  [[nodiscard]] Outcome allocate(RequestId id, std::uint64_t target);
  [[nodiscard]] std::uint64_t cached_tokens(const Request& request) const;
  [[nodiscard]] Duration prefill_time();
  // Generates a token for each ready row; returns how many were generated.
  std::uint64_t decode(TimePoint stamp);
  // Whether a token was generated. The row may be gone afterwards.
  [[nodiscard]] bool generate(std::size_t row, TimePoint stamp);
  [[nodiscard]] bool try_generate(Request& request);
  void record_token(Request& request, TimePoint stamp);
  void finish(Row& row);

  // Makes a request release its blocks for this one, which may be running or waiting.
  [[nodiscard]] Yielded make_room_for(RequestId id);
  void check_livelock(std::uint64_t tokens);
  void preempt_last();
  void release_blocks(Request& request);
  void settle(Row& row);
  [[nodiscard]] std::size_t process(const MoveBlock& move, Request& request);
  [[nodiscard]] Request& request(RequestId id) { return *requests_[id]; }

  const EngineOptions options_;
  std::unique_ptr<WorkerCache> cache_;
  const KvBlockManager* manager_ = nullptr;  // the cache's
  IdentitySource identities_;
  Recorder& recorder_;
  std::vector<std::optional<Request>> requests_;
  std::vector<RequestId> unused_requests_;
  std::deque<RequestId> waiting_;
  std::size_t loading_ = 0;  // requests that wait for their loads
  std::vector<Row> running_;
  std::vector<Ticket> finished_;
  Pass pass_;
  std::vector<CostModel::PromptPart> parts_;  // of prefill_time(); a member only to reuse its memory
  // Cached until the next move.
  bool moved_ = true;
  std::uint64_t blocks_in_use_ = 0;
  std::uint64_t blocks_resident_ = 0;
  Duration decode_time_{0};
  bool waiting_may_preempt_;
  bool livelocked_ = false;      // since then waiting requests do not preempt
  bool waits_for_room_ = false;  // the first waiting request; trying again before blocks are released does not help
  std::uint64_t fruitless_preemptions_ = 0;  // since the last token
  TimePoint last_stamp_{0};                  // of the last generated tokens
};

}  // namespace cairn::sim
