// WorkerOperations: the loads and saves that a worker was told to expect, until the engine was told that they are over.
//
// Does:     keeps what was bound, takes the leader's notices, and gives what is over, once each. A notice about an
//           operation that is not bound yet is kept for it; one about an operation that was given up changes nothing.
// Leader:   the operations of one scheduler at a time: their numbers begin anew with every scheduler. follow() drops those
//           of the scheduler before, which nobody is left to be told of. Notices of a scheduler that is not followed yet are
//           kept until it is.
// Missed:   what the leader says is over before an iteration, but for what it names, is over with nothing that came, bound
//           already or yet to be bound: its own notice was told while this rank was not ready, and no load ends well then.
// In step:  loads whose layers the engine reads while they come. A block whose layer was not there when the engine went on
//           may have been read too early: read_early(), and neither it nor those after it in its load count as loaded,
//           whatever arrives.
// Owner:    the worker's connector. Threads: told() on any; all others on the engine's, one at a time.
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
#include "cairn/connector/operation_notice.h"
#include "cairn/connector/request_id.h"
#include "cairn/connector/slot_operation.h"
#include "cairn/connector/worker_connector.h"
#include "cairn/wire/leader_id.h"

namespace cairn {

class WorkerOperations {
 public:
  // A notice that no operation was bound for is forgotten after so many iterations: it was of one that is over.
  static constexpr std::uint64_t kKeptIterations = 1024;

  // Notices kept of a leader that is not followed. Those beyond are dropped: their operations count as unanswered.
  static constexpr std::size_t kNoticesAhead = 1024;

  explicit WorkerOperations(const Clock& clock) : clock_(clock) {}

  // The leader says what became of operations. What does not decode is not taken: they then count as unanswered.
  void told(const LeaderId& leader, std::span<const std::byte> notice);

  // Binds are of this leader from now on.
  void follow(const LeaderId& leader);

  // Takes the loads and saves out of the metadata. `generation`: of the connection that notices are expected on, 0
  // where there is none.
  void bind(IterationMetadata& metadata, std::uint32_t generation);
  // Something is expected, or over and not taken. Takes no lock.
  [[nodiscard]] bool has_any() const { return untaken_ > 0; }

  // Waits until none of them is pending; `goes_on` is asked now and then whether it is worth waiting.
  using GoesOn = std::function<bool()>;
  bool wait_for(std::span<const OperationId> ids, TimePoint deadline, const GoesOn& goes_on);
  bool wait_for_in_step(TimePoint deadline, const GoesOn& goes_on);
  [[nodiscard]] bool is_pending(OperationId id) const;

  struct InStep {
    bool is_pending = false;  // one of them
    bool is_short = false;    // one of those bound last is over and did not come whole
  };
  [[nodiscard]] InStep in_step() const;
  // Blocks of those bound last that are known not to come, by the leader's word; each once.
  [[nodiscard]] std::vector<BlockId> take_short();
  void read_early(std::span<const BlockId> blocks);

  struct Pending {
    OperationId id;
    std::vector<BlockId> blocks;
  };
  [[nodiscard]] std::vector<Pending> pending_in_step() const;
  // Those whose notice cannot be relied on: bound under another generation, or before `bound_before`.
  [[nodiscard]] std::vector<Pending> unanswered(std::uint32_t generation, TimePoint bound_before);
  // As if the leader had said that nothing came. Nothing, if it has spoken since.
  void give_up(OperationId id);

  // What is over, in the order in which it came to be.
  [[nodiscard]] WorkerReport take();

 private:
  struct IdHash {
    std::size_t operator()(const OperationId& id) const {
      return static_cast<std::size_t>((id.slot * 0x9E3779B97F4A7C15U) ^ id.number);
    }
  };
  struct Operation {
    std::uint64_t iteration = 0;
    RequestId request;
    std::vector<BlockId> blocks;
    std::uint32_t generation = 0;
    TimePoint bound{};
    bool is_load = false;
    bool in_step = false;
    std::uint32_t usable = ~0U;  // blocks from the first on; those after may have been read too early
    std::uint32_t arrived = 0;   // once it is over
  };
  struct Early {
    std::uint32_t arrived = 0;
    std::uint64_t bind = 0;  // the latest when it came
  };

  void take_notice(const OperationNotice& notice) CAIRN_REQUIRES(mutex_);
  static void limit(Operation& operation, const std::unordered_set<std::uint32_t>& blocks);
  void add(OperationId id, Operation operation) CAIRN_REQUIRES(mutex_);
  void end(OperationId id, bool is_load, std::uint32_t arrived) CAIRN_REQUIRES(mutex_);
  void forget_early() CAIRN_REQUIRES(mutex_);
  void end_missed(const OperationNotice& notice) CAIRN_REQUIRES(mutex_);
  // By the leader's latest word on iterations.
  [[nodiscard]] bool is_missed(OperationId id, std::uint64_t iteration) const CAIRN_REQUIRES(mutex_) {
    return iteration < over_before_ && !under_way_.contains(id);
  }
  template <typename IsOver>
  bool wait(TimePoint deadline, const GoesOn& goes_on, const IsOver& is_over);

  const Clock& clock_;
  std::size_t untaken_ = 0;  // bound and not taken; the engine's thread only

  mutable Mutex mutex_{LockRank::kOperations};
  std::condition_variable_any changed_;
  std::optional<LeaderId> leader_ CAIRN_GUARDED_BY(mutex_);  // that is followed
  LeaderId ahead_leader_ CAIRN_GUARDED_BY(mutex_);
  std::vector<OperationNotice> ahead_ CAIRN_GUARDED_BY(mutex_);  // of that one, until it is followed
  std::unordered_map<OperationId, Operation, IdHash> pending_ CAIRN_GUARDED_BY(mutex_);
  std::vector<Operation> over_ CAIRN_GUARDED_BY(mutex_);
  std::unordered_map<OperationId, Early, IdHash> early_ CAIRN_GUARDED_BY(mutex_);
  std::uint64_t over_before_ CAIRN_GUARDED_BY(mutex_) = 0;  // as in OperationNotice; 0: all of them are bound
  std::unordered_set<OperationId, IdHash> under_way_ CAIRN_GUARDED_BY(mutex_);
  std::uint64_t binds_ CAIRN_GUARDED_BY(mutex_) = 0;
  std::size_t in_step_ CAIRN_GUARDED_BY(mutex_) = 0;             // of those pending
  bool is_in_step_short_ CAIRN_GUARDED_BY(mutex_) = false;       // of those bound last
  std::vector<BlockId> short_ CAIRN_GUARDED_BY(mutex_);          // their blocks, until they are taken
  std::uint32_t least_generation_ CAIRN_GUARDED_BY(mutex_) = 0;  // none that is pending has a lesser one
  TimePoint least_bound_ CAIRN_GUARDED_BY(mutex_){};             // none that is pending was bound before
};

}  // namespace cairn
