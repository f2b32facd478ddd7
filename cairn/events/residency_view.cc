#include "cairn/events/residency_view.h"

#include <algorithm>
#include <string>
#include <utility>
#include <variant>

#include "cairn/base/str_cat.h"

namespace cairn {

namespace {

// A block in messages, by what routers know it by.
std::string name_of(const BlockKey& key) {
  return str_cat(value_of(key.sequence_hash()), " at position ", key.position());
}

}  // namespace

Status ResidencyView::apply(const Snapshot& snapshot) {
  std::array<Tier, kCacheLevels> tiers;
  std::bitset<kCacheLevels> seen;
  for (const TierSnapshot& tier : snapshot.tiers) {
    if (seen[index_of(tier.tier)]) {
      return fail(ErrorCode::kInvalidArgument, str_cat("the snapshot at event ", snapshot.sequence, " has tier ",
                                                       to_string(tier.tier), " twice; take it with one pool a tier"));
    }
    seen.set(index_of(tier.tier));
    tiers[index_of(tier.tier)].suspended = tier.suspended;
    BlockMap& blocks = tiers[index_of(tier.tier)].blocks;
    blocks.reserve(tier.blocks.size());
    for (const ResidentBlock& block : tier.blocks) {
      const bool is_new = blocks.try_emplace(block.key, Rest{block.parent, block.tokens_hash}).second;
      if (!is_new) {
        return fail(ErrorCode::kInvalidArgument,
                    str_cat("the snapshot at event ", snapshot.sequence, " has block ", name_of(block.key), " of tier ",
                            to_string(tier.tier), " twice; take another"));
      }
    }
  }
  tiers_ = std::move(tiers);
  sequence_ = snapshot.sequence;
  return {};
}

Status ResidencyView::apply(const Event& event) {
  if (event.sequence <= sequence_) {
    return fail(ErrorCode::kAlreadyExists, str_cat("event ", event.sequence, " came again: the view is at event ",
                                                   sequence_, " already; pass it events from there on"));
  }
  if (event.sequence != sequence_ + 1) {
    return fail(ErrorCode::kFailedPrecondition, str_cat("event ", event.sequence, " came while the view is at event ",
                                                        sequence_, ": what lies between is missing; apply a snapshot"));
  }
  Tier& tier = tiers_[index_of(event.tier)];
  Status applied = std::visit([&](const auto& data) { return apply_to(tier, event, data); }, event.data);
  if (applied) {
    sequence_ = event.sequence;
  }
  return applied;
}

Status ResidencyView::apply_to(Tier& tier, const Event& event, const Stored& stored) {
  BlockMap& blocks = tier.blocks;
  SequenceHash parent = stored.parent.value_or(SequenceHash{0});
  for (std::size_t i = 0; i < stored.blocks.size(); ++i) {
    const StoredBlock& block = stored.blocks[i];
    if (!blocks.try_emplace(block.key, Rest{parent, block.tokens_hash}).second) {
      for (std::size_t undo = 0; undo < i; ++undo) {
        blocks.erase(stored.blocks[undo].key);
      }
      return fail(ErrorCode::kAlreadyExists,
                  str_cat("event ", event.sequence, " stores block ", name_of(block.key), " in tier ",
                          to_string(event.tier), ", where it is already; apply a snapshot"));
    }
    parent = block.key.sequence_hash();
  }
  return {};
}

Status ResidencyView::apply_to(Tier& tier, const Event& event, const Removed& removed) {
  BlockMap& blocks = tier.blocks;
  std::vector<BlockMap::node_type> taken;
  taken.reserve(removed.keys.size());
  for (const BlockKey& key : removed.keys) {
    taken.push_back(blocks.extract(key));
    if (taken.back().empty()) {
      taken.pop_back();
      for (BlockMap::node_type& node : taken) {
        blocks.insert(std::move(node));
      }
      return fail(ErrorCode::kNotFound,
                  str_cat("event ", event.sequence, " removes block ", name_of(key), " from tier ",
                          to_string(event.tier), ", where it is not; apply a snapshot"));
    }
  }
  return {};
}

Status ResidencyView::apply_to(Tier& tier, const Event&, const Cleared&) {
  tier.blocks.clear();
  return {};
}

Status ResidencyView::apply_to(Tier& tier, const Event&, const Invalidated&) {
  tier.blocks.clear();
  return {};
}

Status ResidencyView::apply_to(Tier& tier, const Event& event, const Suspended&) {
  if (tier.suspended) {
    return fail(ErrorCode::kAlreadyExists, str_cat("event ", event.sequence, " suspends tier ", to_string(event.tier),
                                                   ", which is suspended already; apply a snapshot"));
  }
  tier.suspended = true;
  return {};
}

Status ResidencyView::apply_to(Tier& tier, const Event& event, const Resumed&) {
  if (!tier.suspended) {
    return fail(ErrorCode::kFailedPrecondition,
                str_cat("event ", event.sequence, " resumes tier ", to_string(event.tier),
                        ", which is not suspended; apply a snapshot"));
  }
  tier.suspended = false;
  return {};
}

std::bitset<kCacheLevels> ResidencyView::tiers_holding(const BlockKey& key) const {
  std::bitset<kCacheLevels> holding;
  for (std::uint32_t tier = 0; tier < kCacheLevels; ++tier) {
    holding[tier] = !tiers_[tier].suspended && tiers_[tier].blocks.contains(key);
  }
  return holding;
}

std::size_t ResidencyView::size() const {
  std::size_t size = 0;
  for (const Tier& tier : tiers_) {
    size += tier.blocks.size();
  }
  return size;
}

std::vector<ResidentBlock> ResidencyView::sorted_blocks(CacheLevel tier) const {
  std::vector<ResidentBlock> blocks;
  blocks.reserve(size(tier));
  for_each(tier, [&](const ResidentBlock& block) { blocks.push_back(block); });
  std::ranges::sort(blocks, {}, &ResidentBlock::key);
  return blocks;
}

}  // namespace cairn
