// Copies of blocks within host memory, beside the limit of the machine: memcpy of the same fragments by as many
// threads, in the same rounds. Also the cost of checksums and of submit().
//
//   transfer_bench [--mib SIZE] [--threads N] [--rounds N] [--json FILE]
#include <sys/mman.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <future>
#include <iostream>
#include <numeric>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "bench/bench_support.h"
#include "cairn/base/check.h"
#include "cairn/base/str_cat.h"
#include "cairn/layout/block_layout.h"
#include "cairn/transfer/checksum.h"
#include "cairn/transfer/copy_plan.h"
#include "cairn/transfer/host_executor.h"
#include "cairn/transfer/row_kernels.h"

namespace cairn {
namespace {

using bench::cpu_seconds_now;
using bench::median;
using bench::seconds_now;

struct Settings {
  std::uint64_t mib = 512;  // on each side: several times the size of the last-level cache
  std::uint32_t threads = std::max(1U, std::thread::hardware_concurrency());
  std::uint32_t rounds = 7;
  std::string json;
};

struct Figure {
  std::string name;
  std::string unit;
  double value = 0;
  std::string limit_name;
  double limit = 0;  // 0: none
};

RegionPtr mapped_region(std::uint64_t size) {
  void* base = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CAIRN_CHECK(base != MAP_FAILED, "memory for the benchmark");
  madvise(base, size, MADV_HUGEPAGE);
  auto* bytes = static_cast<std::byte*>(base);
  std::mt19937_64 random(size);
  for (std::uint64_t at = 0; at + 8 <= size; at += 8) {
    const std::uint64_t word = at % 4096 == 0 ? random() : at;
    std::memcpy(bytes + at, &word, 8);
  }
  return std::make_shared<const Region>(
      RegionFacts{.kind = MemoryKind::kSystem, .base = bytes, .size = size, .alignment = 4096},
      [base, size] { munmap(base, size); });
}

BlockLayoutPtr mapped_layout(const BlockLayout::Options& options) {
  const Result<std::vector<std::uint64_t>> sizes = BlockLayout::region_sizes(options);
  std::vector<RegionPtr> regions;
  for (const std::uint64_t size : *sizes) {
    regions.push_back(mapped_region(size));
  }
  return *BlockLayout::make(options, std::move(regions));
}

// A model of 32 layers whose fragments (the keys, or the values, of one layer of a block) have this many bytes.
KvShape shape_of(std::uint64_t fragment_bytes) {
  return {.layers = 32,
          .kv = 2,
          .page_size = 16,
          .heads = static_cast<std::uint32_t>(std::max<std::uint64_t>(1, fragment_bytes / 4096)),
          .head_size = static_cast<std::uint32_t>(std::min<std::uint64_t>(fragment_bytes, 4096) / 32),
          .element_bits = 16};
}

std::vector<BlockPair> shuffled(std::uint32_t blocks) {
  std::vector<std::uint32_t> to(blocks);
  std::iota(to.begin(), to.end(), 0U);
  std::shuffle(to.begin(), to.end(), std::mt19937(7));
  std::vector<BlockPair> pairs(blocks);
  for (std::uint32_t i = 0; i < blocks; ++i) {
    pairs[i] = {i, to[i]};
  }
  return pairs;
}

// Bytes per second of memcpy of these copies, divided evenly among threads.
double memcpy_speed(const CopyPlan& plan, std::span<const Copy> copies, std::uint64_t bytes, std::uint32_t threads) {
  std::vector<std::thread> workers;
  const double start = seconds_now();
  for (std::uint32_t thread = 0; thread < threads; ++thread) {
    workers.emplace_back([&, thread] {
      const std::size_t end = copies.size() * (thread + 1) / threads;
      for (std::size_t i = copies.size() * thread / threads; i < end; ++i) {
        const Copy& copy = copies[i];
        std::memcpy(plan.destination().regions()[copy.destination_region]->base() + copy.destination_offset,
                    plan.source().regions()[copy.source_region]->base() + copy.source_offset, copy.bytes);
      }
    });
  }
  for (std::thread& worker : workers) {
    worker.join();
  }
  return static_cast<double>(bytes) / (seconds_now() - start);
}

struct Run {
  double bytes_per_second = 0;
  double submit_cpu_us = 0;  // of the submitting thread
};

Run executor_speed(HostExecutor& executor, const CopyPlanPtr& plan, std::span<const BlockPair> pairs, Verify verify) {
  Transfer transfer{.plan = plan, .verify = verify};
  for (const BlockPair& pair : pairs) {
    transfer.blocks.push_back({.pair = pair, .tag = {pair.source, 1}});
  }
  std::promise<bool> done;
  transfer.done = [&](TransferOutcome&& outcome) { done.set_value(outcome.all_done()); };
  const double start = seconds_now();
  const double cpu_start = cpu_seconds_now();
  CAIRN_CHECK(executor.submit(std::move(transfer)).has_value(), "the transfer is accepted");
  const double submit_cpu = cpu_seconds_now() - cpu_start;
  CAIRN_CHECK(done.get_future().get(), "the transfer is done");
  return {.bytes_per_second = static_cast<double>(plan->bytes_per_block() * pairs.size()) / (seconds_now() - start),
          .submit_cpu_us = submit_cpu * 1e6};
}

class Bench {
 public:
  explicit Bench(Settings settings) : settings_(std::move(settings)) {}

  void copies(std::uint64_t fragment_bytes, Arrangement from, Arrangement to, const std::string& name) {
    const KvShape shape = shape_of(fragment_bytes);
    const auto blocks = static_cast<std::uint32_t>((settings_.mib << 20) / shape.block_bytes());
    const CopyPlanPtr plan =
        *CopyPlan::make(mapped_layout({.shape = shape, .arrangement = from, .blocks = blocks, .alignment = 64}),
                        mapped_layout({.shape = shape, .arrangement = to, .blocks = blocks, .alignment = 64}));
    const std::vector<BlockPair> pairs = shuffled(blocks);
    std::vector<Copy> list;
    plan->expand(pairs, ~std::uint64_t{0}, list);
    HostExecutor executor(steady_clock(), {.threads = settings_.threads});
    std::vector<double> limit;
    std::vector<double> verified;
    std::vector<double> plain;
    std::vector<double> submit;
    const std::uint64_t bytes = plan->bytes_per_block() * pairs.size();
    for (std::uint32_t round = 0; round <= settings_.rounds; ++round) {
      const double by_memcpy = memcpy_speed(*plan, list, bytes, settings_.threads);
      const Run with_sums = executor_speed(executor, plan, pairs, Verify::kMake);
      const Run without = executor_speed(executor, plan, pairs, Verify::kOff);
      if (round > 0) {  // the first round warms up
        limit.push_back(by_memcpy / 1e9);
        verified.push_back(with_sums.bytes_per_second / 1e9);
        plain.push_back(without.bytes_per_second / 1e9);
        submit.push_back(with_sums.submit_cpu_us);
      }
    }
    const std::string beside = str_cat("memcpy, ", settings_.threads, " threads");
    add({str_cat(name, ", verified"), "GB/s", median(verified), beside, median(limit)});
    add({str_cat(name, ", unverified"), "GB/s", median(plain), beside, median(limit)});
    add({str_cat(name, ", submit of ", blocks, " blocks"), "us", median(submit), "", 0});
  }

  // Counts processor time: the work never waits, and on a shared machine wall-clock time would include the work of
  // others.
  void sums(std::uint64_t bytes, int repeats, const std::string& name) {
    const RegionPtr region = mapped_region(bytes);
    std::memset(region->base(), 0x21, bytes);
    const std::span<const std::byte> all(region->base(), bytes);
    std::vector<double> speeds;
    std::vector<double> reads;
    for (std::uint32_t round = 0; round <= settings_.rounds; ++round) {
      const double start = cpu_seconds_now();
      std::uint64_t kept = 0;
      for (int i = 0; i < repeats; ++i) {
        kept += sum_words(all, static_cast<std::uint64_t>(i)).products;
      }
      const double middle = cpu_seconds_now();
      for (int i = 0; i < repeats; ++i) {
        kept += std::memchr(region->base() + (i & 1), 0x7F, bytes - 1) == nullptr ? 1 : 0;  // reads all of it
      }
      const double end = cpu_seconds_now();
      kept_ = kept;
      if (round > 0) {
        const double total = static_cast<double>(bytes) * repeats / 1e9;
        speeds.push_back(total / (middle - start));
        reads.push_back(total / (end - middle));
      }
    }
    add({name, "GB/s", median(speeds), "memchr, 1 thread", median(reads)});
  }

  int finish() const {
    if (settings_.json.empty()) {
      return 0;
    }
    std::ofstream out(settings_.json);
    out << "{\n  \"threads\": " << settings_.threads << ",\n  \"mib\": " << settings_.mib
        << ",\n  \"rounds\": " << settings_.rounds << ",\n  \"kernel\": \"" << best_row_kernel().name
        << "\",\n  \"figures\": [";
    const char* separator = "\n";
    for (const Figure& figure : figures_) {
      out << separator << "    {\"name\": \"" << figure.name << "\", \"value\": " << figure.value << ", \"unit\": \""
          << figure.unit << '"';
      if (figure.limit > 0) {
        out << ", \"limit\": " << figure.limit << ", \"limit_name\": \"" << figure.limit_name
            << "\", \"share\": " << figure.value / figure.limit;
      }
      out << '}';
      separator = ",\n";
    }
    out << "\n  ]\n}\n";
    out.close();
    if (!out) {
      std::cerr << "cannot write " << settings_.json << "; check that the folder exists and is writable\n";
      return 1;
    }
    return 0;
  }

 private:
  void add(Figure figure) {
    if (figure.limit > 0) {
      std::printf("%-52s %8.2f %-5s  %-22s %8.2f  %4.0f %%\n", figure.name.c_str(), figure.value, figure.unit.c_str(),
                  figure.limit_name.c_str(), figure.limit, 100 * figure.value / figure.limit);
    } else {
      std::printf("%-52s %8.2f %-5s\n", figure.name.c_str(), figure.value, figure.unit.c_str());
    }
    std::fflush(stdout);
    figures_.push_back(std::move(figure));
  }

  const Settings settings_;
  std::vector<Figure> figures_;
  volatile std::uint64_t kept_ = 0;  // so that the compiler does not drop the work
};

int run(const Settings& settings) {
  Bench bench(settings);
  std::printf("%u threads, %s, %llu MiB a side, medians of %u\n", settings.threads,
              std::string(best_row_kernel().name).c_str(), static_cast<unsigned long long>(settings.mib),
              settings.rounds);
  bench.sums(512 << 10, 2000, "checksum, from the L2 cache");
  bench.sums(settings.mib << 20, 1, "checksum, from memory");
  for (const std::uint64_t kib : {4, 16, 64, 256, 2048}) {
    bench.copies(kib << 10, Arrangement::kLayersKvNhd, Arrangement::kContiguousNhd, str_cat(kib, " KiB fragments"));
  }
  bench.copies(64 << 10, Arrangement::kLayersKvNhd, Arrangement::kContiguousHnd, "transposed, rows of 256 bytes");
  return bench.finish();
}

bool parse(int count, char** arguments, Settings& settings) {
  for (int i = 1; i < count; i += 2) {
    const std::string_view name = arguments[i];
    if (i + 1 == count) {
      return false;
    }
    const std::string_view value = arguments[i + 1];
    const auto number = [&](auto& into) {
      const auto parsed = std::from_chars(value.data(), value.data() + value.size(), into);
      return parsed.ec == std::errc() && parsed.ptr == value.data() + value.size() && into > 0;
    };
    if (name == "--json") {
      settings.json = value;
    } else if (!(name == "--mib" && number(settings.mib)) && !(name == "--threads" && number(settings.threads)) &&
               !(name == "--rounds" && number(settings.rounds))) {
      return false;
    }
  }
  return true;
}

}  // namespace
}  // namespace cairn

int main(int count, char** arguments) {
  cairn::Settings settings;
  if (!cairn::parse(count, arguments, settings)) {
    std::cerr << "transfer_bench [--mib SIZE] [--threads N] [--rounds N] [--json FILE]; numbers must be above 0\n";
    return 2;
  }
  return cairn::run(settings);
}
