#include "cairn/memory/elsewhere_region.h"

#include <limits>
#include <utility>

#include "cairn/base/str_cat.h"

namespace cairn {

namespace {

// This process never reads or writes the region, so every alignment is fine.
constexpr std::uint64_t kAnyAlignment = std::uint64_t{1} << 30U;

}  // namespace

Result<RegionPtr> elsewhere_region(MemoryKind kind, std::uint64_t size) {
  if (size == 0 || size > std::numeric_limits<std::uintptr_t>::max() / 2) {
    return fail(ErrorCode::kInvalidArgument,
                str_cat("memory of another process cannot have ", size, " bytes; give its size in bytes"));
  }
  return std::make_shared<const Region>(
      RegionFacts{.kind = kind, .size = size, .alignment = kAnyAlignment, .external = true}, nullptr);
}

}  // namespace cairn
