// Engine: one simulated worker. Requests wait, run together in passes, and are preempted where blocks run out.
//
// Does:     a pass gives tokens of its budget to the running requests in order, then admits waiting ones, first come
//           first served; a prompt may take several passes. What is computed to its end generates a token. Where a
//           block is wanted and none is left, the request that was admitted last loses all of its blocks and goes to
//           the front of those who wait; it keeps its tokens and computes them again. A pass has its effects when it
//           begins, and its tokens the time at which it ends. How exactly: docs/replay.md.
//           Two things depend on the profile:
//
//           |                            | kStrict                          | kSeed                                  |
//           | who waits and has no room  | waits until blocks are let go    | preempts who runs, as the original     |
//           | prefill counts             | the tokens computed; the last    | mean lengths in whole tokens; nothing  |
//           |                            | of a prompt always is            | for a prompt cached to its end         |
//
//           With kSeed two requests may preempt each other for ever before either has a token. After kMostFruitless
//           preemptions without a token the engine goes on as with kStrict, loads nothing from tiers below any more (loads
//           that take each other's blocks are another way to get there), and says so; and where no running request is left
//           to preempt, a waiting one that was granted blocks gives them back.
// Tiers:    where there are some below, a request that waits is loaded before it is admitted: it is set aside while what
//           the tiers have of it is on its way, and others pass it. A request that gets too few blocks only because some
//           are being copied down waits for that, and preempts nobody. A pass in which nothing could be done lasts until
//           the next copy or load is over.
// Owner:    owns its KvManager; recorder, event sink and network outlive it.
// Threads:  one.
// Costs:    a decode step of a request that needs no block is a few instructions.
// Fails:    create(): as KvManager does, and for limits of 0. check_fits(): a request that no pass could ever serve.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "cairn/base/clock.h"
#include "cairn/base/result.h"
#include "cairn/sim/active_sequence.h"
#include "cairn/sim/cost_model.h"
#include "cairn/sim/identity_source.h"
#include "cairn/sim/kv_manager.h"
#include "cairn/sim/link_network.h"
#include "cairn/sim/offload_engine.h"
#include "cairn/sim/recorder.h"

namespace cairn::sim {

struct EngineOptions {
  std::uint32_t blocks = 16'384;
  std::uint32_t block_size = 64;
  PolicyKind eviction = PolicyKind::kLineageTick;
  Profile profile = Profile::kStrict;
  std::uint32_t max_num_seqs = 256;              // that run at the same time
  std::uint32_t max_num_batched_tokens = 8'192;  // in one pass
  bool chunked_prefill = true;                   // else a prompt waits until it fits into one pass
  bool prefix_caching = true;
  CostModel costs = CostModel::polynomial();
};

// What is below an engine's cache, and the wires to it.
struct EngineTiers {
  OffloadOptions offload = {};
  LinkNetwork* network = nullptr;
};

// A request on its way through an engine, as whoever submitted it knows it.
struct Ticket {
  std::uint64_t number = 0;
  std::uint64_t session = 0;
};

class Engine {
 public:
  // `seed` is of the tokens it generates. No `tiers`: nothing is below.
  [[nodiscard]] static Result<std::unique_ptr<Engine>> create(const EngineOptions& options, std::uint64_t seed,
                                                              Recorder& recorder, KvEventSink* sink,
                                                              const EngineTiers* tiers = nullptr);
  [[nodiscard]] static Status check_fits(const EngineOptions& options, std::uint64_t input_tokens,
                                         std::uint64_t output_tokens);

  // Requires: the request fits, and the prompt was named at this block size.
  void submit(const Ticket& ticket, Prompt prompt, std::uint64_t output_tokens, TimePoint arrival);
  [[nodiscard]] bool has_requests() const { return num_requests() > 0; }
  [[nodiscard]] std::size_t num_requests() const { return running_.size() + waiting_.size() + loading_.size(); }

  // Runs one pass, and returns when it ends; or several, where all but the last begin before `horizon` and each does no
  // more than to generate tokens that ask for nothing. Requires: has_requests(); nothing is submitted before the
  // horizon.
  [[nodiscard]] TimePoint run_pass(TimePoint now, TimePoint horizon);
  // Those that the last pass finished.
  [[nodiscard]] std::span<const Ticket> finished() const { return finished_; }

  static constexpr std::uint64_t kMostFruitless = 1'000;

  [[nodiscard]] const KvManager& manager() const { return *manager_; }

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
    std::uint64_t computed = 0;         // tokens
    std::optional<LoadId> loaded = {};  // for the next time it asks for blocks
    std::uint32_t quiet = 0;            // what its row began with
    TimePoint last_token{0};
  };
  // A running request. Its tokens that ask for nothing are only counted down here: it is brought up to date when
  // something else happens to it (settle).
  struct Row {
    RequestId request = kNoRequest;
    std::uint32_t quiet = 0;          // such tokens that are still to come
    std::uint32_t used = 0;           // tokens of the budget of this pass
    std::uint32_t prompt_before = 0;  // of its prompt, computed before this pass, and with it; 0 and 0: nothing of it
    std::uint32_t prompt_after = 0;
    std::uint32_t cached = 0;  // of its prompt, found when it began to be computed
    bool ready = false;        // generates in this pass
  };
  enum class Outcome : std::uint8_t { kScheduled, kBlocked, kPreempted };
  enum class Yielded : std::uint8_t { kOther, kItself, kNobody };
  // What a pass has given out so far.
  struct Pass {
    TimePoint begin{0};
    std::uint64_t budget = 0;
    std::uint64_t prompts = 0;  // requests with tokens of their prompt in it
    std::uint64_t prompt_after = 0;
    std::uint64_t prompt_before = 0;
    std::uint64_t preempted = 0;
    bool admitting = false;  // those that ask for blocks come from waiting
  };

  Engine(const EngineOptions& options, std::uint64_t seed, Recorder& recorder, std::unique_ptr<KvManager> manager);

  // How many passes from now on are of that kind.
  [[nodiscard]] std::uint64_t count_quiet_passes(TimePoint now, TimePoint horizon);
  [[nodiscard]] TimePoint run_quiet_passes(TimePoint now, std::uint64_t count);
  // How long tokens take with the blocks that are in use now.
  [[nodiscard]] Duration decode_time();
  [[nodiscard]] bool may_admit() const {
    return !waiting_.empty() && !waits_for_room_ && running_.size() < options_.max_num_seqs;
  }
  void schedule_running();
  void admit_waiting();
  // Moves the time of the tiers, and puts those whose loads have landed before all others who wait.
  void take_landed(TimePoint now);
  // What became of a request that is to be admitted, where it has something to be loaded.
  enum class Load : std::uint8_t { kNothing, kBegun, kBlocked };
  [[nodiscard]] Load start_load(RequestId id);
  void end_load(Request& request);
  // When a pass ends that begins now and takes this long, if something has to be waited for.
  [[nodiscard]] TimePoint end_of_pass(TimePoint now, Duration taken) const;
  void note_tiers(PassFigures& figures) const;
  void note_admission(const Row& row);
  // Gives the request of a row, which may stand among the running ones or not yet, what it can get.
  [[nodiscard]] Outcome schedule(Row& row);
  // Blocks for all tokens up to the target, or as far as possible.
  [[nodiscard]] Outcome allocate(RequestId id, std::uint64_t target);
  [[nodiscard]] std::uint64_t cached_tokens(const Request& request) const;
  [[nodiscard]] Duration prefill_time() const;
  // Tokens that came out, of those that are ready.
  std::uint64_t decode(TimePoint stamp);
  // Whether a token came out. The row may be gone afterwards.
  [[nodiscard]] bool generate(std::size_t row, TimePoint stamp);
  [[nodiscard]] bool try_generate(Request& request);
  void note_token(Request& request, TimePoint stamp);
  void finish(Row& row);

  // Someone lets go of blocks so that this one, which runs or not, can have them.
  [[nodiscard]] Yielded make_room_for(RequestId id);
  void note_fruit(std::uint64_t tokens);
  void preempt_last();
  void release_blocks(Request& request);
  void settle(Row& row);
  [[nodiscard]] std::size_t process(const MoveBlock& move);
  [[nodiscard]] Request& request(RequestId id) { return *requests_[id]; }

  const EngineOptions options_;
  std::unique_ptr<KvManager> manager_;
  IdentitySource identities_;
  Recorder& recorder_;
  std::vector<std::optional<Request>> requests_;
  std::vector<RequestId> unused_requests_;
  std::deque<RequestId> waiting_;
  std::map<LoadId, RequestId> loading_;
  std::vector<Row> running_;
  std::vector<Ticket> finished_;
  Pass pass_;
  // Of the cache, as they are unless a move was made since.
  bool moved_ = true;
  std::uint64_t blocks_in_use_ = 0;
  std::uint64_t blocks_resident_ = 0;
  Duration decode_time_{0};
  bool waiting_may_preempt_;
  bool is_tamed_ = false;        // after a livelock: nobody who waits preempts, and nothing is loaded
  bool waits_for_room_ = false;  // the first of those who wait: it does not help to ask again
  std::uint64_t fruitless_ = 0;  // preemptions since the last token
  TimePoint last_stamp_{0};      // of the last tokens that came out
};

}  // namespace cairn::sim
