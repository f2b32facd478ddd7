#include "cairn/memory/region.h"

#include <limits>
#include <utility>

#include "cairn/base/str_cat.h"
#include "cairn/memory/address_alignment.h"

namespace cairn {

std::string_view to_string(MemoryKind kind) {
  constexpr std::string_view kNames[] = {"system", "pinned", "device", "file"};
  return kNames[static_cast<std::size_t>(kind)];
}

Result<RegionPtr> external_region(ExternalMemory memory) {
  const auto address = reinterpret_cast<std::uintptr_t>(memory.base);
  if (memory.base == nullptr) {
    return fail(ErrorCode::kInvalidArgument, "external memory without an address; give the tensor's data pointer");
  }
  if (memory.size == 0) {
    return fail(ErrorCode::kInvalidArgument, "external memory of 0 bytes; give the tensor's size in bytes");
  }
  if (memory.size > std::numeric_limits<std::uintptr_t>::max() - address) {
    return fail(ErrorCode::kInvalidArgument,
                str_cat("external memory of ", memory.size, " bytes ends beyond the address space; check its size"));
  }
  if (memory.kind == MemoryKind::kFile) {
    return fail(ErrorCode::kInvalidArgument, "external memory is a file; use external_file_region()");
  }
  if (memory.kind == MemoryKind::kDevice && memory.device < 0) {
    return fail(ErrorCode::kInvalidArgument, "external memory of a GPU without a device number; give the device");
  }
  if (memory.kind == MemoryKind::kSystem && memory.device != kNoDevice) {
    return fail(ErrorCode::kInvalidArgument, str_cat("external system memory has no GPU, but GPU ", memory.device,
                                                     " was given; use kPinned if the memory is pinned"));
  }
  RegionFacts facts = {.kind = memory.kind,
                       .base = static_cast<std::byte*>(memory.base),
                       .size = memory.size,
                       .alignment = address_alignment(address),
                       .device = memory.device,
                       .external = true};
  return std::make_shared<const Region>(std::move(facts),
                                        [keep_alive = std::move(memory.keep_alive)]() mutable { keep_alive.reset(); });
}

}  // namespace cairn
