// OffloadEdge::Impl: what an edge has in hand. One lock; what has to be called without it is collected and called after.
//
// Each key that waits or is being copied stands in keys_ once, with those who asked for it. offered = copied + refused +
// waiting + under way, always.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "cairn/base/mutex.h"
#include "cairn/evict/admission.h"
#include "cairn/offload/copy_loan.h"
#include "cairn/offload/offload_edge.h"
#include "cairn/offload/offload_inbox.h"
#include "cairn/offload/offload_queue.h"
#include "cairn/offload/offload_requests.h"

namespace cairn {

class OffloadEdge::Impl {
 public:
  Impl(TierLink& link, BlockRegistry& registry, const OffloadOptions& options, const Clock& clock,
       std::function<void()> wake, AdmissionFilter filter);
  ~Impl();

  void registered(std::span<const ResidentBlock> blocks);
  void used(std::span<const BlockKey> keys);
  [[nodiscard]] Result<OffloadRequestId> offload(EngineBlocks&& blocks, Request&& request);
  [[nodiscard]] bool has_upper_pool() const { return upper_ != nullptr; }
  [[nodiscard]] const Tier& from() const { return link_.from(); }
  void cancel(OffloadRequestId request);
  void fence(std::uint64_t fences);
  void pause();
  void resume();
  [[nodiscard]] OffloadStatus status() const;
  bool pump();
  [[nodiscard]] std::optional<TimePoint> next_time() const;
  [[nodiscard]] bool is_idle() const;
  void end();
  void end_now();

 private:
  using Asker = OffloadRequests::Asker;
  using Answers = std::vector<OffloadRequests::Answer>;
  using Reason = std::optional<OffloadRefusal>;  // none: it is copied
  enum class Phase : std::uint8_t {
    kWaiting,   // in queue_
    kUnderWay,  // until it is registered below, or known not to be
  };
  struct KeyState {
    Phase phase = Phase::kWaiting;
    bool is_wanted = false;    // by the edge's mode, whether or not somebody asks for it
    bool is_admitted = false;  // and counts as written
    bool is_urgent = false;    // about to be evicted above, or needed by a block that is
    std::vector<Asker> askers = {};
  };
  enum class Urgency : std::uint8_t { kUrgent, kNotUrgent };
  struct Batch {
    std::vector<BlockKey> keys;
    std::weak_ptr<CopyLoan> loan = {};  // none: the engine's blocks
    std::uint64_t epoch = 0;            // epoch_ when it began
  };

  // Of requests.
  [[nodiscard]] bool enlist(Asker asker, const BlockKey& key, std::uint32_t priority) CAIRN_REQUIRES(mutex_);
  void take_back(OffloadRequestId request, const std::string& why) CAIRN_REQUIRES(mutex_);
  [[nodiscard]] bool expire(TimePoint now) CAIRN_REQUIRES(mutex_);
  static void deliver(Answers&& answers);

  // Of what was registered.
  [[nodiscard]] bool look_into_inbox(TimePoint now) CAIRN_REQUIRES(mutex_);
  void offer(std::span<const OffloadInbox::Candidate> candidates, std::uint64_t number, TimePoint now)
      CAIRN_REQUIRES(mutex_);
  void offer(const OffloadInbox::Candidate& candidate, std::uint32_t priority, std::uint64_t number, TimePoint now)
      CAIRN_REQUIRES(mutex_);

  [[nodiscard]] static Reason refusal_of(Admission admission);
  // Ahead of need: victims, and what was missed when it was registered. Each says whether anything was done.
  [[nodiscard]] bool is_ahead() const { return options_.mode == OffloadMode::kAhead && upper_ != nullptr; }
  void follow_allocations() CAIRN_REQUIRES(mutex_);
  [[nodiscard]] bool claim_victims(TimePoint now) CAIRN_REQUIRES(mutex_);
  [[nodiscard]] ImmutableBlocks next_victims(std::uint32_t count);
  void offer_victim(const BlockFacts& victim, bool is_open, TimePoint now) CAIRN_REQUIRES(mutex_);
  [[nodiscard]] bool may_find_missed() const CAIRN_REQUIRES(mutex_);
  [[nodiscard]] bool find_missed(TimePoint now) CAIRN_REQUIRES(mutex_);
  void want_with_ancestors(BlockKey key, Urgency urgency, TimePoint now) CAIRN_REQUIRES(mutex_);
  [[nodiscard]] bool want(const BlockFacts& block, Urgency urgency, TimePoint now) CAIRN_REQUIRES(mutex_);
  [[nodiscard]] Reason judge(const BlockFacts& block, TimePoint now) CAIRN_REQUIRES(mutex_);
  [[nodiscard]] bool make_urgent(const BlockKey& key, KeyState& state) CAIRN_REQUIRES(mutex_);
  [[nodiscard]] bool is_orphan(const BlockKey& key) const;
  [[nodiscard]] std::uint32_t free_room_below() const;

  // Of batches.
  [[nodiscard]] bool begin_waiting(TimePoint now) CAIRN_REQUIRES(mutex_);
  [[nodiscard]] std::vector<BlockKey> next_keys() CAIRN_REQUIRES(mutex_);
  // Those of the keys that are to be copied now; the others wait on, or have their outcome.
  [[nodiscard]] std::vector<BlockKey> sift(const std::vector<BlockKey>& keys, TimePoint now) CAIRN_REQUIRES(mutex_);
  struct Lendable {
    std::uint32_t blocks = 0;
    std::uint32_t unused = 0;  // of those, how many may be blocks that nobody uses
  };
  [[nodiscard]] Lendable may_lend() const CAIRN_REQUIRES(mutex_);
  // Keys that have no block any more leave the list.
  [[nodiscard]] std::shared_ptr<CopyLoan> borrow(std::vector<BlockKey>& keys) CAIRN_REQUIRES(mutex_);
  [[nodiscard]] const EngineBlocks& engine_blocks_of(Asker asker) const CAIRN_REQUIRES(mutex_);
  void keep_one_step(std::vector<BlockKey>& keys) const CAIRN_REQUIRES(mutex_);
  [[nodiscard]] CopySource engine_source(std::span<const BlockKey> keys) const CAIRN_REQUIRES(mutex_);
  [[nodiscard]] std::optional<MutableBlocks> allocate_below(std::uint32_t count);
  [[nodiscard]] Status bring(CopySource source, MutableBlocks targets, Batch batch, TimePoint now)
      CAIRN_REQUIRES(mutex_);
  // What did not begin: it waits where the executor is full, and is let go of otherwise; whether it waits.
  [[nodiscard]] bool waits(const Error& error, std::span<const BlockKey> keys, TimePoint now) CAIRN_REQUIRES(mutex_);
  void landed(const Batch& batch, TierLink::Arrived&& arrived);

  void resolve(const BlockKey& key, Reason reason, std::string_view detail = {}) CAIRN_REQUIRES(mutex_);
  void drop_waiting(OffloadRefusal reason, std::string_view detail = {}) CAIRN_REQUIRES(mutex_);
  void give_up_on_a_full_executor(TimePoint now) CAIRN_REQUIRES(mutex_);
  void refuse(OffloadRefusal reason) CAIRN_REQUIRES(mutex_) { ++refused_[static_cast<std::size_t>(reason)]; }
  // All blocks of a request that is not taken.
  void turn_away(std::size_t blocks, OffloadRefusal reason) CAIRN_REQUIRES(mutex_) {
    offered_ += blocks;
    refused_[static_cast<std::size_t>(reason)] += blocks;
  }
  [[nodiscard]] bool is_below(const BlockKey& key) const;
  [[nodiscard]] bool is_busy() const CAIRN_REQUIRES(mutex_) { return batches_ >= options_.in_flight || is_full_; }

  TierLink& link_;
  BlockRegistry& registry_;
  const OffloadOptions options_;
  const Clock& clock_;
  const std::function<void()> wake_;
  BlockPool* const upper_;  // none: the engine's own blocks
  BlockPool& lower_;
  OffloadInbox inbox_;
  std::atomic<std::uint32_t> on_loan_{0};  // blocks of upper_ that copies read

  mutable Mutex mutex_{LockRank::kOffload};
  AdmissionFilter filter_ CAIRN_GUARDED_BY(mutex_);
  OffloadQueue queue_ CAIRN_GUARDED_BY(mutex_);
  std::unordered_map<BlockKey, KeyState> keys_ CAIRN_GUARDED_BY(mutex_);
  OffloadRequests requests_ CAIRN_GUARDED_BY(mutex_);
  OffloadInbox::Contents news_ CAIRN_GUARDED_BY(mutex_);  // taken last; kept for its memory
  // Ahead of need. Some blocks that may be worth a copy are not known to the edge; the pool is searched for them when
  // there is time, up to searched_to_ by now.
  bool missed_some_ CAIRN_GUARDED_BY(mutex_) = false;
  bool shed_some_ CAIRN_GUARDED_BY(mutex_) =
      false;  // while victims were claimed or the pool was searched, since a copy landed
  bool is_searching_ CAIRN_GUARDED_BY(mutex_) = false;
  std::uint32_t searched_to_ CAIRN_GUARDED_BY(mutex_) = 0;
  std::uint32_t urgent_ CAIRN_GUARDED_BY(mutex_) = 0;  // of keys_
  // The most blocks that were allocated above before the copies had caught up, of late; counted from measured_from_.
  std::uint32_t demand_ CAIRN_GUARDED_BY(mutex_) = 0;
  std::uint32_t largest_ CAIRN_GUARDED_BY(mutex_) = 0;  // allocation of late
  std::uint64_t measured_from_ CAIRN_GUARDED_BY(mutex_) = 0;
  std::uint64_t faded_at_ CAIRN_GUARDED_BY(mutex_) = 0;
  std::uint32_t batches_ CAIRN_GUARDED_BY(mutex_) = 0;    // under way
  std::uint32_t under_way_ CAIRN_GUARDED_BY(mutex_) = 0;  // blocks
  bool is_full_ CAIRN_GUARDED_BY(mutex_) = false;         // the executor is, until a copy has ended or retry_at_
  TimePoint retry_at_ CAIRN_GUARDED_BY(mutex_){};
  std::optional<TimePoint> full_since_ CAIRN_GUARDED_BY(mutex_);  // and took and ended nothing of this edge
  bool is_stuck_ CAIRN_GUARDED_BY(mutex_) = false;  // it was full for too long, and has taken nothing since
  bool is_paused_ CAIRN_GUARDED_BY(mutex_) = false;
  bool is_ended_ CAIRN_GUARDED_BY(mutex_) = false;
  std::uint64_t fences_ CAIRN_GUARDED_BY(mutex_) = 0;  // over all tiers
  std::uint64_t epoch_ CAIRN_GUARDED_BY(mutex_) = 0;   // grows with every fence
  std::uint64_t offered_ CAIRN_GUARDED_BY(mutex_) = 0;
  std::uint64_t copied_ CAIRN_GUARDED_BY(mutex_) = 0;
  std::array<std::uint64_t, kOffloadRefusals> refused_ CAIRN_GUARDED_BY(mutex_) = {};
};

}  // namespace cairn
