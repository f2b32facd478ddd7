#include "cairn/evict/lineage.h"

#include "cairn/base/check.h"
#include "cairn/evict/lookahead.h"

namespace cairn {

Result<std::unique_ptr<EvictionPolicy>> LineagePolicy::create(const PolicyView& view, Rule rule) {
  CAIRN_TRY_ASSIGN(LineageForest forest, LineageForest::create(view));
  CAIRN_TRY_ASSIGN(TickQueue leaves, TickQueue::create(view));
  return std::unique_ptr<EvictionPolicy>(new LineagePolicy(view, rule, std::move(forest), std::move(leaves)));
}

LineagePolicy::LineagePolicy(const PolicyView& view, Rule rule, LineageForest forest, TickQueue leaves)
    : rule_(rule), forest_(std::move(forest)), leaves_(std::move(leaves)) {
  CAIRN_CHECK(view.parents != nullptr, "the lineage policy needs a ParentFinder");
}

void LineagePolicy::insert(std::span<const BlockId> block_ids) {
  std::size_t next = 0;
  for_each_prefetched(
      block_ids,
      [this](BlockId block_id) {
        forest_.prefetch(block_id);
        leaves_.prefetch(block_id);
      },
      [&](BlockId block_id) {
        ++next;
        leaves_.set_tick(block_id, leaves_.next_tick());
        const auto [is_leaf, no_longer_leaf] =
            forest_.insert(block_id, forest_.parent_of(block_id, next < block_ids.size() ? block_ids[next] : kNoBlock));
        if (no_longer_leaf != kNoBlock) {
          leaves_.erase(no_longer_leaf);
        }
        if (is_leaf) {
          leaves_.push(block_id);
        }
      });
  size_ += static_cast<std::uint32_t>(block_ids.size());
}

void LineagePolicy::remove(std::span<const BlockId> block_ids) {
  for_each_prefetched(
      block_ids, [this](BlockId block_id) { forest_.prefetch(block_id); },
      [this](BlockId block_id) {
        const auto [was_leaf, new_leaf] = forest_.remove(block_id);
        if (was_leaf) {
          leaves_.erase(block_id);
        }
        became_leaf(new_leaf);
      });
  size_ -= static_cast<std::uint32_t>(block_ids.size());
}

void LineagePolicy::reclass(BlockId block_id, EvictionClass& of_block, EvictionClass to) {
  const bool is_leaf = leaves_.contains(block_id);
  if (is_leaf) {
    leaves_.erase(block_id);
  }
  of_block = to;
  if (is_leaf) {
    leaves_.push(block_id);
  }
}

void LineagePolicy::forget(std::span<const BlockId> block_ids) {
  for (const BlockId block_id : block_ids) {
    became_leaf(forest_.forget(block_id));
  }
}

// One by one: each victim may make its parent a leaf, which is often the next victim.
std::size_t LineagePolicy::evict(ClassRange classes, const Veto& veto, std::span<BlockId> out) {
  for (std::size_t evicted = 0; evicted < out.size(); ++evicted) {
    if (leaves_.pop(classes, veto, out.subspan(evicted, 1)) == 0) {
      return evicted;
    }
    --size_;
    became_leaf(forest_.remove(out[evicted]).new_leaf);
  }
  return out.size();
}

void LineagePolicy::became_leaf(BlockId block_id) {
  if (block_id == kNoBlock) {
    return;
  }
  if (rule_ == Rule::kFifo) {
    leaves_.set_tick(block_id, leaves_.next_tick());
  }
  leaves_.push(block_id);
}

}  // namespace cairn
