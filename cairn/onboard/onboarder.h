// Onboarder: brings blocks up: the longest prefix of a list of keys over all tiers to the device, given blocks to given
// places, or blocks of the disk into host memory before they are asked for.
//
// Does:     finds the prefix (what the device has, then for each key the nearest tier that has it), asks the cost model how
//           much of it is worth loading, pins it while it moves and registers it above only when its bytes are verified.
//           Partial success is a shorter prefix, never a hole. Copies of a key that is already on its way are waited for
//           instead of made twice.
// Ways:     host to device; disk to device straight, or by way of host memory, where the blocks then stay as well.
// Fails:    a load always ends by its deadline, with what has arrived by then: less than was hoped for is a shorter prefix
//           and `why` says what was in the way. load() itself: kExhausted when too many are under way; kInvalidArgument.
// Owner:    the manager; tiers, links and clock outlive it. end() comes before it is destroyed.
// Threads:  any. `done` runs once, on the caller's thread if nothing had to be loaded, else on an executor's or in pump().
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cairn/base/clock.h"
#include "cairn/base/ids.h"
#include "cairn/base/result.h"
#include "cairn/onboard/load_cost.h"
#include "cairn/onboard/onboard_options.h"
#include "cairn/pool/block_registry.h"
#include "cairn/pool/blocks.h"
#include "cairn/tier/tier_link.h"

namespace cairn {

// Names a load of one onboarder; never used again.
enum class LoadId : std::uint64_t {};

// Where each key of a list is at present; a key in several tiers counts for the nearest.
struct PrefixLocation {
  std::vector<CacheLevel> levels;  // of the longest prefix that tiers which can be read have
  [[nodiscard]] std::uint32_t blocks() const { return static_cast<std::uint32_t>(levels.size()); }
};

struct LoadResult {
  ImmutableBlocks blocks;    // of the device, the longest prefix; empty where the engine's blocks were filled
  std::uint32_t prefix = 0;  // blocks of the list, from the first on, that are on the device now
  std::array<std::uint32_t, kCacheLevels> from = {};  // of those, by the tier they were found in
  std::uint32_t not_worth_it = 0;                     // blocks that the cost model left out
  std::string why = {};                               // the prefix is shorter than what was found: what happened
};

struct LoadRequest {
  std::vector<BlockKey> keys = {};
  std::optional<TimePoint> deadline = {};  // none: as the options say
  std::uint32_t most = 0;                  // blocks to be loaded; 0: any number
  bool weigh = true;                       // whether the cost model is asked
  std::function<void(LoadResult&&)> done = {};
};

struct OnboardStatus {
  std::uint32_t loads = 0;                            // under way
  std::uint64_t finished = 0;                         // loads
  std::uint64_t refused = 0;                          // loads, for want of room
  std::uint64_t joined = 0;                           // blocks that another load was bringing already
  std::uint64_t not_worth_it = 0;                     // blocks
  std::uint64_t expired = 0;                          // loads that ended by their deadline
  std::array<std::uint64_t, kCacheLevels> hits = {};  // blocks found, by tier
  std::uint64_t misses = 0;                           // blocks asked for and found nowhere
};

class Onboarder {
 public:
  struct Parts {
    Tier* device = nullptr;  // where blocks are brought; there may be none of them, or one without a pool
    Tier* host = nullptr;
    Tier* disk = nullptr;
    TierLink* host_to_device = nullptr;
    TierLink* disk_to_device = nullptr;  // straight
    TierLink* disk_to_host = nullptr;
    const BlockRegistry* registry = nullptr;         // follows the pools of all of them
    std::shared_ptr<const LoadCostModel> cost = {};  // none: as the options say
    std::uint32_t block_size = 0;
    const Clock* clock = nullptr;
    std::function<void()> wake = {};  // there is something to pump; from any thread
  };
  [[nodiscard]] static Result<std::unique_ptr<Onboarder>> make(const Parts& parts, const OnboardOptions& options);
  ~Onboarder();

  // Presence, without taking or touching anything.
  [[nodiscard]] PrefixLocation locate(std::span<const BlockKey> keys) const;

  // How many of the blocks that locate() found, the first of which is block `first_block` of its sequence, are worth
  // loading, by the cost model and as fast as things go now.
  [[nodiscard]] std::uint32_t worth_loading(const PrefixLocation& found, std::uint32_t first_block) const;

  // The longest prefix to the device.
  [[nodiscard]] Result<LoadId> load(LoadRequest&& request);
  // The same into blocks of the engine, for a device without a pool: `targets.blocks[i]` is for keys[i].
  [[nodiscard]] Result<LoadId> load_into(EngineBlocks&& targets, LoadRequest&& request);
  // These blocks, that the caller holds in a tier below, to the device: into `targets`, as many, or into blocks that are
  // allocated here. All of them that can be, in order; not only a prefix. No cost model is asked.
  [[nodiscard]] Result<LoadId> onboard(CacheLevel from, ImmutableBlocks blocks, std::optional<MutableBlocks> targets,
                                       TimePoint deadline, std::function<void(Result<ImmutableBlocks>&&)> done);
  // From disk to host memory, those of the keys that are on disk and not above; `done` gets how many arrived.
  [[nodiscard]] Result<LoadId> prefetch(std::vector<BlockKey> keys, TimePoint deadline,
                                        std::function<void(std::uint32_t)> done);
  // What has not begun will not. The result comes as always.
  void cancel(LoadId load);
  // All tiers are fenced, and their pools' fences are up: every load in flight ends without a block, as soon as nothing
  // touches its memory. `tell` has to be called, without locks: it tells those results that are ready.
  struct Fenced {
    std::uint32_t loads = 0;
    std::function<void()> tell = {};
  };
  [[nodiscard]] Fenced fence();

  [[nodiscard]] OnboardStatus status() const;
  // Ends loads whose deadlines have passed; whether there was anything to do.
  bool pump();
  [[nodiscard]] std::optional<TimePoint> next_time() const;
  [[nodiscard]] bool is_idle() const;
  // Takes nothing any more and cancels what has not begun. Pump until is_idle().
  void end();
  // Ends all loads with what has arrived, as if their deadlines had passed. After end(), where copies do not come back.
  void end_now();

 private:
  class Impl;
  explicit Onboarder(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;  // shared with the copies under way
};

}  // namespace cairn
