#include "cairn/evict/segmented_policy.h"

#include "cairn/evict/lookahead.h"

namespace cairn {

void SegmentedPolicy::insert(std::span<const BlockId> block_ids) {
  std::size_t next = 0;
  for_each_prefetched(
      block_ids, [this](BlockId block_id) { prefetch(block_id); },
      [&](BlockId block_id) {
        ++next;
        place(block_id);
        queue_.insert(block_id, next < block_ids.size() ? block_ids[next] : kNoBlock);
      });
}

void SegmentedPolicy::remove(std::span<const BlockId> block_ids) {
  for_each_prefetched(
      block_ids, [this](BlockId block_id) { queue_.prefetch(block_id); },
      [this](BlockId block_id) { queue_.remove(block_id); });
}

void SegmentedPolicy::touch(std::span<const BlockId> block_ids) {
  for_each_prefetched(
      block_ids, [this](BlockId block_id) { queue_.prefetch(block_id); },
      [this](BlockId block_id) { place(block_id); });
}

void SegmentedPolicy::forget(std::span<const BlockId> block_ids) {
  for (const BlockId block_id : block_ids) {
    queue_.forget(block_id);
  }
}

std::size_t SegmentedPolicy::evict(ClassRange classes, const Veto& veto, std::span<BlockId> out) {
  for (std::size_t evicted = 0; evicted < out.size(); ++evicted) {
    const BlockId victim = choose(classes, veto);
    if (victim == kNoBlock) {
      return evicted;
    }
    queue_.remove(victim);
    on_evicted(victim);
    out[evicted] = victim;
  }
  return out.size();
}

BlockId SegmentedPolicy::lower_class(BlockId preferred, BlockId other) const {
  if (preferred == kNoBlock || other == kNoBlock) {
    return preferred == kNoBlock ? other : preferred;
  }
  return queue_.class_of(other) < queue_.class_of(preferred) ? other : preferred;
}

}  // namespace cairn
