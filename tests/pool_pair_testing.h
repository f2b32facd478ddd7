// PoolPair: operations done to a BlockPool and to the naive model of it.
#pragma once

#include <rapidcheck.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <utility>
#include <vector>

#include "cairn/pool/block_pool.h"
#include "tests/pool_pair_base_testing.h"

namespace cairn::model {

class PoolPair : public PairBase {
 public:
  using PairBase::PairBase;
  static constexpr std::uint8_t kKinds = 36;

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

 private:
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

  // Everything up to registration at once, so that full pools have contents.
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

  // What was claimed, or anything else.
  void release_as_victims(const Operation& op) {
    if (!held_.empty()) {
      const auto at = op.b % 2 == 0 ? std::prev(held_.end()) : pick(held_, op.a);
      std::move(at->blocks).release_as_victims();
      model_.release_as_victims(at->numbers);
      held_.erase(at);
    }
  }

  // The two together, as most of the time.
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
};

}  // namespace cairn::model
