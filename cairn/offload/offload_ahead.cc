// OffloadEdge::Impl: copying ahead of need: the next victims of the upper pool, and blocks that were missed when they were
// registered.
#include <algorithm>
#include <utility>

#include "cairn/base/check.h"
#include "cairn/offload/offload_impl.h"

namespace cairn {

// The pool keeps as many blocks ready as were allocated while copies were catching up, the most of late, so that the next
// allocations find blocks that are below. Half of that is forgotten in about five turnovers of the pool.
void OffloadEdge::Impl::follow_allocations() {
  const std::uint64_t allocated = upper_->stats().allocated;
  const std::uint32_t capacity = upper_->capacity();
  if (allocated - faded_at_ >= capacity) {
    demand_ -= demand_ / 8;
    largest_ -= largest_ / 8;
    faded_at_ = allocated;
  }
  largest_ = std::max(largest_, upper_->take_largest_allocation());
  const std::uint64_t since = allocated - measured_from_;
  demand_ = std::max(demand_, static_cast<std::uint32_t>(std::min<std::uint64_t>(since, capacity)));
  if (urgent_ == 0) {
    measured_from_ = allocated;
  }
  // Never so many that claiming twice as much would be more than half of the pool.
  upper_->set_low_water(std::min(demand_, capacity / 4));
}

// Victims stand ready to go from now on, in the order of the policy: an allocation never waits for a copy. Those that are
// not below and worth it are copied before anything that is not about to go.
bool OffloadEdge::Impl::claim_victims(TimePoint now) {
  if (!is_ahead()) {
    return false;
  }
  follow_allocations();
  bool did = false;
  for (std::uint32_t wanted = upper_->wanted_victims(); wanted > 0;) {
    ImmutableBlocks victims = next_victims(std::min(wanted, options_.batch));
    if (victims.empty()) {
      break;
    }
    did = true;
    wanted -= std::min(wanted, victims.size());
    const std::vector<BlockFacts> facts = victims.facts();
    std::move(victims).release_as_victims();
    const bool is_open = link_.may_be_tried();
    for (const BlockFacts& victim : facts) {
      offer_victim(victim, is_open, now);
    }
  }
  return did;
}

// In steps: an allocation waits no longer than one of them takes.
ImmutableBlocks OffloadEdge::Impl::next_victims(std::uint32_t count) {
  constexpr std::uint32_t kStep = 8;
  ImmutableBlocks victims;
  while (count > 0) {
    const std::uint32_t asked = std::min(count, kStep);
    ImmutableBlocks some = upper_->claim_victims(asked);
    count = some.size() == asked ? count - asked : 0;
    CAIRN_CHECK(victims.append(std::move(some)).has_value(), "victims of one pool can be joined");
  }
  return victims;
}

void OffloadEdge::Impl::offer_victim(const BlockFacts& victim, bool is_open, TimePoint now) {
  const BlockKey& key = victim.block.key;
  if (!keys_.contains(key)) {
    Reason reason;
    if (is_below(key)) {
      reason = OffloadRefusal::kAlreadyBelow;
    } else if (!is_open) {
      reason = OffloadRefusal::kTierOut;
    } else if (is_orphan(key)) {
      reason = OffloadRefusal::kNoParent;
    }
    if (reason) {
      ++offered_;
      refuse(*reason);
      return;
    }
  }
  want_with_ancestors(key, Urgency::kUrgent, now);
}

// The block is copied after those before it in its sequence, as far as they are above and not below: without them nobody
// could load it. The last one is offered first: what stands before an admitted block is admitted too.
void OffloadEdge::Impl::want_with_ancestors(BlockKey key, Urgency urgency, TimePoint now) {
  while (true) {
    const std::vector<std::optional<PeekedBlock>> seen = upper_->peek({&key, 1});
    if (!seen[0] || !want(seen[0]->facts, urgency, now) || !seen[0]->parent) {
      return;
    }
    key = *seen[0]->parent;
  }
}

// False: nothing need be done for the blocks before this one.
bool OffloadEdge::Impl::want(const BlockFacts& block, Urgency urgency, TimePoint now) {
  const BlockKey& key = block.block.key;
  if (const auto found = keys_.find(key); found != keys_.end()) {
    return urgency == Urgency::kUrgent && make_urgent(key, found->second);
  }
  if (is_below(key)) {
    return false;
  }
  ++offered_;
  if (const Reason reason = judge(block, now)) {
    refuse(*reason);
    return false;
  }
  const bool is_urgent = urgency == Urgency::kUrgent;
  const std::optional<BlockKey> shed = queue_.push(
      {.key = key, .priority = block.priority, .frequency = registry_.frequency(key), .is_urgent = is_urgent});
  keys_.emplace(key, KeyState{.is_wanted = true, .is_admitted = true, .is_urgent = is_urgent});
  urgent_ += is_urgent ? 1 : 0;
  if (shed) {
    resolve(*shed, OffloadRefusal::kShed);
    shed_some_ = true;
  }
  return shed != key;
}

OffloadEdge::Impl::Reason OffloadEdge::Impl::judge(const BlockFacts& block, TimePoint now) {
  if (block.priority < options_.least_priority) {
    return OffloadRefusal::kLowPriority;
  }
  const BlockKey& key = block.block.key;
  return refusal_of(filter_.offer(key, key.position() + 1, now));
}

// Whether it was waiting and not urgent before.
bool OffloadEdge::Impl::make_urgent(const BlockKey& key, KeyState& state) {
  if (state.is_urgent || state.phase != Phase::kWaiting) {
    return false;
  }
  state.is_urgent = true;
  ++urgent_;
  queue_.make_urgent(key);
  return true;
}

// Nobody can load it: the block before it in its sequence is in neither tier.
bool OffloadEdge::Impl::is_orphan(const BlockKey& key) const {
  return key.position() > 0 && !upper_->contains_parent_of(key) && !lower_.contains_parent_of(key);
}

// For blocks that are not about to go. The last few blocks of the lower tier are left to those that are: as they come and
// go, the pool above would be searched for blocks again and again.
std::uint32_t OffloadEdge::Impl::free_room_below() const {
  const std::uint32_t free = lower_.counts().free;
  return free < lower_.capacity() / 64 ? 0 : free;
}

bool OffloadEdge::Impl::may_find_missed() const {
  return is_ahead() && (missed_some_ || is_searching_) && !is_paused_ && !is_ended_ && !is_stuck_ && link_.is_up() &&
         free_room_below() > 0;
}

// Blocks that the edge does not know of: more came at once than it may remember, or the lower tier was out or full, and is
// so no more. While there is little else to copy the upper pool is searched for them, some blocks at a time.
bool OffloadEdge::Impl::find_missed(TimePoint now) {
  constexpr std::uint32_t kMost = 2048;  // blocks in one call
  if (!may_find_missed()) {
    return false;
  }
  if (!is_searching_) {
    is_searching_ = true;
    missed_some_ = false;
    searched_to_ = 0;
  }
  const std::uint32_t enough = std::max(1U, std::min(options_.batch, options_.queue / 2));
  const std::uint32_t step = std::min(enough, 32U);  // an allocation waits no longer than one of them takes
  std::uint32_t searched = 0;
  std::vector<ResidentBlock> blocks;
  for (; is_searching_ && searched < kMost && queue_.size() < enough; searched += step) {
    blocks.clear();
    searched_to_ = upper_->list_resident(searched_to_, step, blocks);
    is_searching_ = searched_to_ < upper_->capacity();
    for (const ResidentBlock& block : blocks) {
      if (!keys_.contains(block.key) && !is_below(block.key) && !is_orphan(block.key)) {
        want_with_ancestors(block.key, Urgency::kNotUrgent, now);
      }
    }
  }
  return searched > 0;
}

}  // namespace cairn
