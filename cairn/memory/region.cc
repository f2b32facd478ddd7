#include "cairn/memory/region.h"

namespace cairn {

std::string_view to_string(MemoryKind kind) {
  constexpr std::string_view kNames[] = {"system", "pinned", "device", "file"};
  return kNames[static_cast<std::size_t>(kind)];
}

}  // namespace cairn
