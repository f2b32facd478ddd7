#include "cairn/cluster/retrying_store.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace cairn {

// What the attempts of a request share.
struct RetryingStore::Shared {
  StoreOperation operation;
  std::vector<StoreItem> items;
  TimePoint deadline;
  std::function<void(std::size_t, StoreOutcome&&)> done;
};

RetryingStore::RetryingStore(std::unique_ptr<BlockStore> store, const Clock& clock, Options options)
    : clock_(clock), options_(std::move(options)), store_(std::move(store)) {}

RetryingStore::~RetryingStore() { close(); }

void RetryingStore::close() {
  std::multimap<TimePoint, Waiting> left;
  {
    const MutexLock lock(mutex_);
    is_closed_ = true;
    left.swap(waiting_);
  }
  store_->close();
  for (auto& [due, each] : left) {
    each.shared->done(each.item, std::move(each.last));
  }
}

Status RetryingStore::submit(StoreRequest&& request) {
  const auto shared = std::make_shared<Shared>(Shared{.operation = request.operation,
                                                      .items = std::move(request.items),
                                                      .deadline = request.deadline,
                                                      .done = std::move(request.done)});
  StoreRequest first{.operation = shared->operation,
                     .items = shared->items,
                     .deadline = shared->deadline,
                     .done = [this, shared](std::size_t item, StoreOutcome&& outcome) {
                       answered(shared, item, 1, std::move(outcome));
                     }};
  return store_->submit(std::move(first));
}

void RetryingStore::answered(const std::shared_ptr<Shared>& shared, std::size_t item, std::uint32_t attempt,
                             StoreOutcome&& outcome) {
  if (outcome.state != StoreState::kUnavailable || attempt >= options_.attempts ||
      !wait(shared, item, attempt, outcome)) {
    shared->done(item, std::move(outcome));
  } else if (options_.wake) {
    options_.wake();
  }
}

bool RetryingStore::wait(const std::shared_ptr<Shared>& shared, std::size_t item, std::uint32_t attempt,
                         StoreOutcome& outcome) {
  const MutexLock lock(mutex_);
  const Duration longest = std::min(options_.longest_wait, options_.first_wait * (1U << std::min(attempt - 1, 16U)));
  const auto wait = std::chrono::duration_cast<Duration>(longest * (0.5 + 0.5 * options_.random()));
  const TimePoint due = clock_.now() + wait;
  if (is_closed_ || due >= shared->deadline || waiting_.size() >= options_.limit) {
    return false;
  }
  waiting_.emplace(due, Waiting{shared, item, attempt, std::move(outcome)});
  ++retries_;
  return true;
}

void RetryingStore::try_again(Waiting&& waiting) {
  const std::shared_ptr<Shared>& shared = waiting.shared;
  StoreRequest again{.operation = shared->operation,
                     .items = {shared->items[waiting.item]},
                     .deadline = shared->deadline,
                     .done = [this, shared, item = waiting.item, attempt = waiting.attempt + 1](
                                 std::size_t /*only*/, StoreOutcome&& outcome) {
                       answered(shared, item, attempt, std::move(outcome));
                     }};
  if (!store_->submit(std::move(again))) {
    shared->done(waiting.item, std::move(waiting.last));
  }
}

bool RetryingStore::pump() {
  std::vector<Waiting> due;
  {
    const TimePoint now = clock_.now();
    const MutexLock lock(mutex_);
    const auto end = waiting_.upper_bound(now);
    for (auto each = waiting_.begin(); each != end; ++each) {
      due.push_back(std::move(each->second));
    }
    waiting_.erase(waiting_.begin(), end);
  }
  for (Waiting& each : due) {
    try_again(std::move(each));
  }
  return !due.empty();
}

std::optional<TimePoint> RetryingStore::next_time() const {
  const MutexLock lock(mutex_);
  return waiting_.empty() ? std::nullopt : std::optional(waiting_.begin()->first);
}

std::uint64_t RetryingStore::retries() const {
  const MutexLock lock(mutex_);
  return retries_;
}

}  // namespace cairn
