#include "cairn/evict/lru.h"

namespace cairn {

Result<std::unique_ptr<EvictionPolicy>> LruPolicy::create(const PolicyView& view) {
  CAIRN_TRY_ASSIGN(TickQueue queue, TickQueue::create(view));
  return std::unique_ptr<EvictionPolicy>(new LruPolicy(std::move(queue)));
}

}  // namespace cairn
