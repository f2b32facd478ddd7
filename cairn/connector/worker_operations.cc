#include "cairn/connector/worker_operations.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace cairn {
namespace {

// Between two looks at the clock and at the connection: neither wakes anybody.
constexpr Duration kLook = std::chrono::milliseconds(1);

}  // namespace

void WorkerOperations::told(const LeaderId& leader, std::span<const std::byte> notice) {
  Result<OperationNotice> decoded = OperationNotice::decode(notice);
  if (!decoded) {
    return;
  }
  {
    const MutexLock lock(mutex_);
    if (leader == leader_) {
      take_notice(*decoded);
    } else {
      if (ahead_leader_ != leader) {
        ahead_.clear();
        ahead_leader_ = leader;
      }
      if (ahead_.size() < kNoticesAhead) {
        ahead_.push_back(*std::move(decoded));
      }
    }
  }
  changed_.notify_all();
}

void WorkerOperations::take_notice(const OperationNotice& notice) {
  for (const OperationNotice::Load& load : notice.loads) {
    end(load.id, true, load.arrived);
  }
  for (const OperationId& save : notice.saves) {
    end(save, false, 0);
  }
  end_missed(notice);
}

void WorkerOperations::follow(const LeaderId& leader) {
  untaken_ = 0;
  const MutexLock lock(mutex_);
  leader_ = leader;
  pending_.clear();
  over_.clear();
  early_.clear();
  over_before_ = 0;
  under_way_.clear();
  in_step_ = 0;
  is_in_step_short_ = false;
  short_.clear();
  if (ahead_leader_ == leader) {
    for (const OperationNotice& notice : ahead_) {
      take_notice(notice);
    }
    ahead_.clear();
  }
}

void WorkerOperations::end_missed(const OperationNotice& notice) {
  if (notice.over_before == 0) {
    return;
  }
  over_before_ = notice.over_before;
  under_way_ = {notice.under_way.begin(), notice.under_way.end()};
  std::vector<std::pair<OperationId, bool>> missed;  // whether it is a load
  for (const auto& [id, operation] : pending_) {
    if (is_missed(id, operation.iteration)) {
      missed.emplace_back(id, operation.is_load);
    }
  }
  for (const auto& [id, is_load] : missed) {
    end(id, is_load, 0);
  }
}

void WorkerOperations::end(OperationId id, bool is_load, std::uint32_t arrived) {
  const auto found = pending_.find(id);
  if (found == pending_.end()) {
    early_.insert_or_assign(id, Early{arrived, binds_});
    return;
  }
  Operation& operation = found->second;
  if (operation.is_load != is_load) {
    return;
  }
  operation.arrived = arrived;
  if (operation.in_step) {
    --in_step_;
    if (arrived < operation.blocks.size()) {
      is_in_step_short_ = true;
      short_.insert(short_.end(), operation.blocks.begin() + arrived, operation.blocks.end());
    }
  }
  over_.push_back(std::move(operation));
  pending_.erase(found);
}

void WorkerOperations::bind(IterationMetadata& metadata, std::uint32_t generation) {
  const TimePoint now = clock_.now();
  const MutexLock lock(mutex_);
  ++binds_;
  is_in_step_short_ = false;
  short_.clear();
  if (pending_.empty()) {
    least_generation_ = generation;
    least_bound_ = now;
  }
  least_generation_ = std::min(least_generation_, generation);
  if (metadata.iteration >= over_before_) {
    over_before_ = 0;  // iterations grow: no more is bound of those before
    under_way_.clear();
  }
  for (IterationMetadata::Load& load : metadata.loads) {
    add(load.id, {.iteration = metadata.iteration,
                  .request = std::move(load.request),
                  .blocks = std::move(load.blocks),
                  .generation = generation,
                  .bound = now,
                  .is_load = true,
                  .in_step = load.in_step});
  }
  for (IterationMetadata::Save& save : metadata.saves) {
    add(save.id, {.iteration = metadata.iteration,
                  .request = std::move(save.request),
                  .blocks = std::move(save.blocks),
                  .generation = generation,
                  .bound = now});
  }
  forget_early();
}

void WorkerOperations::add(OperationId id, Operation operation) {
  const auto [added, is_new] = pending_.emplace(id, std::move(operation));
  if (!is_new) {
    return;
  }
  ++untaken_;
  in_step_ += added->second.in_step ? 1 : 0;
  if (const auto early = early_.find(id); early != early_.end()) {
    const std::uint32_t arrived = early->second.arrived;
    early_.erase(early);
    end(id, added->second.is_load, arrived);
  } else if (is_missed(id, added->second.iteration)) {
    end(id, added->second.is_load, 0);
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

bool WorkerOperations::wait_for(std::span<const OperationId> ids, TimePoint deadline, const GoesOn& goes_on) {
  return wait(deadline, goes_on, [&]() CAIRN_REQUIRES(mutex_) {
    return std::ranges::none_of(ids, [&](OperationId id) CAIRN_REQUIRES(mutex_) { return pending_.contains(id); });
  });
}

bool WorkerOperations::wait_for_in_step(TimePoint deadline, const GoesOn& goes_on) {
  return wait(deadline, goes_on, [&]() CAIRN_REQUIRES(mutex_) { return in_step_ == 0; });
}

bool WorkerOperations::is_pending(OperationId id) const {
  const MutexLock lock(mutex_);
  return pending_.contains(id);
}

WorkerOperations::InStep WorkerOperations::in_step() const {
  const MutexLock lock(mutex_);
  return {.is_pending = in_step_ > 0, .is_short = is_in_step_short_};
}

std::vector<BlockId> WorkerOperations::take_short() {
  const MutexLock lock(mutex_);
  return std::exchange(short_, {});
}

void WorkerOperations::limit(Operation& operation, const std::unordered_set<std::uint32_t>& blocks) {
  if (!operation.in_step) {
    return;
  }
  const auto first = std::ranges::find_if(operation.blocks, [&](BlockId b) { return blocks.contains(index_of(b)); });
  operation.usable = std::min(operation.usable, static_cast<std::uint32_t>(first - operation.blocks.begin()));
}

void WorkerOperations::read_early(std::span<const BlockId> blocks) {
  std::unordered_set<std::uint32_t> early;
  for (const BlockId block : blocks) {
    early.insert(index_of(block));
  }
  const MutexLock lock(mutex_);
  for (auto& [id, operation] : pending_) {
    limit(operation, early);
  }
  for (Operation& operation : over_) {
    limit(operation, early);
  }
}

std::vector<WorkerOperations::Pending> WorkerOperations::pending_in_step() const {
  std::vector<Pending> found;
  const MutexLock lock(mutex_);
  for (const auto& [id, operation] : pending_) {
    if (operation.in_step) {
      found.push_back({id, operation.blocks});
    }
  }
  return found;
}

std::vector<WorkerOperations::Pending> WorkerOperations::unanswered(std::uint32_t generation, TimePoint bound_before) {
  std::vector<Pending> found;
  const MutexLock lock(mutex_);
  if (generation != 0 && least_generation_ == generation && least_bound_ >= bound_before) {
    return found;
  }
  least_generation_ = generation;
  least_bound_ = clock_.now();
  for (const auto& [id, operation] : pending_) {
    least_generation_ = std::min(least_generation_, operation.generation);
    least_bound_ = std::min(least_bound_, operation.bound);
    if (generation == 0 || operation.generation != generation || operation.bound < bound_before) {
      found.push_back({id, operation.blocks});
    }
  }
  return found;
}

void WorkerOperations::give_up(OperationId id) {
  const MutexLock lock(mutex_);
  if (const auto found = pending_.find(id); found != pending_.end()) {
    end(id, found->second.is_load, 0);
  }
}

WorkerReport WorkerOperations::take() {
  std::vector<Operation> over;
  WorkerReport report;
  {
    const MutexLock lock(mutex_);
    // All memory first: what is taken is reported once.
    std::size_t blocks = 0;
    for (const Operation& operation : over_) {
      blocks += operation.blocks.size();
    }
    report.saved.reserve(over_.size());
    report.loaded.reserve(over_.size());
    report.failed_blocks.reserve(blocks);
    over.swap(over_);
    is_in_step_short_ = false;
    short_.clear();
  }
  untaken_ -= over.size();
  for (Operation& operation : over) {
    if (!operation.is_load) {
      report.saved.push_back(std::move(operation.request));
      continue;
    }
    const std::size_t arrived =
        std::min<std::size_t>(std::min(operation.arrived, operation.usable), operation.blocks.size());
    report.loaded.push_back({std::move(operation.request), arrived == operation.blocks.size()});
    report.failed_blocks.insert(report.failed_blocks.end(),
                                operation.blocks.begin() + static_cast<std::ptrdiff_t>(arrived),
                                operation.blocks.end());
  }
  return report;
}

}  // namespace cairn
