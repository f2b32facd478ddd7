#include "cairn/transfer/cuda_calibration.h"

#include <algorithm>
#include <array>
#include <future>
#include <limits>
#include <memory>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "cairn/base/clock.h"
#include "cairn/base/str_cat.h"
#include "cairn/memory/cuda_driver.h"
#include "cairn/memory/device_region.h"
#include "cairn/memory/host_text.h"
#include "cairn/memory/pinned_region.h"
#include "cairn/transfer/cuda_executor.h"

namespace cairn {

namespace {

constexpr std::uint64_t kKiB = 1024;
constexpr std::uint64_t kBytes = 256 * kKiB * kKiB;
constexpr int kRuns = 5;
constexpr std::array<std::uint64_t, 9> kSizes = {16 * kKiB,  32 * kKiB,   64 * kKiB,   128 * kKiB, 256 * kKiB,
                                                 512 * kKiB, 1024 * kKiB, 2048 * kKiB, 4096 * kKiB};
constexpr std::uint64_t kNever = std::numeric_limits<std::uint64_t>::max();

struct Memory {
  RegionPtr device;
  RegionPtr host;
  TimePoint deadline{};
};

// Bytes a second, there and back: the slower of both, since a way is chosen for both.
Result<double> rate(TransferExecutor& executor, const Memory& memory, std::uint64_t block_bytes, Verify verify) {
  const KvShape shape{.layers = 1,
                      .kv = 1,
                      .page_size = static_cast<std::uint32_t>(block_bytes / 2048),
                      .heads = 8,
                      .head_size = 128,
                      .element_bits = 16};
  const auto count = static_cast<std::uint32_t>(kBytes / block_bytes);
  const BlockLayout::Options options{.shape = shape, .blocks = count};
  Result<BlockLayoutPtr> device = BlockLayout::make(options, {memory.device});
  Result<BlockLayoutPtr> host = BlockLayout::make(options, {memory.host});
  if (!device || !host) {
    return Unexpected(Error(device ? host.error() : device.error()));
  }
  std::vector<TransferBlock> blocks(count);
  std::vector<std::uint32_t> order(count);
  std::iota(order.begin(), order.end(), 0U);
  std::shuffle(order.begin(), order.end(), std::mt19937_64(block_bytes));
  for (std::uint32_t i = 0; i < count; ++i) {
    blocks[i].pair = {order[i], order[(i + count / 2) % count]};
  }
  double slowest = std::numeric_limits<double>::max();
  for (const bool out : {true, false}) {
    CAIRN_TRY_ASSIGN(CopyPlanPtr plan, CopyPlan::make(out ? *device : *host, out ? *host : *device));
    std::vector<double> seconds;
    for (int run = 0; run <= kRuns; ++run) {  // the first one warms up
      std::promise<TransferOutcome> promise;
      const TimePoint begin = steady_clock().now();
      const Result<TransferId> id =
          executor.submit({.plan = plan,
                           .blocks = blocks,
                           .verify = verify,
                           .deadline = memory.deadline,
                           .done = [&](TransferOutcome&& outcome) { promise.set_value(std::move(outcome)); }});
      if (!id) {
        return Unexpected(Error(id.error()));
      }
      const TransferOutcome outcome = promise.get_future().get();
      if (steady_clock().now() >= memory.deadline) {
        return fail(ErrorCode::kExpired, "measuring how the GPU copies takes too long; the defaults are used");
      }
      if (!outcome.all_done()) {
        return fail(ErrorCode::kIo, outcome.error);
      }
      seconds.push_back(std::chrono::duration<double>(steady_clock().now() - begin).count());
    }
    std::sort(seconds.begin(), seconds.end());
    slowest = std::min(slowest, static_cast<double>(kBytes) / seconds[seconds.size() / 2]);
  }
  return slowest;
}

}  // namespace

Result<CudaTuning> calibrate_cuda(int device, const CudaCalibrationOptions& options) {
  const TimePoint deadline = steady_clock().now() + options.longest;
  CAIRN_TRY_ASSIGN(RegionPtr on_device, device_region({.size = kBytes, .device = device}));
  CAIRN_TRY_ASSIGN(RegionPtr on_host, pinned_region({.size = kBytes, .device = device, .required = true}));
  const Memory memory{std::move(on_device), std::move(on_host), deadline};
  // The smallest size from which on the second way, which takes less of the GPU, is not slower by more than noise.
  const auto crossing = [&](const char* what, const CudaTuning& first, const CudaTuning& second,
                            Verify verify) -> Result<std::uint64_t> {
    std::uint64_t from = kNever;
    std::array<std::unique_ptr<CudaExecutor>, 2> executors;
    for (std::size_t i = 0; i < executors.size(); ++i) {
      Result<std::unique_ptr<CudaExecutor>> made =
          CudaExecutor::create({.device = device, .tuning = i == 0 ? first : second});
      if (!made) {
        return Unexpected(std::move(made).error());
      }
      executors[i] = *std::move(made);
    }
    for (auto size = kSizes.rbegin(); size != kSizes.rend(); ++size) {
      const Result<double> one = rate(*executors[0], memory, *size, verify);
      const Result<double> other = rate(*executors[1], memory, *size, verify);
      if (!one || !other) {
        return Unexpected(Error(one ? other.error() : one.error()));
      }
      if (options.progress) {
        options.progress(
            str_cat(what, ", blocks of ", *size / kKiB, " KiB: ", *one * 1e-9, " and ", *other * 1e-9, " GB/s"));
      }
      constexpr double kNoise = 0.98;
      if (*other < kNoise * *one) {
        break;
      }
      from = *size;
    }
    return from;
  };

  CudaTuning direct;
  direct.stage_from_bytes = kNever;
  direct.engines_from_bytes = kNever;
  CudaTuning staged = direct;
  staged.stage_from_bytes = 0;
  CudaTuning engines = staged;
  engines.engines_from_bytes = 0;
  CAIRN_TRY_ASSIGN(const std::uint64_t stage_from, crossing("kernel or staging", direct, staged, Verify::kMake));
  staged.stage_from_bytes = stage_from;
  engines.stage_from_bytes = stage_from;
  CAIRN_TRY_ASSIGN(const std::uint64_t engines_from, crossing("kernel or copy engines", staged, engines, Verify::kOff));
  engines.engines_from_bytes = engines_from;
  return engines;
}

Result<CudaIdentity> cuda_identity(int device) {
  CAIRN_TRY_ASSIGN(const CudaDriver* const driver, CudaDriver::get());
  cuda::Device handle = 0;
  cuda::Uuid uuid;
  CAIRN_TRY(driver->check(driver->device_get(&handle, device), str_cat("cuDeviceGet of GPU ", device)));
  CAIRN_TRY(driver->check(driver->device_get_uuid(&uuid, handle), str_cat("cuDeviceGetUuid of GPU ", device)));
  CudaIdentity identity;
  constexpr char kDigits[] = "0123456789abcdef";
  for (const unsigned char byte : uuid.bytes) {
    identity.uuid += kDigits[byte / 16];
    identity.uuid += kDigits[byte % 16];
  }
  std::string module = read_text("/sys/module/nvidia/version").value_or("");
  module.resize(std::min(module.find('\n'), module.size()));
  identity.driver = str_cat(driver->version(), " ", module);
  return identity;
}

}  // namespace cairn
