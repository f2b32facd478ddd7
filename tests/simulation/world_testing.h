// World: one manager in virtual time, with everything around it drawn from a seed, and a model that knows every byte that was
// ever written under a key.
//
// Each step is a request, a registration, a cancel, a reset, a pause, a resize, a restart, time that passes, a device
// that fails, stalls, returns wrong bytes or hangs, a file that is damaged between two managers, or a process that is
// killed. Resets of everything and new weights come between any two steps of a copy, also when it has ended and is not
// registered yet. Checked after each step:
//   - a block on the device or in a result has bytes that were registered under its key;
//   - every load has ended by its deadline, with a prefix that has no hole;
//   - nothing that was stored, allocated or loaded before a reset of everything is found or served after it, in this process
//     or the next;
//   - the counts of the pools add up.
// At the end faults stop and everything drains: nothing waits, nothing is in use or quarantined.
//
// Errors: run() returns a message; the seed and the number of steps reproduce it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "cairn/manager/kv_block_manager.h"
#include "tests/simulation/switch_executor_testing.h"

namespace cairn::testing {

struct WorldOptions {
  std::uint64_t seed = 1;
  std::uint32_t steps = 120;
  std::string folder;           // where the disk's file is
  std::ostream* log = nullptr;  // every step, for people
};

// What happened in a run, so that a test can check that it happened at all.
struct WorldCounts {
  std::uint64_t loads = 0;
  std::uint64_t blocks_served = 0;
  std::uint64_t from_below = 0;
  std::uint64_t copied_down = 0;
  std::uint64_t mismatches = 0;
  std::uint64_t expired = 0;
  std::uint64_t restarts = 0;
  std::uint64_t tiers_out = 0;
  std::uint64_t files_damaged = 0;  // found by a manager
  std::uint64_t scrubbed = 0;       // damaged blocks that no request had read
  std::uint64_t kills = 0;
  std::uint64_t fences = 0;            // resets of everything, and new weights
  std::uint64_t fences_in_copies = 0;  // of those, in a callback of a copy
  std::uint64_t fenced_blocks = 0;     // in flight into a tier
  std::uint64_t fenced_loads = 0;
  std::uint64_t fenced_in_use = 0;   // blocks
  std::uint64_t fenced_private = 0;  // runs that were begun before and registered after
  WorldCounts& operator+=(const WorldCounts& other);
};

class World {
 public:
  explicit World(const WorldOptions& options);
  ~World();

  // Runs all steps and the end. Returns what went wrong; empty if nothing did.
  [[nodiscard]] std::string run();
  [[nodiscard]] const WorldCounts& counts() const { return counts_; }

 private:
  struct Load {
    std::vector<BlockKey> keys;
    TimePoint deadline;
    bool ended = false;
  };

  std::uint32_t below(std::uint32_t n) { return static_cast<std::uint32_t>(random_() % n); }
  bool chance(double p) { return static_cast<double>(random_() >> 11) * 0x1p-53 < p; }
  void say(const std::string& what);
  void wrong(const std::string& what);

  void draw_config();
  void draw_faults();
  void open();
  void close();
  void damage_file();

  void step();
  [[nodiscard]] std::vector<BlockKey> some_keys();
  void start_load();
  void compute(const std::vector<BlockKey>& keys, std::uint32_t from);
  void register_begun();
  void fence();
  void kill();
  void drop_some();
  void onboard();
  void offload();
  void control();
  void let_time_pass(Duration by);
  void settle();
  void calm_down();

  void check();
  void check_pool(CacheLevel level);
  [[nodiscard]] std::vector<BlockKey> resident(CacheLevel level) const;
  void check_blocks(const ImmutableBlocks& blocks, const char* where);
  [[nodiscard]] bool is_known(const BlockLayout& layout, BlockId block_id, const BlockKey& key) const;

  const WorldOptions options_;
  std::mt19937_64 random_;
  ManualClock clock_;
  ManagerConfig config_;
  FaultOptions faults_;
  SimulatedExecutor::Options host_speed_;
  SimulatedExecutor::Options file_speed_;
  bool lies_ = false;                       // devices flip bits: lower tiers cannot be compared directly
  std::vector<SwitchExecutor*> executors_;  // the manager's
  std::optional<KvBlockManager> manager_;
  std::vector<ImmutableBlocks> held_;
  std::vector<std::shared_ptr<Load>> loads_;
  // Blocks that are computed, and not registered yet.
  struct Begun {
    CompleteBlocks blocks;
    std::vector<std::uint32_t> versions;
    std::uint32_t fences = 0;
  };
  std::vector<Begun> begun_;
  std::map<BlockKey, std::set<std::uint32_t>> versions_;  // that were registered since the latest fence
  std::uint32_t fences_ = 0;
  double fence_chance_ = 0;  // between two steps of a copy
  bool is_fencing_ = false;
  std::vector<std::pair<CacheLevel, CacheLevel>> paused_;
  WorldCounts counts_;
  std::uint32_t step_ = 0;
  bool closing_ = false;  // the manager is being destroyed
  std::string failure_;
};

}  // namespace cairn::testing
