// PairBase: a BlockPool and the naive model of it side by side, with the handles that are out, and their comparison.
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

class PairBase {
 public:
  explicit PairBase(BlockPoolOptions options) : options_(with(std::move(options))), model_(options_, clock_) {
    Result<std::unique_ptr<BlockPool>> pool = BlockPool::create(options_);
    RC_ASSERT(pool.has_value());
    pool_ = *std::move(pool);
  }

  // They agree on everything that can be seen.
  void check() {
    expect_same_events();
    const PoolCounts counts = pool_->counts();
    expire();
    expect_same_events();
    RC_ASSERT(told_.truthful());
    RC_ASSERT(counts == model_.counts());
    RC_ASSERT(pool_->wanted_victims() == model_.wanted_victims());
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

 protected:
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
    options.observers = {&told_};
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

  ManualClock clock_;
  Told told_;
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
