#include "cairn/evict/lfu.h"

#include <limits>
#include <utility>

namespace cairn {

namespace {

// A tick is the rank, then the time of the release. 2^40 releases take years.
constexpr std::uint32_t kTimeBits = 40;
constexpr std::uint64_t kMaxRank = (std::uint64_t{1} << (64 - kTimeBits)) - 1;

}  // namespace

Result<std::unique_ptr<EvictionPolicy>> LfuPolicy::create(const PolicyView& view) {
  CAIRN_TRY_ASSIGN(BlockQueue queue, BlockQueue::create(view, 1));
  CAIRN_TRY_ASSIGN(PageArray<std::uint16_t> uses, PageArray<std::uint16_t>::create(view.capacity));
  return std::unique_ptr<EvictionPolicy>(new LfuPolicy(view, std::move(queue), std::move(uses)));
}

LfuPolicy::LfuPolicy(const PolicyView& view, BlockQueue queue, PageArray<std::uint16_t> uses)
    : SegmentedPolicy(view, std::move(queue)), uses_(std::move(uses)) {}

void LfuPolicy::count_use(BlockId block_id) {
  std::uint16_t& uses = uses_[index_of(block_id)];
  uses += uses < std::numeric_limits<std::uint16_t>::max() ? 1 : 0;
}

void LfuPolicy::place(BlockId block_id) {
  if (!queue().is_known(block_id)) {
    uses_[index_of(block_id)] = 0;
  }
  count_use(block_id);
  const std::uint64_t rank = std::min(kMaxRank, floor_ + uses_[index_of(block_id)]);
  queue().place(block_id, 0, (rank << kTimeBits) | queue().next_tick());
}

BlockId LfuPolicy::choose(ClassRange classes, const Veto& veto) { return queue().front(0, classes, veto); }

void LfuPolicy::on_evicted(BlockId block_id) { floor_ = std::max(floor_, queue().tick(block_id) >> kTimeBits); }

}  // namespace cairn
