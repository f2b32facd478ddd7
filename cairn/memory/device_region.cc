#include "cairn/memory/device_region.h"

#include <memory>

#include "cairn/base/str_cat.h"
#include "cairn/memory/address_alignment.h"
#include "cairn/memory/cuda_driver.h"
#include "cairn/memory/host_text.h"

namespace cairn {

Result<RegionPtr> device_region(const DeviceRegionOptions& options) {
  if (options.size == 0) {
    return fail(ErrorCode::kInvalidArgument, "a region of 0 bytes was requested; give its size");
  }
  CAIRN_TRY_ASSIGN(const CudaDriver* const driver, CudaDriver::get());
  CAIRN_TRY_ASSIGN(const GpuContext context, GpuContext::enter(options.device));
  cuda::Pointer pointer = 0;
  const std::string what = str_cat("allocating ", bytes_text(options.size), " on GPU ", options.device);
  if (Status status = driver->check(driver->mem_alloc(&pointer, options.size), what); !status) {
    std::size_t free = 0;
    std::size_t total = 0;
    std::string there;
    if (driver->mem_get_info(&free, &total) == cuda::kSuccess) {
      there =
          str_cat("; of its ", bytes_text(total), " there are ", bytes_text(free),
                  " free: ask for less, or leave it more (an engine's share of GPU memory is an option of the engine)");
    }
    return fail(status.error().code, status.error().message + there);
  }
  auto* const base =
      reinterpret_cast<std::byte*>(pointer);  // NOLINT(performance-no-int-to-ptr): the driver's addresses
  RegionFacts facts = {.kind = MemoryKind::kDevice,
                       .base = base,
                       .size = options.size,
                       .alignment = address_alignment(pointer),
                       .device = options.device};
  return std::make_shared<const Region>(std::move(facts), [driver, pointer, device = options.device] {
    // A driver that shuts down with the process refuses; it has freed the memory by then.
    if (const Result<GpuContext> again = GpuContext::enter(device)) {
      static_cast<void>(driver->mem_free(pointer));
    }
  });
}

}  // namespace cairn
