#include "cairn/evict/fifo.h"

#include <utility>

namespace cairn {

Result<std::unique_ptr<EvictionPolicy>> FifoPolicy::create(const PolicyView& view) {
  Result<SlotQueue> queue = SlotQueue::create(view, 1);
  if (!queue) {
    return Unexpected(std::move(queue).error());
  }
  return std::unique_ptr<EvictionPolicy>(new FifoPolicy(view, *std::move(queue)));
}

void FifoPolicy::place(SlotId slot) {
  if (!queue().is_known(slot)) {
    queue().place(slot, 0, queue().next_tick());
  }
}

SlotId FifoPolicy::choose(ClassRange classes, const Veto& veto) { return queue().front(0, classes, veto); }

}  // namespace cairn
