#include "cairn/evict/fifo.h"

#include <utility>

namespace cairn {

Result<std::unique_ptr<EvictionPolicy>> FifoPolicy::create(const PolicyView& view) {
  CAIRN_TRY_ASSIGN(BlockQueue queue, BlockQueue::create(view, 1));
  return std::unique_ptr<EvictionPolicy>(new FifoPolicy(view, std::move(queue)));
}

void FifoPolicy::place(BlockId block_id) {
  if (!queue().is_known(block_id)) {
    queue().place(block_id, 0, queue().next_tick());
  }
}

BlockId FifoPolicy::choose(ClassRange classes, const Veto& veto) { return queue().front(0, classes, veto); }

}  // namespace cairn
