#include "cairn/evict/lru.h"

#include "cairn/evict/lookahead.h"

namespace cairn {

Result<std::unique_ptr<EvictionPolicy>> LruPolicy::create(const PolicyView& view) {
  Result<TickQueue> queue = TickQueue::create(view);
  if (!queue) {
    return Unexpected(std::move(queue).error());
  }
  return std::unique_ptr<EvictionPolicy>(new LruPolicy(*std::move(queue)));
}

void LruPolicy::insert(std::span<const SlotId> slots) {
  for_each_prefetched(
      slots, [this](SlotId slot) { queue_.prefetch(slot); },
      [this](SlotId slot) {
        queue_.set_tick(slot, queue_.next_tick());
        queue_.push(slot);
      });
}

void LruPolicy::remove(std::span<const SlotId> slots) {
  for_each_prefetched(
      slots, [this](SlotId slot) { queue_.prefetch(slot); }, [this](SlotId slot) { queue_.erase(slot); });
}

}  // namespace cairn
