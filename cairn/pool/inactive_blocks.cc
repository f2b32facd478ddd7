#include "cairn/pool/inactive_blocks.h"

#include <algorithm>
#include <array>
#include <utility>

#include "cairn/base/check.h"

namespace cairn {

InactiveBlocks::InactiveBlocks(const BlockPoolOptions& options, const Clock& clock, BlockRecords& blocks,
                               const KeyIndex& index, Veto veto)
    : options_(options),
      clock_(clock),
      blocks_(blocks),
      index_(index),
      veto_(std::move(veto)),
      veto_beside_ready_([this](BlockId block_id) {
        return order_.ready->ready_children(block_id) > 0 || (veto_ && veto_(block_id));
      }) {}

Result<InactiveBlocks::Order> InactiveBlocks::make_order() const {
  const KeySeed seed = options_.seed ? *options_.seed : KeySeed::of_process();
  Order order;
  CAIRN_TRY_ASSIGN(order.policy, make_policy(options_.policy, PolicyView{
                                                                  .capacity = options_.capacity,
                                                                  .class_count = blocks_.classes().count(),
                                                                  .keys = blocks_.key_column(),
                                                                  .classes = blocks_.class_column(),
                                                                  .parents = this,
                                                                  .leaves_first = options_.leaves_first,
                                                                  .seed = seed,
                                                                  .clock = &clock_,
                                                                  .returns = options_.returns,
                                                              }));
  if (options_.time_to_live || options_.hints) {
    CAIRN_TRY_ASSIGN(order.retention_clock, RetentionClock::create(options_.capacity));
  }
  if (options_.hints) {
    CAIRN_TRY_ASSIGN(order.hints, HintBook::create(options_.capacity, tenant_count(), seed));
  }
  if (options_.low_water > 0) {
    CAIRN_TRY_ASSIGN(order.ready, ReadyQueue::create(options_.capacity, tenant_count()));
  }
  return order;
}

std::uint32_t InactiveBlocks::swap_order(Order& order) {
  const std::uint32_t count = order_.policy == nullptr ? 0 : size();
  std::swap(order_, order);
  TenantLedger& tenants = blocks_.tenants();
  for (std::uint32_t i = 0; i < tenant_count(); ++i) {
    const TenantId tenant{static_cast<std::uint8_t>(i)};
    tenants.remove_inactive(tenant, tenants.usage(tenant)->inactive);
  }
  borrowed_ = 0;
  return count;
}

void InactiveBlocks::reserve(std::size_t blocks) {
  if (order_.ready) {
    ordinary_.reserve(blocks);
    returning_.reserve(blocks);
  }
}

std::size_t InactiveBlocks::bytes() const {
  return order_.policy->bytes() + (order_.ready ? order_.ready->bytes() : 0) +
         (order_.retention_clock ? order_.retention_clock->bytes() : 0) + (order_.hints ? order_.hints->bytes() : 0) +
         (ordinary_.capacity() + returning_.capacity()) * sizeof(BlockId);
}

std::uint32_t InactiveBlocks::count_borrowed(std::span<const BlockId> block_ids) const {
  if (blocks_.borrowed_count() == 0) {
    return 0;
  }
  return static_cast<std::uint32_t>(std::count_if(block_ids.begin(), block_ids.end(),
                                                  [this](BlockId block_id) { return blocks_.is_borrowed(block_id); }));
}

// What changes when blocks become inactive, in the policy or in the ready queue.
void InactiveBlocks::on_inserted(std::span<const BlockId> block_ids) {
  borrowed_ += count_borrowed(block_ids);
  if (order_.retention_clock) {
    const TimePoint now = clock_.now();
    for (const BlockId block_id : block_ids) {
      order_.retention_clock->start(block_id, now);
      if (order_.hints) {
        order_.hints->on_released(block_id, now);
        const TenantId tenant = blocks_.tenant_of(block_id);
        const HintBook::Rank rank = order_.hints->rank(block_id, tenant, now);
        blocks_.eviction_class(block_id) =
            blocks_.classes().class_of(tenant, blocks_.priority_of(block_id), rank.level);
        order_.retention_clock->review_at(block_id, rank.review);
      }
    }
  }
  TenantLedger& tenants = blocks_.tenants();
  if (tenants.tenant_count() == 1) {
    tenants.add_inactive(kDefaultTenant, static_cast<std::uint32_t>(block_ids.size()));
  } else {
    for (const BlockId block_id : block_ids) {
      tenants.add_inactive(blocks_.tenant_of(block_id), 1);
    }
  }
}

// The reverse of on_inserted().
void InactiveBlocks::on_removed(std::span<const BlockId> block_ids) {
  borrowed_ -= count_borrowed(block_ids);
  TenantLedger& tenants = blocks_.tenants();
  if (tenants.tenant_count() == 1) {
    tenants.remove_inactive(kDefaultTenant, static_cast<std::uint32_t>(block_ids.size()));
  } else {
    for (const BlockId block_id : block_ids) {
      tenants.remove_inactive(blocks_.tenant_of(block_id), 1);
    }
  }
  if (order_.retention_clock) {
    for (const BlockId block_id : block_ids) {
      order_.retention_clock->stop(block_id);
    }
  }
}

void InactiveBlocks::insert(std::span<const BlockId> block_ids) {
  if (!order_.ready || order_.ready->returning_count() == 0) {
    on_inserted(block_ids);
    order_.policy->insert(block_ids);
    return;
  }
  ordinary_.clear();
  returning_.clear();
  for (const BlockId block_id : block_ids) {
    (order_.ready->is_returning(block_id) ? returning_ : ordinary_).push_back(block_id);
  }
  push_ready(returning_);
  on_inserted(ordinary_);
  order_.policy->insert(ordinary_);
}

void InactiveBlocks::insert_ready(std::span<const BlockId> block_ids) {
  if (order_.ready) {
    push_ready(block_ids);
  } else {
    insert(block_ids);
  }
}

void InactiveBlocks::push_ready(std::span<const BlockId> block_ids) {
  on_inserted(block_ids);
  for (const BlockId block_id : block_ids) {
    order_.ready->push(block_id, blocks_.tenant_of(block_id));
    const BlockId parent = order_.policy->leaves_first() ? index_.find_parent(blocks_.key(block_id)) : kNoBlock;
    blocks_.ready_parent(block_id) = parent;
    if (parent != kNoBlock) {
      order_.ready->add_child(parent);
    }
  }
}

void InactiveBlocks::remove_ready(BlockId block_id) {
  order_.ready->remove(block_id, blocks_.tenant_of(block_id));
  if (const BlockId parent = blocks_.ready_parent(block_id); parent != kNoBlock) {
    order_.ready->remove_child(parent);
  }
}

void InactiveBlocks::remove(std::span<const BlockId> block_ids) {
  if (ready_count() == 0) {
    order_.policy->remove(block_ids);
  } else {
    order_.policy->remove(take_from_ready(block_ids));
  }
  on_removed(block_ids);
}

void InactiveBlocks::hold(std::span<const BlockId> block_ids) {
  returning_.clear();
  remove(block_ids);
  for (const BlockId block_id : returning_) {
    order_.ready->mark_returning(block_id);
  }
}

void InactiveBlocks::match(std::span<const BlockId> inactive, std::span<const BlockId> in_use) {
  if (order_.hints && !(inactive.empty() && in_use.empty())) {
    order_.hints->observe(static_cast<std::uint32_t>(inactive.size()), 0, size(), clock_.now());
  }
  use(inactive, in_use);
}

void InactiveBlocks::tell_hints_of_use(std::span<const BlockId> block_ids) {
  for (const BlockId block_id : block_ids) {
    order_.hints->on_used(block_id, blocks_.tenant_of(block_id), blocks_.key(block_id));
  }
}

void InactiveBlocks::use(std::span<const BlockId> inactive, std::span<const BlockId> in_use) {
  if (order_.hints) {
    tell_hints_of_use(inactive);
    tell_hints_of_use(in_use);
  }
  if (ready_count() == 0) {
    order_.policy->match(inactive, in_use);
  } else {
    order_.policy->match(take_from_ready(inactive), in_use);
    order_.policy->match_victims(returning_);
  }
  if (!inactive.empty()) {
    on_removed(inactive);
  }
  if (order_.ready && order_.ready->returning_count() > 0) {
    for (const BlockId block_id : in_use) {
      order_.ready->clear_returning(block_id);
    }
  }
}

// Takes those of the blocks that are ready out of the ready queue, to `returning_`. Returns the others.
std::span<const BlockId> InactiveBlocks::take_from_ready(std::span<const BlockId> block_ids) {
  ordinary_.clear();
  returning_.clear();
  for (const BlockId block_id : block_ids) {
    if (order_.ready->contains(block_id)) {
      remove_ready(block_id);
      returning_.push_back(block_id);
    } else {
      ordinary_.push_back(block_id);
    }
  }
  return ordinary_;
}

std::size_t InactiveBlocks::evict(TenantId tenant, std::span<BlockId> out) {
  std::size_t taken = ready_count() > 0 ? take_ready(tenant, out) : 0;
  if (taken == 0) {
    taken = take_ordered(blocks_.classes().of_tenant(tenant), veto(), out);
  }
  blocks_.tenants().remove_inactive(tenant, static_cast<std::uint32_t>(taken));
  return taken;
}

BlockId InactiveBlocks::evict_any() {
  BlockId block_id = kNoBlock;
  for (std::uint32_t i = 0; block_id == kNoBlock && ready_count() > 0 && i < tenant_count(); ++i) {
    (void)take_ready(TenantId{static_cast<std::uint8_t>(i)}, {&block_id, 1});
  }
  if (block_id == kNoBlock) {
    block_id = take_ordered(blocks_.classes().all(), veto());
  }
  if (block_id != kNoBlock) {
    blocks_.tenants().remove_inactive(blocks_.tenant_of(block_id), 1);
  }
  return block_id;
}

bool InactiveBlocks::has_inactive_child(BlockId block_id) const {
  return order_.policy->leaves_first() &&
         (order_.ready->ready_children(block_id) > 0 || order_.policy->holds_below(block_id));
}

// Takes the tenant's first ready blocks out, and returns how many. A block that has an inactive child goes back to the
// policy instead: the child was used since its parent was claimed, and it is unknown how long it stays.
std::size_t InactiveBlocks::take_ready(TenantId tenant, std::span<BlockId> out) {
  std::size_t taken = 0;
  BlockId next = order_.ready->front(tenant);
  while (taken < out.size() && next != kNoBlock) {
    const BlockId block_id = std::exchange(next, order_.ready->next(next));
    if (has_inactive_child(block_id)) {
      remove_ready(block_id);
      order_.policy->insert({&block_id, 1});
    } else if (!veto_ || !veto_(block_id)) {
      remove_ready(block_id);
      if (blocks_.is_borrowed(block_id)) {
        defer(block_id);
      } else {
        out[taken++] = block_id;
      }
    }
  }
  return taken;
}

// Takes the next blocks out of the policy, and returns how many.
std::size_t InactiveBlocks::take_ordered(ClassRange classes, const Veto& veto, std::span<BlockId> out) {
  std::size_t taken = 0;
  while (true) {
    const std::span<BlockId> room = out.subspan(taken);
    const std::size_t given = order_.policy->evict(classes, veto, room);
    if (borrowed_ == 0) {
      return taken + given;
    }
    for (const BlockId block_id : room.first(given)) {
      if (blocks_.is_borrowed(block_id)) {
        defer(block_id);
      } else {
        out[taken++] = block_id;
      }
    }
    if (given < room.size() || taken == out.size()) {
      return taken;
    }
  }
}

BlockId InactiveBlocks::take_ordered(ClassRange classes, const Veto& veto) {
  BlockId block_id = kNoBlock;
  return take_ordered(classes, veto, {&block_id, 1}) == 1 ? block_id : kNoBlock;
}

// Requires: the block is borrowed, and out of the policy and the ready queue.
void InactiveBlocks::defer(BlockId block_id) {
  on_removed({&block_id, 1});
  blocks_.defer_eviction(block_id);
}

std::size_t InactiveBlocks::claim(std::span<BlockId> out) {
  const std::size_t claimed =
      tenant_count() == 1 ? take_ordered(blocks_.classes().all(), veto_, out) : claim_from_tenants(out);
  on_removed(out.first(claimed));
  return claimed;
}

std::size_t InactiveBlocks::claim_from_tenants(std::span<BlockId> out) {
  std::array<std::uint32_t, TenantLedger::TenantSet().size()> gone{};
  for (std::uint32_t i = 0; i < tenant_count(); ++i) {
    gone[i] = order_.ready->size(TenantId{static_cast<std::uint8_t>(i)});
  }
  TenantLedger::TenantSet barren;
  std::size_t claimed = 0;
  while (claimed < out.size()) {
    const std::optional<TenantId> giver = blocks_.tenants().furthest_beyond(gone, barren);
    const BlockId block_id = take_ordered(giver ? blocks_.classes().of_tenant(*giver) : blocks_.classes().all(), veto_);
    if (block_id == kNoBlock && !giver) {
      break;
    }
    if (block_id == kNoBlock) {
      barren.set(index_of(*giver));
      continue;
    }
    barren.reset();  // a block that had children of other tenants may be a leaf now
    ++gone[index_of(blocks_.tenant_of(block_id))];
    out[claimed++] = block_id;
  }
  return claimed;
}

void InactiveBlocks::take_all(std::vector<BlockId>& out) {
  const std::size_t begin = out.size();
  for (std::uint32_t i = 0; ready_count() > 0 && i < tenant_count(); ++i) {
    const TenantId tenant{static_cast<std::uint8_t>(i)};
    for (BlockId block_id = order_.ready->front(tenant); block_id != kNoBlock; block_id = order_.ready->front(tenant)) {
      remove_ready(block_id);
      out.push_back(block_id);
    }
  }
  const ClassRange all = blocks_.classes().all();
  for (BlockId block_id = order_.policy->evict(all, {}); block_id != kNoBlock;
       block_id = order_.policy->evict(all, {})) {
    out.push_back(block_id);
  }
  on_removed(std::span(out).subspan(begin));
}

void InactiveBlocks::observe_evictions(std::uint32_t count) {
  if (order_.hints && count > 0) {
    order_.hints->observe(0, count, size(), clock_.now());
  }
}

void InactiveBlocks::forget(std::span<const BlockId> block_ids) {
  order_.policy->forget(block_ids);
  if (!order_.retention_clock && !order_.ready) {
    return;
  }
  for (const BlockId block_id : block_ids) {
    if (order_.hints) {
      order_.hints->on_removed(block_id, blocks_.tenant_of(block_id), blocks_.key(block_id));
    }
    if (order_.retention_clock) {
      order_.retention_clock->stop(block_id);
    }
    if (order_.ready) {
      order_.ready->clear_returning(block_id);
      orphan_ready_children(block_id);
    }
  }
}

// The block is no longer the parent of any ready block.
void InactiveBlocks::orphan_ready_children(BlockId block_id) {
  for (std::uint32_t i = 0; order_.ready->ready_children(block_id) > 0 && i < tenant_count(); ++i) {
    for (BlockId child = order_.ready->front(TenantId{static_cast<std::uint8_t>(i)}); child != kNoBlock;
         child = order_.ready->next(child)) {
      if (blocks_.ready_parent(child) == block_id) {
        blocks_.ready_parent(child) = kNoBlock;
        order_.ready->remove_child(block_id);
      }
    }
  }
}

BlockId InactiveBlocks::next_expired(TimePoint now) {
  using What = RetentionClock::What;
  while (const std::optional<RetentionClock::Due> due = order_.retention_clock->pop_due(now)) {
    if (due->what == What::kExpired) {
      return due->block_id;
    }
    if (due->what == What::kPriorityOver) {
      const ClassLayout& classes = blocks_.classes();
      const EvictionClass is = blocks_.eviction_class(due->block_id);
      change_class(due->block_id,
                   classes.class_of(classes.tenant_of(is), Retention::kDefaultPriority, classes.level_of(is)));
    } else {
      rank_by_hint(due->block_id, now);
    }
  }
  return kNoBlock;
}

// Requires: inactive.
void InactiveBlocks::rank_by_hint(BlockId block_id, TimePoint now) {
  const TenantId tenant = blocks_.tenant_of(block_id);
  const HintBook::Rank rank = order_.hints->rank(block_id, tenant, now);
  const EvictionClass ranked = blocks_.classes().class_of(tenant, blocks_.priority_of(block_id), rank.level);
  if (ranked != blocks_.eviction_class(block_id)) {
    change_class(block_id, ranked);
  }
  order_.retention_clock->review_at(block_id, rank.review);
}

// Requires: inactive.
void InactiveBlocks::change_class(BlockId block_id, EvictionClass to) {
  if (order_.ready && order_.ready->contains(block_id)) {
    blocks_.eviction_class(block_id) = to;
  } else {
    order_.policy->reclass(block_id, blocks_.eviction_class(block_id), to);
  }
}

void InactiveBlocks::on_registered(BlockId block_id, const Retention& retention) {
  set_retention(block_id, retention);
  if (order_.hints) {
    order_.hints->on_registered(blocks_.tenant_of(block_id), blocks_.key(block_id));
  }
}

void InactiveBlocks::set_retention(BlockId block_id, const Retention& retention) {
  blocks_.eviction_class(block_id) = blocks_.classes().class_of(blocks_.tenant_of(block_id), retention.priority);
  if (order_.retention_clock) {
    order_.retention_clock->set_time_to_live(block_id, retention.time_to_live);
    order_.retention_clock->set_priority_duration(block_id, retention.priority_duration);
  }
}

void InactiveBlocks::raise_retention(BlockId block_id, const Retention& retention) {
  const std::uint32_t priority = blocks_.priority_of(block_id);
  const bool is_higher = retention.priority > priority;
  if (is_higher) {
    blocks_.eviction_class(block_id) = blocks_.classes().class_of(blocks_.tenant_of(block_id), retention.priority);
  }
  if (order_.retention_clock && retention.priority >= priority) {
    const std::optional<Duration> lasts = order_.retention_clock->priority_duration(block_id);
    const bool is_longer = lasts && (!retention.priority_duration || *retention.priority_duration > *lasts);
    if (is_higher || is_longer) {
      order_.retention_clock->set_priority_duration(block_id, retention.priority_duration);
    }
  }
}

void InactiveBlocks::hint(BlockId block_id, const RetentionHint& hint, TimePoint now) {
  order_.hints->add(block_id, hint, now);
  if (!blocks_.is_in_use(block_id)) {
    rank_by_hint(block_id, now);
  }
}

void InactiveBlocks::check_invariants() const {
  std::uint32_t inactive = 0;
  std::uint32_t borrowed = 0;
  std::vector<std::uint32_t> of_tenant(tenant_count());
  std::vector<std::uint32_t> children(blocks_.used_end());
  for (std::uint32_t i = 0; i < blocks_.used_end(); ++i) {
    const BlockId block_id{i};
    const bool is_inactive = blocks_.is_inactive(block_id);
    const bool is_ready = order_.ready && order_.ready->contains(block_id);
    CAIRN_CHECK(order_.policy->contains(block_id) == (is_inactive && !is_ready) && (is_inactive || !is_ready),
                "N1: the policy or the ready queue holds exactly the inactive blocks");
    CAIRN_CHECK(!order_.ready || !order_.ready->is_returning(block_id) ||
                    (blocks_.is_matchable(block_id) && blocks_.is_in_use(block_id)),
                "N1: a block that returns to the ready queue is in use");
    if (is_ready && blocks_.ready_parent(block_id) != kNoBlock) {
      ++children[index_of(blocks_.ready_parent(block_id))];
    }
    if (is_inactive) {
      ++inactive;
      ++of_tenant[index_of(blocks_.tenant_of(block_id))];
      borrowed += blocks_.is_borrowed(block_id) ? 1 : 0;
    }
  }
  for (std::uint32_t i = 0; order_.ready && i < blocks_.used_end(); ++i) {
    CAIRN_CHECK(order_.ready->ready_children(BlockId{i}) == children[i], "N2: ready blocks are known to their parents");
  }
  CAIRN_CHECK(inactive == size(), "N3: inactive blocks add up");
  CAIRN_CHECK(borrowed == borrowed_, "N3: borrowed inactive blocks add up");
  for (std::uint32_t i = 0; i < tenant_count(); ++i) {
    CAIRN_CHECK(blocks_.tenants().usage(TenantId{static_cast<std::uint8_t>(i)})->inactive == of_tenant[i],
                "N3: inactive blocks of each tenant add up");
  }
}

}  // namespace cairn
