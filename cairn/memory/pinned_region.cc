#include "cairn/memory/pinned_region.h"

#include <sys/mman.h>

#include <array>
#include <memory>
#include <utility>

#include "cairn/base/str_cat.h"
#include "cairn/memory/cuda_driver.h"
#include "cairn/memory/host_limits.h"
#include "cairn/memory/host_pages.h"
#include "cairn/memory/host_text.h"
#include "cairn/memory/numa_topology.h"

namespace cairn {

namespace {

struct Placement {
  int node = kNoNumaNode;
  NumaWish wish = NumaWish::kPrefer;
  std::string note = {};
};

Placement choose_node(const PinnedRegionOptions& options, const Result<PageRegistrar>& registrar) {
  if (options.numa_node) {
    return {.node = *options.numa_node, .wish = NumaWish::kRequire};
  }
  const NumaTopology topology = NumaTopology::read(options.machine_root);
  if (!registrar || !topology.has_several()) {
    return {};
  }
  const std::optional<int> node = topology.node_of_pci_device(registrar->pci_id);
  if (!node) {
    return {.note = str_cat("on any memory node: the system does not say which one GPU ", options.device, " (",
                            registrar->pci_id, ") is next to")};
  }
  if (Status room = HostLimits(options.machine_root).check_memory(options.size, *node); !room) {
    return {
        .node = *node,
        .note = str_cat("memory node ", *node, " of GPU ", options.device, " is too small: ", room.error().message)};
  }
  return {.node = *node};
}

}  // namespace

Result<PageRegistrar> gpu_page_registrar(int device) {
  CAIRN_TRY_ASSIGN(const CudaDriver* const driver, CudaDriver::get());
  CAIRN_TRY(GpuContext::enter(device));
  cuda::Device handle = 0;
  std::array<char, 32> pci_id{};
  CAIRN_TRY(driver->check(driver->device_get(&handle, device), str_cat("opening GPU ", device)));
  CAIRN_TRY(driver->check(driver->device_get_pci_bus_id(pci_id.data(), static_cast<int>(pci_id.size()), handle),
                          str_cat("asking GPU ", device, " where it is on the PCI bus")));
  return PageRegistrar{
      .add = [driver, device](std::byte* base, std::uint64_t bytes) -> Status {
        CAIRN_TRY_ASSIGN(const GpuContext context, GpuContext::enter(device));
        return driver->check(
            driver->mem_host_register(base, bytes, cuda::kHostRegisterPortable | cuda::kHostRegisterDeviceMap),
            str_cat("registering ", bytes_text(bytes), " with GPU ", device));
      },
      .remove =
          [driver, device](std::byte* base) {
            // A driver that shuts down with the process refuses; it has released the pages by then.
            if (const Result<GpuContext> context = GpuContext::enter(device)) {
              static_cast<void>(driver->mem_host_unregister(base));
            }
          },
      .pci_id = pci_id.data()};
}

Result<RegionPtr> pinned_region(const PinnedRegionOptions& options) {
  return pinned_region(options, gpu_page_registrar(options.device));
}

Result<RegionPtr> pinned_region(const PinnedRegionOptions& options, Result<PageRegistrar> registrar) {
  if (options.device < 0) {
    return fail(ErrorCode::kInvalidArgument, str_cat("there is no GPU ", options.device, "; GPUs are numbered from 0"));
  }
  if (!registrar && registrar.error().code == ErrorCode::kNotFound) {
    return Unexpected(std::move(registrar).error());  // a wrong GPU number: falling back would hide it
  }
  if (!registrar && options.required) {
    return fail(ErrorCode::kUnavailable, str_cat("pinned memory is required: ", registrar.error().message));
  }
  const Placement placement = choose_node(options, registrar);
  const MemoryProgress& progress = options.progress;
  CAIRN_TRY_ASSIGN(
      HostPages pages,
      HostPages::map({.size = options.size,
                      .huge_pages = options.huge_pages,
                      .numa_node = placement.node,
                      .threads = options.threads,
                      .progress = progress ? [&](std::uint64_t done, std::uint64_t total) { progress(done, 2 * total); }
                                           : MemoryProgress(),
                      .machine_root = options.machine_root,
                      .shared = options.shared},
                     placement.wish));
  if (!placement.note.empty()) {
    pages.note(placement.note);
  }
  Status pinned =
      registrar ? registrar->add(pages.base(), pages.bytes()) : fail(registrar.error().code, registrar.error().message);
  if (!pinned && options.required) {
    return fail(ErrorCode::kUnavailable, str_cat("pinned memory is required: ", pinned.error().message));
  }
  if (!pinned) {
    const Status locked = lock_pages(pages.base(), pages.bytes());
    pages.note(str_cat("not pinned: ", pinned.error().message));
    pages.note(locked ? std::string("locked in memory instead") : str_cat("nor locked: ", locked.error().message));
  }
  if (progress) {
    progress(2 * pages.bytes(), 2 * pages.bytes());
  }
  RegionFacts facts = {.kind = pinned ? MemoryKind::kPinned : MemoryKind::kSystem,
                       .base = pages.base(),
                       .size = options.size,
                       .alignment = pages.alignment(),
                       .device = pinned ? options.device : kNoDevice,
                       .numa_node = pages.numa_node(),
                       .notes = pages.notes()};
  auto release = [base = pages.base(), bytes = pages.bytes(),
                  remove = pinned ? registrar->remove : std::function<void(std::byte*)>()] {
    if (remove) {
      remove(base);
    }
    munmap(base, bytes);
  };
  pages.release();
  return std::make_shared<const Region>(std::move(facts), std::move(release));
}

}  // namespace cairn
