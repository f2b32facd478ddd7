// PoolPair: does the same operations to a BlockPool and to the naive model of it, and compares the two.
#pragma once

#include <rapidcheck.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <list>
#include <memory>
#include <optional>
#include <ostream>
#include <utility>
#include <vector>

#include "cairn/pool/block_pool.h"
#include "tests/model_world_testing.h"
#include "tests/naive_pool_testing.h"

namespace cairn::model {

// One operation; the meaning of the numbers depends on the kind.
struct Operation {
  std::uint8_t kind = 0;
  std::uint8_t a = 0;
  std::uint8_t b = 0;
  std::uint8_t c = 0;
  std::uint8_t milliseconds = 0;  // time before the operation, in eighths of a millisecond, rounded down
};

inline std::ostream& operator<<(std::ostream& out, const Operation& op) {
  return out << '{' << int{op.kind} << ", " << int{op.a} << ", " << int{op.b} << ", " << int{op.c} << ", "
             << int{op.milliseconds} << '}';
}

class PoolPair {
 public:
  static constexpr std::uint8_t kKinds = 36;

  explicit PoolPair(BlockPoolOptions options) : options_(with(std::move(options))), model_(options_, clock_) {
    Result<std::unique_ptr<BlockPool>> pool = BlockPool::create(options_);
    RC_ASSERT(pool.has_value());
    pool_ = *std::move(pool);
  }

  void run(const Operation& op) {
    clock_.advance(std::chrono::milliseconds(op.milliseconds / 8));
    (this->*kOperations[op.kind % kKinds])(op);
    // Keep few handles, so that most blocks can be evicted.
    if (held_.size() > 2) {
      release({});
    }
    if (writing_.size() + named_.size() > 2) {
      drop_private({});
    }
    if (quarantined_.size() > 1) {
      quarantine_or_release({.b = 3});
    }
    if (pinned_.size() > 1) {
      unpin({});
    }
  }

  // Checks that pool and model agree on everything visible.
  void check() {
    expect_same_events();
    const PoolCounts counts = pool_->counts();
    expire();
    expect_same_events();
    RC_ASSERT(observer_.consistent());
    RC_ASSERT(counts == model_.counts());
    RC_ASSERT(pool_->wanted_victims() == model_.wanted_victims());
    RC_ASSERT(counts.free + counts.inactive + counts.active + counts.quarantined == counts.total);
    for (const BlockKey& key : universe().keys()) {
      RC_ASSERT(pool_->contains(key) == model_.contains(key));
    }
    RC_ASSERT(observer_.mirror() == model_.residents());
    for (std::uint8_t i = 0; i < std::max<std::size_t>(options_.tenants.size(), 1); ++i) {
      const Result<TenantUsage> usage = pool_->usage(TenantId{i});
      RC_ASSERT(usage->used == model_.used(TenantId{i}));
      RC_ASSERT(usage->inactive == model_.inactive(TenantId{i}));
    }
    pool_->check_invariants();
  }

 private:
  struct Writing {
    MutableBlocks blocks;
    Owners owners;
  };
  struct Named {
    CompleteBlocks blocks;
    Owners owners;
    Names names;
  };
  struct Held {
    ImmutableBlocks blocks;
    Numbers numbers;
  };
  struct Pinned {
    PinnedBlocks blocks;
    Numbers numbers;
  };
  struct Quarantined {
    QuarantinedBlocks blocks;
    Owners owners;
  };

  BlockPoolOptions with(BlockPoolOptions options) {
    options.observers = {&observer_};
    options.clock = &clock_;
    options.when_low = [this] { ++low_calls_; };
    return options;
  }

  template <typename T>
  static auto pick(std::list<T>& list, std::uint8_t which) {
    auto at = list.begin();
    std::advance(at, which % list.size());
    return at;
  }

  [[nodiscard]] TenantId tenant(std::uint8_t which) const {
    return TenantId{static_cast<std::uint8_t>(which % std::max<std::size_t>(options_.tenants.size(), 1))};
  }
  [[nodiscard]] Retention retention(std::uint8_t which) const {
    Retention retention;
    retention.priority = which % 3 == 0 ? Retention::kDefaultPriority : which % 5 * 25;
    if (options_.time_to_live && which % 4 != 0) {
      retention.time_to_live = std::chrono::milliseconds(1 + which % 40);
    }
    if (options_.time_to_live && which % 3 == 1) {
      retention.priority_duration = std::chrono::milliseconds(1 + which % 25);
    }
    return retention;
  }

  // Expires blocks in the model, as most calls of the pool do first.
  void expire() {
    const std::vector<Event> events = observer_.take_events();
    model_.expire(events);
    observed_.insert(observed_.end(), events.begin(), events.end());
  }
  void expect_same_events() {
    std::ranges::move(observer_.take_events(), std::back_inserter(observed_));
    RC_ASSERT(std::exchange(observed_, {}) == model_.take_events());
  }

  std::optional<Writing> allocated(std::uint32_t count, TenantId owner) {
    std::vector<BlockKey> evicted;
    Result<MutableBlocks> blocks = pool_->allocate(count, owner, evicted);
    expire();
    const std::optional<std::vector<BlockKey>> expected = model_.allocate(count, owner);
    RC_ASSERT(std::exchange(low_calls_, 0U) == (model_.is_low() ? 1U : 0U));
    RC_ASSERT(blocks.has_value() == expected.has_value());
    if (!blocks) {
      RC_ASSERT(blocks.error().code == ErrorCode::kExhausted);
      RC_ASSERT(evicted.empty());
      return std::nullopt;
    }
    RC_ASSERT(blocks->size() == count);
    RC_ASSERT(evicted == *expected);
    return Writing{*std::move(blocks), Owners(count, owner)};
  }

  // Keys for `count` blocks, along one path and then along others.
  static std::optional<Names> names_for(std::size_t count, const Operation& op) {
    Names names;
    names.keys = universe().along(op.b, op.c % 4 == 0 ? op.c % 12 : 0, count);
    for (std::uint8_t more = 1; names.keys.size() < count && more < 12; ++more) {
      for (const BlockKey& key : universe().along(op.b + more, more, count - names.keys.size())) {
        if (std::ranges::count(names.keys, key) == 0) {
          names.keys.push_back(key);
        }
      }
    }
    if (names.keys.size() != count) {
      return std::nullopt;
    }
    if (op.c % 8 == 0 && count > 0 && names.keys.front().position() > 0) {
      names.parent = universe().along(op.b, names.keys.front().position() - 1, 1)[0].sequence_hash();
    }
    if (op.c % 2 == 0) {
      for (const BlockKey& key : names.keys) {
        names.tokens_hashes.push_back(BlockHash{value_of(key.sequence_hash()) / 3});
      }
    }
    return names;
  }

  static Named completed(Writing writing, Names names) {
    auto complete = std::move(writing.blocks)
                        .complete({.keys = names.keys, .tokens_hashes = names.tokens_hashes, .parent = names.parent});
    RC_ASSERT(complete.has_value());
    return {*std::move(complete), std::move(writing.owners), std::move(names)};
  }

  void hold(ImmutableBlocks blocks, Numbers numbers) {
    RC_ASSERT(blocks.size() == numbers.size());
    for (std::uint32_t i = 0; i < blocks.size(); ++i) {
      RC_ASSERT(blocks.key(i) == model_.key_of(numbers[i]));
    }
    held_.push_back({std::move(blocks), std::move(numbers)});
  }

  void allocate(const Operation& op) {
    if (std::optional<Writing> writing = allocated(op.a % (options_.capacity / 2 + 2), tenant(op.b))) {
      writing_.push_back(*std::move(writing));
    }
  }

  void complete(const Operation& op) {
    if (writing_.empty()) {
      return;
    }
    const auto at = pick(writing_, op.a);
    if (std::optional<Names> names = names_for(at->owners.size(), op)) {
      named_.push_back(completed(std::move(*at), *std::move(names)));
      writing_.erase(at);
    }
  }

  void register_named(Named named, const Operation& op) {
    auto registered = std::move(named.blocks).register_blocks(retention(op.c));
    RC_ASSERT(registered.has_value());
    expire();
    Numbers numbers = model_.register_blocks(named.owners, named.names, retention(op.c));
    hold(*std::move(registered), std::move(numbers));
  }

  void register_blocks(const Operation& op) {
    if (!named_.empty()) {
      const auto at = pick(named_, op.a);
      register_named(std::move(*at), op);
      named_.erase(at);
    }
  }

  // Everything up to registration in one step, so that full pools have contents.
  void store(const Operation& op) {
    std::optional<Names> names = names_for(1 + op.a % std::min(options_.capacity, 9U), op);
    if (std::optional<Writing> writing = allocated(static_cast<std::uint32_t>(names->keys.size()), tenant(op.a))) {
      register_named(completed(*std::move(writing), *std::move(names)), op);
    }
  }

  void match_prefix(const Operation& op) {
    const std::vector<BlockKey> keys = universe().along(op.a, op.b % 4 == 0 ? 1 : 0, op.c % 13);
    ImmutableBlocks blocks = pool_->match_prefix(keys);
    expire();
    hold(std::move(blocks), model_.match_prefix(keys));
  }

  static std::vector<BlockKey> scattered_keys(const Operation& op) {
    std::vector<BlockKey> keys = universe().along(op.a, op.b % 5, op.c % 7);
    std::ranges::copy(universe().along(op.b, op.c % 3, op.a % 5), std::back_inserter(keys));
    return keys;
  }

  void match_scattered(const Operation& op) {
    const std::vector<BlockKey> keys = scattered_keys(op);
    ScatteredMatch match = pool_->match_scattered(keys);
    expire();
    std::uint32_t found = 0;
    for (std::size_t i = 0; i < keys.size(); ++i) {
      RC_ASSERT(match.position[i] == (model_.contains(keys[i]) ? std::optional(found++) : std::nullopt));
    }
    hold(std::move(match.blocks), model_.match_scattered(keys));
  }

  void scan(const Operation& op) {
    const std::vector<BlockKey> keys = scattered_keys(op);
    ImmutableBlocks blocks = pool_->scan(keys);
    expire();
    hold(std::move(blocks), model_.match_scattered(keys));
  }

  void share(const Operation& op) {
    if (!held_.empty()) {
      const auto at = pick(held_, op.a);
      const std::size_t count = std::min<std::size_t>(op.b, at->numbers.size());
      Numbers numbers(at->numbers.begin(), at->numbers.begin() + static_cast<std::ptrdiff_t>(count));
      hold(at->blocks.share(op.b), model_.taken(numbers));
    }
  }

  void release(const Operation& op) {
    if (!held_.empty()) {
      const auto at = pick(held_, op.a);
      at->blocks = ImmutableBlocks();
      model_.release(at->numbers);
      held_.erase(at);
    }
  }

  void release_tail(const Operation& op) {
    if (!held_.empty()) {
      const auto at = pick(held_, op.a);
      const auto kept = static_cast<std::ptrdiff_t>(std::min<std::size_t>(op.b % 8, at->numbers.size()));
      at->blocks.release_tail(op.b % 8);
      model_.release({at->numbers.begin() + kept, at->numbers.end()});
      at->numbers.resize(static_cast<std::size_t>(kept));
    }
  }

  void downgrade(const Operation& op) {
    if (!held_.empty()) {
      weak_.push_back(pick(held_, op.a)->blocks.downgrade());
    }
  }

  void upgrade(const Operation& op) {
    if (!weak_.empty()) {
      const auto at = pick(weak_, op.a);
      std::optional<ImmutableBlocks> blocks = at->upgrade();
      if (!at->keys().empty()) {
        expire();
      }
      std::optional<Numbers> numbers = model_.upgrade(at->keys());
      RC_ASSERT(blocks.has_value() == numbers.has_value());
      if (blocks) {
        hold(*std::move(blocks), *std::move(numbers));
      }
      weak_.erase(at);
    }
  }

  void pin(const Operation& op) {
    if (!held_.empty()) {
      const auto at = pick(held_, op.a);
      pinned_.push_back({at->blocks.pin(), model_.taken(at->numbers)});
      model_.add_pins(at->numbers.size());
    }
  }

  void claim_victims(const Operation& op) {
    ImmutableBlocks blocks = pool_->claim_victims(op.a % 12);
    expire();
    hold(std::move(blocks), model_.claim_victims(op.a % 12));
  }

  // Releases the blocks that were claimed last, or others.
  void release_as_victims(const Operation& op) {
    if (!held_.empty()) {
      const auto at = op.b % 2 == 0 ? std::prev(held_.end()) : pick(held_, op.a);
      std::move(at->blocks).release_as_victims();
      model_.release_as_victims(at->numbers);
      held_.erase(at);
    }
  }

  // Claims and releases victims in one step, as the offloader usually does.
  void ready_victims(const Operation& op) {
    claim_victims(op);
    release_as_victims({});
  }

  void hold_keys(const Operation& op) {
    const std::vector<BlockKey> keys = scattered_keys(op);
    PinnedBlocks blocks = pool_->hold(keys);
    expire();
    Numbers numbers = model_.hold(keys);
    RC_ASSERT(blocks.size() == numbers.size());
    for (std::uint32_t i = 0; i < blocks.size(); ++i) {
      RC_ASSERT(blocks.key(i) == model_.key_of(numbers[i]));
    }
    pinned_.push_back({std::move(blocks), std::move(numbers)});
  }

  void discard(const Operation& op) {
    const std::vector<BlockKey> keys = universe().along(op.a, op.b % 8, op.c % 3);
    const std::uint32_t found = pool_->discard(keys);
    expire();
    RC_ASSERT(found == model_.discard(keys));
  }

  void unpin(const Operation& op) {
    if (!pinned_.empty()) {
      const auto at = pick(pinned_, op.a);
      const Numbers numbers = at->numbers;
      pinned_.erase(at);
      model_.remove_pins(numbers.size());
      model_.release(numbers);
    }
  }

  void quarantine_or_release(const Operation& op) {
    if (op.b % 2 == 0 && !writing_.empty()) {
      const auto at = pick(writing_, op.a);
      model_.quarantine(at->owners.size());
      quarantined_.push_back({std::move(at->blocks).quarantine(), std::move(at->owners)});
      writing_.erase(at);
    } else if (!quarantined_.empty()) {
      const auto at = pick(quarantined_, op.a);
      if (op.b != 1) {  // otherwise they stay quarantined
        std::move(at->blocks).release_proven_finished();
        model_.release_quarantined(at->owners);
      }
      quarantined_.erase(at);
    }
  }

  void reset(const Operation& op) {
    const std::vector<BlockKey> keys = universe().along(op.a, op.b % 8, op.c % 4);
    const ResetOutcome outcome = pool_->reset(keys);
    expire();
    const ResetOutcome expected = model_.reset(keys);
    RC_ASSERT(outcome.reset == expected.reset);
    RC_ASSERT(outcome.not_found == expected.not_found);
    RC_ASSERT(outcome.in_use == expected.in_use);
  }

  void reset_inactive(const Operation& op) {
    if (op.a % 16 == 0) {
      const std::uint32_t count = pool_->reset_inactive();
      expire();
      RC_ASSERT(count == model_.reset_inactive());
    }
  }

  void set_retention(const Operation& op) {
    if (!held_.empty()) {
      const auto at = pick(held_, op.a);
      RC_ASSERT(at->blocks.set_retention(retention(op.b)).has_value());
      model_.set_retention(at->numbers, retention(op.b));
    }
  }

  void set_reset_on_release(const Operation& op) {
    if (!held_.empty()) {
      const auto at = pick(held_, op.a);
      at->blocks.reset_on_release(op.b % 2 == 0);
      model_.set_reset_on_release(at->numbers, op.b % 2 == 0);
    }
  }

  void drop_private(const Operation& op) {
    if (!writing_.empty() && (op.b % 2 == 0 || named_.empty())) {
      const auto at = pick(writing_, op.a);
      model_.release_private(at->owners);
      writing_.erase(at);
    } else if (!named_.empty()) {
      const auto at = pick(named_, op.a);
      if (op.b % 4 == 1) {
        writing_.push_back({std::move(at->blocks).reset(), at->owners});
      } else {
        model_.release_private(at->owners);
      }
      named_.erase(at);
    }
  }

  void append_or_split(const Operation& op) {
    if (op.c % 2 == 0 && !writing_.empty()) {
      const auto at = pick(writing_, op.a);
      const auto count = static_cast<std::ptrdiff_t>(std::min<std::size_t>(op.b % 5, at->owners.size()));
      writing_.push_back({at->blocks.take_front(op.b % 5), {at->owners.begin(), at->owners.begin() + count}});
      at->owners.erase(at->owners.begin(), at->owners.begin() + count);
    } else if (held_.size() > 1) {
      const auto at = pick(held_, op.a);
      Held last = std::move(held_.back());
      if (at == std::prev(held_.end())) {
        held_.back() = std::move(last);
        return;
      }
      held_.pop_back();
      RC_ASSERT(at->blocks.append(std::move(last.blocks)).has_value());
      at->numbers.insert(at->numbers.end(), last.numbers.begin(), last.numbers.end());
    }
  }

  using Method = void (PoolPair::*)(const Operation&);
  // An operation is as frequent as it is listed here.
  static constexpr Method kOperations[] = {
      &PoolPair::allocate,
      &PoolPair::allocate,
      &PoolPair::complete,
      &PoolPair::complete,
      &PoolPair::register_blocks,
      &PoolPair::register_blocks,
      &PoolPair::store,
      &PoolPair::store,
      &PoolPair::store,
      &PoolPair::store,
      &PoolPair::store,
      &PoolPair::match_prefix,
      &PoolPair::match_prefix,
      &PoolPair::match_scattered,
      &PoolPair::scan,
      &PoolPair::share,
      &PoolPair::release,
      &PoolPair::release,
      &PoolPair::release_tail,
      &PoolPair::downgrade,
      &PoolPair::upgrade,
      &PoolPair::pin,
      &PoolPair::unpin,
      &PoolPair::quarantine_or_release,
      &PoolPair::reset,
      &PoolPair::reset_inactive,
      &PoolPair::set_retention,
      &PoolPair::drop_private,
      &PoolPair::append_or_split,
      &PoolPair::set_reset_on_release,
      &PoolPair::claim_victims,
      &PoolPair::release_as_victims,
      &PoolPair::ready_victims,
      &PoolPair::ready_victims,
      &PoolPair::hold_keys,
      &PoolPair::discard,
  };

  static_assert(std::size(kOperations) == kKinds);

  ManualClock clock_;
  RecordingObserver observer_;
  std::uint32_t low_calls_ = 0;
  BlockPoolOptions options_;
  NaivePool model_;
  std::unique_ptr<BlockPool> pool_;
  std::vector<Event> observed_;
  std::list<Writing> writing_;
  std::list<Named> named_;
  std::list<Held> held_;
  std::list<WeakBlocks> weak_;
  std::list<Pinned> pinned_;
  std::list<Quarantined> quarantined_;
};

}  // namespace cairn::model
