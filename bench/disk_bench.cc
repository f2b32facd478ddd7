// Copies blocks to a file and back, in GB/s, beside what fio reaches with io_uring on the same file, with the same
// sizes and the same number of requests in flight. Rounds of both alternate and medians are printed, because disks are
// shared.
//
//   disk_bench [--dir DIR] [--mib 512] [--depth 8] [--rounds 5] [--method uring|threads] [--json FILE]
//
// The file is removed at the end. Without fio there is no limit to compare with.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <future>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "bench/bench_support.h"
#include "bench/fio.h"
#include "cairn/memory/file_region.h"
#include "cairn/memory/system_region.h"
#include "cairn/transfer/file_executor.h"

namespace cairn {
namespace {

using bench::median;
using bench::must;
using bench::seconds_now;
using bench::stop;

struct Arguments {
  std::string dir = ".";
  std::uint64_t bytes = std::uint64_t{512} << 20;
  std::uint32_t depth = 8;
  int rounds = 5;
  IoMethod method = IoMethod::kBest;
  std::string json;
};

struct Case {
  std::uint64_t block_bytes;
  bool random;
  bool writes;
};

struct Figures {
  std::vector<double> limit;  // fio's, GB/s
  std::vector<double> plain;
  std::vector<double> verified;
};

// Blocks of a model with 8 heads of 128 in 16 bits and 16 tokens per block, with as many layers as the size needs.
BlockLayout::Options shape_of(std::uint64_t block_bytes, std::uint64_t bytes) {
  BlockLayout::Options options;
  options.shape = {.layers = static_cast<std::uint32_t>(block_bytes >> 16U),
                   .kv = 2,
                   .page_size = 16,
                   .heads = 8,
                   .head_size = 128,
                   .element_bits = 16};
  options.blocks = static_cast<std::uint32_t>(bytes / block_bytes);
  options.alignment = 4096;
  return options;
}

class Bench {
 public:
  explicit Bench(const Arguments& arguments)
      : arguments_(arguments),
        path_(arguments.dir + "/cairn_disk_bench." + std::to_string(getpid())),
        file_(must(file_region({.path = path_, .size = arguments.bytes, .remove_on_release = true}))),
        host_(must(system_region({.size = arguments.bytes}))) {
    std::mt19937_64 random(1);
    for (std::uint64_t i = 0; i < arguments.bytes; i += 8) {
      const std::uint64_t word = random();
      std::memcpy(host_->base() + i, &word, 8);
    }
  }

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] const std::string& description() const { return description_; }

  // One pass over the whole file, GB/s.
  double run(const Case& what, Verify verify) {
    const std::unique_ptr<FileExecutor> executor = must(FileExecutor::make(
        steady_clock(), {.method = arguments_.method, .in_flight = arguments_.depth, .copy_bytes = what.block_bytes}));
    const BlockLayout::Options options = shape_of(what.block_bytes, arguments_.bytes);
    const BlockLayoutPtr host = must(BlockLayout::make(options, {host_}));
    const BlockLayoutPtr file = must(BlockLayout::make(options, {file_}));
    Transfer transfer;
    transfer.plan = must(what.writes ? CopyPlan::make(host, file) : CopyPlan::make(file, host));
    transfer.verify = verify;
    std::vector<std::uint32_t> order(options.blocks);
    std::iota(order.begin(), order.end(), 0U);
    if (what.random) {
      std::shuffle(order.begin(), order.end(), std::mt19937(7));
    }
    // Warm up: memory is registered at its first use, which happens once in a cache but in every pass here.
    pass(*executor, transfer, order, std::min<std::size_t>(order.size(), 4 * arguments_.depth));
    warm_all(*executor, transfer, order);
    const double seconds = pass(*executor, transfer, order, order.size());
    description_ = executor->describe();
    return static_cast<double>(order.size() * what.block_bytes) / seconds / 1e9;
  }

 private:
  // Copies one block of each 64 MiB, so that all memory is registered.
  static void warm_all(FileExecutor& executor, const Transfer& transfer, std::vector<std::uint32_t> order) {
    std::sort(order.begin(), order.end());
    const std::uint64_t step = std::max<std::uint64_t>(1, (std::uint64_t{64} << 20) / transfer.plan->bytes_per_block());
    std::vector<std::uint32_t> some;
    for (std::size_t i = 0; i < order.size(); i += step) {
      some.push_back(order[i]);
    }
    pass(executor, transfer, some, some.size());
  }

  static double pass(FileExecutor& executor, const Transfer& like, const std::vector<std::uint32_t>& order,
                     std::size_t count) {
    Transfer transfer;
    transfer.plan = like.plan;
    transfer.verify = like.verify;
    for (std::size_t i = 0; i < count; ++i) {
      transfer.blocks.push_back({.pair = {order[i], order[i]}, .tag = {order[i], 1}});
    }
    std::promise<TransferOutcome> done;
    transfer.done = [&done](TransferOutcome&& outcome) { done.set_value(std::move(outcome)); };
    const double start = seconds_now();
    must(executor.submit(std::move(transfer)));
    const TransferOutcome outcome = done.get_future().get();
    const double took = seconds_now() - start;
    if (!outcome.all_done()) {
      stop(outcome.error);
    }
    return took;
  }

  const Arguments& arguments_;
  const std::string path_;
  const RegionPtr file_;
  const RegionPtr host_;
  std::string description_;
};

std::string share(double figure, double limit) {
  std::array<char, 32> text{};
  if (limit > 0) {
    std::snprintf(text.data(), text.size(), "%3.0f %%", 100 * figure / limit);
  }
  return text.data();
}

void measure(const Arguments& arguments) {
  Bench disk(arguments);
  std::FILE* const json = arguments.json.empty() ? nullptr : std::fopen(arguments.json.c_str(), "w");
  if (!arguments.json.empty() && json == nullptr) {
    stop("cannot write " + arguments.json);
  }
  std::vector<Case> cases;
  for (const std::uint64_t size : {1U << 18U, 1U << 19U, 1U << 20U, 1U << 21U, 1U << 22U}) {
    for (const bool random : {false, true}) {
      for (const bool writes : {true, false}) {
        cases.push_back({.block_bytes = size, .random = random, .writes = writes});
      }
    }
  }
  // Write every byte once before measuring: the first write to an allocated part of a file costs more.
  disk.run(cases.front(), Verify::kOff);
  std::printf("%-28s %10s %10s %7s %10s %7s\n", "GB/s", "fio", "plain", "", "verified", "");
  std::string rows;
  for (const Case& what : cases) {
    Figures figures;
    for (int round = 0; round < arguments.rounds; ++round) {
      const std::optional<double> limit = bench::run_fio({.path = disk.path(),
                                                          .bytes = arguments.bytes,
                                                          .block_bytes = what.block_bytes,
                                                          .depth = arguments.depth,
                                                          .random = what.random,
                                                          .writes = what.writes});
      if (limit) {
        figures.limit.push_back(*limit);
      }
      figures.plain.push_back(disk.run(what, Verify::kOff));
      figures.verified.push_back(disk.run(what, Verify::kMake));
    }
    const std::string name = std::to_string(what.block_bytes >> 10U) + " KiB " +
                             (what.random ? "random " : "sequential ") + (what.writes ? "write" : "read");
    const double limit = median(figures.limit);
    const double plain = median(figures.plain);
    const double verified = median(figures.verified);
    std::printf("%-28s %10.2f %10.2f %7s %10.2f %7s\n", name.c_str(), limit, plain, share(plain, limit).c_str(),
                verified, share(verified, limit).c_str());
    std::fflush(stdout);
    std::array<char, 256> row{};
    std::snprintf(row.data(), row.size(),
                  R"(%s    {"block_bytes": %llu, "placement": "%s", "direction": "%s", "fio_gbs": %.3f, "plain_gbs": )"
                  R"(%.3f, "verified_gbs": %.3f})",
                  rows.empty() ? "" : ",\n", static_cast<unsigned long long>(what.block_bytes),
                  what.random ? "random" : "sequential", what.writes ? "write" : "read", limit, plain, verified);
    rows += row.data();
  }
  std::printf("%s\n", disk.description().c_str());
  if (json != nullptr) {
    std::fprintf(json, "{\n  \"depth\": %u,\n  \"file_bytes\": %llu,\n  \"rounds\": %d,\n  \"executor\": \"%s\",\n",
                 arguments.depth, static_cast<unsigned long long>(arguments.bytes), arguments.rounds,
                 disk.description().c_str());
    std::fprintf(json, "  \"cases\": [\n%s\n  ]\n}\n", rows.c_str());
    std::fclose(json);
  }
}

Arguments parse(int count, char** values) {
  Arguments arguments;
  for (int i = 1; i < count; i += 2) {
    const std::string_view name = values[i];
    if (i + 1 == count) {
      stop(std::string(name) + " needs a value; see the head of bench/disk_bench.cc");
    }
    const std::string value = values[i + 1];
    const std::uint64_t number = std::strtoull(value.c_str(), nullptr, 10);
    if (name == "--dir") {
      arguments.dir = value;
    } else if (name == "--mib" && number >= 4) {
      arguments.bytes = number << 20U;
    } else if (name == "--depth" && number >= 1) {
      arguments.depth = static_cast<std::uint32_t>(number);
    } else if (name == "--rounds" && number >= 1) {
      arguments.rounds = static_cast<int>(number);
    } else if (name == "--method" && (value == "uring" || value == "threads")) {
      arguments.method = value == "uring" ? IoMethod::kUring : IoMethod::kThreads;
    } else if (name == "--json") {
      arguments.json = value;
    } else {
      stop("unknown argument " + std::string(name) + " " + value + "; see the head of bench/disk_bench.cc");
    }
  }
  return arguments;
}

}  // namespace
}  // namespace cairn

int main(int count, char** values) {
  const cairn::Arguments arguments = cairn::parse(count, values);
  cairn::measure(arguments);
  return 0;
}
