// gpu_bench: copies between a GPU and pinned host memory by CudaExecutor, beside the limit of the bus.
//
//   gpu_bench [--device N] [--json FILE] [--brief] [--calibrate] [--tuning 'NAME=NUMBER ...']
//
// Every figure is the median of seven runs: by the host's clock from submit to completion, and by the GPU's clock over
// the same time. Everything is verified unless the line says otherwise. 1 GB is 1e9 bytes.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <future>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "bench/bench_support.h"
#include "cairn/base/check.h"
#include "cairn/base/str_cat.h"
#include "cairn/layout/block_layout.h"
#include "cairn/memory/cuda_driver.h"
#include "cairn/memory/device_region.h"
#include "cairn/memory/pinned_region.h"
#include "cairn/transfer/cuda_calibration.h"
#include "cairn/transfer/cuda_executor.h"

namespace {

using namespace cairn;  // NOLINT(google-build-using-namespace): a program of its own
using bench::cpu_seconds_now;
using bench::median;
using bench::must;
using bench::seconds_now;

constexpr int kRuns = 7;
constexpr std::uint64_t kMiB = 1024 * 1024;
constexpr std::uint64_t kBlockBytes = 2 * kMiB;
constexpr std::uint32_t kBlocks = 1024;

struct Timing {
  double host = 0;    // seconds
  double device = 0;  // seconds
};

// Measures time by the GPU's own clock.
class DeviceClock {
 public:
  explicit DeviceClock(const CudaDriver& driver) : driver_(driver) {
    CAIRN_CHECK(driver.stream_create(&stream_, cuda::kStreamNonBlocking) == cuda::kSuccess, "a stream can be created");
    for (cuda::Event& event : events_) {
      CAIRN_CHECK(driver.event_create(&event, cuda::kEventDefault) == cuda::kSuccess, "an event can be created");
    }
  }
  void mark(int which) {
    CAIRN_CHECK(driver_.event_record(events_[which], stream_) == cuda::kSuccess, "an event can be recorded");
  }
  double seconds() {
    float milliseconds = 0;
    static_cast<void>(driver_.event_synchronize(events_[1]));
    static_cast<void>(driver_.event_elapsed_time(&milliseconds, events_[0], events_[1]));
    return milliseconds * 1e-3;
  }

 private:
  const CudaDriver& driver_;
  cuda::Stream stream_ = nullptr;
  cuda::Event events_[2] = {};
};

Timing measure(DeviceClock& clock, const std::function<void()>& run) {
  std::vector<double> host;
  std::vector<double> device;
  run();
  for (int i = 0; i < kRuns; ++i) {
    clock.mark(0);
    const double begin = seconds_now();
    run();
    host.push_back(seconds_now() - begin);
    clock.mark(1);
    device.push_back(clock.seconds());
  }
  return {median(host), median(device)};
}

struct Side {
  RegionPtr device;
  RegionPtr host;
};

// A block of 2 MiB in fragments of the given size on the GPU, dense on the host.
KvShape shape_of(std::uint64_t fragment) {
  KvShape shape{.layers = 1, .kv = 1, .page_size = 1, .heads = 8, .head_size = 128, .element_bits = 16};
  shape.page_size = static_cast<std::uint32_t>(fragment / (shape.heads * shape.row_bytes()));
  const std::uint64_t fragments = kBlockBytes / fragment;
  shape.kv = fragments >= 2 ? 2 : 1;
  shape.layers = static_cast<std::uint32_t>(fragments / shape.kv);
  return shape;
}

// Slices of one large region, one for each layer.
std::vector<RegionPtr> slices(const RegionPtr& whole, const std::vector<std::uint64_t>& sizes) {
  std::vector<RegionPtr> parts;
  std::uint64_t at = 0;
  for (const std::uint64_t size : sizes) {
    CAIRN_CHECK(at + size <= whole->size(), "the slices fit");
    parts.push_back(std::make_shared<Region>(RegionFacts{.kind = whole->kind(),
                                                         .base = whole->base() + at,
                                                         .size = size,
                                                         .alignment = 256,
                                                         .device = whole->device(),
                                                         .external = true},
                                             [whole] {}));
    at += size;
  }
  return parts;
}

BlockLayoutPtr layout_of(const KvShape& shape, Arrangement arrangement, std::uint32_t blocks, const RegionPtr& region) {
  const BlockLayout::Options options{.shape = shape, .arrangement = arrangement, .blocks = blocks};
  return must(BlockLayout::make(options, slices(region, must(BlockLayout::region_sizes(options)))));
}

std::vector<TransferBlock> scattered(std::uint32_t count, std::uint32_t of, std::uint64_t seed) {
  std::vector<std::uint32_t> from(of);
  std::iota(from.begin(), from.end(), 0U);
  std::vector<std::uint32_t> to = from;
  std::mt19937_64 random(seed);
  std::shuffle(from.begin(), from.end(), random);
  std::shuffle(to.begin(), to.end(), random);
  std::vector<TransferBlock> blocks(count);
  for (std::uint32_t i = 0; i < count; ++i) {
    blocks[i].pair = {from[i], to[i]};
    blocks[i].tag = {i, from[i]};
  }
  return blocks;
}

std::future<TransferOutcome> submit(TransferExecutor& executor, const CopyPlanPtr& plan,
                                    std::vector<TransferBlock> blocks, Verify verify) {
  auto promise = std::make_shared<std::promise<TransferOutcome>>();
  std::future<TransferOutcome> future = promise->get_future();
  must(executor.submit(
      {.plan = plan, .blocks = std::move(blocks), .verify = verify, .done = [promise](TransferOutcome&& outcome) {
         promise->set_value(std::move(outcome));
       }}));
  return future;
}

TransferOutcome wait(std::future<TransferOutcome> future) {
  TransferOutcome outcome = future.get();
  if (!outcome.all_done()) {
    std::fprintf(stderr, "gpu_bench: %s\n", outcome.error.c_str());
    std::exit(1);
  }
  return outcome;
}

// The same blocks in the other direction, with the checksums that the first transfer made.
std::vector<TransferBlock> reversed(std::vector<TransferBlock> blocks, const TransferOutcome& outcome) {
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    std::swap(blocks[i].pair.source, blocks[i].pair.destination);
    blocks[i].expected = outcome.blocks[i].checksum;
  }
  return blocks;
}

class Report {
 public:
  explicit Report(std::string json) : json_(std::move(json)) {}
  void add(const std::string& name, std::uint64_t bytes, const Timing& timing, double limit) {
    const double host = static_cast<double>(bytes) / timing.host * 1e-9;
    const double device = static_cast<double>(bytes) / timing.device * 1e-9;
    std::printf("%-58s %8.2f GB/s  (GPU's clock %8.2f)  limit %6.2f  %5.1f %%\n", name.c_str(), host, device, limit,
                100 * host / limit);
    std::fflush(stdout);
    rows_.push_back(str_cat("{\"name\": \"", name, "\", \"gb_per_s\": ", host, ", \"gb_per_s_device_clock\": ", device,
                            ", \"limit_gb_per_s\": ", limit, ", \"seconds\": ", timing.host, "}"));
  }
  void add_number(const std::string& name, double value, const char* unit) {
    std::printf("%-58s %8.2f %s\n", name.c_str(), value, unit);
    rows_.push_back(str_cat("{\"name\": \"", name, "\", \"value\": ", value, ", \"unit\": \"", unit, "\"}"));
  }
  ~Report() {
    if (json_.empty()) {
      return;
    }
    std::ofstream out(json_);
    out << "{\"rows\": [\n";
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      out << "  " << rows_[i] << (i + 1 < rows_.size() ? ",\n" : "\n");
    }
    out << "]}\n";
  }

 private:
  std::string json_;
  std::vector<std::string> rows_;
};

struct Limits {
  double from_device = 0;
  double to_device = 0;
  double both = 0;
};

Limits measure_limits(const CudaDriver& driver, DeviceClock& clock, const Side& side, Report& report) {
  constexpr std::uint64_t kBytes = 1024 * kMiB;
  cuda::Stream streams[2] = {};
  for (cuda::Stream& stream : streams) {
    static_cast<void>(driver.stream_create(&stream, cuda::kStreamNonBlocking));
  }
  const auto device = reinterpret_cast<cuda::Pointer>(side.device->base());
  const auto host = reinterpret_cast<cuda::Pointer>(side.host->base());
  const auto copy = [&](cuda::Pointer to, cuda::Pointer from, int stream) {
    CAIRN_CHECK(driver.memcpy_async(to, from, kBytes, streams[stream]) == cuda::kSuccess, "a plain copy starts");
  };
  const auto join = [&](int stream) { static_cast<void>(driver.stream_synchronize(streams[stream])); };
  const Timing out = measure(clock, [&] { copy(host, device, 0), join(0); });
  const Timing in = measure(clock, [&] { copy(device, host, 0), join(0); });
  const Timing both = measure(clock, [&] {
    copy(host, device, 0);
    copy(device + kBytes, host + kBytes, 1);
    join(0), join(1);
  });
  const Limits limits{kBytes / out.host * 1e-9, kBytes / in.host * 1e-9, 2 * kBytes / both.host * 1e-9};
  report.add("limit: one copy of 1 GiB, GPU to host", kBytes, out, limits.from_device);
  report.add("limit: one copy of 1 GiB, host to GPU", kBytes, in, limits.to_device);
  report.add("limit: both at once", 2 * kBytes, both, limits.both);
  return limits;
}

// One copy per fragment, all in one batched driver call, as engines do today.
void measure_peers(const CudaDriver& driver, DeviceClock& clock, const Side& side, std::uint64_t fragment,
                   const Limits& limits, Report& report) {
  if (driver.memcpy_batch_async == nullptr) {
    return;
  }
  const std::uint64_t count = 128 * kMiB / fragment;
  std::vector<cuda::Pointer> device(count);
  std::vector<cuda::Pointer> host(count);
  std::vector<std::uint32_t> order(count);
  std::iota(order.begin(), order.end(), 0U);
  std::shuffle(order.begin(), order.end(), std::mt19937_64(1));
  for (std::uint64_t i = 0; i < count; ++i) {
    device[i] = reinterpret_cast<cuda::Pointer>(side.device->base()) + order[i] * fragment;
    host[i] = reinterpret_cast<cuda::Pointer>(side.host->base()) + i * fragment;
  }
  const std::vector<std::size_t> sizes(count, fragment);
  cuda::Stream stream = nullptr;
  static_cast<void>(driver.stream_create(&stream, cuda::kStreamNonBlocking));
  const auto run = [&](const std::vector<cuda::Pointer>& to, const std::vector<cuda::Pointer>& from) {
    const cuda::BatchAttributes attributes;
    const std::size_t first = 0;
    CAIRN_CHECK(driver.memcpy_batch_async(to.data(), from.data(), sizes.data(), count, &attributes, &first, 1,
                                          stream) == cuda::kSuccess,
                "a batch of plain copies starts");
    static_cast<void>(driver.stream_synchronize(stream));
  };
  const std::string size = str_cat(fragment / 1024, " KiB");
  report.add(str_cat("peers: batched copies of ", size, ", GPU to host"), count * fragment,
             measure(clock, [&] { run(host, device); }), limits.from_device);
  report.add(str_cat("peers: batched copies of ", size, ", host to GPU"), count * fragment,
             measure(clock, [&] { run(device, host); }), limits.to_device);
}

struct Plans {
  CopyPlanPtr out;
  CopyPlanPtr in;
};

Plans plans_of(const Side& side, std::uint64_t fragment) {
  const KvShape shape = shape_of(fragment);
  const BlockLayoutPtr device = layout_of(shape, Arrangement::kLayersKvNhd, kBlocks, side.device);
  const BlockLayoutPtr host = layout_of(shape, Arrangement::kContiguousNhd, kBlocks, side.host);
  return {must(CopyPlan::make(device, host)), must(CopyPlan::make(host, device))};
}

void measure_fragments(TransferExecutor& executor, DeviceClock& clock, const Side& side, std::uint64_t fragment,
                       const Limits& limits, Report& report) {
  const Plans plans = plans_of(side, fragment);
  const std::uint32_t count = 256;
  const std::uint64_t bytes = count * kBlockBytes;
  const std::vector<TransferBlock> out = scattered(count, kBlocks, fragment);
  const TransferOutcome made = wait(submit(executor, plans.out, out, Verify::kMake));
  const std::vector<TransferBlock> in = reversed(out, made);
  const std::string size = str_cat("fragments of ", fragment / 1024, " KiB, ");
  report.add(size + "GPU to host, verified", bytes,
             measure(clock, [&] { wait(submit(executor, plans.out, out, Verify::kMake)); }), limits.from_device);
  report.add(size + "host to GPU, verified", bytes,
             measure(clock, [&] { wait(submit(executor, plans.in, in, Verify::kCheck)); }), limits.to_device);
  // The opposite direction uses other blocks, so that neither transfer writes what the other reads.
  std::vector<TransferBlock> other = scattered(kBlocks, kBlocks, fragment);
  other.erase(other.begin(), other.begin() + count);
  other.resize(count);
  const std::vector<TransferBlock> back = reversed(other, wait(submit(executor, plans.out, other, Verify::kMake)));
  report.add(size + "both at once, verified", 2 * bytes,
             measure(clock,
                     [&] {
                       std::future<TransferOutcome> first = submit(executor, plans.out, out, Verify::kMake);
                       wait(submit(executor, plans.in, back, Verify::kCheck));
                       wait(std::move(first));
                     }),
             limits.both);
  report.add(size + "GPU to host, unverified", bytes,
             measure(clock, [&] { wait(submit(executor, plans.out, out, Verify::kOff)); }), limits.from_device);
}

// Each block is one fragment, scattered on both sides: on the host there is no dense block to stage for.
void measure_small_blocks(TransferExecutor& executor, DeviceClock& clock, const Side& side, std::uint64_t bytes_each,
                          const Limits& limits, Report& report) {
  KvShape shape{.layers = 1, .kv = 1, .page_size = 1, .heads = 8, .head_size = 128, .element_bits = 16};
  shape.page_size = static_cast<std::uint32_t>(bytes_each / (shape.heads * shape.row_bytes()));
  const auto blocks = static_cast<std::uint32_t>(256 * kMiB / bytes_each);
  const BlockLayoutPtr device = layout_of(shape, Arrangement::kContiguousNhd, blocks, side.device);
  const BlockLayoutPtr host = layout_of(shape, Arrangement::kContiguousNhd, blocks, side.host);
  const CopyPlanPtr to_host = must(CopyPlan::make(device, host));
  const CopyPlanPtr to_device = must(CopyPlan::make(host, device));
  const std::vector<TransferBlock> out = scattered(blocks, blocks, bytes_each);
  const std::vector<TransferBlock> in = reversed(out, wait(submit(executor, to_host, out, Verify::kMake)));
  const std::string size = str_cat("blocks of ", bytes_each / 1024, " KiB scattered on both sides, ");
  report.add(size + "GPU to host", blocks * bytes_each,
             measure(clock, [&] { wait(submit(executor, to_host, out, Verify::kMake)); }), limits.from_device);
  report.add(size + "host to GPU", blocks * bytes_each,
             measure(clock, [&] { wait(submit(executor, to_device, in, Verify::kCheck)); }), limits.to_device);
}

void measure_whole_batch(TransferExecutor& executor, DeviceClock& clock, const Side& side, const Limits& limits,
                         Report& report) {
  const Plans plans = plans_of(side, 32 * 1024);
  const std::vector<TransferBlock> out = scattered(kBlocks, kBlocks, 7);
  std::vector<double> cpu;
  const Timing timing = measure(clock, [&] {
    std::vector<TransferBlock> blocks = out;
    const double begin = cpu_seconds_now();
    std::future<TransferOutcome> future = submit(executor, plans.out, std::move(blocks), Verify::kMake);
    cpu.push_back(cpu_seconds_now() - begin);
    wait(std::move(future));
  });
  report.add("1,024 blocks of 2 MiB in 64 fragments, GPU to host", kBlocks * kBlockBytes, timing, limits.from_device);
  report.add_number("  submit to completion", timing.host * 1e3, "ms");
  report.add_number("  CPU of the submitting thread", median(cpu) * 1e6, "us");
}

}  // namespace

int main(int argc, char** argv) {
  int device = 0;
  std::string json;
  bool calibrate = false;
  bool brief = false;
  CudaTuning tuning;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--calibrate") {
      calibrate = true;
    } else if (word == "--brief") {
      brief = true;
    } else if (word == "--device" && i + 1 < argc) {
      device = std::atoi(argv[++i]);
    } else if (word == "--json" && i + 1 < argc) {
      json = argv[++i];
    } else if (word == "--tuning" && i + 1 < argc) {
      tuning = must(CudaTuning::parse(argv[++i]));
    } else {
      std::fprintf(stderr,
                   "gpu_bench [--device N] [--json FILE] [--calibrate] [--brief] [--tuning 'NAME=NUMBER ...']\n");
      return 2;
    }
  }
  const Result<const CudaDriver*> driver = CudaDriver::get();
  if (!driver) {
    std::printf("gpu_bench: skipped: %s\n", driver.error().message.c_str());
    return 0;
  }
  const GpuContext context = must(GpuContext::enter(device));
  if (calibrate) {
    tuning =
        must(calibrate_cuda(device, {.progress = [](const std::string& line) { std::printf("%s\n", line.c_str()); },
                                     .longest = std::chrono::minutes(1)}));
  }
  const std::unique_ptr<CudaExecutor> executor = must(CudaExecutor::create({.device = device, .tuning = tuning}));
  std::printf("%s\n", executor->describe().c_str());
  const Side side{must(device_region({.size = kBlocks * kBlockBytes, .device = device})),
                  must(pinned_region({.size = kBlocks * kBlockBytes, .device = device, .required = true}))};
  // Fill the host's memory with random bytes.
  std::mt19937_64 random(1);
  for (std::uint64_t at = 0; at < side.host->size(); at += 8) {
    const std::uint64_t word = random();
    std::memcpy(side.host->base() + at, &word, sizeof(word));
  }
  DeviceClock clock(**driver);
  Report report(json);
  const Limits limits = measure_limits(**driver, clock, side, report);
  for (const std::uint64_t fragment : {4, 16, 32, 64, 256, 2048}) {
    measure_fragments(*executor, clock, side, fragment * 1024, limits, report);
  }
  measure_whole_batch(*executor, clock, side, limits, report);
  if (brief) {
    return 0;
  }
  for (const std::uint64_t bytes : {4, 16, 64, 256, 1024}) {
    measure_small_blocks(*executor, clock, side, bytes * 1024, limits, report);
  }
  for (const std::uint64_t fragment : {4, 16, 64, 256, 2048}) {
    measure_peers(**driver, clock, side, fragment * 1024, limits, report);
  }
  return 0;
}
