// Helpers of the tests of sim/: a sink that records events, and short forms of moves.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "cairn/sim/kv_manager.h"

namespace cairn::sim {

// An event as it was published; `blocks` are hashes.
struct SeenEvent {
  bool is_stored = false;
  CacheLevel tier = CacheLevel::kG1;
  std::optional<std::uint64_t> parent = std::nullopt;
  std::vector<std::uint64_t> blocks = {};
  std::vector<std::uint64_t> tokens_hashes = {};
  std::vector<Token> token_ids = {};
  std::uint64_t event_id = 0;

  // Compares neither the event id nor fields that tests without tokens leave empty.
  friend bool operator==(const SeenEvent& a, const SeenEvent& b) {
    return a.is_stored == b.is_stored && a.tier == b.tier && a.parent == b.parent && a.blocks == b.blocks;
  }
  friend void PrintTo(const SeenEvent& event, std::ostream* out) {
    *out << (event.is_stored ? "Stored" : "Removed") << ::testing::PrintToString(event.blocks) << " in "
         << to_string(event.tier);
    if (event.parent) {
      *out << " after " << *event.parent;
    }
  }
};

inline SeenEvent stored(std::vector<std::uint64_t> blocks, std::optional<std::uint64_t> parent = std::nullopt) {
  return {.is_stored = true, .parent = parent, .blocks = std::move(blocks)};
}
inline SeenEvent removed(std::vector<std::uint64_t> blocks) { return {.blocks = std::move(blocks)}; }

// The same for a tier below.
inline SeenEvent in(CacheLevel tier, SeenEvent event) {
  event.tier = tier;
  return event;
}

class CapturingSink final : public KvEventSink {
 public:
  void on_stored(std::uint64_t event_id, CacheLevel tier, const KvStored& event) override {
    SeenEvent seen{.is_stored = true, .tier = tier, .event_id = event_id};
    if (event.parent) {
      seen.parent = value_of(*event.parent);
    }
    for (const KvStoredBlock& block : event.blocks) {
      seen.blocks.push_back(value_of(block.hash));
      seen.tokens_hashes.push_back(value_of(block.tokens_hash));
    }
    if (event.token_ids) {
      seen.token_ids.assign(event.token_ids->begin(), event.token_ids->end());
    }
    events_.push_back(std::move(seen));
  }
  void on_removed(std::uint64_t event_id, CacheLevel tier, const KvRemoved& event) override {
    SeenEvent seen{.tier = tier, .event_id = event_id};
    for (const SequenceHash hash : event.hashes) {
      seen.blocks.push_back(value_of(hash));
    }
    events_.push_back(std::move(seen));
  }

  [[nodiscard]] const std::vector<SeenEvent>& events() const { return events_; }
  std::vector<SeenEvent> take() { return std::exchange(events_, {}); }

 private:
  std::vector<SeenEvent> events_;
};

// A key in position 0.
inline BlockKey plh(std::uint64_t hash) { return *BlockKey::root(SequenceHash{hash}); }

// A manager with its sink. Blocks are given as numbers; `key_of` makes their keys.
class TestManager {
 public:
  using KeyOf = BlockKey (*)(std::uint64_t);

  explicit TestManager(const KvManagerOptions& options, KeyOf key_of = &plh) : key_of_(key_of) {
    KvManagerOptions with_sink = options;
    with_sink.sink = &sink;
    manager_ = *KvManager::create(with_sink);
  }

  // Processes one Use of these blocks.
  Result<std::size_t> try_use(const std::vector<std::uint64_t>& ids,
                              std::optional<std::uint64_t> parent = std::nullopt) {
    std::vector<UniqueBlock> blocks;
    std::vector<BlockKey> keys;
    for (const std::uint64_t id : ids) {
      blocks.push_back(UniqueBlock::full(SequenceHash{id}));
      keys.push_back(key_of_(id));
    }
    Use use{.blocks = blocks, .keys = keys};
    if (parent) {
      use.parent = UniqueBlock::full(SequenceHash{*parent});
    }
    return process(use);
  }
  std::size_t use(const std::vector<std::uint64_t>& ids, std::optional<std::uint64_t> parent = std::nullopt) {
    return *try_use(ids, parent);
  }
  Result<std::size_t> use_full(std::uint64_t id, const BlockKey& key) {
    const UniqueBlock block = UniqueBlock::full(SequenceHash{id});
    return process(Use{.blocks = {&block, 1}, .keys = {&key, 1}});
  }
  Result<std::size_t> use_partial(PartialId id) {
    const UniqueBlock block = UniqueBlock::partial(id);
    return process(Use{.blocks = {&block, 1}, .keys = {}});
  }
  // A block with its tokens hash and tokens.
  std::size_t use_with_hash(std::uint64_t id, std::uint64_t tokens_hash, const std::vector<Token>& tokens) {
    const UniqueBlock block = UniqueBlock::full(SequenceHash{id});
    const BlockKey key = key_of_(id);
    const BlockHash hash{tokens_hash};
    return *process(Use{.blocks = {&block, 1}, .keys = {&key, 1}, .tokens_hashes = {&hash, 1}, .token_ids = tokens});
  }
  // Starts to load these blocks from the tiers below.
  SwapInStart swap_in(const std::vector<std::uint64_t>& ids, std::optional<std::uint64_t> parent = std::nullopt) {
    std::vector<UniqueBlock> blocks;
    std::vector<BlockKey> keys;
    for (const std::uint64_t id : ids) {
      blocks.push_back(UniqueBlock::full(SequenceHash{id}));
      keys.push_back(key_of_(id));
    }
    Use use{.blocks = blocks, .keys = keys};
    if (parent) {
      use.parent = UniqueBlock::full(SequenceHash{*parent});
    }
    SwapInStart started = *manager_->start_swap_in(use);
    manager_->check_invariants();
    return started;
  }
  // Advances to the next event; false if nothing is in flight.
  bool advance() {
    const std::optional<TimePoint> next = manager_->next_event_time();
    if (next) {
      advance_to(*next);
    }
    return next.has_value();
  }
  void advance_to(TimePoint now) {
    manager_->advance_to(now);
    manager_->check_invariants();
  }
  Result<std::size_t> try_deref(const std::vector<std::uint64_t>& ids) {
    std::vector<UniqueBlock> blocks;
    for (const std::uint64_t id : ids) {
      blocks.push_back(UniqueBlock::full(SequenceHash{id}));
    }
    return process(Deref{.blocks = blocks});
  }
  void deref(const std::vector<std::uint64_t>& ids) { EXPECT_EQ(*try_deref(ids), 1U); }
  Result<std::size_t> deref_partial(PartialId id) {
    const UniqueBlock block = UniqueBlock::partial(id);
    return process(Deref{.blocks = {&block, 1}});
  }
  Result<std::size_t> process(const MoveBlock& move) {
    Result<std::size_t> result = manager_->process(move);
    manager_->check_invariants();
    return result;
  }

  // The visible state.
  struct Counts {
    std::size_t active;
    std::size_t refs;
    std::size_t inactive;
    friend bool operator==(const Counts&, const Counts&) = default;
  };
  [[nodiscard]] Counts counts() const {
    return {manager_->num_active_blocks(), manager_->num_active_block_refs(), manager_->num_inactive_blocks()};
  }
  [[nodiscard]] std::size_t refcount(std::uint64_t id) const { return manager_->refcount(SequenceHash{id}); }
  [[nodiscard]] bool is_inactive(std::uint64_t id) const {
    return manager_->is_resident(key_of_(id)) && refcount(id) == 0;
  }
  [[nodiscard]] KvManager& operator*() { return *manager_; }
  [[nodiscard]] KvManager* operator->() { return manager_.get(); }

  CapturingSink sink;

 private:
  KeyOf key_of_;
  std::unique_ptr<KvManager> manager_;
};

inline std::vector<Token> tokens_up_to(Token count) {
  std::vector<Token> tokens(count);
  for (Token i = 0; i < count; ++i) {
    tokens[i] = i;
  }
  return tokens;
}

}  // namespace cairn::sim
