// The parts of manager_bench. Each measures one promise of KvBlockManager and adds its rows to the report; the limit is
// measured in the same part, in turns with what is held against it, because machines are shared.
//
// Fails: by ending the program with a message: there is nothing to report then.
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
  std::string file = "manager_bench.cache";  // of the disk tier; others are beside it. All are removed
  std::uint64_t mib = 1024;                  // that move in a round
  std::uint32_t rounds = 9;
  std::uint32_t blocks = 100'000;  // a tier, for lookups and memory
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

// --- what they share ---

using Keys = std::vector<BlockKey>;

// The keys of a sequence of `count` blocks. Another name: another sequence.
[[nodiscard]] Keys chain(std::uint64_t name, std::uint32_t count);

// Blocks of 2 MiB: 32 layers, 8 heads of 128 in 16 bits, 16 tokens. Events off: they are not what is measured.
[[nodiscard]] ManagerConfig large_blocks();
// Blocks of 256 bytes: what a manager does besides copying.
[[nodiscard]] ManagerConfig small_blocks();
// A device tier of so many blocks, laid out as engines do, layer by layer; on the GPU where the settings say so.
void add_device(ManagerConfig& config, const Settings& settings, std::uint32_t blocks);

// Makes blocks known in a pool, whatever their bytes are, and lets go of them.
void cache(BlockPool& pool, const Keys& keys);

// The executor for copies between a device tier and a host tier, of the kind that a manager has.
[[nodiscard]] std::unique_ptr<TransferExecutor> bare_executor(const Settings& settings);
// Seconds of one verified transfer of blocks 0 to `count` of both layouts.
[[nodiscard]] double bare_copy(TransferExecutor& executor, const BlockLayoutPtr& from, const BlockLayoutPtr& to,
                               std::uint32_t count);
// Seconds until the blocks of these keys are in the tier below, asked for at once.
[[nodiscard]] double offload_all(const KvBlockManager& manager, CacheLevel into, const Keys& keys);

// Empties a tier. What has just ended may hold its blocks for a moment longer, and would be found in the next round.
void clear(const KvBlockManager& manager, CacheLevel level);

// A file that is made while this is there, and removed with it. Stops where there is one already: it may be somebody's.
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
