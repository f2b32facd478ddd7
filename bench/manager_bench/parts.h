// The parts of manager_bench. Each measures one property of KvBlockManager and adds its rows to the report. The limit
// is measured in the same part, in alternating rounds, because machines are shared.
//
// Errors: every failure ends the program with a message, because there is nothing to report.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bench/bench_support.h"
#include "bench/manager_bench/bench_report.h"
#include "cairn/manager/kv_block_manager.h"
#include "cairn/transfer/executor.h"

namespace cairn::bench {

struct Settings {
  std::string file = "manager_bench.cache";  // of the disk tier; fio uses a file beside it. Both are removed
  std::uint64_t mib = 1024;                  // copied per round
  std::uint32_t rounds = 9;
  std::uint32_t blocks = 100'000;  // per tier, for lookups and memory
  std::uint32_t restart_blocks = 1'000'000;
  bool gpu = false;
  int device = 0;
};

void measure_offload(const Settings& settings, Report& report);
void measure_disk(const Settings& settings, Report& report);
void measure_onboard(const Settings& settings, Report& report);
void measure_lookup(const Settings& settings, Report& report);
void measure_churn(const Settings& settings, Report& report);
void measure_restart(const Settings& settings, Report& report);
void measure_memory(const Settings& settings, Report& report);

// --- helpers ---

using Keys = std::vector<BlockKey>;

// The keys of a sequence of `count` blocks; each name makes another sequence.
[[nodiscard]] Keys chain(std::uint64_t name, std::uint32_t count);

// Blocks of 2 MiB: 32 layers, 8 heads of 128 in 16 bits, 16 tokens. Without an event log.
[[nodiscard]] ManagerConfig large_blocks();
// Blocks of 256 bytes, for measuring everything but the copies.
[[nodiscard]] ManagerConfig small_blocks();
// Adds a device tier with an engine's layout, layer by layer; on the GPU if the settings say so.
void add_device(ManagerConfig& config, const Settings& settings, std::uint32_t blocks);

// Registers blocks in a pool without writing their bytes, and releases them.
void cache(BlockPool& pool, const Keys& keys);

// An executor for copies between device and host, of the kind that a manager uses.
[[nodiscard]] std::unique_ptr<TransferExecutor> bare_executor(const Settings& settings);
// Seconds of one verified transfer of the first `count` blocks of both layouts.
[[nodiscard]] double bare_copy(TransferExecutor& executor, const BlockLayoutPtr& from, const BlockLayoutPtr& to,
                               std::uint32_t count);
// Seconds until the blocks of these keys, offloaded in one call, are in the tier below.
[[nodiscard]] double offload_all(const KvBlockManager& manager, CacheLevel into, const Keys& keys);

// Empties a tier and waits until no block is in use: a transfer that has just ended may hold its blocks a moment
// longer.
void clear(const KvBlockManager& manager, CacheLevel level);

// The path of a file that is removed at the end. Ends the program if the file exists already.
class ScratchFile {
 public:
  explicit ScratchFile(std::string path);
  ~ScratchFile();
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace cairn::bench
