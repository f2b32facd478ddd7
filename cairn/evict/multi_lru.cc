#include "cairn/evict/multi_lru.h"

#include <algorithm>
#include <array>
#include <utility>

namespace cairn {

namespace {

// Uses from which on a block is warm, hot, very hot.
constexpr std::array<std::uint32_t, 3> kThresholds{3, 8, 15};
constexpr std::uint32_t kLists = kThresholds.size() + 1;

}  // namespace

Result<std::unique_ptr<EvictionPolicy>> MultiLruPolicy::create(const PolicyView& view) {
  CAIRN_TRY_ASSIGN(BlockQueue queue, BlockQueue::create(view, kLists));
  CAIRN_TRY_ASSIGN(TinyLfu sketch, TinyLfu::create(view.capacity, view.seed));
  return std::unique_ptr<EvictionPolicy>(new MultiLruPolicy(view, std::move(queue), std::move(sketch)));
}

MultiLruPolicy::MultiLruPolicy(const PolicyView& view, BlockQueue queue, TinyLfu sketch)
    : SegmentedPolicy(view, std::move(queue)), sketch_(std::move(sketch)) {}

void MultiLruPolicy::place(BlockId block_id) {
  const std::uint32_t uses = sketch_.add(key(block_id));
  const auto list = std::ranges::upper_bound(kThresholds, uses) - kThresholds.begin();
  queue().place(block_id, static_cast<BlockQueue::Segment>(list), queue().next_tick());
}

BlockId MultiLruPolicy::choose(ClassRange classes, const Veto& veto) {
  BlockId chosen = kNoBlock;
  for (std::uint32_t list = 0; list < kLists; ++list) {
    chosen = lower_class(chosen, queue().front(list, classes, veto));
  }
  return chosen;
}

}  // namespace cairn
