// Onboarder: brings blocks up: the longest prefix of a list of keys to the device, blocks that the caller holds to given
// places, or blocks from disk or a store into host memory before they are needed.
//
// A load finds the prefix (what the device has, then for each key the nearest tier that has it), asks the cost model how much
// of it is worth loading, pins it while it moves, and registers it above when its bytes are verified. If a part fails, the
// outcome is a shorter prefix, never one with a hole. A block that another load is already bringing is waited for, not copied
// twice. Blocks from disk go through host memory, where they stay as well, or straight to the device; blocks from a store always go
// through host memory.
//
// Thread safety: any thread. `done` is called once: on the caller's thread if nothing had to be loaded, else on a thread of an
// executor or in pump().
// Ownership: the manager. Tiers, links and clock outlive it. Call end() before destroying it.
// Errors: a load always ends by its deadline, with what has arrived by then; LoadOutcome::why says why the prefix is shorter
// than what was found. load() and the others return kExhausted if too many loads are in flight, kUnavailable after end(), and
// kInvalidArgument.
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
#include "cairn/onboard/load_request.h"
#include "cairn/pool/block_registry.h"
#include "cairn/pool/blocks.h"
#include "cairn/tier/tier_link.h"

namespace cairn {

class Onboarder {
 public:
  struct Parts {
    Tier* device = nullptr;  // any tier may be missing; the device may have no pool
    Tier* host = nullptr;
    Tier* disk = nullptr;
    Tier* remote = nullptr;
    TierLink* host_to_device = nullptr;
    TierLink* disk_to_device = nullptr;
    TierLink* disk_to_host = nullptr;
    TierLink* remote_to_host = nullptr;
    BlockRegistry* registry = nullptr;               // of the pools of all of them
    std::shared_ptr<const LoadCostModel> cost = {};  // null: measured_cost_model() with the speed of the options
    std::uint32_t block_size = 0;
    const Clock* clock = nullptr;
    std::function<void()> wake = {};  // called from any thread when pump() or next_time() has to be looked at
  };
  [[nodiscard]] static Result<std::unique_ptr<Onboarder>> make(const Parts& parts, const OnboardOptions& options);
  ~Onboarder();

  // Where the keys are; pins and touches nothing.
  [[nodiscard]] PrefixLocation locate(std::span<const BlockKey> keys) const;
  // The same for a model with layer groups, of which the device has what is needed after `local` common blocks, a boundary.
  // `keys` are the request's, from the first block on.
  [[nodiscard]] GroupLocation locate(const CacheGroups& groups, std::span<const BlockKey> keys,
                                     std::size_t local) const;

  // How many of the blocks that locate() found are worth loading at the current speed of the links.
  [[nodiscard]] LoadWorth worth_loading(const PrefixLocation& found, const LoadContext& context) const;

  // Loads the longest prefix to the device.
  [[nodiscard]] Result<LoadId> load(LoadRequest&& request);
  // The same into blocks of the engine, for a device without a pool: targets.block_ids[i] is for keys[i].
  [[nodiscard]] Result<LoadId> load_into(EngineBlocks&& targets, LoadRequest&& request);
  // Copies blocks that the caller holds to the device; does not ask the cost model.
  [[nodiscard]] Result<LoadId> onboard(OnboardRequest&& request);
  // Copies blocks from disk and from a store to host memory.
  [[nodiscard]] Result<LoadId> prefetch(PrefetchRequest&& request);
  // What has not begun does not begin. The outcome comes as always.
  void cancel(LoadId load);
  // Call when all tiers are fenced and the fences of their pools are up. Every load in flight ends without blocks, as soon as
  // nothing touches its memory. Then call `tell` without locks: it calls the callbacks of loads that have ended.
  struct Fenced {
    std::uint32_t loads = 0;
    std::function<void()> tell = {};
  };
  [[nodiscard]] Fenced fence();

  [[nodiscard]] OnboardStatus status() const;
  // Ends loads whose deadlines have passed and retries full executors. Returns whether it did anything.
  bool pump();
  // When pump() is due even if `wake` is not called.
  [[nodiscard]] std::optional<TimePoint> next_time() const;
  [[nodiscard]] bool is_idle() const;
  // Accepts no more loads and cancels those in flight. Pump until is_idle().
  void end();
  // Ends all loads with what has arrived, as if their deadlines had passed. Call it after end(), if transfers do not end.
  void end_now();

 private:
  class Impl;
  explicit Onboarder(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;  // shared with the transfers in flight
};

}  // namespace cairn
