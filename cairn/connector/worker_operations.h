// WorkerOperations: the loads and saves that a worker expects, until the engine has taken their outcomes.
//
// Keeps the operations of bound metadata, takes the outcomes that the leader sends, and returns what has ended, each
// once. An outcome that arrives before its operation is bound is kept; an outcome that arrives after give_up() is
// ignored. Operations are those of one scheduler (leader) at a time, since their numbers start anew with every
// scheduler. follow() drops those of the scheduler before. Outcomes of a leader that is not followed yet are kept until
// it is. OperationOutcomes::finished_before ends operations whose outcome was sent while this rank was not ready, bound
// already or bound later: nothing of their loads counts.
// In-step loads are read by the engine while they arrive. A block whose layer was not there when the engine went on may
// have been read too early (read_early()): neither it nor the blocks after it in its load count as loaded.
//
// Thread safety: receive() any thread; all others the engine's.
// Ownership: WorkerConnector.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "cairn/base/clock.h"
#include "cairn/base/ids.h"
#include "cairn/base/mutex.h"
#include "cairn/base/thread_annotations.h"
#include "cairn/connector/iteration_metadata.h"
#include "cairn/connector/operation_outcomes.h"
#include "cairn/connector/request_id.h"
#include "cairn/connector/slot.h"
#include "cairn/connector/worker_connector.h"
#include "cairn/wire/rank_address.h"

namespace cairn {

class WorkerOperations {
 public:
  // An outcome without a bound operation is forgotten after so many binds: its operation had ended before.
  static constexpr std::uint64_t kKeptIterations = 1024;
  // Messages kept of a leader that is not followed. Later ones are dropped: their operations count as unanswered.
  static constexpr std::size_t kMessagesAhead = 1024;

  explicit WorkerOperations(const Clock& clock) : clock_(clock) {}

  // Encoded OperationOutcomes. Bytes that do not decode are ignored: their operations count as unanswered.
  void receive(const LeaderId& leader, std::span<const std::byte> message);

  // Binds are of this leader from now on.
  void follow(const LeaderId& leader);

  // Expects the loads and saves of the metadata. `connection`: the number of the connection that outcomes are expected on; 0
  // if there is none.
  void bind(const IterationMetadata& metadata, std::uint32_t connection);
  // Whether an operation is pending, or has ended and was not taken. Takes no lock.
  [[nodiscard]] bool has_any() const { return untaken_ > 0; }

  // Waits until none of the operations is pending; `goes_on` is called now and then; waiting ends if it returns false.
  using GoesOn = std::function<bool()>;
  bool wait_for(std::span<const OperationPtr> operations, TimePoint deadline, const GoesOn& goes_on);
  bool wait_for_in_step(TimePoint deadline, const GoesOn& goes_on);

  struct InStep {
    bool is_pending = false;  // one of them
    bool is_short = false;    // one of those bound last has ended and was not loaded whole
  };
  [[nodiscard]] InStep in_step() const;
  // Blocks of the in-step loads bound last that will not be loaded, by the leader's word; each once.
  [[nodiscard]] std::vector<BlockId> take_short();
  void read_early(std::span<const BlockId> blocks);

  [[nodiscard]] std::vector<OperationPtr> pending_in_step() const;
  // Operations whose outcome cannot be relied on: bound under another connection, or before `bound_before`.
  [[nodiscard]] std::vector<OperationPtr> unanswered(std::uint32_t connection, TimePoint bound_before);
  // Ends the operation as if the leader had said that nothing was loaded, unless it is over already.
  void give_up(OperationId id);

  // What has ended, in the order in which it ended.
  [[nodiscard]] WorkerOutcomes take();

 private:
  struct IdHash {
    std::size_t operator()(const OperationId& id) const {
      return static_cast<std::size_t>((id.slot * 0x9E3779B97F4A7C15U) ^ id.number);
    }
  };
  struct Expected {
    OperationPtr operation;
    std::uint64_t iteration = 0;
    std::uint32_t connection = 0;
    TimePoint bound{};
    std::uint32_t usable = ~0U;       // blocks from the first on; those after may have been read too early
    std::uint32_t loaded_blocks = 0;  // once it has ended
  };
  struct Early {
    std::uint32_t loaded_blocks = 0;
    std::uint64_t bind = 0;  // the latest when it came
  };

  void apply(const OperationOutcomes& outcomes) CAIRN_REQUIRES(mutex_);
  static void limit(Expected& expected, const std::unordered_set<std::uint32_t>& blocks);
  void add(Expected expected) CAIRN_REQUIRES(mutex_);
  void end(OperationId id, bool is_load, std::uint32_t loaded_blocks) CAIRN_REQUIRES(mutex_);
  void forget_early() CAIRN_REQUIRES(mutex_);
  void end_missed(const OperationOutcomes& outcomes) CAIRN_REQUIRES(mutex_);
  // Whether the operation has ended by finished_before.
  [[nodiscard]] bool is_missed(OperationId id, std::uint64_t iteration) const CAIRN_REQUIRES(mutex_) {
    return iteration < finished_before_ && !in_flight_.contains(id);
  }
  template <typename IsOver>
  bool wait(TimePoint deadline, const GoesOn& goes_on, const IsOver& is_over);

  const Clock& clock_;
  std::size_t untaken_ = 0;  // bound and not taken; the engine's thread alone

  mutable Mutex mutex_{LockRank::kOperations};
  std::condition_variable_any changed_;
  std::optional<LeaderId> leader_ CAIRN_GUARDED_BY(mutex_);  // that is followed
  LeaderId ahead_leader_ CAIRN_GUARDED_BY(mutex_);
  std::vector<OperationOutcomes> ahead_ CAIRN_GUARDED_BY(mutex_);  // of that one, until it is followed
  std::unordered_map<OperationId, Expected, IdHash> pending_ CAIRN_GUARDED_BY(mutex_);
  std::vector<Expected> over_ CAIRN_GUARDED_BY(mutex_);
  std::unordered_map<OperationId, Early, IdHash> early_ CAIRN_GUARDED_BY(mutex_);
  std::uint64_t finished_before_ CAIRN_GUARDED_BY(mutex_) = 0;  // 0 once all operations of before are bound
  std::unordered_set<OperationId, IdHash> in_flight_ CAIRN_GUARDED_BY(mutex_);  // of OperationOutcomes
  std::uint64_t binds_ CAIRN_GUARDED_BY(mutex_) = 0;
  std::size_t in_step_ CAIRN_GUARDED_BY(mutex_) = 0;             // of the pending ones
  bool is_in_step_short_ CAIRN_GUARDED_BY(mutex_) = false;       // of those bound last
  std::vector<BlockId> short_ CAIRN_GUARDED_BY(mutex_);          // their blocks, until taken
  std::uint32_t least_connection_ CAIRN_GUARDED_BY(mutex_) = 0;  // no pending operation has a lower one
  TimePoint least_bound_ CAIRN_GUARDED_BY(mutex_){};             // no pending operation was bound before
};

}  // namespace cairn
