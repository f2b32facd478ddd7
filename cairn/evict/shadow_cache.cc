#include "cairn/evict/shadow_cache.h"

#include <algorithm>
#include <utility>

namespace cairn {

namespace {

constexpr ClassRange kOnlyClass{0, 1};
constexpr double kS3FifoShare = 0.1;
enum : GhostLists::List { kOnce, kAgain, kGhostLists };

}  // namespace

Result<std::unique_ptr<ShadowCache>> ShadowCache::create(const Options& options) {
  std::unique_ptr<ShadowCache> cache(new ShadowCache(options));
  CAIRN_TRY_ASSIGN(cache->records_, PageArray<Record>::create(std::max(1U, options.blocks)));
  CAIRN_TRY_ASSIGN(cache->buckets_, PageArray<Link>::create(options.blocks));
  const PolicyView view{.capacity = options.blocks,
                        .class_count = 1,
                        .keys = Column<BlockKey>(&cache->records_.data()->key, sizeof(Record)),
                        .classes = Column<EvictionClass>(&cache->only_class_, 0),
                        .parents = cache.get(),
                        .leaves_first = options.leaves_first,
                        .seed = options.seed};
  CAIRN_TRY_ASSIGN(cache->queue_, BlockQueue::create(view, kUseSegments));
  if (options.expert == Expert::kS3Fifo) {
    cache->once_target_ = kS3FifoShare * options.blocks;
  } else if (options.expert == Expert::kArc) {
    CAIRN_TRY_ASSIGN(cache->ghosts_, GhostLists::create(options.blocks, kGhostLists, options.seed));
  }
  return cache;
}

bool ShadowCache::use(const BlockKey& key, std::uint32_t uses, const ReuseModel& model, std::uint64_t now) {
  if (blocks_ == 0) {
    return false;
  }
  BlockId block_id = find(key);
  const bool hit = block_id != kNoBlock;
  if (hit) {
    queue_->remove(block_id);
  } else {
    if (ghosts_) {
      adapt_target(key);
    }
    block_id = make_room(model, now);
    Link& bucket = buckets_[bucket_of(key)];
    records_[index_of(block_id)] = {.key = key, .chain = bucket};
    bucket = index_of(block_id) + 1;
  }
  queue_->place(block_id, segment_of_uses(uses), now);
  queue_->insert(block_id, kNoBlock);
  return hit;
}

// Uses only the bits that a child's key holds of its parent, so that parents can be found.
std::size_t ShadowCache::bucket_of(std::uint32_t position, std::uint64_t fragment) const {
  constexpr std::uint64_t kFragmentMask = (std::uint64_t{1} << BlockKey::kMinFragmentBits) - 1;
  const std::uint64_t name = (fragment & kFragmentMask) ^ (std::uint64_t{position} << BlockKey::kMinFragmentBits);
  return (((name * multiplier_) >> 32) * buckets_.size()) >> 32;
}

std::size_t ShadowCache::bucket_of(const BlockKey& key) const {
  return bucket_of(key.position(), value_of(key.sequence_hash()));
}

BlockId ShadowCache::find_parent(const BlockKey& child) const {
  const std::size_t bucket = bucket_of(child.position() - 1, child.parent_fragment());
  for (Link link = buckets_[bucket]; link != 0; link = records_[link - 1].chain) {
    if (records_[link - 1].key.is_parent_of(child)) {
      return BlockId{link - 1};
    }
  }
  return kNoBlock;
}

BlockId ShadowCache::find(const BlockKey& key) {
  for (Link link = buckets_[bucket_of(key)]; link != 0; link = records_[link - 1].chain) {
    if (records_[link - 1].key == key) {
      return BlockId{link - 1};
    }
  }
  return kNoBlock;
}

BlockId ShadowCache::make_room(const ReuseModel& model, std::uint64_t now) {
  if (used_ < blocks_) {
    return BlockId{used_++};
  }
  const BlockId victim = choose_victim(expert_, {model, now, once_target_}, *queue_, kOnlyClass, {});
  const BlockKey& key = records_[index_of(victim)].key;
  const bool once = queue_->segment(victim) == segment_of_uses(1);
  if (ghosts_) {
    ghosts_->push(once ? kOnce : kAgain, key);
  }
  queue_->remove(victim);
  Link* place = &buckets_[bucket_of(key)];
  while (*place != index_of(victim) + 1) {
    place = &records_[*place - 1].chain;
  }
  *place = records_[index_of(victim)].chain;
  queue_->forget(victim);
  return victim;
}

// As in ARC: when an evicted key returns, the part that it was evicted from gets more room, the more the fewer keys of
// that part are remembered.
void ShadowCache::adapt_target(const BlockKey& key) {
  const double once = ghosts_->size(kOnce);
  const double again = ghosts_->size(kAgain);
  const std::optional<GhostLists::List> returned = ghosts_->take(key);
  if (!returned) {
    return;
  }
  once_target_ += *returned == kOnce ? std::max(1.0, again / once) : -std::max(1.0, once / again);
  once_target_ = std::clamp<double>(once_target_, 0, blocks_);
}

std::size_t ShadowCache::bytes() const {
  return records_.bytes() + buckets_.bytes() + queue_->bytes() + (ghosts_ ? ghosts_->bytes() : 0);
}

}  // namespace cairn
