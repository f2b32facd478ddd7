#include "cairn/offload/offload_request.h"

#include <cstddef>

namespace cairn {

std::string_view to_string(OffloadMode mode) {
  constexpr std::string_view kNames[] = {"ahead", "write-through", "off"};
  return kNames[static_cast<std::size_t>(mode)];
}

}  // namespace cairn
