#include "cairn/memory/cuda_driver.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <atomic>

#include "cairn/base/str_cat.h"

namespace cairn {

namespace {

constexpr int kOldestDriver = 12000;

struct EntryPoint {
  const char* name;  // as the driver's library exports it, with the version of its signature
  void* target;      // where the address goes
};

}  // namespace

Status CudaDriver::load() {
  void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return fail(ErrorCode::kUnavailable,
                "no NVIDIA driver: libcuda.so.1 was not found; install the driver to use a GPU");
  }
  cuda::Code (*init)(unsigned) = nullptr;
  cuda::Code (*driver_get_version)(int*) = nullptr;
  cuda::Code (*device_get_count)(int*) = nullptr;
  const std::array entries = {
      EntryPoint{"cuInit", &init},
      EntryPoint{"cuDriverGetVersion", &driver_get_version},
      EntryPoint{"cuDeviceGetCount", &device_get_count},
      EntryPoint{"cuGetErrorName", &get_error_name_},
      EntryPoint{"cuGetErrorString", &get_error_string_},
      EntryPoint{"cuDeviceGet", &device_get},
      EntryPoint{"cuDeviceGetName", &device_get_name},
      EntryPoint{"cuDeviceGetAttribute", &device_get_attribute},
      EntryPoint{"cuDeviceGetPCIBusId", &device_get_pci_bus_id},
      EntryPoint{"cuDeviceGetUuid_v2", &device_get_uuid},
      EntryPoint{"cuDevicePrimaryCtxRetain", &device_primary_ctx_retain},
      EntryPoint{"cuDevicePrimaryCtxRelease_v2", &device_primary_ctx_release},
      EntryPoint{"cuCtxPushCurrent_v2", &ctx_push_current},
      EntryPoint{"cuCtxPopCurrent_v2", &ctx_pop_current},
      EntryPoint{"cuMemGetInfo_v2", &mem_get_info},
      EntryPoint{"cuMemAlloc_v2", &mem_alloc},
      EntryPoint{"cuMemFree_v2", &mem_free},
      EntryPoint{"cuMemHostRegister_v2", &mem_host_register},
      EntryPoint{"cuMemHostUnregister", &mem_host_unregister},
      EntryPoint{"cuMemcpyAsync", &memcpy_async},
      EntryPoint{"cuMemsetD8Async", &memset_d8_async},
      EntryPoint{"cuStreamCreate", &stream_create},
      EntryPoint{"cuStreamDestroy_v2", &stream_destroy},
      EntryPoint{"cuStreamSynchronize", &stream_synchronize},
      EntryPoint{"cuStreamWaitEvent", &stream_wait_event},
      EntryPoint{"cuEventCreate", &event_create},
      EntryPoint{"cuEventDestroy_v2", &event_destroy},
      EntryPoint{"cuEventRecord", &event_record},
      EntryPoint{"cuEventQuery", &event_query},
      EntryPoint{"cuEventSynchronize", &event_synchronize},
      EntryPoint{"cuEventElapsedTime", &event_elapsed_time},
      EntryPoint{"cuModuleLoadData", &module_load_data},
      EntryPoint{"cuModuleUnload", &module_unload},
      EntryPoint{"cuModuleGetFunction", &module_get_function},
      EntryPoint{"cuLaunchKernel", &launch_kernel},
  };
  for (const EntryPoint& entry : entries) {
    void* const address = dlsym(library, entry.name);
    if (address == nullptr) {
      return fail(ErrorCode::kUnavailable,
                  str_cat("the NVIDIA driver has no ", entry.name, "; install one for CUDA 12 or later"));
    }
    *static_cast<void**>(entry.target) = address;
  }
  *reinterpret_cast<void**>(&memcpy_batch_async) = dlsym(library, "cuMemcpyBatchAsync_v2");
  if (Status status = check(init(0), "starting the NVIDIA driver"); !status) {
    return fail(ErrorCode::kUnavailable, status.error().message);
  }
  CAIRN_TRY(check(driver_get_version(&version_), "asking the NVIDIA driver its version"));
  if (version_ < kOldestDriver) {
    return fail(ErrorCode::kUnavailable, str_cat("the NVIDIA driver is for CUDA ", version_ / 1000, ".",
                                                 version_ % 1000 / 10, "; install one for CUDA 12 or later"));
  }
  CAIRN_TRY(check(device_get_count(&devices_), "counting the GPUs"));
  if (devices_ == 0) {
    return fail(ErrorCode::kUnavailable, "the NVIDIA driver sees no GPU; see CUDA_VISIBLE_DEVICES and nvidia-smi");
  }
  return {};
}

Result<const CudaDriver*> CudaDriver::get() {
  struct Loaded {
    CudaDriver driver;
    Status status;
    Loaded() : status(driver.load()) {}
  };
  static const Loaded loaded;
  CAIRN_TRY(Status(loaded.status));
  return &loaded.driver;
}

Status CudaDriver::check(cuda::Code code, const std::string& what) const {
  if (code == cuda::kSuccess) {
    return {};
  }
  const char* name = nullptr;
  const char* text = nullptr;
  if (get_error_name_(code, &name) != cuda::kSuccess || get_error_string_(code, &text) != cuda::kSuccess) {
    return fail(ErrorCode::kIo, str_cat(what, ": the driver answered ", code));
  }
  constexpr cuda::Code kOutOfMemory = 2;
  return fail(code == kOutOfMemory ? ErrorCode::kExhausted : ErrorCode::kIo,
              str_cat(what, ": ", text, " (", name, ")"));
}

Result<GpuContext> GpuContext::enter(int device) {
  constexpr int kMostDevices = 64;
  static std::array<std::atomic<cuda::Context>, kMostDevices> contexts{};
  CAIRN_TRY_ASSIGN(const CudaDriver* const driver, CudaDriver::get());
  if (device < 0 || device >= std::min(driver->devices(), kMostDevices)) {
    return fail(ErrorCode::kNotFound, str_cat("there is no GPU ", device, "; there are ", driver->devices()));
  }
  cuda::Context context = contexts[static_cast<std::size_t>(device)].load(std::memory_order_acquire);
  if (context == nullptr) {
    cuda::Device handle = 0;
    CAIRN_TRY(driver->check(driver->device_get(&handle, device), str_cat("opening GPU ", device)));
    // Two threads may both come here; they get the same primary context, and retaining it twice does no harm.
    CAIRN_TRY(driver->check(driver->device_primary_ctx_retain(&context, handle),
                            str_cat("making a context on GPU ", device)));
    contexts[static_cast<std::size_t>(device)].store(context, std::memory_order_release);
  }
  CAIRN_TRY(driver->check(driver->ctx_push_current(context), str_cat("entering GPU ", device)));
  return GpuContext(driver);
}

GpuContext::~GpuContext() {
  if (driver_ != nullptr) {
    cuda::Context popped = nullptr;
    static_cast<void>(driver_->ctx_pop_current(&popped));
  }
}

}  // namespace cairn
