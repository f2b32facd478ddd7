#include "cairn/connector/worker_operations.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace cairn {
namespace {

// How often a waiting thread looks at the clock and at the connection, neither of which wakes it.
constexpr Duration kLook = std::chrono::milliseconds(1);

// Saves in the step are waited for by nobody.
bool is_in_step_load(const Operation& operation) { return operation.is_load && operation.in_step; }

}  // namespace

void WorkerOperations::receive(const LeaderId& leader, std::span<const std::byte> message) {
  Result<OperationOutcomes> decoded = OperationOutcomes::decode(message);
  if (!decoded) {
    return;
  }
  {
    const MutexLock lock(mutex_);
    if (leader == leader_) {
      apply(*decoded);
    } else {
      if (ahead_leader_ != leader) {
        ahead_.clear();
        ahead_leader_ = leader;
      }
      if (ahead_.size() < kMessagesAhead) {
        ahead_.push_back(*std::move(decoded));
      }
    }
  }
  changed_.notify_all();
}

void WorkerOperations::apply(const OperationOutcomes& outcomes) {
  for (const OperationOutcomes::Load& load : outcomes.loads) {
    end(load.id, true, load.loaded_blocks);
  }
  for (const OperationId& save : outcomes.saves) {
    end(save, false, 0);
  }
  end_missed(outcomes);
}

void WorkerOperations::follow(const LeaderId& leader) {
  untaken_ = 0;
  const MutexLock lock(mutex_);
  leader_ = leader;
  pending_.clear();
  over_.clear();
  early_.clear();
  finished_before_ = 0;
  in_flight_.clear();
  in_step_ = 0;
  is_in_step_short_ = false;
  short_.clear();
  if (ahead_leader_ == leader) {
    for (const OperationOutcomes& outcomes : ahead_) {
      apply(outcomes);
    }
    ahead_.clear();
  }
}

void WorkerOperations::end_missed(const OperationOutcomes& outcomes) {
  if (outcomes.finished_before == 0) {
    return;
  }
  finished_before_ = outcomes.finished_before;
  in_flight_ = {outcomes.in_flight.begin(), outcomes.in_flight.end()};
  std::vector<std::pair<OperationId, bool>> missed;  // whether it is a load
  for (const auto& [id, expected] : pending_) {
    if (is_missed(id, expected.iteration)) {
      missed.emplace_back(id, expected.operation->is_load);
    }
  }
  for (const auto& [id, is_load] : missed) {
    end(id, is_load, 0);
  }
}

void WorkerOperations::end(OperationId id, bool is_load, std::uint32_t loaded_blocks) {
  const auto found = pending_.find(id);
  if (found == pending_.end()) {
    early_.insert_or_assign(id, Early{loaded_blocks, binds_});
    return;
  }
  Expected& expected = found->second;
  const Operation& operation = *expected.operation;
  if (operation.is_load != is_load) {
    return;
  }
  expected.loaded_blocks = loaded_blocks;
  if (is_in_step_load(operation)) {
    --in_step_;
    if (loaded_blocks < operation.block_ids.size()) {
      is_in_step_short_ = true;
      short_.insert(short_.end(), operation.block_ids.begin() + loaded_blocks, operation.block_ids.end());
    }
  }
  over_.push_back(std::move(expected));
  pending_.erase(found);
}

void WorkerOperations::bind(const IterationMetadata& metadata, std::uint32_t connection) {
  const TimePoint now = clock_.now();
  const MutexLock lock(mutex_);
  ++binds_;
  is_in_step_short_ = false;
  short_.clear();
  if (pending_.empty()) {
    least_connection_ = connection;
    least_bound_ = now;
  }
  least_connection_ = std::min(least_connection_, connection);
  if (metadata.iteration >= finished_before_) {
    finished_before_ = 0;  // iterations grow: no earlier one will be bound
    in_flight_.clear();
  }
  for (const auto* list : {&metadata.loads, &metadata.saves}) {
    for (const OperationPtr& operation : *list) {
      add({.operation = operation, .iteration = metadata.iteration, .connection = connection, .bound = now});
    }
  }
  forget_early();
}

void WorkerOperations::add(Expected expected) {
  const Operation& operation = *expected.operation;
  const std::uint64_t iteration = expected.iteration;
  if (!pending_.emplace(operation.id, std::move(expected)).second) {
    return;
  }
  ++untaken_;
  in_step_ += is_in_step_load(operation) ? 1 : 0;
  if (const auto early = early_.find(operation.id); early != early_.end()) {
    const std::uint32_t loaded_blocks = early->second.loaded_blocks;
    early_.erase(early);
    end(operation.id, operation.is_load, loaded_blocks);
  } else if (is_missed(operation.id, iteration)) {
    end(operation.id, operation.is_load, 0);
  }
}

void WorkerOperations::forget_early() {
  if (early_.empty() || binds_ % kKeptIterations != 0) {
    return;
  }
  std::erase_if(early_, [this](const auto& entry)
                            CAIRN_REQUIRES(mutex_) { return binds_ - entry.second.bind >= kKeptIterations; });
}

template <typename IsOver>
bool WorkerOperations::wait(TimePoint deadline, const GoesOn& goes_on, const IsOver& is_over) {
  for (;;) {
    const Duration left = deadline - clock_.now();
    {
      const MutexLock lock(mutex_);
      if (is_over()) {
        return true;
      }
      if (left > Duration::zero()) {
        changed_.wait_for(mutex_, std::min(left, kLook));
      }
    }
    if (left <= Duration::zero() || !goes_on()) {
      const MutexLock lock(mutex_);
      return is_over();
    }
  }
}

bool WorkerOperations::wait_for(std::span<const OperationPtr> operations, TimePoint deadline, const GoesOn& goes_on) {
  return wait(deadline, goes_on, [&]() CAIRN_REQUIRES(mutex_) {
    return std::ranges::none_of(operations, [&](const OperationPtr& operation)
                                                CAIRN_REQUIRES(mutex_) { return pending_.contains(operation->id); });
  });
}

bool WorkerOperations::wait_for_in_step(TimePoint deadline, const GoesOn& goes_on) {
  return wait(deadline, goes_on, [&]() CAIRN_REQUIRES(mutex_) { return in_step_ == 0; });
}

WorkerOperations::InStep WorkerOperations::in_step() const {
  const MutexLock lock(mutex_);
  return {.is_pending = in_step_ > 0, .is_short = is_in_step_short_};
}

std::vector<BlockId> WorkerOperations::take_short() {
  const MutexLock lock(mutex_);
  return std::exchange(short_, {});
}

void WorkerOperations::limit(Expected& expected, const std::unordered_set<std::uint32_t>& blocks) {
  const Operation& operation = *expected.operation;
  if (!is_in_step_load(operation)) {
    return;
  }
  const auto first = std::ranges::find_if(operation.block_ids, [&](BlockId b) { return blocks.contains(index_of(b)); });
  expected.usable = std::min(expected.usable, static_cast<std::uint32_t>(first - operation.block_ids.begin()));
}

void WorkerOperations::read_early(std::span<const BlockId> blocks) {
  std::unordered_set<std::uint32_t> early;
  for (const BlockId block : blocks) {
    early.insert(index_of(block));
  }
  const MutexLock lock(mutex_);
  for (auto& [id, expected] : pending_) {
    limit(expected, early);
  }
  for (Expected& expected : over_) {
    limit(expected, early);
  }
}

std::vector<OperationPtr> WorkerOperations::pending_in_step() const {
  std::vector<OperationPtr> found;
  const MutexLock lock(mutex_);
  for (const auto& [id, expected] : pending_) {
    if (is_in_step_load(*expected.operation)) {
      found.push_back(expected.operation);
    }
  }
  return found;
}

std::vector<OperationPtr> WorkerOperations::unanswered(std::uint32_t connection, TimePoint bound_before) {
  std::vector<OperationPtr> found;
  const MutexLock lock(mutex_);
  if (connection != 0 && least_connection_ == connection && least_bound_ >= bound_before) {
    return found;
  }
  least_connection_ = connection;
  least_bound_ = clock_.now();
  for (const auto& [id, expected] : pending_) {
    least_connection_ = std::min(least_connection_, expected.connection);
    least_bound_ = std::min(least_bound_, expected.bound);
    if (connection == 0 || expected.connection != connection || expected.bound < bound_before) {
      found.push_back(expected.operation);
    }
  }
  return found;
}

void WorkerOperations::give_up(OperationId id) {
  const MutexLock lock(mutex_);
  if (const auto found = pending_.find(id); found != pending_.end()) {
    end(id, found->second.operation->is_load, 0);
  }
}

WorkerOutcomes WorkerOperations::take() {
  std::vector<Expected> over;
  WorkerOutcomes outcomes;
  {
    const MutexLock lock(mutex_);
    // All memory first: what is taken is reported once.
    std::size_t blocks = 0;
    for (const Expected& expected : over_) {
      blocks += expected.operation->block_ids.size();
    }
    outcomes.saved.reserve(over_.size());
    outcomes.loaded.reserve(over_.size());
    outcomes.failed_blocks.reserve(blocks);
    over.swap(over_);
    is_in_step_short_ = false;
    short_.clear();
  }
  untaken_ -= over.size();
  for (const Expected& expected : over) {
    Operation& operation = *expected.operation;  // decoded for this worker alone: its request can be moved out
    if (!operation.is_load) {
      outcomes.saved.push_back(std::move(operation.request));
      continue;
    }
    const std::vector<BlockId>& block_ids = operation.block_ids;
    const std::size_t loaded =
        std::min<std::size_t>(std::min(expected.loaded_blocks, expected.usable), block_ids.size());
    outcomes.loaded.push_back({std::move(operation.request), loaded == block_ids.size()});
    outcomes.failed_blocks.insert(outcomes.failed_blocks.end(), block_ids.begin() + static_cast<std::ptrdiff_t>(loaded),
                                  block_ids.end());
  }
  return outcomes;
}

}  // namespace cairn
