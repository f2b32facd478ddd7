#include "cairn/transfer/executor.h"

namespace cairn {

std::string_view to_string(BlockState state) {
  constexpr std::string_view kNames[] = {"done", "failed", "mismatch", "expired", "cancelled", "gone"};
  return kNames[static_cast<std::size_t>(state)];
}

}  // namespace cairn
