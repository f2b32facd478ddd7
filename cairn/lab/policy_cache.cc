#include "cairn/lab/policy_cache.h"

#include <utility>

#include "cairn/base/check.h"

namespace cairn::lab {

namespace {

constexpr TenantId kTenant{0};
using Kind = RetentionHint::Kind;

}  // namespace

Result<std::unique_ptr<PolicyCache>> PolicyCache::create(const Trace& trace, const Options& options) {
  std::unique_ptr<PolicyCache> cache(new PolicyCache(trace, options));
  const auto block_ids = static_cast<std::uint32_t>(cache->keys_.size());
  const PolicyView view{.capacity = block_ids,
                        .class_count = options.hints ? kHintLevels : 1,
                        .keys = Column<BlockKey>(cache->keys_.data(), sizeof(BlockKey)),
                        .classes = Column<EvictionClass>(cache->classes_.data(), sizeof(EvictionClass)),
                        .parents = cache.get(),
                        .leaves_first = options.leaves_first,
                        .clock = &cache->clock_,
                        .returns = options.returns};
  CAIRN_TRY_ASSIGN(cache->policy_, make_policy(options.policy, view));
  if (options.hints) {
    CAIRN_TRY_ASSIGN(cache->hints_, HintBook::create(block_ids, 1));
    CAIRN_TRY_ASSIGN(cache->reviews_, RetentionClock::create(block_ids));
  }
  return cache;
}

PolicyCache::PolicyCache(const Trace& trace, const Options& options)
    : trace_(trace),
      capacity_(options.capacity),
      id_of_block_(trace.unique_blocks(), kNoBlock),
      block_of_id_(options.capacity + options.bypass),
      keys_(options.capacity + options.bypass),
      classes_(options.capacity + options.bypass) {}

void PolicyCache::use(std::span<const std::uint32_t> blocks, std::span<const Moved> from_below, TimePoint now,
                      RequestEnding ending, const RequestHints* hints, std::vector<Moved>& evicted) {
  block_ids_.clear();
  for (const std::uint32_t block : blocks) {
    if (contains(block)) {
      block_ids_.push_back(id_of_block_[block]);
    }
  }
  if (hints_) {
    review_hints(now);
    record_uses(blocks, now);
  }
  clock_.set(now);
  policy_->match(block_ids_, {});
  make_room(blocks.size() - block_ids_.size(), now, evicted);
  for (const std::uint32_t block : blocks) {
    if (!contains(block)) {
      place(block);
    }
  }
  adopt(from_below);
  if (hints_) {
    hint(blocks, now, *hints);
  }
  block_ids_.clear();
  for (std::size_t i = blocks.size(); i > 0; --i) {
    block_ids_.push_back(id_of_block_[blocks[i - 1]]);
  }
  if (ending != RequestEnding::kUnknown) {
    policy_->end(block_ids_, ending);
  }
  policy_->insert(block_ids_);
  if (policy_->size() > capacity_) {
    evict(policy_->size() - capacity_, now, evicted);
  }
}

void PolicyCache::add(std::span<const Moved> blocks, TimePoint now, std::vector<Moved>& evicted) {
  clock_.set(now);
  block_ids_.clear();
  std::size_t missing = 0;
  for (const Moved& block : blocks) {
    if (contains(block.block)) {
      block_ids_.push_back(id_of_block_[block.block]);
    } else {
      ++missing;
    }
  }
  std::ranges::reverse(block_ids_);
  if (blocks.empty() || blocks.front().past.last_use != 0) {
    policy_->remove(block_ids_);
  } else {  // the policy does not know pasts: its uses were above
    policy_->match(block_ids_, {});
  }
  make_room(missing, now, evicted);
  for (const Moved& block : blocks) {
    if (!contains(block.block)) {
      place(block.block);
    }
  }
  adopt(std::vector(blocks.rbegin(), blocks.rend()));
  std::ranges::reverse(block_ids_);
  policy_->insert(block_ids_);
}

// block_ids_ holds the blocks then.
void PolicyCache::adopt(std::span<const Moved> blocks) {
  block_ids_.clear();
  pasts_.clear();
  for (const Moved& block : blocks) {
    if (contains(block.block)) {
      block_ids_.push_back(id_of_block_[block.block]);
      pasts_.push_back(block.past);
    }
  }
  policy_->adopt(block_ids_, pasts_);
}

bool PolicyCache::is_worth_adding(const Moved& block, TimePoint now) {
  clock_.set(now);
  return contains(block.block) || policy_->size() < capacity_ || policy_->is_worth_more(block.past, {0, 1}, {});
}

// Requires: free_ has a block.
void PolicyCache::place(std::uint32_t block) {
  const BlockId block_id = free_.back();
  free_.pop_back();
  id_of_block_[block] = block_id;
  block_of_id_[index_of(block_id)] = block;
  keys_[index_of(block_id)] = trace_.key(block);
}

BlockId PolicyCache::find_parent(const BlockKey& child) const {
  const std::uint32_t block = trace_.find(child);
  CAIRN_CHECK(block != Trace::kNoBlock, "a policy looks up parents of blocks of the trace");
  const std::uint32_t parent = trace_.parent(block);
  return parent == Trace::kNoBlock ? kNoBlock : id_of_block_[parent];
}

// Fills free_ with this many blocks.
void PolicyCache::make_room(std::size_t wanted, TimePoint now, std::vector<Moved>& evicted) {
  while (free_.size() < wanted && never_used_ < keys_.size()) {
    free_.push_back(BlockId{never_used_++});
  }
  if (free_.size() < wanted) {
    evict(wanted - free_.size(), now, evicted);
  }
}

// Requires: the policy holds that many.
void PolicyCache::evict(std::size_t count, TimePoint now, std::vector<Moved>& evicted) {
  victims_.resize(count);
  const ClassRange all{0, hints_ ? kHintLevels : 1};
  const std::size_t taken = policy_->evict(all, {}, victims_);
  CAIRN_CHECK(taken == count, "a policy evicts all that it holds");
  for (const BlockId block_id : victims_) {
    const std::uint32_t block = block_of_id_[index_of(block_id)];
    id_of_block_[block] = kNoBlock;
    evicted.push_back({.block = block, .past = policy_->past_of(block_id)});
    if (hints_) {
      hints_->on_removed(block_id, kTenant, trace_.key(block));
      reviews_->stop(block_id);
    }
  }
  policy_->forget(victims_);
  free_.insert(free_.end(), victims_.begin(), victims_.end());
  if (hints_) {
    hints_->observe(0, static_cast<std::uint32_t>(count), policy_->size(), now);
  }
}

void PolicyCache::review_hints(TimePoint now) {
  for (auto due = reviews_->pop_due(now); due; due = reviews_->pop_due(now)) {
    const HintBook::Rank rank = hints_->rank(due->block_id, kTenant, now);
    policy_->reclass(due->block_id, classes_[index_of(due->block_id)],
                     EvictionClass{static_cast<std::uint16_t>(rank.level)});
    reviews_->review_at(due->block_id, rank.review);
  }
}

// block_ids_ holds the blocks that were in the cache.
void PolicyCache::record_uses(std::span<const std::uint32_t> blocks, TimePoint now) {
  hints_->observe(static_cast<std::uint32_t>(block_ids_.size()), 0, policy_->size(), now);
  for (const BlockId block_id : block_ids_) {
    hints_->on_used(block_id, kTenant, keys_[index_of(block_id)]);
    reviews_->stop(block_id);
  }
  for (const std::uint32_t block : blocks) {
    if (!contains(block)) {
      hints_->on_registered(kTenant, trace_.key(block));
    }
  }
}

void PolicyCache::hint(std::span<const std::uint32_t> blocks, TimePoint now, const RequestHints& hints) {
  for (std::uint32_t i = 0; i < blocks.size(); ++i) {
    const BlockId block_id = id_of_block_[blocks[i]];
    RetentionHint hint{.kind = Kind::kWillNotReturn};
    if (i < hints.system_blocks) {
      hint.kind = Kind::kSystemPrompt;
    } else if (hints.returns_in) {
      hint = {.kind = Kind::kReturns, .in = *hints.returns_in};
    }
    hints_->add(block_id, hint, now);
    hints_->on_released(block_id, now);
    const HintBook::Rank rank = hints_->rank(block_id, kTenant, now);
    classes_[index_of(block_id)] = EvictionClass{static_cast<std::uint16_t>(rank.level)};
    reviews_->start(block_id, now);
    reviews_->review_at(block_id, rank.review);
  }
}

}  // namespace cairn::lab
