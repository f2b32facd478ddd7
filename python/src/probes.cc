// What the machine offers, for python/cairn/doctor.py. Probes have no lasting effect and return what they found or why not.
#include <fcntl.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "cairn/base/clock.h"
#include "cairn/base/str_cat.h"
#include "cairn/memory/cuda_driver.h"
#include "cairn/memory/direct_io.h"
#include "cairn/memory/host_limits.h"
#include "cairn/memory/numa_topology.h"
#include "cairn/transfer/gpu_image.h"
#include "cairn/transfer/io_backend.h"
#include "python/src/binding.h"

namespace cairn::python {
namespace {

struct Gpu {
  std::string name;
  std::string pci_id;
  std::string capability;  // "9.0"
  std::optional<int> numa_node;
};

// The version of the driver's CUDA, and the GPUs. Makes no context.
Result<std::pair<int, std::vector<Gpu>>> find_gpus() {
  CAIRN_TRY_ASSIGN(const CudaDriver* driver, CudaDriver::get());
  const NumaTopology topology = NumaTopology::read("");
  std::vector<Gpu> gpus;
  for (int i = 0; i < driver->devices(); ++i) {
    cuda::Device device = 0;
    char name[256] = {};
    char pci_id[32] = {};
    int major = 0;
    int minor = 0;
    CAIRN_TRY(driver->check(driver->device_get(&device, i), str_cat("cuDeviceGet of GPU ", i)));
    CAIRN_TRY(driver->check(driver->device_get_name(name, sizeof name, device), "cuDeviceGetName"));
    CAIRN_TRY(driver->check(driver->device_get_pci_bus_id(pci_id, sizeof pci_id, device), "cuDeviceGetPCIBusId"));
    CAIRN_TRY(driver->check(driver->device_get_attribute(&major, cuda::kAttributeComputeMajor, device),
                            "cuDeviceGetAttribute"));
    CAIRN_TRY(driver->check(driver->device_get_attribute(&minor, cuda::kAttributeComputeMinor, device),
                            "cuDeviceGetAttribute"));
    gpus.push_back({.name = name,
                    .pci_id = pci_id,
                    .capability = str_cat(major, ".", minor),
                    .numa_node = topology.node_of_pci_device(pci_id)});
  }
  return std::pair(driver->version(), std::move(gpus));
}

nb::dict probe_gpus() {
  const auto found = [] {
    const GilRelease released;
    return find_gpus();
  }();
  nb::dict answer;
  answer["kernels"] = !gpu::image().empty();
  if (!found) {
    answer["error"] = found.error().message;
    return answer;
  }
  answer["cuda"] = str_cat(found->first / 1000, ".", found->first % 1000 / 10);
  nb::list gpus;
  for (const Gpu& gpu : found->second) {
    nb::dict one;
    one["name"] = gpu.name;
    one["pci_id"] = gpu.pci_id;
    one["compute_capability"] = gpu.capability;
    one["numa_node"] = gpu.numa_node;
    gpus.append(one);
  }
  answer["gpus"] = gpus;
  return answer;
}

nb::dict probe_memory() {
  const HostLimits limits("");
  const MemoryRoom room = limits.memory();
  nb::dict answer;
  answer["available_bytes"] = room.bytes;
  answer["limit"] = room.limit;
  answer["transparent_huge_pages"] = !limits.transparent_pages_off();
  for (const auto& [name, bytes] : {std::pair("2M", std::uint64_t{1} << 21), {"1G", std::uint64_t{1} << 30}}) {
    const HugePagePool pool = limits.huge_pages(bytes);
    answer[str_cat("huge_pages_", name).c_str()] = pool.total;
    answer[str_cat("huge_pages_free_", name).c_str()] = pool.free;
  }
  answer["numa_nodes"] = NumaTopology::read("").nodes();
  return answer;
}

// Whether `bytes` can be locked; else the error.
std::optional<std::string> probe_lock(std::uint64_t bytes) {
  const GilRelease released;
  void* pages = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED) {
    return str_cat("cannot map ", bytes, " bytes: ", std::strerror(errno));
  }
  const Status locked = lock_pages(static_cast<std::byte*>(pages), bytes);
  munmap(pages, bytes);
  return locked ? std::nullopt : std::optional(locked.error().message);
}

std::pair<bool, std::string> probe_io_uring() {
  const GilRelease released;
  const auto backend = make_io_backend(IoMethod::kUring, 16);
  return backend ? std::pair(true, (*backend)->describe()) : std::pair(false, backend.error().message);
}

// A file without a name in a folder, gone when this is.
class ScratchFile {
 public:
  ScratchFile(const std::string& folder, int flags)
      : descriptor_(open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC | flags, 0600)) {}
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;
  ~ScratchFile() {
    if (descriptor_ >= 0) {
      close(descriptor_);
    }
  }
  [[nodiscard]] int descriptor() const { return descriptor_; }

 private:
  int descriptor_;
};

struct DiskSpeed {
  DirectIo direct;
  double write_gbps = 0;
  double read_gbps = 0;
};

constexpr std::uint32_t kRequestBytes = 1 << 20;

// GB/s of moving up to `bytes` in requests of 1 MiB, for `longest` at most; returns the bytes moved too.
Result<std::pair<double, std::uint64_t>> stream(IoBackend& backend, std::uint32_t file, IoOperation operation,
                                                std::byte* memory, std::uint64_t bytes, Duration longest) {
  const TimePoint begin = steady_clock().now();
  std::uint64_t queued = 0;
  std::uint64_t moved = 0;
  std::uint32_t in_flight = 0;
  std::vector<IoResult> results;
  Status status;
  while (moved < bytes) {
    const bool go_on = status && steady_clock().now() - begin < longest;
    while (go_on && in_flight < backend.depth() && queued < bytes) {
      const std::uint64_t place = queued / kRequestBytes % backend.depth();
      backend.queue({.operation = operation,
                     .file = file,
                     .offset = queued,
                     .memory = memory + place * kRequestBytes,
                     .bytes = kRequestBytes,
                     .token = place});
      queued += kRequestBytes;
      ++in_flight;
    }
    if (in_flight == 0) {
      break;
    }
    results.clear();
    backend.reap(results, std::chrono::seconds(1));
    for (const IoResult& result : results) {
      --in_flight;
      if (result.result < 0) {
        status = fail(ErrorCode::kIo, std::strerror(-result.result));
      } else {
        moved += static_cast<std::uint64_t>(result.result);
      }
    }
  }
  CAIRN_TRY(std::move(status));
  const double seconds = std::chrono::duration<double>(steady_clock().now() - begin).count();
  return std::pair(static_cast<double>(moved) / 1e9 / seconds, moved);
}

Result<DiskSpeed> measure_disk(const std::string& folder, std::uint64_t bytes, Duration longest) {
  const ScratchFile direct_file(folder, O_DIRECT);
  const ScratchFile plain_file(folder, 0);
  const bool opened = direct_file.descriptor() >= 0;
  const int descriptor = opened ? direct_file.descriptor() : plain_file.descriptor();
  if (descriptor < 0) {
    return fail(ErrorCode::kIo, str_cat("cannot make a file in ", folder, ": ", std::strerror(errno)));
  }
  if (ftruncate(descriptor, static_cast<off_t>(bytes)) != 0) {
    return fail(ErrorCode::kIo,
                str_cat("cannot make a file of ", bytes, " bytes in ", folder, ": ", std::strerror(errno)));
  }
  DiskSpeed speed{.direct = {.why_not = "the file system refuses to open files for direct I/O"}};
  if (opened) {
    speed.direct = probe_direct_io(descriptor, bytes, DirectProbe::kMayWrite);
  }
  CAIRN_TRY_ASSIGN(std::unique_ptr<IoBackend> backend, make_io_backend(IoMethod::kBest, 16));
  const std::uint64_t room = std::uint64_t{backend->depth()} * kRequestBytes;
  auto* memory = static_cast<std::byte*>(
      mmap(nullptr, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0));
  if (memory == MAP_FAILED) {
    return fail(ErrorCode::kExhausted, str_cat("cannot map ", room, " bytes for buffers"));
  }
  const auto unmap = [room](std::byte* mapped) { munmap(mapped, room); };
  const std::unique_ptr<std::byte, decltype(unmap)> mapped(memory, unmap);
  std::memset(memory, 0xA5, room);
  const std::uint32_t file = backend->add_file(descriptor);
  CAIRN_TRY_ASSIGN(const auto written, stream(*backend, file, IoOperation::kWrite, memory, bytes, longest));
  if (fdatasync(descriptor) != 0) {
    return fail(ErrorCode::kIo, str_cat("fdatasync in ", folder, ": ", std::strerror(errno)));
  }
  speed.write_gbps = written.first;
  const std::uint64_t readable = written.second / kRequestBytes * kRequestBytes;
  CAIRN_TRY_ASSIGN(const auto read, stream(*backend, file, IoOperation::kRead, memory, readable, longest));
  speed.read_gbps = read.first;
  backend->remove_file(file);
  return speed;
}

nb::dict probe_disk(const std::string& folder, std::uint64_t bytes, double seconds) {
  const auto longest = std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
  const Result<DiskSpeed> speed = [&] {
    const GilRelease released;
    return measure_disk(folder, bytes, longest);
  }();
  if (!speed) {
    raise(speed.error());
  }
  nb::dict answer;
  answer["direct_io"] = speed->direct.works;
  answer["direct_io_alignment"] = speed->direct.alignment;
  answer["direct_io_why_not"] = speed->direct.why_not;
  answer["write_gb_per_s"] = speed->write_gbps;
  answer["read_gb_per_s"] = speed->read_gbps;
  return answer;
}

}  // namespace

void bind_probes(nb::module_& module) {
  constexpr const char* kDoc = "What `python -m cairn doctor` calls.";
  module.def("_probe_gpus", &probe_gpus, nb::sig("def _probe_gpus() -> dict[str, typing.Any]"), kDoc);
  module.def("_probe_memory", &probe_memory, nb::sig("def _probe_memory() -> dict[str, typing.Any]"), kDoc);
  module.def("_probe_lock", &probe_lock, nb::arg("bytes"), kDoc);
  module.def("_probe_io_uring", &probe_io_uring, kDoc);
  module.def("_probe_disk", &probe_disk, nb::arg("folder"), nb::arg("bytes"), nb::arg("seconds"),
             nb::sig("def _probe_disk(folder: str, bytes: int, seconds: float) -> dict[str, typing.Any]"), kDoc);
}

}  // namespace cairn::python
