// SchedulerConnector: what became of loads and saves.
#include <algorithm>
#include <new>
#include <utility>

#include "cairn/base/check.h"
#include "cairn/connector/scheduler_impl.h"

namespace cairn {

SchedulerConnector::Results SchedulerConnector::Impl::take_results() {
  Results results;
  // What the ranks' host memory held is gone with the rank that went; nothing of it is read, and it need not be found.
  if (rank_came_back_->load(std::memory_order_relaxed) && rank_came_back_->exchange(false) &&
      save_to_ == CacheLevel::kG2) {
    try {
      (void)manager_->reset(CacheLevel::kG2);
    } catch (...) {
      *rank_came_back_ = true;
      throw;
    }
  }
  if (over_.empty()) {  // else a call that failed left them
    inbox_->take(over_);
  }
  // All memory first: what is taken here is told once.
  results.loaded.reserve(over_.size());
  results.released.reserve(over_.size());
  for (const OperationInbox::Over& over : over_) {
    const RequestEntry* const entry = table_.get(over.operation->request);
    CAIRN_CHECK(entry != nullptr, "a request stays until its operations are over");
    make_room(had_blocks_, entry->slot->num_device_blocks_allocated());
  }
  for (const OperationInbox::Over& over : over_) {
    const Operation& operation = *over.operation;
    RequestEntry* const entry = table_.get(operation.request);
    --under_way_;
    std::erase(entry->operations, over.operation);
    if (entry->slot->state() == SlotState::finishing()) {
      remember_blocks(*entry);
    }
    if (operation.is_load) {
      device_use_.end_load(operation.slots);
      load_is_over(*entry, operation, over.arrived, results);
    } else {
      CAIRN_CHECK(entry->slot->offload_done(operation.id).has_value(), "a save is over once");
    }
    if (entry->slot->state() == SlotState::finished()) {
      results.released.push_back(remove(*entry));
    }
  }
  over_.clear();
  return results;
}

void SchedulerConnector::Impl::load_is_over(RequestEntry& entry, const Operation& load, std::size_t arrived,
                                            Results& results) {
  ExternallyManagedDeviceSlot& slot = *entry.slot;
  const std::size_t asked = load.slots.size();
  loading_blocks_ -= asked;
  entry.staged_blocks = 0;
  const bool is_waited_for = slot.state().kind() == Kind::kOnboarding;
  CAIRN_CHECK(slot.onboard_done(load.id, std::min(arrived, asked)).has_value(), "a load is over once");
  if (!is_waited_for) {
    return;
  }
  entry.fell_short = arrived < asked;
  results.loaded.push_back({.request = entry.handle,
                            .tokens = slot.computed_tokens(),
                            .missing = (asked - std::min(arrived, asked)) * block_size_});
  if (!std::exchange(entry.computes_beside, false)) {
    return;
  }
  // It has run meanwhile, in iterations that the slot was not told of.
  const bool is_running = entry.scheduled_in == *iteration_;
  try {
    if (!slot.append_tokens(std::exchange(entry.late_tokens, {}), std::exchange(entry.late_runs, {}))) {
      entry.is_given_up = true;
      return;
    }
  } catch (const std::bad_alloc&) {
    entry.is_given_up = true;
    return;
  }
  CAIRN_CHECK(slot.mark_as_scheduled(entry.scheduled_in).has_value(), "what was loaded can run");
  if (!is_running) {
    CAIRN_CHECK(slot.mark_as_not_scheduled(*iteration_).has_value(), "what runs can be passed over");
  }
}

bool SchedulerConnector::Impl::has_work() const {
  return under_way_ > 0 || !to_load_.empty() || !with_operations_.empty() || !inbox_->empty();
}

}  // namespace cairn
