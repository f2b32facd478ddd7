#include "cairn/events/residency_view.h"

#include <algorithm>
#include <bit>
#include <string>
#include <utility>
#include <variant>

#include "cairn/base/flat_table.h"
#include "cairn/base/str_cat.h"

namespace cairn {

namespace {

// A key, or none: no key has all bits set, because there is no mode 3.
struct Name {
  std::uint64_t high = ~std::uint64_t{0};
  std::uint64_t low = ~std::uint64_t{0};

  Name() = default;
  explicit Name(const BlockKey& key) : high(key.high_word()), low(key.low_word()) {}
  [[nodiscard]] BlockKey key() const { return std::bit_cast<BlockKey>(std::array{high, low}); }
  friend bool operator==(const Name&, const Name&) = default;
};
struct Rest {
  SequenceHash parent{0};
  BlockHash tokens_hash{0};
};
struct Traits {
  static std::uint64_t hash(const Name& name) { return KeySeed::of_process().mix(name.high, name.low); }
  static bool is_vacant(const Name& name, const Rest& /*rest*/) { return name == Name(); }
  static constexpr std::uint32_t kMaxPercent = 75;
};
using BlockMap = FlatTable<Name, Rest, Traits>;
struct Tier {
  BlockMap blocks;
  bool suspended = false;
};

// The name of a block in messages: routers know blocks by their sequence hash.
std::string name_of(const BlockKey& key) {
  return str_cat(value_of(key.sequence_hash()), " at position ", key.position());
}

Status apply_to(Tier& tier, const Event& event, const Stored& stored) {
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

Status apply_to(Tier& tier, const Event& event, const Removed& removed) {
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

Status apply_to(Tier& tier, const Event&, const Cleared&) {
  tier.blocks.clear();
  return {};
}

Status apply_to(Tier& tier, const Event&, const Invalidated&) {
  tier.blocks.clear();
  return {};
}

Status apply_to(Tier& tier, const Event& event, const Suspended&) {
  if (tier.suspended) {
    return fail(ErrorCode::kAlreadyExists, str_cat("event ", event.sequence, " suspends tier ", to_string(event.tier),
                                                   ", which is suspended already; apply a snapshot"));
  }
  tier.suspended = true;
  return {};
}

Status apply_to(Tier& tier, const Event& event, const Resumed&) {
  if (!tier.suspended) {
    return fail(ErrorCode::kFailedPrecondition,
                str_cat("event ", event.sequence, " resumes tier ", to_string(event.tier),
                        ", which is not suspended; apply a snapshot"));
  }
  tier.suspended = false;
  return {};
}

}  // namespace

struct ResidencyView::Tiers {
  std::array<Tier, kCacheLevels> levels;

  [[nodiscard]] Tier& of(CacheLevel tier) { return levels[index_of(tier)]; }
};

ResidencyView::ResidencyView() : tiers_(std::make_unique<Tiers>()) {}
ResidencyView::ResidencyView(const ResidencyView& other)
    : tiers_(std::make_unique<Tiers>(*other.tiers_)), sequence_(other.sequence_), source_(other.source_) {}
ResidencyView::ResidencyView(ResidencyView&& other) noexcept = default;
ResidencyView& ResidencyView::operator=(ResidencyView other) noexcept {
  std::swap(tiers_, other.tiers_);
  std::swap(sequence_, other.sequence_);
  std::swap(source_, other.source_);
  return *this;
}
ResidencyView::~ResidencyView() = default;

Status ResidencyView::apply(const Snapshot& snapshot) {
  Tiers tiers;
  std::bitset<kCacheLevels> seen;
  for (const TierSnapshot& tier : snapshot.tiers) {
    if (seen[index_of(tier.tier)]) {
      return fail(ErrorCode::kInvalidArgument, str_cat("the snapshot at event ", snapshot.sequence, " has tier ",
                                                       to_string(tier.tier), " twice; take it with one pool a tier"));
    }
    seen.set(index_of(tier.tier));
    tiers.of(tier.tier).suspended = tier.suspended;
    BlockMap& blocks = tiers.of(tier.tier).blocks;
    blocks.reserve(tier.blocks.size());
    for (const ResidentBlock& block : tier.blocks) {
      if (!blocks.insert(Name(block.key), {block.parent, block.tokens_hash}).second) {
        return fail(ErrorCode::kInvalidArgument,
                    str_cat("the snapshot at event ", snapshot.sequence, " has block ", name_of(block.key), " of tier ",
                            to_string(tier.tier), " twice; take another"));
      }
    }
  }
  *tiers_ = std::move(tiers);
  sequence_ = snapshot.sequence;
  source_ = snapshot.source;
  return {};
}

Status ResidencyView::apply(const Event& event) {
  if (source_ && event.source != *source_) {
    return fail(ErrorCode::kInvalidArgument,
                str_cat("event ", event.sequence, " is of worker ", event.source.worker_id, ", data parallel rank ",
                        event.source.dp_rank, ", but the view is of worker ", source_->worker_id, ", rank ",
                        source_->dp_rank, "; keep a view for each of them"));
  }
  if (event.sequence <= sequence_) {
    return fail(ErrorCode::kAlreadyExists, str_cat("event ", event.sequence, " came again: the view is at event ",
                                                   sequence_, " already; go on with the event after that one"));
  }
  if (event.sequence != sequence_ + 1) {
    return fail(ErrorCode::kFailedPrecondition,
                str_cat("event ", event.sequence, " came while the view is at event ", sequence_,
                        ": the events between are missing; apply a snapshot"));
  }
  Tier& tier = tiers_->of(event.tier);
  Status applied = std::visit([&](const auto& data) { return apply_to(tier, event, data); }, event.data);
  if (applied) {
    source_ = event.source;
    sequence_ = event.sequence;
  }
  return applied;
}

bool ResidencyView::is_suspended(CacheLevel tier) const { return tiers_->of(tier).suspended; }

bool ResidencyView::contains(CacheLevel tier, const BlockKey& key) const {
  const Tier& held = tiers_->of(tier);
  return !held.suspended && held.blocks.contains(Name(key));
}

std::bitset<kCacheLevels> ResidencyView::tiers_holding(const BlockKey& key) const {
  std::bitset<kCacheLevels> holding;
  for (std::uint32_t tier = 0; tier < kCacheLevels; ++tier) {
    holding[tier] = !tiers_->levels[tier].suspended && tiers_->levels[tier].blocks.contains(Name(key));
  }
  return holding;
}

ResidencyView::PrefixMatch ResidencyView::match_prefix(std::span<const BlockKey> keys,
                                                       std::bitset<kCacheLevels> among) const {
  constexpr std::size_t kAhead = 8;
  for (std::uint32_t tier = 0; tier < kCacheLevels; ++tier) {
    among[tier] = among[tier] && !tiers_->levels[tier].suspended && tiers_->levels[tier].blocks.size() > 0;
  }
  const auto nearest = [&](const Name& name) {
    std::uint32_t tier = 0;
    while (tier < kCacheLevels && !(among[tier] && tiers_->levels[tier].blocks.contains(name))) {
      ++tier;
    }
    return tier;
  };
  PrefixMatch match;
  for (; match.blocks < keys.size(); ++match.blocks) {
    if (match.blocks + kAhead < keys.size()) {
      for (std::uint32_t tier = 0; tier < kCacheLevels; ++tier) {
        if (among[tier]) {
          tiers_->levels[tier].blocks.prefetch(Name(keys[match.blocks + kAhead]));
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

std::size_t ResidencyView::size(CacheLevel tier) const { return tiers_->of(tier).blocks.size(); }

std::size_t ResidencyView::size() const {
  std::size_t size = 0;
  for (const Tier& tier : tiers_->levels) {
    size += tier.blocks.size();
  }
  return size;
}

void ResidencyView::for_each(CacheLevel tier, const std::function<void(const ResidentBlock&)>& visit) const {
  tiers_->of(tier).blocks.for_each([&visit](const Name& name, const Rest& rest) {
    visit(ResidentBlock{.key = name.key(), .parent = rest.parent, .tokens_hash = rest.tokens_hash});
  });
}

std::vector<ResidentBlock> ResidencyView::sorted_blocks(CacheLevel tier) const {
  std::vector<ResidentBlock> blocks;
  blocks.reserve(size(tier));
  for_each(tier, [&](const ResidentBlock& block) { blocks.push_back(block); });
  std::ranges::sort(blocks, {}, &ResidentBlock::key);
  return blocks;
}

}  // namespace cairn
