#include "cairn/events/residency_view.h"

#include <algorithm>
#include <string>
#include <utility>
#include <variant>

#include "cairn/base/str_cat.h"

namespace cairn {

namespace {

// The name of a block in messages: routers know blocks by their sequence hash.
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
      if (!blocks.insert(Name(block.key), {block.parent, block.tokens_hash}).second) {
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
                                                   sequence_, " already; go on with the event after that one"));
  }
  if (event.sequence != sequence_ + 1) {
    return fail(ErrorCode::kFailedPrecondition,
                str_cat("event ", event.sequence, " came while the view is at event ", sequence_,
                        ": the events between are missing; apply a snapshot"));
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
    if (!blocks.insert(Name(block.key), {parent, block.tokens_hash}).second) {
      for (std::size_t undo = 0; undo < i; ++undo) {
        blocks.erase(Name(stored.blocks[undo].key));
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
  std::vector<Rest> erased;
  erased.reserve(removed.keys.size());
  for (const BlockKey& key : removed.keys) {
    if (const Rest* const rest = blocks.find(Name(key))) {
      erased.push_back(*rest);
      blocks.erase(Name(key));
    } else {
      for (std::size_t undo = 0; undo < erased.size(); ++undo) {
        blocks.insert(Name(removed.keys[undo]), erased[undo]);
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
    holding[tier] = !tiers_[tier].suspended && tiers_[tier].blocks.contains(Name(key));
  }
  return holding;
}

ResidencyView::PrefixMatch ResidencyView::match_prefix(std::span<const BlockKey> keys,
                                                       std::bitset<kCacheLevels> among) const {
  constexpr std::size_t kAhead = 8;
  for (std::uint32_t tier = 0; tier < kCacheLevels; ++tier) {
    among[tier] = among[tier] && !tiers_[tier].suspended && tiers_[tier].blocks.size() > 0;
  }
  const auto nearest = [&](const Name& name) {
    std::uint32_t tier = 0;
    while (tier < kCacheLevels && !(among[tier] && tiers_[tier].blocks.contains(name))) {
      ++tier;
    }
    return tier;
  };
  PrefixMatch match;
  for (; match.blocks < keys.size(); ++match.blocks) {
    if (match.blocks + kAhead < keys.size()) {
      for (std::uint32_t tier = 0; tier < kCacheLevels; ++tier) {
        if (among[tier]) {
          tiers_[tier].blocks.prefetch(Name(keys[match.blocks + kAhead]));
        }
      }
    }
    const std::uint32_t tier = nearest(Name(keys[match.blocks]));
    if (tier == kCacheLevels) {
      break;
    }
    ++match.by_tier[tier];
  }
  return match;
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
