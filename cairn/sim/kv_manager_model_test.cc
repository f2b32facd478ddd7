// Random moves, compared with a naive manager that handles one block at a time, and with what the events say.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <set>
#include <tuple>
#include <vector>

#include "cairn/sim/kv_manager.h"
#include "cairn/sim/kv_manager_testing.h"

namespace cairn::sim {
namespace {

struct NamedBlock {
  UniqueBlock block;
  BlockKey key;  // of a full block
};

// The seed profile with LRU, as simple as possible.
class NaiveManager {
 public:
  explicit NaiveManager(std::size_t capacity) : capacity_(capacity) {}

  std::size_t use(const std::vector<NamedBlock>& blocks, std::optional<std::uint64_t> parent) {
    std::vector<std::uint64_t> new_blocks;
    std::vector<BlockKey> evicted;
    std::size_t granted = 0;
    for (const NamedBlock& named : blocks) {
      if (named.block.is_partial()) {
        if (!partials.contains(named.block.id()) && !allocate(evicted)) {
          break;
        }
        partials.insert(named.block.id());
      } else if (const std::uint64_t hash = value_of(named.block.hash()); active.contains(hash)) {
        active[hash].push_back(active[hash][0]);
        parent = hash;
      } else if (match(named.key)) {
        active[hash].push_back(named.key);
        parent = hash;
      } else if (allocate(evicted)) {
        active[hash].push_back(named.key);
        registered[named.key] = hash;
        new_blocks.push_back(hash);
      } else {
        break;
      }
      ++granted;
    }
    if (!new_blocks.empty()) {
      events.push_back(stored(new_blocks, parent));
    }
    std::vector<std::uint64_t> gone;
    for (const BlockKey& key : evicted) {
      if (const auto found = registered.find(key); found != registered.end()) {
        gone.push_back(found->second);
        registered.erase(found);
      }
    }
    if (!gone.empty()) {
      events.push_back(removed(gone));
    }
    return granted;
  }

  bool deref(const std::vector<NamedBlock>& blocks) {
    const NaiveManager before = *this;
    for (const NamedBlock& named : blocks) {
      if (!deref_one(named.block)) {
        *this = before;
        return false;
      }
    }
    return true;
  }

  bool promote(PartialId partial, std::uint64_t hash, const BlockKey& key, std::optional<std::uint64_t> parent) {
    if (partials.erase(partial) == 0) {
      return false;
    }
    if (active.contains(hash)) {
      active[hash].push_back(active[hash][0]);
    } else if (match(key)) {
      active[hash].push_back(key);
    } else {
      active[hash].push_back(key);
      registered[key] = hash;
      events.push_back(stored({hash}, parent));
    }
    return true;
  }

  // Each block as often as it has references.
  [[nodiscard]] std::vector<UniqueBlock> held() const {
    std::vector<UniqueBlock> blocks;
    for (const auto& [hash, handles] : active) {
      blocks.insert(blocks.end(), handles.size(), UniqueBlock::full(SequenceHash{hash}));
    }
    for (const PartialId partial : partials) {
      blocks.push_back(UniqueBlock::partial(partial));
    }
    return blocks;
  }

  [[nodiscard]] TestManager::Counts counts() const {
    std::size_t refs = partials.size();
    for (const auto& [hash, handles] : active) {
      refs += handles.size();
    }
    return {in_use().size() + partials.size(), refs, inactive.size()};
  }

  std::size_t capacity_;
  std::map<std::uint64_t, std::vector<BlockKey>> active;  // a handle for each reference
  std::map<BlockKey, std::uint64_t> registered;
  std::deque<BlockKey> inactive;  // the oldest first
  std::set<PartialId> partials;
  std::vector<SeenEvent> events;

 private:
  [[nodiscard]] std::set<BlockKey> in_use() const {
    std::set<BlockKey> keys;
    for (const auto& [hash, handles] : active) {
      keys.insert(handles.begin(), handles.end());
    }
    return keys;
  }
  bool match(const BlockKey& key) { return std::erase(inactive, key) > 0 || in_use().contains(key); }
  bool allocate(std::vector<BlockKey>& evicted) {
    if (in_use().size() + partials.size() + inactive.size() < capacity_) {
      return true;
    }
    if (inactive.empty()) {
      return false;
    }
    evicted.push_back(inactive.front());
    inactive.pop_front();
    return true;
  }
  bool deref_one(const UniqueBlock& block) {
    if (block.is_partial()) {
      return partials.erase(block.id()) == 1;
    }
    const auto found = active.find(value_of(block.hash()));
    if (found == active.end()) {
      return false;
    }
    const BlockKey key = found->second.back();
    found->second.pop_back();
    if (found->second.empty()) {
      active.erase(found);
    }
    if (!in_use().contains(key)) {
      inactive.push_back(key);
    }
    return true;
  }
};

// A block of a chain of ten; sometimes one whose key does not match its hash, or a partial block.
NamedBlock block_from(std::uint32_t number, bool any_name) {
  if (number % 16 == 0) {
    return {UniqueBlock::partial(PartialId{number / 16 % 3}), {}};
  }
  const std::uint64_t id = number % 10;
  const std::uint64_t of_key = any_name && number % 7 == 0 ? number / 16 % 10 : id;
  return {UniqueBlock::full(SequenceHash{id}),
          *BlockKey::make(of_key, SequenceHash{of_key}, SequenceHash{of_key == 0 ? 0 : of_key - 1})};
}

using Numbers = std::vector<std::uint32_t>;

rc::Gen<std::vector<Numbers>> moves() {
  return rc::gen::scale(3.0, rc::gen::container<std::vector<Numbers>>(
                                 rc::gen::scale(0.3, rc::gen::container<Numbers>(rc::gen::inRange(0U, 100'000U)))));
}

// Single blocks and runs of the chain.
std::vector<NamedBlock> blocks_from(const Numbers& numbers, bool any_name) {
  std::vector<NamedBlock> blocks;
  for (const std::uint32_t number : numbers) {
    const std::uint32_t run = number % 3 == 0 ? 1 + number / 100 % 6 : 1;
    for (std::uint32_t i = 0; i < run; ++i) {
      blocks.push_back(block_from(number + i, any_name));
    }
  }
  return blocks;
}

// Mostly blocks that are held, at most as often as they are; sometimes any blocks.
std::vector<NamedBlock> blocks_to_release(const Numbers& numbers, std::vector<UniqueBlock> held) {
  if (numbers[0] % 8 == 0) {
    return blocks_from(numbers, false);
  }
  std::vector<NamedBlock> blocks;
  for (std::size_t i = 0; i < numbers.size() * 2 && !held.empty(); ++i) {
    const auto chosen = held.begin() + static_cast<std::ptrdiff_t>((numbers[i / 2] / 7 + i) % held.size());
    blocks.push_back({*chosen, {}});
    held.erase(chosen);
  }
  return blocks;
}

struct Parts {
  std::vector<UniqueBlock> blocks;
  std::vector<BlockKey> keys;
};

Parts parts_of(const std::vector<NamedBlock>& named) {
  Parts parts;
  for (const NamedBlock& block : named) {
    parts.blocks.push_back(block.block);
    if (block.block.is_full()) {
      parts.keys.push_back(block.key);
    }
  }
  return parts;
}

RC_GTEST_PROP(KvManagerModelTest, SeedEqualsTheNaiveManager, ()) {
  const std::uint32_t capacity = *rc::gen::inRange(1U, 9U);
  TestManager mgr({.max_capacity = capacity, .block_size = 2, .eviction = PolicyKind::kLru, .profile = Profile::kSeed});
  NaiveManager model(capacity);
  for (const Numbers& numbers : *moves()) {
    const std::vector<NamedBlock> named = blocks_from(numbers, true);
    const Parts parts = parts_of(named);
    const std::uint32_t action = numbers.empty() ? 0 : numbers[0] / 1000 % 5;
    if (action < 2) {
      const std::optional<UniqueBlock> parent =
          action == 0 ? std::nullopt : std::optional(UniqueBlock::full(SequenceHash{99}));
      const auto granted = mgr.process(Use{.blocks = parts.blocks, .keys = parts.keys, .parent = parent});
      RC_ASSERT(*granted == model.use(named, parent ? std::optional<std::uint64_t>(99) : std::nullopt));
    } else if (action < 4) {
      const std::vector<NamedBlock> released = blocks_to_release(numbers, model.held());
      RC_ASSERT(mgr.process(Deref{.blocks = parts_of(released).blocks}).has_value() == model.deref(released));
    } else if (!parts.keys.empty()) {
      const PartialId partial{numbers[0] % 3};
      const SequenceHash hash{numbers[0] / 16 % 10};
      RC_ASSERT(mgr.process(Promote{.partial = partial, .hash = hash, .key = parts.keys[0]}).has_value() ==
                model.promote(partial, value_of(hash), parts.keys[0], std::nullopt));
    }
    RC_ASSERT(mgr.counts() == model.counts());
    RC_ASSERT(mgr.sink.take() == std::exchange(model.events, {}));
  }
}

// The events of the strict profile say at each moment which blocks are there, and each Stored is a chain.
RC_GTEST_PROP(KvManagerModelTest, StrictEventsAddUp, ()) {
  const std::uint32_t capacity = *rc::gen::inRange(1U, 12U);
  const auto policy = *rc::gen::elementOf(std::vector<PolicyKind>(std::begin(kAllPolicies), std::end(kAllPolicies)));
  TestManager mgr({.max_capacity = capacity, .block_size = 2, .eviction = policy, .profile = Profile::kStrict});
  std::set<std::uint64_t> followed;
  for (const Numbers& numbers : *moves()) {
    const std::vector<NamedBlock> named = blocks_from(numbers, false);
    const Parts parts = parts_of(named);
    const TestManager::Counts before = mgr.counts();
    if (numbers.empty() || numbers[0] / 1000 % 2 == 0) {
      const std::size_t granted = *mgr.process(Use{.blocks = parts.blocks, .keys = parts.keys});
      RC_ASSERT((granted == parts.blocks.size() || granted == 0));
      RC_ASSERT((granted != 0 || mgr.counts() == before));
    } else {
      std::vector<UniqueBlock> held;
      for (std::uint64_t id = 0; id < 10; ++id) {
        held.insert(held.end(), mgr.refcount(id), UniqueBlock::full(SequenceHash{id}));
      }
      if (!mgr.process(Deref{.blocks = parts_of(blocks_to_release(numbers, held)).blocks})) {
        RC_ASSERT(mgr.counts() == before);
      }
    }
    for (const SeenEvent& event : mgr.sink.take()) {
      for (std::size_t i = 0; i < event.blocks.size(); ++i) {
        RC_ASSERT((event.is_stored ? followed.insert(event.blocks[i]).second : followed.erase(event.blocks[i]) == 1));
        RC_ASSERT((!event.is_stored || i == 0 || event.blocks[i] == event.blocks[i - 1] + 1));
      }
      RC_ASSERT((!event.parent || *event.parent + 1 == event.blocks[0]));
    }
    for (std::uint64_t id = 0; id < 10; ++id) {
      const BlockKey key = *BlockKey::make(id, SequenceHash{id}, SequenceHash{id == 0 ? 0 : id - 1});
      RC_ASSERT(mgr->is_resident(key) == followed.contains(id));
    }
  }
}

}  // namespace
}  // namespace cairn::sim
