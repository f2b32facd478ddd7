// KvManager: the simulated KV cache of one engine: a real pool and eviction policy, without bytes. It makes the moves
// of active sequences (move_block.h) and tells a sink what was stored and removed.
//
// kStrict is sound; kSeed answers exactly as the manager that this one is modelled on:
//
// |                            | kStrict                            | kSeed                                         |
// | a Use without room         | changes nothing, returns 0         | keeps the blocks it got, returns their number |
// | hits of a Use              | are pinned before any eviction     | may be evicted for misses before them         |
// | events of a Use            | Removed, then Stored               | Stored, then Removed                          |
// | a Stored                   | one for each run with one parent   | one; its parent is the last hit               |
// | evicted and back in a Use  | cannot happen                      | reported as removed though it is there        |
// | the hash of a full block   | is the one in its key              | any; the key finds the block, events report   |
// |                            |                                    | the first hash it had                         |
//
// With kSeed, an offload engine may add tiers below (offload_engine.h), and time: evicted blocks are copied down, and the
// blocks they leave cannot be allocated until the copy has ended. A Use that has to evict ends there, and
// waits_for_offload() is true, even if no copy is needed and next_event_time() will change nothing.
//
// Thread safety: not thread-safe.
// Ownership:  owns the pool and the tiers; the sink and the network must outlive it.
// Errors:     create() fails as BlockPool::create() does, and for a block size below 2. process() and start_swap_in()
//             fail for an inconsistent move and for a Deref of blocks that are not in use. attach_offload_engine()
//             fails as OffloadEngine::create() does, with kStrict, on a second call, and after the first block. A call
//             that fails has no effect.
// Complexity: tens of nanoseconds per block; no allocations in the steady state; without a sink no event is made.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "cairn/base/clock.h"
#include "cairn/base/result.h"
#include "cairn/evict/eviction_policy.h"
#include "cairn/sim/active_sequence.h"
#include "cairn/sim/block_ledger.h"
#include "cairn/sim/engine_options.h"
#include "cairn/sim/event_writer.h"
#include "cairn/sim/kv_event_sink.h"
#include "cairn/sim/link_network.h"
#include "cairn/sim/move_block.h"
#include "cairn/sim/offload_engine.h"
#include "cairn/sim/swap_ins.h"
#include "cairn/sim/tier_gate.h"
#include "cairn/sim/use_at_once.h"
#include "cairn/sim/use_in_order.h"

namespace cairn::sim {

struct KvManagerOptions {
  std::uint32_t max_capacity = 0;  // blocks
  std::uint32_t block_size = 0;    // tokens per block
  PolicyKind eviction = PolicyKind::kLineageTick;
  bool leaves_first = false;  // evict a block only after all blocks that continue its prefix
  Profile profile = Profile::kStrict;
  KvEventSink* sink = nullptr;
  std::uint32_t dp_rank = 0;  // data parallel rank of the engine; only a name, answered by dp_rank()
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

  // Returns how many blocks of a Use were granted, always the first ones; 1 for a Deref and a Promote.
  [[nodiscard]] Result<std::size_t> process(const MoveBlock& move);

  // What a sequence without blocks would have to compute of its prompt.
  [[nodiscard]] PrefillCost get_prefill_cost(const ActiveSequence& sequence) const;

  // Adds tiers below.
  [[nodiscard]] Status attach_offload_engine(const OffloadOptions& options, LinkNetwork& network);
  [[nodiscard]] bool has_offload_engine() const { return gate_ != nullptr; }
  // Null if none is attached.
  [[nodiscard]] const OffloadEngine* offload_engine() const { return gate_ == nullptr ? nullptr : &gate_->engine(); }

  // Advances the time of the whole network. Copies that have ended release their blocks; loads that have ended land.
  void advance_to(TimePoint now);
  // When the next copy or load of this manager makes progress; a time in the past if one has and advance_to() was not
  // called since. std::nullopt if nothing is in flight.
  [[nodiscard]] std::optional<TimePoint> next_event_time() const;
  // Whether the last Use was cut short only because blocks are being copied down. Try again when time has advanced,
  // instead of preempting a request.
  [[nodiscard]] bool waits_for_offload() const { return gate_ != nullptr && gate_->blocked(); }

  // Loads the leading full blocks of a Use from the tiers below, from the first one that G1 does not have to the first
  // one that no tier has. Process the Use when the load has landed; from then on its blocks may be evicted.
  [[nodiscard]] Result<SwapInStart> start_swap_in(const Use& use);
  // The swap-ins that have landed since the last call, in that order.
  [[nodiscard]] std::vector<LoadId> take_landed_swap_ins();

  // Blocks in use, including those that are copied from or loaded into; references to blocks in use; inactive blocks.
  [[nodiscard]] std::size_t num_active_blocks() const { return max_capacity() - ledger_.available(); }
  [[nodiscard]] std::size_t num_active_block_refs() const { return ledger_.refs(); }
  [[nodiscard]] std::size_t num_inactive_blocks() const { return ledger_.pool().counts().inactive; }
  // References to a full block; whether a partial block is held; whether a key is in G1, in use or not.
  [[nodiscard]] std::size_t refcount(SequenceHash hash) const;
  [[nodiscard]] bool holds(PartialId partial) const { return ledger_.contains(partial); }
  [[nodiscard]] bool is_resident(const BlockKey& key) const { return ledger_.find(key) != kNoBlock; }
  [[nodiscard]] std::size_t max_capacity() const { return options_.max_capacity; }
  [[nodiscard]] std::uint32_t block_size() const { return options_.block_size; }
  [[nodiscard]] std::uint32_t dp_rank() const { return options_.dp_rank; }
  // num_active_blocks() as a share of max_capacity(), 0 to 1.
  [[nodiscard]] double get_active_perc() const {
    return static_cast<double>(num_active_blocks()) / static_cast<double>(max_capacity());
  }
  [[nodiscard]] Profile profile() const { return options_.profile; }

  // Sets the time for policies that ask for it, and for eviction_ages(). An earlier time is ignored.
  void set_time(TimePoint now) { ledger_.set_time(now); }
  // Evicted blocks, counted by the time since they were last in use.
  [[nodiscard]] const EvictionAges& eviction_ages() const { return ledger_.eviction_ages(); }

  // Aborts on the first invariant that does not hold. For tests.
  void check_invariants() const;

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
  std::vector<PartialId> partials_;  // partial blocks of the current Deref; a member only to reuse its memory
  // Null without an offload engine.
  std::unique_ptr<internal::TierGate> gate_;
  std::unique_ptr<internal::SwapIns> swap_ins_;
};

}  // namespace cairn::sim
