#include "cairn/cluster/block_store.h"

namespace cairn {

std::string_view to_string(StoreOperation operation) {
  constexpr std::string_view kNames[] = {"contains", "get", "put", "replace", "erase"};
  return kNames[static_cast<std::size_t>(operation)];
}

std::string_view to_string(StoreState state) {
  constexpr std::string_view kNames[] = {"done", "absent", "corrupt", "unavailable", "refused", "expired"};
  return kNames[static_cast<std::size_t>(state)];
}

}  // namespace cairn
