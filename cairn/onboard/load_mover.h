// LoadMover: executes the plans of an Onboarder's loads. A state machine: plans, outcomes of transfers and the time go in,
// transfers over the links and outcomes of loads come out.
//
// Every load is cut into parts. A part is queued for a link, in flight, or joined to a part of another load that brings the
// same blocks; when that one has arrived or failed, the joined part is woken, to be planned again. When no part of a load is
// left, or the rest cannot matter any more, or its deadline has passed, the load has its outcome.
//
// No function here calls another one back. Events only change the states of parts and loads; step() then does what follows
// from that, one thing after the other.
//
// Thread safety: none; the Onboarder's lock guards every call. Pools and links are called, callbacks of callers never: what
// has ended is collected and taken with take_ended().
// Ownership: an Onboarder. A part outlives its load while its transfer is in flight.
// Errors: everything that it takes to end a load or part is allocated before it begins. If memory runs out, what has not
// begun ends, and the load is a shorter prefix, as if a transfer had failed.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

#include "cairn/onboard/onboard_plan.h"
#include "cairn/onboard/onboarder.h"

namespace cairn {

struct Load;
struct LoadPart;
using LoadPtr = std::shared_ptr<Load>;
using LoadPartPtr = std::shared_ptr<LoadPart>;
// How often keys are planned. The last time they join no other load.
inline constexpr std::uint32_t kLoadAttempts = 3;

// Lists whose elements are moved from one to another without allocating.
using LoadList = std::list<LoadPtr>;
using LoadPartList = std::list<LoadPartPtr>;

// One call of an Onboarder, from its beginning to its outcome.
struct Load {
  enum class Kind : std::uint8_t {
    kPrefix,    // to the device's pool, without a hole
    kEngine,    // to blocks of the engine, without a hole
    kGiven,     // blocks that the caller holds, to the device's pool
    kPrefetch,  // to the host's pool
  };
  using Done = std::variant<std::function<void(LoadOutcome&&)>, std::function<void(Result<ImmutableBlocks>&&)>,
                            std::function<void(std::uint32_t)>>;

  LoadId id{};
  Kind kind = Kind::kPrefix;
  std::vector<BlockKey> keys = {};
  TimePoint deadline{};
  // A little before the deadline: the transfers expire here, so that what has arrived of a late one is known in time.
  TimePoint transfers_by{};
  Done done = {};

  ImmutableBlocks base = {};  // what the device had from the first key on; kGiven: the caller's blocks
  // What arrived, and what the destination had already. Held until the outcome is made.
  std::vector<ImmutableBlocks> arrived = {};
  std::vector<PinnedBlocks> present = {};
  std::vector<bool> is_there = {};     // kEngine, kPrefetch: by key
  EngineBlocks targets = {};           // kEngine
  bool has_targets = false;            // kGiven: the caller gave a target for each key
  std::vector<CacheLevel> found = {};  // kPrefix, kEngine: where each key was found
  std::uint32_t not_worth_it = 0;      // blocks
  std::uint32_t planned = 0;           // blocks from the first on that were to be brought
  std::uint32_t limit = 0;             // of those, the first that will be missing from the prefix

  std::vector<LoadPartPtr> parts = {};  // that have not ended
  bool is_cancelled = false;
  bool is_fenced = false;     // a reset came while it was in flight: its outcome is a miss
  bool is_called_in = false;  // transfers_by has passed, and the executors were notified
  bool is_late = false;       // some transfer expired
  bool is_over = false;       // the outcome is made
  std::string why = {};       // the first reason for a shorter prefix
  LoadOutcome outcome = {};
  LoadList node = {};       // the load's own place for lists: one null element, made with the load
  bool is_changed = false;  // it is in LoadMover::changed_

  [[nodiscard]] bool is_prefix() const { return kind == Kind::kPrefix || kind == Kind::kEngine; }
  [[nodiscard]] std::span<const BlockKey> keys_of(std::uint32_t first, std::uint32_t count) const {
    return std::span(keys).subspan(first, count);
  }
  // Where others may join its parts; std::nullopt for blocks of the engine, which are nobody else's.
  [[nodiscard]] std::optional<CacheLevel> joinable_at() const {
    if (kind == Kind::kEngine) {
      return std::nullopt;
    }
    return kind == Kind::kPrefetch ? CacheLevel::kG2 : CacheLevel::kG1;
  }
  // Whether reading a block below counts as a use of it. Blocks that the caller holds were found by a lookup.
  [[nodiscard]] BlockPool::LoadUse use() const {
    return kind == Kind::kGiven ? BlockPool::LoadUse::kDoesNotCount : BlockPool::LoadUse::kCounts;
  }
  // Keeps the first reason.
  void explain(std::string_view reason);
};

// Consecutive keys of a load that move together.
struct LoadPart {
  enum class State : std::uint8_t { kJoined, kQueued, kInFlight, kEnded };

  LoadPtr load;
  std::uint32_t first = 0;  // of the load's keys
  std::uint32_t count = 0;
  CacheLevel from = CacheLevel::kG2;
  std::uint32_t attempt = 0;  // how often these keys were planned before
  State state = State::kQueued;
  CacheLevel joined_at = CacheLevel::kG1;          // while it is joined: the tier that it waits for
  LoadLink link = LoadLink::kHostToDevice;         // of the transfer that is queued or in flight
  bool through_host = false;                       // that transfer goes to the host; another one to the device follows
  std::optional<CopySource> source = {};           // of the next transfer
  std::optional<MutableBlocks> host_targets = {};  // of the transfer to the host if through_host
  std::optional<MutableBlocks> targets = {};       // of the last transfer
  TransferId transfer{};                           // while it is in flight
  std::array<LoadPartList, 2> joined = {};         // parts of other loads, by the tier that they wait for: G1, G2
  LoadPartList node = {};                          // its own place for lists: one null element, made before it begins
  LoadPartList* list = nullptr;                    // the list that it is in, if any
  LoadPartList::iterator place = {};               // in that list, or in `node`

  [[nodiscard]] std::span<const BlockKey> keys() const { return load->keys_of(first, count); }
};

class LoadMover {
 public:
  // Blocks that are queued for each link. Read without the lock, to weigh other loads.
  struct Queued {
    std::array<std::atomic<std::uint32_t>, kLoadLinks> blocks = {};  // relaxed: a number orders nothing
  };
  using DoneFor = std::function<std::function<void(LinkOutcome&&)>(const LoadPartPtr&)>;
  // `done_for` makes the callback of a part's transfer, which has to call transferred().
  LoadMover(const Onboarder::Parts& parts, Queued& queued, DoneFor done_for);

  // What has ended since the last call, to be reported and destroyed without the lock.
  struct Ended {
    LoadList loads = {};
    LoadPartList parts = {};
    bool wake = false;  // there is something to do at next_time()
  };
  [[nodiscard]] Ended take_ended();

  // Events.
  void add(const LoadPtr& load);
  struct Start {
    std::uint32_t first = 0;                    // the first key of the plan
    std::uint32_t attempt = 0;                  // how often its keys were planned before
    std::optional<MutableBlocks> targets = {};  // one for each key from `first` on, if Load::has_targets
  };
  // Executes a plan of the load. Throws std::bad_alloc: then call out_of_memory().
  void start(const LoadPtr& load, const LoadPlan& plan, Start&& start);
  void transferred(const LoadPartPtr& part, LinkOutcome& outcome);
  // A load for which there is no memory to plan more: it ends with what is in flight.
  void out_of_memory(const LoadPtr& load);
  // The prefix ends before this key.
  void limit(Load& load, std::uint32_t at, std::string_view why);
  void end_part(const LoadPartPtr& part);
  void cancel(const LoadPtr& load, std::string_view why);
  // The deadline has passed: ends with what has arrived.
  void finish(const LoadPtr& load);
  // Expires what is late. Returns whether anything was.
  bool check_deadlines(TimePoint now);

  // Does what follows from the events: ends loads, and submits parts in the order of their queues. Returns whether it did
  // anything; then some parts may be woken, or more can be done.
  bool step();
  // The next part whose joined part has ended, to be planned again and then to be ended; null if there is none.
  [[nodiscard]] LoadPartPtr take_woken();

  // The part that brings the first of these keys to the tier, and how many keys from there on it brings; or null, and how
  // many keys from there on no part brings. The tier is G1 or G2.
  struct InFlight {
    const LoadPart* part = nullptr;
    std::uint32_t blocks = 0;
  };
  [[nodiscard]] InFlight find_in_flight(CacheLevel tier, std::span<const BlockKey> keys) const;
  [[nodiscard]] const std::map<LoadId, LoadPtr>& loads() const { return loads_; }
  [[nodiscard]] bool is_idle() const { return loads_.empty() && in_flight_ == 0; }
  [[nodiscard]] std::optional<TimePoint> next_time() const;
  [[nodiscard]] OnboardStatus& totals() { return totals_; }
  [[nodiscard]] const OnboardStatus& totals() const { return totals_; }

 private:
  [[nodiscard]] BlockPool* device_pool() const { return parts_.device != nullptr ? parts_.device->pool() : nullptr; }
  [[nodiscard]] TierLink& link_of(const LoadPart& part) const { return *links_[index_of(part.link)]; }

  // The parts that the plan copies or joins, with their sources pinned. Blocks that were evicted meanwhile become parts
  // that are planned again at once.
  [[nodiscard]] std::vector<LoadPartPtr> make_parts(const LoadPtr& load, const LoadPlan& plan, std::uint32_t attempt);
  // Blocks of the destination for all that is copied. If there are fewer, the load and its parts are cut.
  [[nodiscard]] std::optional<MutableBlocks> allocate_targets(Load& load, std::vector<LoadPartPtr>& parts);
  void enter(const LoadPartPtr& part);
  // False if the queue has to wait.
  [[nodiscard]] bool submit_first(LoadPartList& queue);
  [[nodiscard]] Result<TransferId> submit(const LoadPartPtr& part);
  void arrived_in_host(const LoadPartPtr& part, LinkOutcome& outcome);
  void arrived(const LoadPartPtr& part, LinkOutcome& outcome);
  void give_up(const LoadPartPtr& part, std::string_view why);
  // The part has arrived in this tier, or will not: wakes the parts that joined it there.
  void leave(LoadPart& part, CacheLevel tier);
  template <typename Which>
  void end_parts(Load& load, Which which);
  void mark_changed(const LoadPtr& load);
  [[nodiscard]] static bool is_decided(const Load& load);
  [[nodiscard]] LoadOutcome outcome_of(Load& load) const;
  void collect(Load& load, LoadOutcome& outcome) const;
  void move_to(const LoadPartPtr& part, LoadPartList& list);
  void take_out(LoadPart& part);
  // The part enters or leaves this list.
  void count_queued(const LoadPart& part, const LoadPartList* list, bool enters);

  const Onboarder::Parts parts_;
  Queued& queued_;
  const DoneFor done_for_;
  const std::array<TierLink*, kLoadLinks> links_;
  std::map<LoadId, LoadPtr> loads_;                                  // without an outcome
  LoadList changed_;                                                 // that may have ended
  std::array<std::unordered_map<BlockKey, LoadPartPtr>, 2> by_key_;  // parts that others may join, by tier: G1, G2
  std::array<LoadPartList, kLoadLinks> queues_;
  LoadPartList woken_;
  Ended ended_;
  std::uint32_t in_flight_ = 0;             // parts
  TimePoint retry_at_ = TimePoint::zero();  // if an executor was full
  OnboardStatus totals_;
};

}  // namespace cairn
