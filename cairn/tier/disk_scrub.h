// DiskScrub: reads the blocks of a disk tier again and again, slowly, and drops those whose bytes are wrong, before anybody
// asks for them.
//
// Walks the blocks in order at a limited rate. A read does not count as a use: it pins nothing and does not change the order of
// eviction. The block may therefore be overwritten meanwhile, so a block that seems wrong is pinned and read once more; if it is
// wrong again, the tier drops it. A block that cannot be read is counted and kept, because the disk may recover. While the tier
// is out of use for reading, the scrub waits.
// Thread safety: any; pump() by one thread at a time.
// Ownership:     the manager's. Tier and executor outlive the scrub's reads, and the scrub outlives the executor's callbacks.
// Errors:        make(): no memory to read into, an executor that cannot read the tier.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cairn/base/clock.h"
#include "cairn/base/mutex.h"
#include "cairn/base/result.h"
#include "cairn/layout/block_layout.h"
#include "cairn/pool/block_pool.h"
#include "cairn/tier/tier.h"
#include "cairn/tier/tier_status.h"
#include "cairn/transfer/executor.h"

namespace cairn {

class DiskScrub {
 public:
  struct Options {
    std::uint64_t bytes_per_second = 0;  // more than 0
    Duration deadline = std::chrono::seconds(10);
    Duration shortest_pass = std::chrono::minutes(1);  // from the beginning of a pass to that of the next
  };
  // Memory that blocks of this tier are read into: for one read, at this rate.
  [[nodiscard]] static Result<BlockLayoutPtr> make_buffer(const Tier& disk, std::uint64_t bytes_per_second);
  // `wake` is called on any thread when pump() has something to do.
  [[nodiscard]] static Result<std::unique_ptr<DiskScrub>> make(Tier& disk, BlockLayoutPtr buffer,
                                                               TransferExecutor& executor, const Clock& clock,
                                                               const Options& options, std::function<void()> wake);

  // Begins the read that is due, if any. Returns whether it did anything.
  bool pump() CAIRN_EXCLUDES(mutex_);
  // When pump() has something to do by itself; std::nullopt while a read is in flight.
  [[nodiscard]] std::optional<TimePoint> next_time() const CAIRN_EXCLUDES(mutex_);
  // Begins nothing more.
  void end() CAIRN_EXCLUDES(mutex_);
  [[nodiscard]] ScrubStatus status() const CAIRN_EXCLUDES(mutex_);

 private:
  struct Read;
  DiskScrub(Tier& disk, CopyPlanPtr plan, TransferExecutor& executor, const Clock& clock, const Options& options,
            std::function<void()> wake);
  [[nodiscard]] TimePoint due() const CAIRN_REQUIRES(mutex_);
  [[nodiscard]] bool read_next(std::uint32_t position, TimePoint now) CAIRN_EXCLUDES(mutex_);
  [[nodiscard]] bool read_again(const std::vector<BlockKey>& suspects, TimePoint now) CAIRN_EXCLUDES(mutex_);
  void submit(const std::shared_ptr<Read>& read, TimePoint now) CAIRN_EXCLUDES(mutex_);
  void on_done(const Read& read, const TransferOutcome& outcome) CAIRN_EXCLUDES(mutex_);
  void settled(Read& read) CAIRN_EXCLUDES(mutex_);

  Tier& disk_;
  const CopyPlanPtr plan_;
  TransferExecutor& executor_;
  const Clock& clock_;
  const Options options_;
  const std::function<void()> wake_;
  const std::uint32_t batch_;  // blocks of one read

  mutable Mutex mutex_{LockRank::kHealth};
  ScrubStatus status_ CAIRN_GUARDED_BY(mutex_);
  std::vector<BlockKey> suspects_ CAIRN_GUARDED_BY(mutex_);  // to be read again
  TimePoint next_read_ CAIRN_GUARDED_BY(mutex_);
  TimePoint next_pass_ CAIRN_GUARDED_BY(mutex_);
  bool is_reading_ CAIRN_GUARDED_BY(mutex_) = false;  // until the read has settled
  bool is_over_ CAIRN_GUARDED_BY(mutex_) = false;
};

}  // namespace cairn
