// WorkerCache: the KV cache of one simulated worker, as its engine sees it: the device's blocks, and what can be loaded from
// tiers below. plain_cache.h has no tiers, managed_cache.h has those of a real KvBlockManager.
//
// Thread safety: not thread-safe.
// Ownership:     an Engine. Every Holding is destroyed before the cache.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "cairn/base/clock.h"
#include "cairn/base/ids.h"
#include "cairn/onboard/load_request.h"
#include "cairn/pool/blocks.h"
#include "cairn/sim/active_sequence.h"
#include "cairn/sim/block_ledger.h"
#include "cairn/sim/move_block.h"
#include "cairn/sim/report.h"

namespace cairn::sim {

// The blocks of one request. A cache that counts references by hash leaves it empty.
struct Holding {
  ImmutableBlocks blocks = {};                // the full ones, from the first on
  std::optional<MutableBlocks> partial = {};  // the one that is being filled
};

// A load that has ended.
struct LandedLoad {
  std::uint64_t request = 0;  // as given to start_load()
  ImmutableBlocks blocks = {};
  PerTier<std::uint64_t> tokens = {};  // loaded from each tier below
  Duration waited{0};
};

// What a cache does with a request that waits to be admitted.
struct LoadStart {
  enum class Outcome : std::uint8_t {
    kNothing,    // nothing is loaded: admit the request
    kScheduled,  // take_landed() returns the request when its blocks are there
    kBlocked,    // there are too few free blocks to load into
  };
  Outcome outcome = Outcome::kNothing;
  std::uint64_t rejected_tokens = 0;  // that tiers below have, and that are faster to compute
};

class WorkerCache {
 public:
  WorkerCache() = default;
  WorkerCache(const WorkerCache&) = delete;
  WorkerCache& operator=(const WorkerCache&) = delete;
  virtual ~WorkerCache() = default;

  // Returns how many blocks of a Use were granted, always the first ones; 1 for a Deref and a Promote. A Deref releases all
  // blocks of the holding.
  [[nodiscard]] virtual std::size_t process(const MoveBlock& move, Holding& holding) = 0;
  // Whether the last Use was refused only because copies read blocks that could be evicted otherwise. Try again when time has
  // advanced, instead of preempting a request.
  [[nodiscard]] virtual bool waits_for_copies() const { return false; }
  // Tokens of the prompt that the device has, in full blocks from the first on. `holding`: the first of them, if the request
  // has any already.
  [[nodiscard]] virtual std::size_t cached_tokens(const ActiveSequence& sequence, const Holding& holding) const = 0;

  // Blocks in use, including those that are loaded into; blocks in use or evictable; blocks of the tiers below.
  [[nodiscard]] virtual std::size_t num_active_blocks() const = 0;
  [[nodiscard]] virtual std::size_t num_resident_blocks() const = 0;
  [[nodiscard]] virtual PerTier<std::uint64_t> blocks_below() const { return {}; }
  // Evicted blocks of the device, counted by the time since they were last in use.
  [[nodiscard]] virtual const EvictionAges& eviction_ages() const = 0;

  // --- time, and tiers below ---
  // Advances time. Copies that have ended release their blocks; loads that have ended land.
  virtual void advance_to(TimePoint now) = 0;
  // When a load in flight makes progress; std::nullopt if nothing is in flight. After advance_to(), later than now.
  [[nodiscard]] virtual std::optional<TimePoint> next_event_time() const { return std::nullopt; }
  // Loads what the tiers below have of the sequence, as far as that is faster than computing it. `busy`: other requests are
  // computed meanwhile. `must_not_wait`: returns kNothing instead of kBlocked.
  struct LoadAsk {
    std::uint64_t request = 0;
    bool busy = false;
    bool must_not_wait = false;
  };
  [[nodiscard]] virtual LoadStart start_load(const ActiveSequence& /*sequence*/, const LoadAsk& /*ask*/) { return {}; }
  // The loads that have landed since the last call, in that order.
  [[nodiscard]] virtual std::vector<LandedLoad> take_landed() { return {}; }
  // The engine has computed this, `times` times in a row.
  virtual void report(const EngineIteration& /*iteration*/, std::uint64_t /*times*/) {}
  // The engine has made all moves of a pass.
  virtual void end_pass() {}

  // Aborts on the first invariant that does not hold. For tests.
  virtual void check_invariants() const = 0;
};

}  // namespace cairn::sim
