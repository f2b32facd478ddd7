// RetryingStore: a BlockStore that tries items again which another one could not answer (StoreState::kUnavailable): a few times,
// after waits that double, each shortened at random so that many clients do not come back at once, and never beyond the deadline.
//
// Thread safety: as BlockStore; pump() one thread at a time. It has no thread: the owner pumps when `wake` is called and when
// next_time() is due.
// Ownership: owns the other store; the clock outlives it.
// Errors: as the other store's, the last one of an item.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "cairn/base/clock.h"
#include "cairn/base/mutex.h"
#include "cairn/cluster/block_store.h"

namespace cairn {

class RetryingStore final : public BlockStore {
 public:
  struct Options {
    std::uint32_t attempts = 3;  // of an item, the first included
    Duration first_wait = std::chrono::milliseconds(20);
    Duration longest_wait = std::chrono::seconds(1);
    std::size_t limit = 4096;             // items that wait at once; further ones are not tried again
    std::function<double()> random = {};  // in [0, 1); called under a lock
    std::function<void()> wake = {};      // called from any thread when next_time() has to be looked at
  };
  RetryingStore(std::unique_ptr<BlockStore> store, const Clock& clock, Options options);
  ~RetryingStore() override;

  [[nodiscard]] Status submit(StoreRequest&& request) override;
  void close() override;
  [[nodiscard]] std::string describe() const override { return store_->describe(); }
  // The store without retries, for a caller that does not pump.
  [[nodiscard]] BlockStore& direct() const { return *store_; }

  // Submits what is due. Returns whether anything was.
  bool pump();
  [[nodiscard]] std::optional<TimePoint> next_time() const;
  [[nodiscard]] std::uint64_t retries() const;

 private:
  struct Shared;
  // An item that has failed, and waits.
  struct Waiting {
    std::shared_ptr<Shared> shared;
    std::size_t item = 0;
    std::uint32_t attempt = 1;  // that failed
    StoreOutcome last = {};
  };

  void answered(const std::shared_ptr<Shared>& shared, std::size_t item, std::uint32_t attempt, StoreOutcome&& outcome);
  // Whether the item is tried again; then the outcome is taken.
  [[nodiscard]] bool wait(const std::shared_ptr<Shared>& shared, std::size_t item, std::uint32_t attempt,
                          StoreOutcome& outcome) CAIRN_EXCLUDES(mutex_);
  void try_again(Waiting&& waiting);

  const Clock& clock_;
  const Options options_;
  mutable Mutex mutex_{LockRank::kExecutor};
  std::multimap<TimePoint, Waiting> waiting_ CAIRN_GUARDED_BY(mutex_);
  std::uint64_t retries_ CAIRN_GUARDED_BY(mutex_) = 0;
  bool is_closed_ CAIRN_GUARDED_BY(mutex_) = false;
  const std::unique_ptr<BlockStore> store_;  // the last member: its destructor answers
};

}  // namespace cairn
