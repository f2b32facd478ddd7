// CudaDriver: the entry points of NVIDIA's driver that Cairn calls, looked up when the program runs. Nothing links against
// the driver, and one program runs with and without a GPU.
//
// Thread safety: safe from any thread.
// Ownership: one for the process, loaded by the first get() and never unloaded.
// Errors: get() returns kUnavailable if there is no driver, no GPU, or if the driver is too old; the message says which.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "cairn/base/result.h"

namespace cairn {

// The driver's types, as its binary interface has them.
namespace cuda {
using Device = int;
using Pointer = std::uint64_t;  // an address on a GPU
using Context = struct ContextTag*;
using Stream = struct StreamTag*;
using Event = struct EventTag*;
using Module = struct ModuleTag*;
using Function = struct FunctionTag*;
using Code = int;  // 0: success
inline constexpr Code kSuccess = 0;
inline constexpr Code kNotReady = 600;
inline constexpr Code kAlreadyRegistered = 712;
inline constexpr unsigned kStreamNonBlocking = 1;
inline constexpr unsigned kEventDefault = 0;
inline constexpr unsigned kEventBlockingSync = 1;
inline constexpr unsigned kEventDisableTiming = 2;
inline constexpr unsigned kHostRegisterPortable = 1;   // for every GPU
inline constexpr unsigned kHostRegisterDeviceMap = 2;  // kernels may follow the host's pointers
inline constexpr int kAttributeMultiprocessors = 16;
inline constexpr int kAttributeComputeMajor = 75;
inline constexpr int kAttributeComputeMinor = 76;

struct Uuid {
  unsigned char bytes[16] = {};
};

// How the driver may run the copies of a batch.
struct BatchAttributes {
  int source_access_order = 1;  // the source is read in the order of the stream
  int source_location[2] = {};
  int destination_location[2] = {};
  unsigned flags = 0;
};
}  // namespace cuda

class CudaDriver {
 public:
  [[nodiscard]] static Result<const CudaDriver*> get();

  [[nodiscard]] int devices() const { return devices_; }
  [[nodiscard]] int version() const { return version_; }  // 13000: CUDA 13.0

  // The code that a call returned as a Status: "cuMemAlloc of 4096 bytes on GPU 0: out of memory (2)".
  [[nodiscard]] Status check(cuda::Code code, const std::string& what) const;

  // The entry points, by their names without the `cu`.
  cuda::Code (*device_get)(cuda::Device*, int) = nullptr;
  cuda::Code (*device_get_name)(char*, int, cuda::Device) = nullptr;
  cuda::Code (*device_get_attribute)(int*, int, cuda::Device) = nullptr;
  cuda::Code (*device_get_pci_bus_id)(char*, int, cuda::Device) = nullptr;
  cuda::Code (*device_get_uuid)(cuda::Uuid*, cuda::Device) = nullptr;
  cuda::Code (*device_primary_ctx_retain)(cuda::Context*, cuda::Device) = nullptr;
  cuda::Code (*device_primary_ctx_release)(cuda::Device) = nullptr;
  cuda::Code (*ctx_push_current)(cuda::Context) = nullptr;
  cuda::Code (*ctx_pop_current)(cuda::Context*) = nullptr;
  cuda::Code (*mem_get_info)(std::size_t* free, std::size_t* total) = nullptr;
  cuda::Code (*mem_alloc)(cuda::Pointer*, std::size_t) = nullptr;
  cuda::Code (*mem_free)(cuda::Pointer) = nullptr;
  cuda::Code (*mem_host_register)(void*, std::size_t, unsigned flags) = nullptr;
  cuda::Code (*mem_host_unregister)(void*) = nullptr;
  cuda::Code (*memcpy_async)(cuda::Pointer to, cuda::Pointer from, std::size_t, cuda::Stream) = nullptr;
  // Null before CUDA 13.
  cuda::Code (*memcpy_batch_async)(const cuda::Pointer* to, const cuda::Pointer* from, const std::size_t* bytes,
                                   std::size_t count, const cuda::BatchAttributes*, const std::size_t* first_of_each,
                                   std::size_t attributes, cuda::Stream) = nullptr;
  cuda::Code (*memset_d8_async)(cuda::Pointer, unsigned char, std::size_t, cuda::Stream) = nullptr;
  cuda::Code (*stream_create)(cuda::Stream*, unsigned flags) = nullptr;
  cuda::Code (*stream_destroy)(cuda::Stream) = nullptr;
  cuda::Code (*stream_synchronize)(cuda::Stream) = nullptr;
  cuda::Code (*stream_wait_event)(cuda::Stream, cuda::Event, unsigned flags) = nullptr;
  cuda::Code (*event_create)(cuda::Event*, unsigned flags) = nullptr;
  cuda::Code (*event_destroy)(cuda::Event) = nullptr;
  cuda::Code (*event_record)(cuda::Event, cuda::Stream) = nullptr;
  cuda::Code (*event_query)(cuda::Event) = nullptr;
  cuda::Code (*event_synchronize)(cuda::Event) = nullptr;
  cuda::Code (*event_elapsed_time)(float* milliseconds, cuda::Event from, cuda::Event to) = nullptr;
  cuda::Code (*module_load_data)(cuda::Module*, const void* image) = nullptr;
  cuda::Code (*module_unload)(cuda::Module) = nullptr;
  cuda::Code (*module_get_function)(cuda::Function*, cuda::Module, const char* name) = nullptr;
  cuda::Code (*launch_kernel)(cuda::Function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                              unsigned block_y, unsigned block_z, unsigned shared_bytes, cuda::Stream, void** arguments,
                              void** extra) = nullptr;

 private:
  CudaDriver() = default;
  [[nodiscard]] Status load();

  cuda::Code (*get_error_name_)(cuda::Code, const char**) = nullptr;
  cuda::Code (*get_error_string_)(cuda::Code, const char**) = nullptr;
  int devices_ = 0;
  int version_ = 0;
};

// Makes the primary context of a GPU current for the calling thread while it lives, and restores the one before.
class GpuContext {
 public:
  // Retains the GPU's primary context, once for the process.
  [[nodiscard]] static Result<GpuContext> enter(int device);
  GpuContext(GpuContext&& other) noexcept : driver_(std::exchange(other.driver_, nullptr)) {}
  GpuContext& operator=(GpuContext&&) = delete;
  ~GpuContext();

 private:
  explicit GpuContext(const CudaDriver* driver) : driver_(driver) {}
  const CudaDriver* driver_;
};

}  // namespace cairn
