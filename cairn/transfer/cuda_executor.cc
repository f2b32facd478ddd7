#include "cairn/transfer/cuda_executor.h"

#include <unordered_map>
#include <utility>

#include "cairn/base/mutex.h"
#include "cairn/base/str_cat.h"
#include "cairn/memory/cuda_driver.h"
#include "cairn/transfer/cuda_lane.h"
#include "cairn/transfer/gpu_image.h"

namespace cairn {

namespace {

// Loaded once for each GPU and kept: a module goes with its context, which is the process's.
Result<gpu::Kernels> load_kernels(const CudaDriver& driver, int device) {
  if (gpu::image().empty()) {
    return fail(ErrorCode::kUnavailable,
                "this build has no GPU kernels; install nvcc, or let ./run fetch it, and build again");
  }
  static Mutex mutex(LockRank::kTransfers);
  static std::unordered_map<int, gpu::Kernels> loaded;
  const MutexLock lock(mutex);
  if (const auto found = loaded.find(device); found != loaded.end()) {
    return found->second;
  }
  cuda::Module module = nullptr;
  gpu::Kernels kernels;
  cuda::Code code = driver.module_load_data(&module, gpu::image().data());
  const auto get = [&](cuda::Function& function, const char* name) {
    code = code != cuda::kSuccess ? code : driver.module_get_function(&function, module, name);
  };
  get(kernels.copy_16, "cairn_copy_16");
  get(kernels.copy_8, "cairn_copy_8");
  get(kernels.copy_1, "cairn_copy_1");
  CAIRN_TRY(driver.check(code, str_cat("loading the kernels on GPU ", device)));
  loaded.emplace(device, kernels);
  return kernels;
}

}  // namespace

CudaExecutor::CudaExecutor(const CudaExecutorOptions& options, std::string gpu_name)
    : options_(options), gpu_name_(std::move(gpu_name)) {}
CudaExecutor::~CudaExecutor() = default;

Result<std::unique_ptr<CudaExecutor>> CudaExecutor::create(const CudaExecutorOptions& options) {
  if (options.tuning.pieces == 0 || options.tuning.piece_bytes % 256 != 0 || options.tuning.piece_bytes == 0 ||
      options.tuning.multiprocessors == 0) {
    return fail(ErrorCode::kInvalidArgument, str_cat("a tuning of ", options.tuning.to_string(),
                                                     "; every one of pieces, multiprocessors and "
                                                     "piece_bytes is at least 1, the last a multiple of 256"));
  }
  CAIRN_TRY_ASSIGN(const CudaDriver* driver, CudaDriver::get());
  CAIRN_TRY_ASSIGN(const GpuContext context, GpuContext::enter(options.device));
  CAIRN_TRY_ASSIGN(const gpu::Kernels kernels, load_kernels(*driver, options.device));
  char name[128] = "a GPU";
  cuda::Device handle = 0;
  if (driver->device_get(&handle, options.device) == cuda::kSuccess) {
    static_cast<void>(driver->device_get_name(name, sizeof(name), handle));
  }
  std::unique_ptr<CudaExecutor> executor(new CudaExecutor(options, name));
  for (std::size_t i = 0; i < kLanes; ++i) {
    Result<std::unique_ptr<gpu::CudaLane>> lane =
        gpu::CudaLane::create({.device = options.device,
                               .direction = i == 0 ? gpu::Direction::kFromDevice : gpu::Direction::kToDevice,
                               .tuning = options.tuning,
                               .queue_limit = options.queue_limit,
                               .clock = options.clock},
                              kernels);
    if (!lane) {
      return Unexpected(std::move(lane).error());
    }
    executor->lanes_[i] = *std::move(lane);
  }
  return executor;
}

bool CudaExecutor::can_move(const CopyPlan& plan) const {
  const auto is_own = [this](const BlockLayout& layout) {
    return layout.kind() == MemoryKind::kDevice && layout.device() == options_.device;
  };
  const bool from = is_own(plan.source());
  const bool to = is_own(plan.destination());
  return (from && to) || (from && plan.destination().kind() == MemoryKind::kPinned) ||
         (to && plan.source().kind() == MemoryKind::kPinned);
}

std::size_t CudaExecutor::lane_of(const CopyPlan& plan) const {
  return plan.destination().kind() == MemoryKind::kDevice ? 1 : 0;
}

Result<TransferId> CudaExecutor::submit(Transfer&& transfer) {
  if (transfer.plan == nullptr || !can_move(*transfer.plan)) {
    return fail(ErrorCode::kInvalidArgument,
                str_cat("GPU ", options_.device, " copies between its own memory and pinned host memory; this is ",
                        transfer.plan == nullptr ? "no plan"
                                                 : str_cat("from ", to_string(transfer.plan->source().kind()), " to ",
                                                           to_string(transfer.plan->destination().kind()))));
  }
  const std::size_t lane = lane_of(*transfer.plan);
  CAIRN_TRY_ASSIGN(const TransferId id, lanes_[lane]->ledger().accept(std::move(transfer)));
  return TransferId{static_cast<std::uint64_t>(id) * kLanes + lane};
}

void CudaExecutor::cancel(TransferId transfer) {
  const auto number = static_cast<std::uint64_t>(transfer);
  lanes_[number % kLanes]->ledger().cancel(TransferId{number / kLanes});
}

void CudaExecutor::check_deadlines() {
  for (const std::unique_ptr<gpu::CudaLane>& lane : lanes_) {
    lane->ledger().check_deadlines();
  }
}

ExecutorLoad CudaExecutor::load() const {
  ExecutorLoad all;
  for (const std::unique_ptr<gpu::CudaLane>& lane : lanes_) {
    const ExecutorLoad own = lane->ledger().load();
    all.transfers += own.transfers;
    all.blocks += own.blocks;
    all.limit = own.limit;  // each direction has its own
  }
  return all;
}

std::string CudaExecutor::describe() const {
  return str_cat("GPU ", options_.device, " (", gpu_name_, "), ", options_.tuning.to_string());
}

}  // namespace cairn
