#include "cairn/evict/fifo.h"

namespace cairn {

Result<std::unique_ptr<EvictionPolicy>> FifoPolicy::create(const PolicyView& view) {
  Result<TickQueue> queue = TickQueue::create(view);
  if (!queue) {
    return Unexpected(std::move(queue).error());
  }
  return std::unique_ptr<EvictionPolicy>(new FifoPolicy(*std::move(queue)));
}

void FifoPolicy::insert(std::span<const SlotId> slots) {
  for (const SlotId slot : slots) {
    if (queue_.tick(slot) == 0) {
      queue_.set_tick(slot, queue_.next_tick());
    }
    queue_.push(slot);
  }
}

}  // namespace cairn
