// NaivePool: a model of BlockPool with maps and vectors: obviously right, and slow.
//
// A handle is modelled as a list: of owners, for blocks without a key, or of block numbers.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "cairn/base/clock.h"
#include "cairn/pool/block_pool.h"
#include "tests/naive_order_testing.h"

namespace cairn::model {

using Owners = std::vector<TenantId>;
using BlockNumber = std::uint64_t;
using Numbers = std::vector<BlockNumber>;

struct Event {
  enum class Kind : std::uint8_t { kStored, kRemoved, kCleared };
  Kind kind;
  ResidentBlock block = {};  // removed: only its key
  friend bool operator==(const Event&, const Event&) = default;
};

// The keys under which a batch of blocks is registered.
struct Names {
  std::vector<BlockKey> keys;
  std::vector<BlockHash> tokens_hashes;  // empty: zeros
  std::optional<SequenceHash> parent;

  // The parent of block i, if these keys say it.
  [[nodiscard]] std::optional<SequenceHash> parent_of(std::size_t i) const {
    if (i > 0 && keys[i - 1].is_parent_of(keys[i])) {
      return keys[i - 1].sequence_hash();
    }
    return i == 0 ? parent : std::nullopt;
  }
};

class NaivePool {
 public:
  NaivePool(const BlockPoolOptions& options, const Clock& clock)
      : options_(options),
        clock_(clock),
        free_(options.capacity),
        order_(leaves_first_lru(options) ? PolicyKind::kLineageTick : options.policy) {
    if (options_.tenants.empty()) {
      options_.tenants.push_back({.name = "default"});
    }
  }

  // Removes blocks whose time to live has ended. Blocks with the same deadline may expire in any order; the model takes
  // the order of the pool's events.
  void expire(std::span<const Event> events) {
    std::vector<std::pair<TimePoint, BlockKey>> due;
    for (const auto& [key, number] : by_key_) {
      Block& block = blocks_.at(number);
      if (block.references == 0 && block.priority_duration &&
          block.released + *block.priority_duration <= clock_.now()) {
        block.priority = Retention::kDefaultPriority;
        block.priority_duration.reset();
      }
      if (block.references == 0 && block.deadline && *block.deadline <= clock_.now()) {
        due.emplace_back(*block.deadline, key);
      }
    }
    const auto event_of = [events](const BlockKey& key) {
      return std::ranges::find(events, key, [](const Event& event) { return event.block.key; }) - events.begin();
    };
    std::ranges::sort(due, [&](const auto& a, const auto& b) {
      return a.first != b.first ? a.first < b.first : event_of(a.second) < event_of(b.second);
    });
    for (const auto& [deadline, key] : due) {
      drop_inactive(key);
    }
  }

  // All or nothing; returns the evicted keys.
  [[nodiscard]] std::optional<std::vector<BlockKey>> allocate(std::uint32_t count, TenantId tenant) {
    NaivePool rehearsal = *this;
    return rehearsal.take_one_by_one(count, tenant) ? take_one_by_one(count, tenant) : std::nullopt;
  }

  void release_private(const Owners& owners) {
    for (const TenantId owner : owners) {
      return_free(owner);
    }
  }

  [[nodiscard]] Numbers register_blocks(const Owners& owners, const Names& names, const Retention& retention) {
    Numbers registered;
    for (std::size_t i = 0; i < names.keys.size(); ++i) {
      const BlockKey& key = names.keys[i];
      if (const auto there = by_key_.find(key); there != by_key_.end()) {
        Block& block = blocks_.at(there->second);
        take(there->second);
        raise(block, retention);
        if (options_.duplicates == Duplicates::kReject) {
          return_free(owners[i]);
          registered.push_back(there->second);
        } else {
          blocks_[++last_number_] = {.key = key, .tenant = owners[i], .duplicate_of = there->second};
          registered.push_back(last_number_);
        }
        continue;
      }
      blocks_[++last_number_] = {.key = key,
                                 .tenant = owners[i],
                                 .priority = retention.priority,
                                 .priority_duration = retention.priority_duration,
                                 .time_to_live = retention.time_to_live,
                                 .reset_on_release = options_.reset_on_release};
      by_key_[key] = last_number_;
      registered.push_back(last_number_);
      const BlockHash tokens_hash = names.tokens_hashes.empty() ? BlockHash{0} : names.tokens_hashes[i];
      // Given by the caller, or found in the pool, or the fragment in the key.
      const std::optional<BlockKey> found = parent_in_pool(key);
      const SequenceHash parent =
          names.parent_of(i).value_or(found ? found->sequence_hash() : SequenceHash{key.parent_fragment()});
      residents_[key] = {.key = key, .parent = parent, .tokens_hash = tokens_hash};
      events_.push_back({Event::Kind::kStored, residents_[key]});
    }
    return registered;
  }

  [[nodiscard]] Numbers match_prefix(std::span<const BlockKey> keys) {
    Numbers found;
    for (const BlockKey& key : keys) {
      if (!contains(key)) {
        break;
      }
      found.push_back(by_key_.at(key));
    }
    return taken(found);
  }

  [[nodiscard]] Numbers match_scattered(std::span<const BlockKey> keys) {
    Numbers found;
    for (const BlockKey& key : keys) {
      if (contains(key)) {
        found.push_back(by_key_.at(key));
      }
    }
    return taken(found);
  }

  [[nodiscard]] std::optional<Numbers> upgrade(std::span<const BlockKey> keys) {
    const bool all = std::ranges::all_of(keys, [this](const BlockKey& key) { return contains(key); });
    return all ? std::optional(match_scattered(keys)) : std::nullopt;
  }

  [[nodiscard]] Numbers taken(const Numbers& numbers) {
    for (const BlockNumber number : numbers) {
      take(number);
    }
    return numbers;
  }

  // Releases leaf first. Blocks enter the policy after all of them are released, because the pool inserts them in one
  // step.
  void release(const Numbers& numbers) {
    std::vector<BlockKey> evictable;
    for (std::size_t i = numbers.size(); i-- > 0;) {
      drop(numbers[i], evictable);
    }
    for (const BlockKey& key : evictable) {
      if (mark_released(key).ready_on_release) {
        make_ready(key);
      } else {
        order_.insert(key, parent_in_pool(key));
      }
    }
  }

  // Releases in the order of the run, into the ready queue instead of the policy.
  void release_as_victims(const Numbers& numbers) {
    if (options_.low_water == 0) {
      release(numbers);
      return;
    }
    std::vector<BlockKey> evictable;
    for (const BlockNumber number : numbers) {
      drop(number, evictable);
    }
    for (const BlockKey& key : evictable) {
      mark_released(key);
      make_ready(key);
    }
  }

  [[nodiscard]] Numbers claim_victims(std::uint32_t count) {
    Numbers claimed;
    std::map<TenantId, std::uint32_t> gone;
    while (options_.low_water > 0 && claimed.size() < count) {
      const std::optional<BlockKey> victim = next_claim(gone);
      if (!victim) {
        break;
      }
      claimed.push_back(by_key_.at(*victim));
      ++gone[blocks_.at(claimed.back()).tenant];
      take(claimed.back());
    }
    return claimed;
  }

  [[nodiscard]] std::uint32_t wanted_victims() const {
    const std::uint32_t at_hand = free_ + static_cast<std::uint32_t>(ready_.size());
    return at_hand >= options_.low_water ? 0 : std::min(2 * options_.low_water - at_hand, in_policy());
  }
  [[nodiscard]] bool is_low() const { return free_ + ready_.size() < options_.low_water && in_policy() > 0; }

  [[nodiscard]] Numbers hold(std::span<const BlockKey> keys) {
    Numbers found;
    for (const BlockKey& key : keys) {
      if (contains(key)) {
        found.push_back(by_key_.at(key));
        Block& block = blocks_.at(found.back());
        const bool stays_ready = block.ready_on_release || std::ranges::count(ready_, key, &Ready::key) > 0;
        take(found.back());
        block.ready_on_release = stays_ready;
      }
    }
    pinned_ += static_cast<std::uint32_t>(found.size());
    return found;
  }

  [[nodiscard]] std::uint32_t discard(std::span<const BlockKey> keys) {
    std::uint32_t found = 0;
    for (const BlockKey& key : keys) {
      if (!contains(key)) {
        continue;
      }
      ++found;
      const BlockNumber number = by_key_.at(key);
      if (blocks_.at(number).references == 0) {
        drop_inactive(key);
      } else {
        remove_key(key);
        blocks_.at(number).discarded = true;
      }
    }
    return found;
  }

  void quarantine(std::size_t count) { quarantined_ += static_cast<std::uint32_t>(count); }
  void release_quarantined(const Owners& owners) {
    quarantined_ -= static_cast<std::uint32_t>(owners.size());
    release_private(owners);
  }
  void add_pins(std::size_t count) { pinned_ += static_cast<std::uint32_t>(count); }
  void remove_pins(std::size_t count) { pinned_ -= static_cast<std::uint32_t>(count); }

  [[nodiscard]] ResetOutcome reset(std::span<const BlockKey> keys) {
    ResetOutcome outcome;
    for (const BlockKey& key : keys) {
      if (!contains(key)) {
        ++outcome.not_found;
      } else if (blocks_.at(by_key_.at(key)).references > 0) {
        ++outcome.in_use;
      } else {
        drop_inactive(key);
        ++outcome.reset;
      }
    }
    return outcome;
  }

  [[nodiscard]] std::uint32_t reset_inactive() {
    const std::size_t events_before = events_.size();
    std::uint32_t count = 0;
    for (const TenantId tenant : all_tenants()) {
      for (std::optional<BlockKey> key = first_ready(tenant); key; key = first_ready(tenant)) {
        drop_inactive(*key);
        ++count;
      }
    }
    while (const std::optional<BlockKey> key =
               order_.victim([this](const BlockKey& k) { return class_of(k); }, [](const BlockKey&) { return true; })) {
      drop_inactive(*key);
      ++count;
    }
    if (count > 0 && by_key_.empty()) {
      events_.resize(events_before);
      events_.push_back({Event::Kind::kCleared});
    }
    return count;
  }

  void set_retention(const Numbers& numbers, const Retention& retention) {
    for (const BlockNumber number : numbers) {
      Block& block = original(number);
      block.priority = retention.priority;
      block.priority_duration = retention.priority_duration;
      block.time_to_live = retention.time_to_live;
    }
  }
  void set_reset_on_release(const Numbers& numbers, bool reset) {
    for (const BlockNumber number : numbers) {
      original(number).reset_on_release = reset;
    }
  }

  [[nodiscard]] bool contains(const BlockKey& key) const { return by_key_.contains(key); }
  [[nodiscard]] const std::map<BlockKey, ResidentBlock>& residents() const { return residents_; }
  [[nodiscard]] BlockKey key_of(BlockNumber number) const { return blocks_.at(number).key; }
  [[nodiscard]] std::vector<Event> take_events() { return std::exchange(events_, {}); }

  [[nodiscard]] PoolCounts counts() const {
    const auto inactive = static_cast<std::uint32_t>(
        std::ranges::count_if(blocks_, [](const auto& entry) { return entry.second.references == 0; }));
    return {.total = options_.capacity,
            .free = free_,
            .inactive = inactive,
            .active = options_.capacity - free_ - inactive - quarantined_,
            .quarantined = quarantined_,
            .registered = static_cast<std::uint32_t>(by_key_.size()),
            .pinned = pinned_,
            .ready = static_cast<std::uint32_t>(ready_.size())};
  }
  [[nodiscard]] std::uint32_t used(TenantId tenant) const { return used_.contains(tenant) ? used_.at(tenant) : 0; }
  [[nodiscard]] std::uint32_t inactive(TenantId tenant) const {
    return static_cast<std::uint32_t>(std::ranges::count_if(blocks_, [tenant](const auto& entry) {
      return entry.second.references == 0 && entry.second.tenant == tenant;
    }));
  }

 private:
  struct Block {
    BlockKey key;
    TenantId tenant{};
    std::uint32_t references = 1;
    std::uint32_t priority = 0;
    std::optional<Duration> priority_duration = {};
    TimePoint released = {};
    std::optional<Duration> time_to_live = {};
    std::optional<TimePoint> deadline = {};
    bool reset_on_release = false;
    std::optional<BlockNumber> duplicate_of = {};
    bool discarded = false;
    bool ready_on_release = false;  // goes to the ready queue when it is released
  };
  struct Ready {
    BlockKey key;
    std::optional<BlockNumber> parent;  // cannot be evicted before this block, with leaves first
  };

  static bool leaves_first_lru(const BlockPoolOptions& options) {
    return options.leaves_first && options.policy == PolicyKind::kLru;
  }
  // A duplicate may raise the priority or its duration, and never lowers either.
  static void raise(Block& block, const Retention& retention) {
    const bool lasts_longer = block.priority_duration &&
                              (!retention.priority_duration || *retention.priority_duration > *block.priority_duration);
    if (retention.priority > block.priority || (retention.priority == block.priority && lasts_longer)) {
      block.priority = retention.priority;
      block.priority_duration = retention.priority_duration;
    }
  }
  [[nodiscard]] const TenantQuota& quota(TenantId tenant) const { return options_.tenants[index_of(tenant)]; }
  [[nodiscard]] std::uint32_t unmet(TenantId tenant) const {
    return quota(tenant).reserved - std::min(used(tenant), quota(tenant).reserved);
  }
  [[nodiscard]] std::uint32_t beyond(TenantId tenant) const {
    return used(tenant) - std::min(used(tenant), quota(tenant).reserved);
  }
  [[nodiscard]] std::vector<TenantId> all_tenants() const {
    std::vector<TenantId> all;
    for (std::uint8_t i = 0; i < options_.tenants.size(); ++i) {
      all.push_back(TenantId{i});
    }
    return all;
  }
  [[nodiscard]] std::uint32_t class_of(const BlockKey& key) const {
    const Block& block = blocks_.at(by_key_.at(key));
    return index_of(block.tenant) * 1000 + block.priority;
  }
  [[nodiscard]] bool may_grow(TenantId tenant) const {
    return !quota(tenant).limit || used(tenant) < *quota(tenant).limit;
  }

  // Whether a block is free and not reserved for another tenant.
  [[nodiscard]] bool may_take_free(TenantId tenant) const {
    std::uint32_t reserved_for_others = 0;
    for (const TenantId other : all_tenants()) {
      reserved_for_others += other == tenant ? 0 : unmet(other);
    }
    return may_grow(tenant) && free_ > reserved_for_others;
  }

  [[nodiscard]] std::optional<std::vector<BlockKey>> take_one_by_one(std::uint32_t count, TenantId tenant) {
    std::vector<BlockKey> evicted;
    for (std::uint32_t i = 0; i < count; ++i) {
      while (!may_take_free(tenant)) {
        const std::optional<BlockKey> victim = victim_for(tenant);
        if (!victim) {
          return std::nullopt;
        }
        drop_inactive(*victim);
        evicted.push_back(*victim);
      }
      --free_;
      ++used_[tenant];
    }
    return evicted;
  }

  // A tenant at its limit loses a block of its own. Otherwise the tenant that is furthest beyond its reservation loses
  // one; the tenant itself if none is further, even within its reservation.
  [[nodiscard]] std::optional<BlockKey> victim_for(TenantId tenant) {
    std::vector<TenantId> givers;
    if (inactive(tenant) > 0) {
      givers.push_back(tenant);
    }
    for (const TenantId other : all_tenants()) {
      if (other != tenant && may_grow(tenant) && beyond(other) > 0 && inactive(other) > 0) {
        givers.push_back(other);
      }
    }
    if (givers.empty()) {
      return std::nullopt;
    }
    std::ranges::stable_sort(givers, std::ranges::greater{}, [this](TenantId giver) { return beyond(giver); });
    // With leaves first, all evictable blocks of a tenant may have blocks of other tenants below them.
    for (const TenantId giver : givers) {
      std::optional<BlockKey> victim = take_ready(giver);
      if (victim || (victim = first_of({giver}))) {
        return victim;
      }
    }
    for (const TenantId anyone : all_tenants()) {
      if (const std::optional<BlockKey> victim = take_ready(anyone)) {
        return victim;
      }
    }
    return first_of(all_tenants());
  }

  [[nodiscard]] std::optional<BlockKey> first_of(const std::vector<TenantId>& tenants) const {
    return order_.victim([this](const BlockKey& key) { return class_of(key); },
                         [&](const BlockKey& key) {
                           const BlockNumber number = by_key_.at(key);
                           return std::ranges::count(tenants, blocks_.at(number).tenant) > 0 &&
                                  !waits_for_ready(number);
                         });
  }

  [[nodiscard]] std::optional<BlockKey> first_ready(TenantId tenant) const {
    for (const Ready& ready : ready_) {
      if (blocks_.at(by_key_.at(ready.key)).tenant == tenant) {
        return ready.key;
      }
    }
    return std::nullopt;
  }

  // The tenant's first ready block that can be evicted; it stays in the queue. Those before it return to the policy.
  [[nodiscard]] std::optional<BlockKey> take_ready(TenantId tenant) {
    for (std::optional<BlockKey> key = first_ready(tenant); key; key = first_ready(tenant)) {
      if (!waits_for_ready(by_key_.at(*key)) && !order_.has_descendants(*key)) {
        return key;
      }
      unready(*key);
      order_.insert(*key, parent_in_pool(*key));
    }
    return std::nullopt;
  }

  // From the tenant that is furthest beyond its reservation, not counting its ready and claimed blocks.
  [[nodiscard]] std::optional<BlockKey> next_claim(std::map<TenantId, std::uint32_t>& gone) const {
    const auto of = [this](const std::vector<TenantId>& tenants) {
      return order_.victim(
          [this](const BlockKey& key) { return class_of(key); },
          [&](const BlockKey& key) { return std::ranges::count(tenants, blocks_.at(by_key_.at(key)).tenant) > 0; });
    };
    std::vector<TenantId> givers = all_tenants();
    const auto left = [&](TenantId tenant) {
      const std::uint32_t given = gone[tenant] + ready_of(tenant);
      return beyond(tenant) - std::min(beyond(tenant), given);
    };
    std::ranges::stable_sort(givers, std::ranges::greater{}, left);
    for (const TenantId giver : givers) {
      if (const std::optional<BlockKey> victim = of({giver})) {
        return victim;
      }
    }
    return of(all_tenants());
  }

  [[nodiscard]] std::uint32_t ready_of(TenantId tenant) const {
    return static_cast<std::uint32_t>(std::ranges::count_if(
        ready_, [&](const Ready& ready) { return blocks_.at(by_key_.at(ready.key)).tenant == tenant; }));
  }
  [[nodiscard]] std::uint32_t in_policy() const {
    return counts().inactive - static_cast<std::uint32_t>(ready_.size());
  }
  [[nodiscard]] bool waits_for_ready(BlockNumber number) const {
    return std::ranges::count(ready_, std::optional(number), &Ready::parent) > 0;
  }
  [[nodiscard]] Block& original(BlockNumber number) {
    Block& block = blocks_.at(number);
    return block.duplicate_of ? blocks_.at(*block.duplicate_of) : block;
  }

  Block& mark_released(const BlockKey& key) {
    Block& block = blocks_.at(by_key_.at(key));
    block.released = clock_.now();
    if (block.time_to_live) {
      block.deadline = clock_.now() + *block.time_to_live;
    }
    return block;
  }

  void make_ready(const BlockKey& key) {
    blocks_.at(by_key_.at(key)).ready_on_release = false;
    const std::optional<BlockKey> parent = order_.is_lineage() ? parent_in_pool(key) : std::nullopt;
    ready_.push_back({key, parent ? std::optional(by_key_.at(*parent)) : std::nullopt});
  }

  // Removes a key from the ready queue; false if it was not there.
  bool unready(const BlockKey& key) {
    return std::erase_if(ready_, [&](const Ready& ready) { return ready.key == key; }) > 0;
  }

  [[nodiscard]] std::optional<BlockKey> parent_in_pool(const BlockKey& child) const {
    for (const auto& [key, number] : by_key_) {
      if (key.is_parent_of(child)) {
        return key;
      }
    }
    return std::nullopt;
  }

  void return_free(TenantId owner) {
    ++free_;
    --used_[owner];
  }

  void take(BlockNumber number) {
    Block& block = blocks_.at(number);
    if (block.references++ == 0) {
      if (!unready(block.key)) {
        order_.remove(block.key);
      }
      block.deadline.reset();
    }
    block.ready_on_release = false;
  }

  void drop(BlockNumber number, std::vector<BlockKey>& evictable) {
    Block& block = blocks_.at(number);
    if (--block.references > 0) {
      return;
    }
    if (block.duplicate_of) {
      const BlockNumber original = *block.duplicate_of;
      return_free(block.tenant);
      blocks_.erase(number);
      drop(original, evictable);
    } else if (block.discarded) {
      return_free(block.tenant);
      blocks_.erase(number);
    } else if (block.reset_on_release) {
      remove_block(block.key);
    } else {
      evictable.push_back(block.key);
    }
  }

  void drop_inactive(BlockKey key) {
    if (!unready(key)) {
      order_.remove(key);
    }
    remove_block(key);
  }

  void remove_block(BlockKey key) {
    const BlockNumber number = by_key_.at(key);
    remove_key(key);
    return_free(blocks_.at(number).tenant);
    blocks_.erase(number);
  }

  void remove_key(BlockKey key) {
    order_.forget(key);
    for (Ready& ready : ready_) {
      if (ready.parent == by_key_.at(key)) {
        ready.parent.reset();
      }
    }
    by_key_.erase(key);
    residents_.erase(key);
    events_.push_back({Event::Kind::kRemoved, {.key = key}});
  }

  BlockPoolOptions options_;
  const Clock& clock_;
  std::uint32_t free_;
  std::uint32_t quarantined_ = 0;
  std::uint32_t pinned_ = 0;
  std::map<TenantId, std::uint32_t> used_;
  std::map<BlockNumber, Block> blocks_;  // registered blocks and duplicates
  std::map<BlockKey, BlockNumber> by_key_;
  std::map<BlockKey, ResidentBlock> residents_;
  NaiveOrder order_;
  std::vector<Ready> ready_;
  std::vector<Event> events_;
  BlockNumber last_number_ = 0;
};

}  // namespace cairn::model
