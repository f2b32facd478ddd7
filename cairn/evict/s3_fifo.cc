#include "cairn/evict/s3_fifo.h"

#include <algorithm>
#include <utility>

namespace cairn {

namespace {

constexpr GhostLists::List kGhosts = 0;
constexpr std::uint8_t kUsesToStay = 2;

}  // namespace

Result<std::unique_ptr<EvictionPolicy>> S3FifoPolicy::create(const PolicyView& view) {
  CAIRN_TRY_ASSIGN(BlockQueue queue, BlockQueue::create(view, kSegments));
  CAIRN_TRY_ASSIGN(GhostLists ghosts, GhostLists::create(view.capacity - view.capacity / 10, 1, view.seed));
  CAIRN_TRY_ASSIGN(PageArray<std::uint8_t> uses, PageArray<std::uint8_t>::create(view.capacity));
  return std::unique_ptr<EvictionPolicy>(new S3FifoPolicy(view, std::move(queue), std::move(ghosts), std::move(uses)));
}

S3FifoPolicy::S3FifoPolicy(const PolicyView& view, BlockQueue queue, GhostLists ghosts, PageArray<std::uint8_t> uses)
    : SegmentedPolicy(view, std::move(queue)),
      small_target_(view.capacity / 10),
      ghosts_(std::move(ghosts)),
      uses_(std::move(uses)) {}

std::size_t S3FifoPolicy::bytes() const { return SegmentedPolicy::bytes() + ghosts_.bytes() + uses_.bytes(); }

void S3FifoPolicy::count_use(BlockId block_id) {
  std::uint8_t& uses = uses_[index_of(block_id)];
  uses = std::min<std::uint8_t>(kMaxUses, uses + 1);
}

void S3FifoPolicy::place(BlockId block_id) {
  if (queue().is_known(block_id)) {
    count_use(block_id);  // and it keeps its place
    return;
  }
  uses_[index_of(block_id)] = 0;
  queue().place(block_id, ghosts_.take(key(block_id)) ? kMain : kSmall, queue().next_tick());
}

BlockId S3FifoPolicy::choose(ClassRange classes, const Veto& veto) {
  while (true) {
    const BlockId small = queue().front(kSmall, classes, veto);
    const BlockId main = queue().front(kMain, classes, veto);
    const bool small_first = queue().count(kSmall) > small_target_;
    const BlockId next = small_first ? lower_class(small, main) : lower_class(main, small);
    if (next == kNoBlock) {
      return kNoBlock;
    }
    std::uint8_t& uses = uses_[index_of(next)];
    if (uses == 0 || (next == small && uses < kUsesToStay)) {
      return next;
    }
    uses = next == small ? 0 : uses - 1;
    queue().move(next, kMain, queue().next_tick());
  }
}

void S3FifoPolicy::on_evicted(BlockId block_id) {
  if (queue().segment(block_id) == kSmall) {
    ghosts_.push(kGhosts, key(block_id));
  }
}

}  // namespace cairn
