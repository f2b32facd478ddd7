// PoolPair: a BlockPool and the naive model of it side by side, with the handles that are out.
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
#include "tests/model_world.h"
#include "tests/naive_pool.h"

namespace cairn::model {

// One operation; what the numbers mean depends on the kind.
struct Operation {
  std::uint8_t kind = 0;
  std::uint8_t a = 0;
  std::uint8_t b = 0;
  std::uint8_t c = 0;
  std::uint8_t milliseconds = 0;  // eighths of one that pass before it, rounded down
};

inline std::ostream& operator<<(std::ostream& out, const Operation& op) {
  return out << '{' << int{op.kind} << ", " << int{op.a} << ", " << int{op.b} << ", " << int{op.c} << ", "
             << int{op.milliseconds} << '}';
}

class PoolPair {
 public:
  static constexpr std::uint8_t kKinds = 30;

  explicit PoolPair(BlockPoolOptions options)
      : options_(with(std::move(options), told_, clock_)), model_(options_, clock_) {
    Result<std::unique_ptr<BlockPool>> pool = BlockPool::create(options_);
    RC_ASSERT(pool.has_value());
    pool_ = *std::move(pool);
  }

  void run(const Operation& op) {
    clock_.advance(std::chrono::milliseconds(op.milliseconds / 8));
    (this->*kOperations[op.kind % kKinds])(op);
    // Few handles at a time, so that most blocks can be evicted and the next operations find something to do.
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

  void check() {
    expect_same_events();
    const PoolCounts counts = pool_->counts();
    expire();
    expect_same_events();
    RC_ASSERT(told_.truthful());
    RC_ASSERT(counts == model_.counts());
    RC_ASSERT(counts.free + counts.inactive + counts.active + counts.quarantined == counts.total);
    for (const BlockKey& key : universe().keys()) {
      RC_ASSERT(pool_->contains(key) == model_.contains(key));
    }
    RC_ASSERT(told_.mirror() == model_.residents());
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

  static BlockPoolOptions with(BlockPoolOptions options, Told& told, const Clock& clock) {
    options.observers = {&told};
    options.clock = &clock;
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
    return retention;
  }

  // What most calls do before anything else.
  void expire() {
    const std::vector<Event> told = told_.take_events();
    model_.expire(told);
    observed_.insert(observed_.end(), told.begin(), told.end());
  }
  void expect_same_events() {
    std::ranges::move(told_.take_events(), std::back_inserter(observed_));
    RC_ASSERT(std::exchange(observed_, {}) == model_.take_events());
  }

  std::optional<Writing> allocated(std::uint32_t count, TenantId owner) {
    std::vector<BlockKey> evicted;
    Result<MutableBlocks> blocks = pool_->allocate(count, owner, evicted);
    expire();
    const std::optional<std::vector<BlockKey>> expected = model_.allocate(count, owner);
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

  void allocate(const Operation& op) {
    if (std::optional<Writing> writing = allocated(op.a % (options_.capacity / 2 + 2), tenant(op.b))) {
      writing_.push_back(*std::move(writing));
    }
  }

  // Names for as many blocks as there are, along one path and on along others.
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
    if (op.c % 2 == 0) {
      for (const BlockKey& key : names.keys) {
        names.tokens_hashes.push_back(BlockHash{value_of(key.sequence_hash()) / 3});
      }
    }
    return names;
  }

  static Named complete(Writing writing, Names names) {
    auto complete =
        std::move(writing.blocks).complete({.keys = names.keys, .tokens_hashes = names.tokens_hashes, .parent = {}});
    RC_ASSERT(complete.has_value());
    return {*std::move(complete), std::move(writing.owners), std::move(names)};
  }

  void complete(const Operation& op) {
    if (writing_.empty()) {
      return;
    }
    const auto at = pick(writing_, op.a);
    if (std::optional<Names> names = names_for(at->owners.size(), op)) {
      named_.push_back(complete(std::move(*at), *std::move(names)));
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

  // Everything up to registration at once, so that full pools have contents.
  void store(const Operation& op) {
    std::optional<Names> names = names_for(1 + op.a % std::min(options_.capacity, 9U), op);
    if (std::optional<Writing> writing = allocated(static_cast<std::uint32_t>(names->keys.size()), tenant(op.a))) {
      register_named(complete(*std::move(writing), *std::move(names)), op);
    }
  }

  void hold(ImmutableBlocks blocks, Numbers numbers) {
    RC_ASSERT(blocks.size() == numbers.size());
    for (std::uint32_t i = 0; i < blocks.size(); ++i) {
      RC_ASSERT(blocks.key(i) == model_.key_of(numbers[i]));
    }
    held_.push_back({std::move(blocks), std::move(numbers)});
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
      if (op.b != 1) {  // else they are given up, and out of use for good
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
  // As often as they stand here.
  static constexpr Method kOperations[] = {
      &PoolPair::allocate,     &PoolPair::allocate,        &PoolPair::complete,
      &PoolPair::complete,     &PoolPair::register_blocks, &PoolPair::register_blocks,
      &PoolPair::store,        &PoolPair::store,           &PoolPair::store,
      &PoolPair::store,        &PoolPair::store,           &PoolPair::match_prefix,
      &PoolPair::match_prefix, &PoolPair::match_scattered, &PoolPair::scan,
      &PoolPair::share,        &PoolPair::release,         &PoolPair::release,
      &PoolPair::release_tail, &PoolPair::downgrade,       &PoolPair::upgrade,
      &PoolPair::pin,          &PoolPair::unpin,           &PoolPair::quarantine_or_release,
      &PoolPair::reset,        &PoolPair::reset_inactive,  &PoolPair::set_retention,
      &PoolPair::drop_private, &PoolPair::append_or_split, &PoolPair::set_reset_on_release,
  };

  static_assert(std::size(kOperations) == kKinds);

  ManualClock clock_;
  Told told_;
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
