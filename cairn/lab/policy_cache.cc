#include "cairn/lab/policy_cache.h"

#include <utility>

#include "cairn/base/check.h"

namespace cairn::lab {

namespace {

constexpr TenantId kGiver{0};
using Kind = RetentionHint::Kind;

}  // namespace

Result<std::unique_ptr<PolicyCache>> PolicyCache::create(const Trace& trace, const Options& options) {
  std::unique_ptr<PolicyCache> cache(new PolicyCache(trace, options.capacity));
  Result<std::unique_ptr<EvictionPolicy>> policy =
      make_policy(options.policy, {.capacity = options.capacity,
                                   .class_count = options.hints ? kHintLevels : 1,
                                   .keys = Column<BlockKey>(cache->keys_.data(), sizeof(BlockKey)),
                                   .classes = Column<EvictionClass>(cache->classes_.data(), sizeof(EvictionClass)),
                                   .parents = cache.get(),
                                   .leaves_first = options.leaves_first});
  if (!policy) {
    return Unexpected(std::move(policy).error());
  }
  cache->policy_ = *std::move(policy);
  if (options.hints) {
    Result<HintBook> hints = HintBook::create(options.capacity, 1);
    if (!hints) {
      return Unexpected(std::move(hints).error());
    }
    cache->hints_ = *std::move(hints);
    Result<RetentionClock> reviews = RetentionClock::create(options.capacity);
    if (!reviews) {
      return Unexpected(std::move(reviews).error());
    }
    cache->reviews_ = *std::move(reviews);
  }
  return cache;
}

PolicyCache::PolicyCache(const Trace& trace, std::uint32_t capacity)
    : trace_(trace),
      block_id_of_(trace.unique_blocks(), kNoBlock),
      block_in_(capacity),
      keys_(capacity),
      classes_(capacity) {}

void PolicyCache::use(std::span<const std::uint32_t> blocks, TimePoint now, const RequestHints* hints,
                      std::vector<std::uint32_t>& evicted) {
  block_ids_.clear();
  for (const std::uint32_t block : blocks) {
    if (contains(block)) {
      block_ids_.push_back(block_id_of_[block]);
    }
  }
  if (hints_) {
    review_hints(now);
    note_uses(blocks, now);
  }
  policy_->remove(block_ids_);
  make_room(blocks.size() - block_ids_.size(), now, evicted);
  for (const std::uint32_t block : blocks) {
    if (!contains(block)) {
      const BlockId block_id = free_.back();
      free_.pop_back();
      block_id_of_[block] = block_id;
      block_in_[index_of(block_id)] = block;
      keys_[index_of(block_id)] = trace_.key(block);
    }
  }
  if (hints_) {
    hint(blocks, now, *hints);
  }
  block_ids_.clear();
  for (std::size_t i = blocks.size(); i > 0; --i) {
    block_ids_.push_back(block_id_of_[blocks[i - 1]]);
  }
  policy_->insert(block_ids_);
}

BlockId PolicyCache::find_parent(const BlockKey& child) const {
  const std::uint32_t block = trace_.find(child);
  CAIRN_CHECK(block != Trace::kNoBlock, "a policy asks for parents of blocks of the trace");
  const std::uint32_t parent = trace_.parent(block);
  return parent == Trace::kNoBlock ? kNoBlock : block_id_of_[parent];
}

// Fills free_ with this many blocks.
void PolicyCache::make_room(std::size_t wanted, TimePoint now, std::vector<std::uint32_t>& evicted) {
  while (free_.size() < wanted && never_used_ < keys_.size()) {
    free_.push_back(BlockId{never_used_++});
  }
  if (free_.size() == wanted) {
    return;
  }
  victims_.resize(wanted - free_.size());
  const ClassRange all{0, hints_ ? kHintLevels : 1};
  const std::size_t count = policy_->evict(all, {}, victims_);
  CAIRN_CHECK(count == victims_.size(), "a policy gives up all that it holds");
  for (const BlockId block_id : victims_) {
    const std::uint32_t block = block_in_[index_of(block_id)];
    block_id_of_[block] = kNoBlock;
    evicted.push_back(block);
    if (hints_) {
      hints_->gone(block_id, kGiver, trace_.key(block));
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
    const HintBook::Rank rank = hints_->rank(due->block_id, kGiver, now);
    policy_->reclass(due->block_id, classes_[index_of(due->block_id)],
                     EvictionClass{static_cast<std::uint16_t>(rank.level)});
    reviews_->review_at(due->block_id, rank.review);
  }
}

// In block_ids_ are those of the blocks that are there.
void PolicyCache::note_uses(std::span<const std::uint32_t> blocks, TimePoint now) {
  hints_->observe(static_cast<std::uint32_t>(block_ids_.size()), 0, policy_->size(), now);
  for (const BlockId block_id : block_ids_) {
    hints_->used(block_id, kGiver, keys_[index_of(block_id)]);
    reviews_->stop(block_id);
  }
  for (const std::uint32_t block : blocks) {
    if (!contains(block)) {
      hints_->came(kGiver, trace_.key(block));
    }
  }
}

void PolicyCache::hint(std::span<const std::uint32_t> blocks, TimePoint now, const RequestHints& hints) {
  for (std::uint32_t i = 0; i < blocks.size(); ++i) {
    const BlockId block_id = block_id_of_[blocks[i]];
    RetentionHint hint{.kind = Kind::kWillNotReturn};
    if (i < hints.system_blocks) {
      hint.kind = Kind::kSystemPrompt;
    } else if (hints.returns_in) {
      hint = {.kind = Kind::kReturns, .in = *hints.returns_in};
    }
    hints_->say(block_id, hint, now);
    hints_->released(block_id, now);
    const HintBook::Rank rank = hints_->rank(block_id, kGiver, now);
    classes_[index_of(block_id)] = EvictionClass{static_cast<std::uint16_t>(rank.level)};
    reviews_->start(block_id, now);
    reviews_->review_at(block_id, rank.review);
  }
}

}  // namespace cairn::lab
