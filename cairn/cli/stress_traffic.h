// StressTraffic: the requests that the threads of `cairn stress` send to a manager.
//
// Thread safety: any number of threads call run(); counts() may be read meanwhile.
#pragma once

#include <atomic>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "cairn/base/mutex.h"
#include "cairn/cli/stress.h"
#include "cairn/cli/stress_contents.h"
#include "cairn/manager/kv_block_manager.h"

namespace cairn::cli {

struct StressCounts {
  std::atomic<std::uint64_t> requests{0};
  std::atomic<std::uint64_t> requested{0};   // blocks
  std::atomic<std::uint64_t> verified{0};    // blocks read whose bytes were right
  std::atomic<std::uint64_t> registered{0};  // blocks
  std::atomic<std::uint64_t> refused{0};     // allocations and loads refused because there was no room
  std::atomic<std::uint64_t> cancelled{0};   // loads
  std::atomic<std::uint64_t> resets{0};
};

class StressTraffic {
 public:
  StressTraffic(KvBlockManager manager, const StressOptions& options, StressContents& contents)
      : manager_(std::move(manager)), options_(options), contents_(contents) {}

  // Returns after stop(), or when a wrong byte is found.
  void run(std::uint32_t thread);
  void stop() { stopping_ = true; }
  [[nodiscard]] bool is_stopping() const { return stopping_; }

  // Loads every block of the disk tier and verifies it.
  struct DiskCheck {
    std::uint64_t blocks = 0;   // loaded
    std::uint64_t refused = 0;  // damaged, and therefore not served
  };
  [[nodiscard]] Result<DiskCheck> verify_disk();

  [[nodiscard]] const StressCounts& counts() const { return counts_; }
  // Describes the first wrong block; empty if there is none.
  [[nodiscard]] std::string first_wrong() const;

 private:
  // The state of one thread.
  struct Worker {
    std::mt19937_64 random;
    std::vector<ImmutableBlocks> held = {};
    std::uint32_t below(std::uint32_t n) { return static_cast<std::uint32_t>(random() % n); }
  };

  [[nodiscard]] std::vector<BlockKey> some_keys(Worker& worker) const;
  void request(Worker& worker);
  [[nodiscard]] std::optional<LoadOutcome> load(Worker& worker, const std::vector<BlockKey>& keys);
  [[nodiscard]] Result<ImmutableBlocks> onboard(ImmutableBlocks blocks);
  void compute(Worker& worker, const std::vector<BlockKey>& keys, std::uint32_t from);
  void disturb(Worker& worker);
  void bring_up(Worker& worker);
  void verify(const ImmutableBlocks& blocks);
  void report_wrong(const std::string& what);

  const KvBlockManager manager_;
  const StressOptions& options_;
  StressContents& contents_;
  StressCounts counts_;
  std::atomic<bool> stopping_{false};
  mutable Mutex mutex_{LockRank::kManager};
  std::string first_wrong_ CAIRN_GUARDED_BY(mutex_);
};

}  // namespace cairn::cli
