#include "cairn/evict/lru.h"

namespace cairn {

Result<std::unique_ptr<EvictionPolicy>> LruPolicy::create(const PolicyView& view) {
  Result<TickQueue> queue = TickQueue::create(view);
  if (!queue) {
    return Unexpected(std::move(queue).error());
  }
  return std::unique_ptr<EvictionPolicy>(new LruPolicy(*std::move(queue)));
}

}  // namespace cairn
