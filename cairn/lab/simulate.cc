#include "cairn/lab/simulate.h"

#include <algorithm>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "cairn/base/check.h"

namespace cairn::lab {

namespace {

// What a pool is to its policy, without handles, locks and bytes.
class PolicyCache final : public ParentFinder {
 public:
  [[nodiscard]] static Result<std::unique_ptr<PolicyCache>> create(const Trace& trace, PolicyKind kind,
                                                                   std::uint32_t capacity) {
    std::unique_ptr<PolicyCache> cache(new PolicyCache(trace, capacity));
    Result<std::unique_ptr<EvictionPolicy>> policy =
        make_policy(kind, {.capacity = capacity,
                           .class_count = 1,
                           .keys = Column<BlockKey>(cache->keys_.data(), sizeof(BlockKey)),
                           .classes = Column<EvictionClass>(&cache->class_, 0),
                           .parents = cache.get()});
    if (!policy) {
      return Unexpected(std::move(policy).error());
    }
    cache->policy_ = *std::move(policy);
    return cache;
  }

  HitCounts run() {
    for (const Trace::Request& request : trace_.requests()) {
      serve(request);
    }
    return counts_;
  }

  [[nodiscard]] SlotId find_parent(const BlockKey& child) const override {
    const std::uint32_t block = trace_.find(child);
    CAIRN_CHECK(block != Trace::kNoBlock, "a policy asks for parents of blocks of the trace");
    const std::uint32_t parent = trace_.parent(block);
    return parent == Trace::kNoBlock ? kNoSlot : slot_of_[parent];
  }

 private:
  PolicyCache(const Trace& trace, std::uint32_t capacity)
      : trace_(trace), slot_of_(trace.unique_blocks(), kNoSlot), block_in_(capacity), keys_(capacity) {}

  void serve(const Trace::Request& request) {
    const std::span<const std::uint32_t> blocks = trace_.blocks_of(request);
    std::uint32_t hits = 0;
    while (hits < blocks.size() && slot_of_[blocks[hits]] != kNoSlot) {
      ++hits;
    }
    counts_.add(trace_, request, hits);

    // Those behind a gap are no hits, but the request brings them and they need no second slot.
    const std::span<const std::uint32_t> kept = blocks.first(std::min(blocks.size(), keys_.size()));
    slots_.clear();
    for (const std::uint32_t block : kept) {
      if (slot_of_[block] != kNoSlot) {
        slots_.push_back(slot_of_[block]);
      }
    }
    policy_->remove(slots_);
    make_room(kept.size() - slots_.size());
    for (const std::uint32_t block : kept) {
      if (slot_of_[block] == kNoSlot) {
        const SlotId slot = free_.back();
        free_.pop_back();
        slot_of_[block] = slot;
        block_in_[index_of(slot)] = block;
        keys_[index_of(slot)] = trace_.key(block);
      }
    }
    slots_.clear();
    for (std::size_t i = kept.size(); i > 0; --i) {
      slots_.push_back(slot_of_[kept[i - 1]]);
    }
    policy_->insert(slots_);
  }

  // Fills free_ with this many slots.
  void make_room(std::size_t wanted) {
    while (free_.size() < wanted && never_used_ < keys_.size()) {
      free_.push_back(SlotId{never_used_++});
    }
    if (free_.size() == wanted) {
      return;
    }
    victims_.resize(wanted - free_.size());
    const std::size_t evicted = policy_->evict({0, 1}, {}, victims_);
    CAIRN_CHECK(evicted == victims_.size(), "a policy gives up all that it holds");
    counts_.evicted += evicted;
    for (const SlotId slot : victims_) {
      slot_of_[block_in_[index_of(slot)]] = kNoSlot;
    }
    policy_->forget(victims_);
    free_.insert(free_.end(), victims_.begin(), victims_.end());
  }

  const Trace& trace_;
  std::vector<SlotId> slot_of_;          // by block
  std::vector<std::uint32_t> block_in_;  // by slot
  std::vector<BlockKey> keys_;           // by slot
  EvictionClass class_{};
  std::unique_ptr<EvictionPolicy> policy_;
  std::uint32_t never_used_ = 0;
  std::vector<SlotId> free_;
  std::vector<SlotId> slots_;
  std::vector<SlotId> victims_;
  HitCounts counts_;
};

}  // namespace

Result<HitCounts> simulate(const Trace& trace, PolicyKind policy, std::uint32_t capacity) {
  Result<std::unique_ptr<PolicyCache>> cache = PolicyCache::create(trace, policy, capacity);
  if (!cache) {
    return Unexpected(std::move(cache).error());
  }
  return (*cache)->run();
}

HitCounts simulate_infinite(const Trace& trace) {
  HitCounts counts;
  std::vector<bool> seen(trace.unique_blocks());
  for (const Trace::Request& request : trace.requests()) {
    const std::span<const std::uint32_t> blocks = trace.blocks_of(request);
    std::uint32_t hits = 0;
    while (hits < blocks.size() && seen[blocks[hits]]) {
      ++hits;
    }
    counts.add(trace, request, hits);
    for (const std::uint32_t block : blocks) {
      seen[block] = true;
    }
  }
  return counts;
}

}  // namespace cairn::lab
