// KvManager: the simulated KV cache of one engine: a real pool and eviction policy, without bytes. It does what active
// sequences ask (move_block.h) and tells a sink what was stored and removed.
//
// Does:     two profiles. kStrict is sound; kSeed answers exactly as the manager that this one is modelled on.
//
//           |                          | kStrict                          | kSeed                                    |
//           | a Use without room       | changes nothing, answers 0       | keeps what it got, answers how many      |
//           | hits of a Use            | are pinned before any eviction   | may be evicted for misses before them    |
//           | events of a Use          | Removed, then Stored             | Stored, then Removed                     |
//           | a Stored                 | one for each run with one parent | one, with the last hit for a parent      |
//           | evicted, back in one Use | cannot happen                    | reported gone though it is there         |
//           | the hash of a full block | is the one in its key            | any; the key finds the block, and the    |
//           |                          |                                  | first hash it had is the one reported    |
//
// Owner:    owns the pool; the sink outlives it.
// Threads:  one.
// Costs:    some tens of nanoseconds a block; no allocation in the long run; without a sink no event is made.
// Fails:    create(): as the pool does, and for a block size below 2. process(): a move whose parts do not fit together,
//           or that lets go of what is not held. Nothing changes then.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "cairn/base/clock.h"
#include "cairn/base/result.h"
#include "cairn/evict/eviction_policy.h"
#include "cairn/sim/active_sequence.h"
#include "cairn/sim/block_ledger.h"
#include "cairn/sim/event_writer.h"
#include "cairn/sim/kv_event_sink.h"
#include "cairn/sim/move_block.h"
#include "cairn/sim/use_at_once.h"
#include "cairn/sim/use_in_order.h"

namespace cairn::sim {

enum class Profile : std::uint8_t { kStrict, kSeed };

// "strict", "seed"
[[nodiscard]] std::string_view to_string(Profile profile);
[[nodiscard]] std::optional<Profile> parse_profile(std::string_view name);

struct KvManagerOptions {
  std::uint32_t max_capacity = 0;  // blocks
  std::uint32_t block_size = 0;    // tokens a block
  PolicyKind eviction = PolicyKind::kLineageTick;
  Profile profile = Profile::kStrict;
  KvEventSink* sink = nullptr;
};

struct PrefillCost {
  std::size_t new_blocks = 0;
  std::size_t new_tokens = 0;
  std::size_t cached_tokens = 0;

  friend bool operator==(const PrefillCost&, const PrefillCost&) = default;
};

class KvManager {
 public:
  [[nodiscard]] static Result<std::unique_ptr<KvManager>> create(const KvManagerOptions& options);
  KvManager(const KvManager&) = delete;
  KvManager& operator=(const KvManager&) = delete;
  ~KvManager() = default;

  // How many blocks of a Use were granted, always the first ones; 1 for a Deref and a Promote.
  [[nodiscard]] Result<std::size_t> process(const MoveBlock& move);

  // What a sequence that holds nothing would have to compute of its prompt.
  [[nodiscard]] PrefillCost get_prefill_cost(const ActiveSequence& sequence) const;

  // Distinct blocks in use, references to them, and blocks that are kept though nobody uses them.
  [[nodiscard]] std::size_t num_active_blocks() const { return max_capacity() - ledger_.available(); }
  [[nodiscard]] std::size_t num_active_block_refs() const { return ledger_.refs(); }
  [[nodiscard]] std::size_t num_inactive_blocks() const { return ledger_.pool().counts().inactive; }
  // References to one full block; whether a partial one is held; whether a key can be matched, in use or not.
  [[nodiscard]] std::size_t refcount(SequenceHash hash) const;
  [[nodiscard]] bool holds(PartialId partial) const { return ledger_.contains(partial); }
  [[nodiscard]] bool is_resident(const BlockKey& key) const { return ledger_.find(key) != kNoSlot; }
  [[nodiscard]] std::size_t max_capacity() const { return options_.max_capacity; }
  [[nodiscard]] std::uint32_t block_size() const { return options_.block_size; }
  [[nodiscard]] Profile profile() const { return options_.profile; }

  // What time it is from now on: it counts for nothing but the ages. To 49 days; then it begins again.
  void set_time(TimePoint now) { ledger_.set_time(static_cast<std::uint32_t>(now / std::chrono::milliseconds(1))); }
  // Blocks that were evicted, by the time since they were last in use.
  [[nodiscard]] const EvictionAges& eviction_ages() const { return ledger_.eviction_ages(); }

  // Walks everything and aborts on the first invariant that does not hold. For tests.
  void check_invariants() const { ledger_.check_invariants(); }

 private:
  KvManager(const KvManagerOptions& options, internal::BlockLedger ledger);

  [[nodiscard]] Status check(const Use& use) const;
  [[nodiscard]] Status check(const Promote& promote) const;
  [[nodiscard]] Result<std::size_t> process_use(const Use& use);
  [[nodiscard]] Result<std::size_t> process_deref(const Deref& deref);
  [[nodiscard]] Result<std::size_t> process_promote(const Promote& promote);
  [[nodiscard]] bool deref_one(const UniqueBlock& block);

  const KvManagerOptions options_;
  internal::BlockLedger ledger_;
  internal::EventWriter events_;
  internal::UseInOrder use_in_order_;
  internal::UseAtOnce use_at_once_;
  std::vector<PartialId> partials_;  // that a Deref lets go; kept for its memory
};

}  // namespace cairn::sim
