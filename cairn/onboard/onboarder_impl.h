// What is behind Onboarder: loads, their pieces, the queues of pieces before each link, and who waits for whom.
//
// A load is planned once (onboarder_plan.cc): its keys are looked up stretch by stretch and held where they are; what is
// worth loading is cut into pieces and queued. Pieces then go their way by themselves (onboarder_copies.cc): each hop is
// one copy of a link, and what ends one begins the next. A piece that waits for a copy of another load is planned anew
// when that has ended, however it ended. When no piece of a load is open, or its deadline has passed, its result is made.
//
// Threads:  one lock for all of it. Pools, links and the cost model are called under it; callers never are: what they are
//           to be told is put into an Outbox.
// Memory:   what a piece or a load takes to be ended is made before it begins. Where memory runs out, what has not begun is
//           ended: the load is a shorter prefix, as if a copy had failed.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "cairn/base/deadline.h"
#include "cairn/base/mutex.h"
#include "cairn/onboard/load.h"
#include "cairn/onboard/onboarder.h"
#include "cairn/onboard/tier_search.h"

namespace cairn {

// How often keys are planned while the copies they wait for, of other loads, come to nothing: the last time they wait for
// nobody.
inline constexpr std::uint32_t kAttempts = 3;

class Onboarder::Impl : public std::enable_shared_from_this<Onboarder::Impl> {
 public:
  Impl(const Parts& parts, const OnboardOptions& options);

  [[nodiscard]] PrefixLocation locate(std::span<const BlockKey> keys) const;
  [[nodiscard]] std::uint32_t worth_loading(const PrefixLocation& found, std::uint32_t first_block) const;
  [[nodiscard]] Result<LoadId> load(LoadRequest&& request);
  [[nodiscard]] Result<LoadId> load_into(EngineBlocks&& targets, LoadRequest&& request);
  [[nodiscard]] Result<LoadId> onboard(CacheLevel from, ImmutableBlocks blocks, std::optional<MutableBlocks> targets,
                                       TimePoint deadline, Load::GivenDone done);
  [[nodiscard]] Result<LoadId> prefetch(std::vector<BlockKey> keys, TimePoint deadline, Load::PrefetchDone done);
  void cancel(LoadId load);
  [[nodiscard]] Fenced fence();
  [[nodiscard]] OnboardStatus status() const;
  bool pump();
  [[nodiscard]] std::optional<TimePoint> next_time() const;
  [[nodiscard]] bool is_idle() const;
  void end();
  void end_now();

 private:
  // The ways that can be tried at present.
  struct Ways {
    bool host = false;
    bool disk_by_host = false;
    bool disk_straight = false;
  };
  // A stretch of a load as it was found.
  struct Find {
    CacheLevel from = CacheLevel::kG1;
    std::uint32_t blocks = 0;
    bool is_coming = false;  // another load brings it
  };
  struct Plan {
    std::vector<Find> finds = {};
    std::vector<PiecePtr> pieces = {};
    std::uint32_t end = 0;  // of the keys that were found
  };

  [[nodiscard]] static bool may_be_tried(const TierLink* link) { return link != nullptr && link->may_be_tried(); }
  [[nodiscard]] Ways ways() const;
  [[nodiscard]] TierSearch search(const Ways& ways, bool is_prefetch) const;
  [[nodiscard]] Status check(std::span<const BlockKey> keys) const;
  [[nodiscard]] Status admit() CAIRN_REQUIRES(mutex_);
  [[nodiscard]] LoadPtr make_load(Load::Kind kind, TimePoint deadline) const;
  [[nodiscard]] TimePoint deadline_of(const LoadRequest& request) const {
    return request.deadline.value_or(deadline_after(parts_.clock->now(), options_.deadline));
  }
  template <typename Fill>
  [[nodiscard]] Result<LoadId> take_in(Load::Kind kind, std::vector<BlockKey>&& keys, TimePoint deadline,
                                       const LoadRequest* request, std::optional<MutableBlocks> targets, Fill fill)
      CAIRN_EXCLUDES(mutex_);
  [[nodiscard]] LoadId tell_at_once(const LoadRequest& request, ImmutableBlocks blocks) CAIRN_EXCLUDES(mutex_);
  void start(const LoadPtr& load, const LoadRequest* request, std::optional<MutableBlocks> targets, Outbox& outbox)
      CAIRN_REQUIRES(mutex_);
  void plan_and_begin(const LoadPtr& load, const LoadRequest* request, std::optional<MutableBlocks> targets,
                      Outbox& outbox) CAIRN_REQUIRES(mutex_);

  // Planning.
  [[nodiscard]] Plan survey(const LoadPtr& load, std::uint32_t first, std::uint32_t last, std::uint32_t attempt)
      CAIRN_REQUIRES(mutex_);
  // These add to a plan what becomes of keys from plan.end on; how many. 0: they have gone meanwhile.
  std::uint32_t plan_wait(Plan& plan, const LoadPtr& load, std::uint32_t last, Goal goal, std::uint32_t attempt)
      CAIRN_REQUIRES(mutex_);
  std::uint32_t plan_stretch(Plan& plan, const LoadPtr& load, const Stretch& stretch, const Ways& ways,
                             std::uint32_t attempt) CAIRN_REQUIRES(mutex_);
  std::uint32_t plan_copy(Plan& plan, Piece&& piece) CAIRN_REQUIRES(mutex_);
  [[nodiscard]] PiecePtr coming(Goal goal, const BlockKey& key) const CAIRN_REQUIRES(mutex_);
  // How many of these from the first on nobody brings there.
  [[nodiscard]] std::uint32_t count_not_coming(Goal goal, std::span<const BlockKey> keys) const CAIRN_REQUIRES(mutex_);
  [[nodiscard]] std::uint32_t worth_loading(Load& load, std::span<const Find> finds, const LoadRequest& request);
  // What the cost model says of them.
  [[nodiscard]] std::uint32_t weigh(std::span<const Find> finds, std::uint32_t first_token) const;
  [[nodiscard]] LoadStretch describe(const Find& find, const Ways& ways) const;
  void trim(Plan& plan, std::uint32_t end) const;
  void begin(const LoadPtr& load, Plan& plan, std::uint32_t first, std::optional<MutableBlocks> targets, Outbox& outbox)
      CAIRN_REQUIRES(mutex_);
  [[nodiscard]] std::optional<MutableBlocks> make_room(Load& load, Plan& plan, Outbox& outbox) CAIRN_REQUIRES(mutex_);

  // Moving.
  void queue(const PiecePtr& piece, bool first = false) CAIRN_REQUIRES(mutex_);
  void take_from_queue(const PiecePtr& piece) CAIRN_REQUIRES(mutex_);
  bool serve(Outbox& outbox) CAIRN_REQUIRES(mutex_);
  [[nodiscard]] bool launch(const PiecePtr& piece, Outbox& outbox) CAIRN_REQUIRES(mutex_);
  [[nodiscard]] bool try_launch(const PiecePtr& piece, Outbox& outbox) CAIRN_REQUIRES(mutex_);
  [[nodiscard]] bool find_host_room(const PiecePtr& piece, Outbox& outbox) CAIRN_REQUIRES(mutex_);
  [[nodiscard]] Result<TransferId> submit(const PiecePtr& piece) CAIRN_REQUIRES(mutex_);
  void landed(const PiecePtr& piece, TierLink::Arrived&& arrived) CAIRN_EXCLUDES(mutex_);
  void in_host(const PiecePtr& piece, TierLink::Arrived& arrived, Outbox& outbox) CAIRN_REQUIRES(mutex_);
  void at_goal(const PiecePtr& piece, TierLink::Arrived& arrived, Outbox& outbox) CAIRN_REQUIRES(mutex_);
  void plan_again(const PiecePtr& waiter, Outbox& outbox) CAIRN_REQUIRES(mutex_);
  // No longer on its way there: others stop waiting for it.
  void leave(const PiecePtr& piece, Goal goal) CAIRN_REQUIRES(mutex_);
  void end_piece(const PiecePtr& piece, Outbox& outbox) CAIRN_REQUIRES(mutex_);
  void give_up(const PiecePtr& piece, std::string_view why, Outbox& outbox) CAIRN_REQUIRES(mutex_);
  // Nothing of the load from this key on will come; `but` is left to the caller.
  void cut(Load& load, std::uint32_t at, std::string_view why, const PiecePtr& but, Outbox& outbox)
      CAIRN_REQUIRES(mutex_);
  // There is no memory to plan more of it: it ends with what is flying.
  void run_out(Load& load, Outbox& outbox) CAIRN_REQUIRES(mutex_);
  void cancel(const LoadPtr& load, std::string_view why, Outbox& outbox) CAIRN_REQUIRES(mutex_);
  void cancel_all(std::string_view why, Outbox& outbox) CAIRN_REQUIRES(mutex_);
  // Ends those of its pieces that have not begun and that `which` names.
  template <typename Which>
  void end_pieces(Load& load, Outbox& outbox, Which which) CAIRN_REQUIRES(mutex_);
  // Has copies that are late say so.
  void call_in(Load& load) CAIRN_REQUIRES(mutex_);
  void settle(const LoadPtr& load, Outbox& outbox) CAIRN_REQUIRES(mutex_);
  void finish(const LoadPtr& load, Outbox& outbox) CAIRN_REQUIRES(mutex_);
  [[nodiscard]] LoadResult result_of(Load& load) CAIRN_REQUIRES(mutex_);
  void collect(Load& load, LoadResult& result) CAIRN_REQUIRES(mutex_);
  // The last thing under the lock, and the first after it.
  void close(Outbox& outbox) CAIRN_REQUIRES(mutex_);
  void tell(Outbox& outbox) CAIRN_EXCLUDES(mutex_);
  static void tell(EndedLoad& ended);

  [[nodiscard]] BlockPool* device_pool() const { return parts_.device != nullptr ? parts_.device->pool() : nullptr; }
  [[nodiscard]] BlockPool* host_pool() const { return parts_.host != nullptr ? parts_.host->pool() : nullptr; }
  [[nodiscard]] BlockPool* goal_pool(const Load& load) const {
    return load.kind == Load::Kind::kPrefetch ? host_pool() : device_pool();
  }

  const Parts parts_;
  const OnboardOptions options_;
  const std::array<TierLink*, kLanes> links_;
  mutable Mutex mutex_{LockRank::kOnboard};
  std::map<LoadId, LoadPtr> loads_ CAIRN_GUARDED_BY(mutex_);  // without a result
  std::array<std::unordered_map<BlockKey, PiecePtr>, kGoals> coming_ CAIRN_GUARDED_BY(mutex_);
  std::array<PieceList, kLanes> queues_ CAIRN_GUARDED_BY(mutex_);
  PieceList awoken_ CAIRN_GUARDED_BY(mutex_);                         // what they waited for has ended
  TimePoint try_again_ CAIRN_GUARDED_BY(mutex_) = TimePoint::zero();  // where a queue did not get on
  std::uint32_t flying_ CAIRN_GUARDED_BY(mutex_) = 0;                 // pieces
  std::uint32_t telling_ CAIRN_GUARDED_BY(mutex_) = 0;                // threads
  std::uint64_t next_id_ CAIRN_GUARDED_BY(mutex_) = 1;
  bool is_ended_ CAIRN_GUARDED_BY(mutex_) = false;
  // Written with the lock held. Sequentially consistent: a load reads it before it asks the device's pool, which is fenced
  // before it grows.
  std::atomic<std::uint64_t> fences_{0};
  OnboardStatus totals_ CAIRN_GUARDED_BY(mutex_);
};

}  // namespace cairn
