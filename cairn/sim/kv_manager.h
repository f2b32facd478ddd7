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
//           With an offload engine there are tiers below (offload_engine.h), and time: what is evicted is copied down,
//           and its block is not to be had until the copy is over.
//
//           | a Use that has to evict  | is granted where no copy is      | ends there; waits_for_offload(), even    |
//           | with tiers below         | needed; else changes nothing but | where no copy is needed and nothing will |
//           |                          | to start the copies, answers 0:  | happen at next_event_time()              |
//           |                          | waits_for_offload()              |                                          |
//           | a swap-in without free   | reserves blocks, and waits for    | kBlocked, once the copies are started    |
//           | blocks                    | what is in them to be copied     |                                          |
//           | and with too few at all  | loads what fits                  | loads nothing                            |
//           | what was swapped in      | is held until end_swap_in()      | may be evicted at once                   |
//
// Owner:    owns the pool and the tiers; the sink and the network outlive it.
// Threads:  one.
// Costs:    some tens of nanoseconds a block; no allocation in the long run; without a sink no event is made.
// Fails:    create(): as the pool does, and for a block size below 2. process(), start_swap_in(): a move whose parts do
//           not fit together, or that lets go of what is not held. attach_offload_engine(): as the engine does; when one
//           is attached, and when there are blocks already. Nothing changes then.
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
#include "cairn/sim/event_writer.h"
#include "cairn/sim/kv_event_sink.h"
#include "cairn/sim/link_network.h"
#include "cairn/sim/move_block.h"
#include "cairn/sim/offload_engine.h"
#include "cairn/sim/profile.h"
#include "cairn/sim/swap_ins.h"
#include "cairn/sim/tier_gate.h"
#include "cairn/sim/use_at_once.h"
#include "cairn/sim/use_in_order.h"

namespace cairn::sim {

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

  // Tiers below, from now on.
  [[nodiscard]] Status attach_offload_engine(const OffloadOptions& options, LinkNetwork& network);
  [[nodiscard]] bool has_offload_engine() const { return gate_ != nullptr; }
  // None where there is none.
  [[nodiscard]] const OffloadEngine* offload_engine() const { return gate_ == nullptr ? nullptr : &gate_->engine(); }

  // Moves time, for everybody on the network: copies that are over free their blocks, and loads that are over land.
  void advance_to(TimePoint now);
  // When that will next change something for this manager, or the moment at which something did that it has not seen.
  // None where nothing is under way.
  [[nodiscard]] std::optional<TimePoint> next_event_time() const;
  // Whether the last Use was refused, or cut short, only because blocks are being copied: rather than taking blocks from
  // somebody, try again when time has moved.
  [[nodiscard]] bool waits_for_offload() const { return gate_ != nullptr && gate_->blocked(); }

  // Loads what the tiers below have of the full blocks that a Use begins with, behind those that are here. The Use is
  // one that is to come: to be tried when the load has landed.
  [[nodiscard]] Result<SwapInStart> start_swap_in(const Use& wanted);
  // Those that have landed, in that order; each one once.
  [[nodiscard]] std::vector<LoadId> take_landed_swap_ins();
  // Lets go of what a swap-in holds: after the first Use of it was tried, whatever came of that, or when nobody wants it
  // any more. Blocks that are still on their way land all the same. Fails: there is none, or it has been ended.
  [[nodiscard]] Status end_swap_in(LoadId id);

  // Distinct blocks in use, blocks that are copied or loaded into included; references to them; and blocks that are kept
  // though nobody uses them.
  [[nodiscard]] std::size_t num_active_blocks() const { return max_capacity() - ledger_.available(); }
  [[nodiscard]] std::size_t num_active_block_refs() const { return ledger_.refs(); }
  [[nodiscard]] std::size_t num_inactive_blocks() const { return ledger_.pool().counts().inactive; }
  // References to one full block; whether a partial one is held; whether a key can be matched, in use or not.
  [[nodiscard]] std::size_t refcount(SequenceHash hash) const;
  [[nodiscard]] bool holds(PartialId partial) const { return ledger_.contains(partial); }
  [[nodiscard]] bool is_resident(const BlockKey& key) const { return ledger_.find(key) != kNoBlock; }
  [[nodiscard]] std::size_t max_capacity() const { return options_.max_capacity; }
  [[nodiscard]] std::uint32_t block_size() const { return options_.block_size; }
  [[nodiscard]] Profile profile() const { return options_.profile; }

  // What time it is from now on: it counts for nothing but the ages. To 49 days; then it begins again.
  void set_time(TimePoint now) { ledger_.set_time(static_cast<std::uint32_t>(now / std::chrono::milliseconds(1))); }
  // Blocks that were evicted, by the time since they were last in use.
  [[nodiscard]] const EvictionAges& eviction_ages() const { return ledger_.eviction_ages(); }

  // Walks everything and aborts on the first invariant that does not hold. For tests.
  void check_invariants() const;

 private:
  KvManager(const KvManagerOptions& options, internal::BlockLedger ledger);

  [[nodiscard]] Status check(const Use& use) const;
  [[nodiscard]] Status check_names(const Use& use) const;
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
  // With an offload engine.
  std::unique_ptr<internal::TierGate> gate_;
  std::unique_ptr<internal::SwapIns> swap_ins_;
};

}  // namespace cairn::sim
