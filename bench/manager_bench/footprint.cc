// The time to restart with a large disk tier, and the metadata memory per block.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <fstream>

#include "bench/manager_bench/parts.h"
#include "cairn/base/str_cat.h"
#include "cairn/tier/disk_file.h"

namespace cairn::bench {

namespace {

constexpr std::uint32_t kChain = 128;

// Writes a file with an entry for every block. The blocks stay empty: a restart does not read them.
void write_entries(const ManagerConfig& config) {
  DiskFile file =
      must(DiskFile::create(config.disk.path, {.space = config.space(),
                                               .block_bytes = config.shape().block_bytes(),
                                               .row_bytes = static_cast<std::uint32_t>(config.shape().row_bytes()),
                                               .blocks = config.disk.blocks,
                                               .keeps_secret = has_secret(config.space().scheme)}));
  std::vector<DiskEntry> entries;
  for (std::uint32_t first = 0; first < config.disk.blocks; first += kChain) {
    entries.clear();
    const Keys keys = chain(20'000'000 + first, std::min(kChain, config.disk.blocks - first));
    for (std::uint32_t i = 0; i < keys.size(); ++i) {
      entries.push_back({.block_id = BlockId{first + i}, .key = keys[i], .checksum = Checksum{first + i + 1}});
    }
    must(file.put(entries));
  }
  must(file.sync());
}

// Drops the file from the page cache, so that the next read comes from the disk.
void forget_pages(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file == -1 || posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED) != 0) {
    stop("cannot drop the cached pages of " + path);
  }
  ::close(file);
}

// Processor time: unlike wall-clock time it does not include the work of other processes.
double process_seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9;
}

std::uint64_t resident_bytes() {
  std::ifstream in("/proc/self/statm");
  std::uint64_t pages = 0;
  std::uint64_t resident = 0;
  in >> pages >> resident;
  return resident * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
}

// The part of the block memory that is resident.
std::uint64_t resident_block_bytes(const KvBlockManager& manager) {
  const auto page = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  std::uint64_t bytes = 0;
  for (const CacheLevel level : {CacheLevel::kG1, CacheLevel::kG2}) {
    for (const RegionPtr& region : manager.layout(level)->regions()) {
      std::vector<unsigned char> pages((region->size() + page - 1) / page);
      if (mincore(region->base(), region->size(), pages.data()) != 0) {
        stop("mincore failed: cannot tell which pages are resident");
      }
      bytes += page * static_cast<std::uint64_t>(
                          std::count_if(pages.begin(), pages.end(), [](unsigned char in) { return (in & 1U) != 0; }));
    }
  }
  return bytes;
}

Samples one(double value) {
  Samples samples;
  samples.add(value);
  return samples;
}

}  // namespace

void measure_restart(const Settings& settings, Report& report) {
  const ScratchFile file(settings.file);
  ManagerConfig config = small_blocks();
  config.host.blocks = 1024;
  config.disk.blocks = settings.restart_blocks;
  config.disk.path = file.path();
  config.disk.opening = DiskOpening::kExisting;
  config.event_log = ManagerConfig().event_log;  // events of the restored blocks are part of a restart
  write_entries(config);
  Samples cold;
  Samples warm;
  Samples work;
  for (std::uint32_t round = 0; round < settings.rounds; ++round) {
    for (Samples* samples : {&cold, &warm}) {
      if (samples == &cold) {
        forget_pages(file.path());
      }
      const double start = seconds_now();
      const double cpu_start = process_seconds();
      const KvBlockManager manager = must(KvBlockManager::make(config));
      samples->add(seconds_now() - start);
      work.add(process_seconds() - cpu_start);
      if (manager.disk()->counts().registered != settings.restart_blocks) {
        stop("a restart did not find all blocks");
      }
    }
  }
  const auto row = [&](const char* from, const Samples& ours) {
    report.add({.name = str_cat("restart with ", settings.restart_blocks, " blocks, ", from),
                .unit = "s",
                .ours = ours,
                .bar = "under 2 s",
                .reached = ours.median() < 2});
  };
  row("from the disk", cold);
  row("from the page cache", warm);
  report.add({.name = "  processor time, all threads", .unit = "s", .ours = work});
}

void measure_memory(const Settings& settings, Report& report) {
  const ScratchFile file(settings.file);
  Settings in_memory = settings;
  in_memory.gpu = false;
  ManagerConfig config = small_blocks();
  add_device(config, in_memory, settings.blocks);
  config.host.blocks = settings.blocks;
  config.disk.blocks = settings.blocks;
  config.disk.path = file.path();
  const std::uint64_t before = resident_bytes();
  const KvBlockManager manager = must(KvBlockManager::make(config));
  std::uint64_t name = 30'000'000;
  for (const CacheLevel level : {CacheLevel::kG1, CacheLevel::kG2, CacheLevel::kG3}) {
    for (std::uint32_t i = 0; i < settings.blocks; i += kChain) {
      cache(*manager.pool(level), chain(++name, std::min(kChain, settings.blocks - i)));
    }
  }
  const std::uint64_t grown = resident_bytes() - before - resident_block_bytes(manager);
  std::uint64_t counted = 0;
  for (const TierStatus& tier : manager.status().tiers) {
    counted += tier.metadata_bytes;
  }
  const double blocks = 3.0 * settings.blocks;
  const double growth = static_cast<double>(grown) / blocks;
  report.add({.name = "memory a block and tier: growth of the process",
              .unit = "bytes",
              .ours = one(growth),
              .bar = "at most 200 bytes",
              .reached = growth <= 200});
  report.add({.name = "  of that, the pools", .unit = "bytes", .ours = one(static_cast<double>(counted) / blocks)});
}

}  // namespace cairn::bench
