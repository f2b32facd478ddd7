// Copies of 2 MiB blocks through the manager: down from the device, to and from the disk, up to the device.
#include <algorithm>
#include <optional>

#include "bench/fio.h"
#include "bench/manager_bench/parts.h"
#include "cairn/base/str_cat.h"
#include "cairn/layout/block_pattern.h"

namespace cairn::bench {

namespace {

constexpr std::uint64_t kBlockBytes = std::uint64_t{2} << 20;
constexpr std::uint32_t kOnboarded = 128;

double gb(std::uint32_t blocks) { return static_cast<double>(blocks * kBlockBytes) / 1e9; }

std::string beside_copy(const Settings& settings) {
  return settings.gpu ? "one transfer by CudaExecutor" : "one transfer by HostExecutor";
}

std::string name_of_device(const Settings& settings) { return settings.gpu ? "GPU" : "device in system memory"; }

// Fills blocks of a tier in memory with a known pattern, and registers them.
void compute(const KvBlockManager& manager, CacheLevel level, const Keys& keys) {
  MutableBlocks blocks = must(manager.pool(level)->allocate(static_cast<std::uint32_t>(keys.size())));
  for (std::size_t i = 0; i < keys.size(); ++i) {
    write_pattern(*manager.layout(level), index_of(blocks.block_ids()[i]), keys[i].low_word());
  }
  auto complete = std::move(blocks).complete({.keys = keys});
  if (!complete || !(*std::move(complete)).register_blocks()) {
    stop("cannot register blocks");
  }
}

void check(const KvBlockManager& manager, CacheLevel level, const Keys& keys) {
  const ImmutableBlocks blocks = manager.pool(level)->match_prefix(keys);
  for (std::uint32_t i = 0; i < keys.size(); ++i) {
    if (i >= blocks.size() ||
        find_stranger(*manager.layout(level), index_of(blocks.block_ids()[i]), keys[i].low_word()).has_value()) {
      stop(str_cat("block ", i, " has other bytes than were stored"));
    }
  }
}

}  // namespace

void measure_offload(const Settings& settings, Report& report) {
  const auto blocks = static_cast<std::uint32_t>((settings.mib << 20U) / kBlockBytes);
  ManagerConfig config = large_blocks();
  add_device(config, settings, blocks);
  config.host.blocks = blocks;
  config.offload_to_host.queue = blocks;
  const KvBlockManager manager = must(KvBlockManager::make(config));
  const std::unique_ptr<TransferExecutor> executor = bare_executor(settings);
  const Keys keys = chain(1, blocks);
  cache(*manager.device(), keys);
  Row row{.name = str_cat(name_of_device(settings), " to host, ", settings.mib, " MiB"),
          .unit = "GB/s",
          .beside = beside_copy(settings)};
  for (std::uint32_t round = 0; round <= settings.rounds; ++round) {
    const double bare = bare_copy(*executor, manager.layout(CacheLevel::kG1), manager.layout(CacheLevel::kG2), blocks);
    const double ours = offload_all(manager, CacheLevel::kG2, keys);
    clear(manager, CacheLevel::kG2);
    if (round > 0) {  // the first round warms up
      row.limit.add(gb(blocks) / bare);
      row.ours.add(gb(blocks) / ours);
    }
  }
  report.add(at_least(0.85, std::move(row)));
}

void measure_disk(const Settings& settings, Report& report) {
  const auto blocks = static_cast<std::uint32_t>((settings.mib << 20U) / kBlockBytes);
  const ScratchFile file(settings.file);
  const ScratchFile other(settings.file + ".fio");
  ManagerConfig config = large_blocks();
  config.host.blocks = blocks;
  config.disk.blocks = blocks;
  config.disk.path = file.path();
  config.offload_to_disk.queue = blocks;
  // The executor has `in_flight` copies of 1 MiB in flight; fio gets half as many of 2 MiB: the same bytes.
  FioRun fio{.path = other.path(),
             .bytes = blocks * kBlockBytes,
             .block_bytes = kBlockBytes,
             .depth = std::max(1U, config.disk.in_flight / 2)};
  const KvBlockManager manager = must(KvBlockManager::make(config));
  const Keys keys = chain(2, blocks);
  compute(manager, CacheLevel::kG2, keys);
  const std::string size = str_cat(settings.mib, " MiB");
  Row down{.name = "host to disk, " + size, .unit = "GB/s", .beside = "fio"};
  Row up{.name = "disk to host, " + size, .unit = "GB/s", .beside = "fio"};
  for (std::uint32_t round = 0; round <= settings.rounds; ++round) {
    fio.writes = true;
    const std::optional<double> write_limit = run_fio(fio);
    clear(manager, CacheLevel::kG3);
    const double wrote = offload_all(manager, CacheLevel::kG3, keys);
    fio.writes = false;
    const std::optional<double> read_limit = run_fio(fio);
    clear(manager, CacheLevel::kG2);
    const double start = seconds_now();
    OutcomeWaiter<std::uint32_t> waiter(manager);
    must(manager.prefetch({.keys = keys, .done = waiter.done()}));
    const std::uint32_t arrived = must(waiter.wait());
    const double read = seconds_now() - start;
    if (arrived != blocks) {
      stop(str_cat(arrived, " of ", blocks, " blocks were loaded from the disk"));
    }
    if (round == 0) {
      continue;  // the first round allocates the file's blocks and warms up
    }
    down.ours.add(gb(blocks) / wrote);
    up.ours.add(gb(blocks) / read);
    if (write_limit && read_limit) {
      down.limit.add(*write_limit);
      up.limit.add(*read_limit);
    }
  }
  check(manager, CacheLevel::kG2, keys);
  report.add(at_least(0.85, std::move(down)));
  report.add(at_least(0.85, std::move(up)));
  for (const LinkStatus& link : manager.status().links) {
    report.say(str_cat("  ", to_string(link.from), " to ", to_string(link.to), ": ", link.executor));
  }
}

void measure_onboard(const Settings& settings, Report& report) {
  ManagerConfig config = large_blocks();
  add_device(config, settings, kOnboarded);
  config.host.blocks = kOnboarded;
  const KvBlockManager manager = must(KvBlockManager::make(config));
  const std::unique_ptr<TransferExecutor> executor = bare_executor(settings);
  const Keys keys = chain(3, kOnboarded);
  compute(manager, CacheLevel::kG2, keys);
  Samples beyond;
  Samples loads;
  Samples copies;
  for (std::uint32_t round = 0; round <= 4 * settings.rounds; ++round) {
    const double bare =
        bare_copy(*executor, manager.layout(CacheLevel::kG2), manager.layout(CacheLevel::kG1), kOnboarded);
    const double start = seconds_now();
    {
      OutcomeWaiter<LoadOutcome> waiter(manager);
      must(manager.load({.keys = keys, .done = waiter.done()}));
      const LoadOutcome loaded = must(waiter.wait());
      const double ours = seconds_now() - start;
      if (loaded.prefix != kOnboarded) {
        stop(str_cat(loaded.prefix, " of ", kOnboarded, " blocks were loaded: ", loaded.why));
      }
      if (round > 0) {
        loads.add(ours * 1e6);
        copies.add(bare * 1e6);
        beyond.add((ours - bare) * 1e6);
      }
    }
    clear(manager, CacheLevel::kG1);
  }
  const double allowed = 0.05 * copies.median() + 100;
  report.add({.name = "128 blocks from the host to the " + name_of_device(settings),
              .unit = "us",
              .ours = loads,
              .beside = beside_copy(settings),
              .limit = copies});
  report.add({.name = "  beyond the copy, median of pairs",
              .unit = "us",
              .ours = beyond,
              .bar = str_cat("at most 5 % + 100 us, here ", static_cast<std::uint64_t>(allowed), " us"),
              .reached = beyond.median() <= allowed});
}

}  // namespace cairn::bench
