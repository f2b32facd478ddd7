// RankTransfers: the transfers of one rank: taken from the leader, held back until the engine has reached their step, carried
// out part by part (active_rank_transfer.h), and reported.
//
// RankTransferOutcome is sent when every block has an outcome, RankSettled when nothing touches the blocks any more.
//
// Marks and fences belong to the leader that the engine follows. That need not be the leader that this rank has joined: the
// engine may hear from a new leader before this rank does, or after it. A transfer that touches device blocks is held back
// until the engine follows its leader and has reached its mark, or until its deadline has passed. It fails
//   - if a device event before its mark has failed, because it is unknown what the device has computed;
//   - if it saves blocks that were computed before this rank's first step, because the rank does not have them.
// A block is cancelled if it has a later fence: from that mark on the block holds something else. See fence().
// A save of blocks that the engine computes in the present step (in_step_mark()) begins with the first layer that is
// computed, reads each layer once it is, and is reported when the whole step is computed.
//
// Thread safety: any thread may call. `send` runs on any of them, one message at a time, in order, with no lock held; it may
//                not wait. One thread of its own waits for steps.
// Ownership:     a Rank. Destroying it ends all transfers, as executors do.
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
#include "cairn/rank/active_rank_transfer.h"
#include "cairn/rank/layer_watch.h"
#include "cairn/rank/rank_routes.h"
#include "cairn/rank/step_gate.h"
#include "cairn/transfer/step_event.h"
#include "cairn/wire/rank_address.h"
#include "cairn/wire/rank_message.h"

namespace cairn {

class RankTransfers {
 public:
  using Send = std::function<void(std::uint32_t generation, const RankMessage&)>;
  RankTransfers(std::uint32_t model_layers, const Clock& clock, Send send);
  RankTransfers(const RankTransfers&) = delete;
  RankTransfers& operator=(const RankTransfers&) = delete;
  ~RankTransfers();

  // --- for the thread that talks to the leader ---
  // Sets the routes of later transfers; null if the rank has no memory. Requires: is_quiet().
  void use(std::unique_ptr<RankRoutes> routes) CAIRN_EXCLUDES(mutex_);
  // Later transfers are of this leader and generation. The engine follows the first leader ever until follow() says
  // otherwise. Requires: is_quiet().
  void begin(std::uint32_t generation, const LeaderId& leader) CAIRN_EXCLUDES(mutex_);
  void submit(const RankTransfer& transfer) CAIRN_EXCLUDES(mutex_);
  void cancel(TransferId transfer) CAIRN_EXCLUDES(mutex_);
  // The leader is gone: parts that have not begun are dropped, and expected layers fail. When this returns, nothing is sent
  // any more. Not from `send`.
  void lose() CAIRN_EXCLUDES(mutex_);
  // Whether no transfer touches any block.
  [[nodiscard]] bool is_quiet() const CAIRN_EXCLUDES(mutex_);
  // Waits for that until the deadline or wake(). Returns is_quiet().
  [[nodiscard]] bool wait_until_quiet(TimePoint deadline) CAIRN_EXCLUDES(mutex_);
  void wake() CAIRN_EXCLUDES(mutex_);
  // Expires transfers whose deadline has passed. Only needed with a virtual clock.
  void check_deadlines() CAIRN_EXCLUDES(mutex_);

  // --- for the engine: see Rank ---
  [[nodiscard]] bool follow(const LeaderId& leader, TimePoint deadline) CAIRN_EXCLUDES(mutex_);
  void reached(StepMark mark, StepEventPtr after) { gate_.reached(mark, std::move(after)); }
  void reached_layers(std::uint64_t iteration, std::uint32_t layers, StepEventPtr after) {
    gate_.reached({StepMark::begun(iteration), layers}, std::move(after));
  }
  void expect(std::span<const BlockId> device_blocks) CAIRN_EXCLUDES(mutex_);
  [[nodiscard]] Status wait_for_layer(std::uint32_t model_layer, TimePoint deadline) CAIRN_EXCLUDES(mutex_);
  [[nodiscard]] std::vector<BlockId> lacking(std::uint32_t model_layer) const CAIRN_EXCLUDES(mutex_);
  void pass_over(std::span<const BlockId> device_blocks) CAIRN_EXCLUDES(mutex_);
  [[nodiscard]] bool fence(std::span<const BlockId> device_blocks, StepMark overwritten_in, TimePoint deadline)
      CAIRN_EXCLUDES(mutex_);

  struct Counts {
    std::uint32_t transfers = 0;  // in flight
    std::uint64_t done = 0;       // blocks
    std::uint64_t failed = 0;     // blocks
  };
  [[nodiscard]] Counts counts() const CAIRN_EXCLUDES(mutex_);

 private:
  using Active = ActiveRankTransfer;
  using ActivePtr = std::shared_ptr<Active>;

  void take(const ActivePtr& active) CAIRN_REQUIRES(mutex_);
  enum class Gate : std::uint8_t { kOpen, kHeld, kFailed };
  [[nodiscard]] Gate gate_for(const Active& active) CAIRN_REQUIRES(mutex_);
  [[nodiscard]] bool is_of_other_leader(const Active& active) const CAIRN_REQUIRES(mutex_) {
    return active.leader() != followed_;
  }
  [[nodiscard]] bool is_from_before(const Active& active) const;
  void start(const ActivePtr& active) CAIRN_REQUIRES(mutex_);
  // Until the engine has reached the next mark of the transfer.
  void hold(const ActivePtr& active) CAIRN_REQUIRES(mutex_);
  // Whether the next part may begin or, without one, the outcome may be reported. If not, an in-step save is held back, or
  // given up because a device event has failed.
  [[nodiscard]] bool may_go_on(const ActivePtr& active) CAIRN_REQUIRES(mutex_);
  // Submits as many parts as possible, and reports the transfer if it has its outcome.
  void push(const ActivePtr& active) CAIRN_REQUIRES(mutex_);
  // Returns false if the executor is full.
  [[nodiscard]] bool submit_part(const ActivePtr& active) CAIRN_REQUIRES(mutex_);
  void push_stalled() CAIRN_REQUIRES(mutex_);
  void start_held() CAIRN_REQUIRES(mutex_);
  void expire_late() CAIRN_REQUIRES(mutex_);
  // Gives all blocks that are well this state; no further part begins.
  void give_up(Active& active, BlockState state, const std::string& error) CAIRN_REQUIRES(mutex_);
  void fail(Active& active, std::size_t block, BlockState state, const std::string& error) CAIRN_REQUIRES(mutex_);
  void cancel_fenced(Active& active) CAIRN_REQUIRES(mutex_);
  void drop(const ActivePtr& active, BlockState state, const std::string& error) CAIRN_REQUIRES(mutex_);
  void report_if_over(const ActivePtr& active) CAIRN_REQUIRES(mutex_);
  void end_if_settled(const ActivePtr& active) CAIRN_REQUIRES(mutex_);
  void queue(const Active& active, RankMessage message) CAIRN_REQUIRES(mutex_);

  void part_ended(const ActivePtr& active, const Active::Part& part, const TransferOutcome& outcome)
      CAIRN_EXCLUDES(mutex_);
  void part_settled(const ActivePtr& active) CAIRN_EXCLUDES(mutex_);
  // Sends what was queued under the lock.
  void flush() CAIRN_EXCLUDES(mutex_);
  void wait_for_steps() CAIRN_EXCLUDES(mutex_);
  // Waits until `is_over` returns true; false if the deadline comes first.
  template <typename IsOver>
  [[nodiscard]] bool wait_until(TimePoint deadline, IsOver is_over) CAIRN_REQUIRES(mutex_);

  const Clock& clock_;
  const Send send_;
  StepGate gate_;
  mutable Mutex mutex_{LockRank::kRankTransfers};
  std::condition_variable_any news_;                           // for callers that wait for transfers
  std::condition_variable_any steps_;                          // for the own thread: something is held, or the end
  std::uint32_t generation_ CAIRN_GUARDED_BY(mutex_) = 0;      // 0: there is no leader
  LeaderId joined_ CAIRN_GUARDED_BY(mutex_);                   // the latest leader
  std::optional<LeaderId> followed_ CAIRN_GUARDED_BY(mutex_);  // by the engine; owns marks, fences and expectations
  std::map<TransferId, ActivePtr> open_ CAIRN_GUARDED_BY(mutex_);
  std::deque<ActivePtr> held_ CAIRN_GUARDED_BY(mutex_);     // in the order of their arrival
  std::deque<ActivePtr> stalled_ CAIRN_GUARDED_BY(mutex_);  // wait for a full executor
  LayerWatch watch_ CAIRN_GUARDED_BY(mutex_);
  std::vector<StepMark> fences_ CAIRN_GUARDED_BY(mutex_);  // by device block
  std::uint64_t done_ CAIRN_GUARDED_BY(mutex_) = 0;
  std::uint64_t failed_ CAIRN_GUARDED_BY(mutex_) = 0;
  std::deque<std::pair<std::uint32_t, RankMessage>> outbox_ CAIRN_GUARDED_BY(mutex_);
  bool is_flushing_ CAIRN_GUARDED_BY(mutex_) = false;
  bool is_woken_ CAIRN_GUARDED_BY(mutex_) = false;
  bool is_ending_ CAIRN_GUARDED_BY(mutex_) = false;
  std::unique_ptr<RankRoutes> routes_;  // changed under the lock, only by the thread that talks to the leader
  std::thread thread_;
};

}  // namespace cairn
