// RankWork: the copies of one rank: taken from the leader, held until the engine is so far, carried out on all parts of
// the blocks, and answered.
//
// A copy becomes one transfer for each group of layers, or, if the engine expects its blocks layer by layer, one for each
// layer, the first first. Sums are added up, so that a block's checksum is the same either way: of the one group there is,
// or of several, combine() of the groups' in their order (rank_copies.h). RankCopyDone goes out when every block has an
// outcome, RankSettled when nothing touches the blocks any more.
//
// Marks and fences belong to the leader that the engine follows, which need not be the one that this rank has joined: the
// engine may hear from a new leader before this rank does, or after it. A copy that touches device blocks is held until its
// leader is the one that the engine follows and its mark is reached; past its deadline it has expired. It fails
//   - if a device event before its mark has failed: nobody knows what the device has computed;
//   - if it saves what was computed before this rank's first step: the rank has none of it;
//   - if a block of it has a later fence: from that mark on the block holds something else. See fence().
//
// Thread safety: any thread may call. `answer` runs on whatever thread has something to answer, one message at a time, in
//                order, without a lock; it may not wait. One thread of its own waits for steps.
// Ownership:     a RankWorker. Destroying it ends all copies, as executors do.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cairn/base/clock.h"
#include "cairn/base/ids.h"
#include "cairn/base/mutex.h"
#include "cairn/base/result.h"
#include "cairn/ranks/layer_watch.h"
#include "cairn/ranks/leader_id.h"
#include "cairn/ranks/rank_message.h"
#include "cairn/ranks/rank_routes.h"
#include "cairn/ranks/step_gate.h"
#include "cairn/transfer/step_event.h"
#include "cairn/transfer/step_mark.h"

namespace cairn {

class RankWork {
 public:
  using Answer = std::function<void(std::uint32_t generation, const RankMessage&)>;
  RankWork(std::uint32_t model_layers, const Clock& clock, Answer answer);
  RankWork(const RankWork&) = delete;
  RankWork& operator=(const RankWork&) = delete;
  ~RankWork();

  // --- for who talks to the leader ---
  // What copies go by from now on; none: there is no memory. Requires: is_quiet(), or never begun.
  void use(std::unique_ptr<RankRoutes> routes) CAIRN_EXCLUDES(mutex_);
  // Copies are of this leader and generation from now on. The first leader ever is also the one that the engine follows
  // until follow() says otherwise. Requires: is_quiet().
  void begin(std::uint32_t generation, const LeaderId& leader) CAIRN_EXCLUDES(mutex_);
  void copy(const RankCopy& copy) CAIRN_EXCLUDES(mutex_);
  void cancel(TransferId copy) CAIRN_EXCLUDES(mutex_);
  // The leader is gone: what has not begun will not, and what is expected fails. When this returns, nothing is answered any
  // more. Not from `answer`.
  void lose() CAIRN_EXCLUDES(mutex_);
  // Nothing touches any block.
  [[nodiscard]] bool is_quiet() const CAIRN_EXCLUDES(mutex_);
  // Whether it is; not until the deadline, or wake().
  [[nodiscard]] bool wait_until_quiet(TimePoint deadline) CAIRN_EXCLUDES(mutex_);
  void wake() CAIRN_EXCLUDES(mutex_);
  // Expires what is due; where the clock is the machine's, threads of its own do.
  void check_deadlines() CAIRN_EXCLUDES(mutex_);

  // --- for the engine: see RankWorker ---
  [[nodiscard]] bool follow(const LeaderId& leader, TimePoint deadline) CAIRN_EXCLUDES(mutex_);
  void reached(StepMark mark, StepEventPtr after) { gate_.reached(mark, std::move(after)); }
  void expect(std::span<const BlockId> device_blocks) CAIRN_EXCLUDES(mutex_);
  [[nodiscard]] Status wait_for_layer(std::uint32_t model_layer, TimePoint deadline) CAIRN_EXCLUDES(mutex_);
  [[nodiscard]] std::vector<BlockId> lacking(std::uint32_t model_layer) const CAIRN_EXCLUDES(mutex_);
  void pass_over(std::span<const BlockId> device_blocks) CAIRN_EXCLUDES(mutex_);
  [[nodiscard]] bool fence(std::span<const BlockId> device_blocks, StepMark overwritten_in, TimePoint deadline)
      CAIRN_EXCLUDES(mutex_);

  struct Counts {
    std::uint32_t copies = 0;  // in hand
    std::uint64_t done = 0;    // blocks
    std::uint64_t failed = 0;
  };
  [[nodiscard]] Counts counts() const CAIRN_EXCLUDES(mutex_);

 private:
  struct Job;
  using JobPtr = std::shared_ptr<Job>;
  // A transfer of a job: which of its routes, and which of its blocks.
  struct Flight;

  void take(const JobPtr& job) CAIRN_REQUIRES(mutex_);
  enum class Gate : std::uint8_t { kOpen, kHeld, kFailed };
  [[nodiscard]] Gate gate_for(const Job& job) CAIRN_REQUIRES(mutex_);
  [[nodiscard]] bool is_of_other_leader(const Job& job) const CAIRN_REQUIRES(mutex_);
  // The engine follows another leader than the job's: no block of the device is the job's any more.
  void drop(const JobPtr& job) CAIRN_REQUIRES(mutex_);
  void cancel_under_way(const Job& job) CAIRN_REQUIRES(mutex_);
  [[nodiscard]] bool is_from_before(const Job& job) const;
  void start(const JobPtr& job) CAIRN_REQUIRES(mutex_);
  // Submits what can be, and tells the job when there is nothing left.
  void push(const JobPtr& job) CAIRN_REQUIRES(mutex_);
  [[nodiscard]] bool submit_next(const JobPtr& job) CAIRN_REQUIRES(mutex_);
  void push_stalled() CAIRN_REQUIRES(mutex_);
  void start_held() CAIRN_REQUIRES(mutex_);
  void expire_late() CAIRN_REQUIRES(mutex_);
  // Blocks that are well get this outcome, and nothing more of the job begins.
  void give_up(Job& job, BlockState state, const std::string& error) CAIRN_REQUIRES(mutex_);
  void spoil(Job& job, std::size_t block, BlockState state, const std::string& error) CAIRN_REQUIRES(mutex_);
  void refuse_fenced(Job& job) CAIRN_REQUIRES(mutex_);
  // Where no block's outcome is open any more.
  void tell_if_over(const JobPtr& job) CAIRN_REQUIRES(mutex_);
  void tell(Job& job) CAIRN_REQUIRES(mutex_);
  void end_if_settled(const JobPtr& job) CAIRN_REQUIRES(mutex_);
  void send(const Job& job, RankMessage message) CAIRN_REQUIRES(mutex_);

  void landed(const JobPtr& job, const Flight& flight, TransferOutcome&& outcome) CAIRN_EXCLUDES(mutex_);
  void settled(const JobPtr& job) CAIRN_EXCLUDES(mutex_);
  // Calls `answer` for what was sent under the lock.
  void flush() CAIRN_EXCLUDES(mutex_);
  void wait_for_steps() CAIRN_EXCLUDES(mutex_);
  // Until `over` says so; whether it did by the deadline.
  template <typename Over>
  [[nodiscard]] bool wait_until(TimePoint deadline, Over over) CAIRN_REQUIRES(mutex_);

  const Clock& clock_;
  const Answer answer_;
  StepGate gate_;
  mutable Mutex mutex_{LockRank::kRankWork};
  std::condition_variable_any news_;                           // for those who wait for copies
  std::condition_variable_any steps_;                          // for the own thread: something is held, or the end
  std::uint32_t generation_ CAIRN_GUARDED_BY(mutex_) = 0;      // 0: there is no leader
  LeaderId joined_ CAIRN_GUARDED_BY(mutex_);                   // the latest that there was
  std::optional<LeaderId> followed_ CAIRN_GUARDED_BY(mutex_);  // by the engine; marks, fences and expectations are its
  std::map<TransferId, JobPtr> jobs_ CAIRN_GUARDED_BY(mutex_);
  std::deque<JobPtr> held_ CAIRN_GUARDED_BY(mutex_);     // in the order in which they came
  std::deque<JobPtr> stalled_ CAIRN_GUARDED_BY(mutex_);  // that an executor had no place for
  LayerWatch watch_ CAIRN_GUARDED_BY(mutex_);
  std::vector<StepMark> fences_ CAIRN_GUARDED_BY(mutex_);  // by device block
  std::uint64_t done_ CAIRN_GUARDED_BY(mutex_) = 0;
  std::uint64_t failed_ CAIRN_GUARDED_BY(mutex_) = 0;
  std::deque<std::pair<std::uint32_t, RankMessage>> outbox_ CAIRN_GUARDED_BY(mutex_);
  bool is_flushing_ CAIRN_GUARDED_BY(mutex_) = false;
  bool is_woken_ CAIRN_GUARDED_BY(mutex_) = false;
  bool is_ending_ CAIRN_GUARDED_BY(mutex_) = false;
  std::unique_ptr<RankRoutes> routes_;  // changed under the lock, by who talks to the leader alone
  std::thread thread_;
};

}  // namespace cairn
