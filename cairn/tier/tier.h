// Tier: a block pool with a layout in memory or in a file. The only place where keys and block ids meet bytes.
//
// Block i of the pool is block i of the layout. The tier knows the checksum of every block that was copied into it, and
// whether it can be read and written now. A tier with a file starts with the blocks that the file holds. If the engine
// manages the blocks, a tier has a layout and no pool.
//
// Thread safety: any thread.
// Ownership: the manager. Outlives links, handles and everything that moves blocks.
// Errors: make() if pool and layout have different numbers of blocks, or the file cannot be read.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cairn/base/clock.h"
#include "cairn/base/ids.h"
#include "cairn/base/mutex.h"
#include "cairn/base/result.h"
#include "cairn/layout/block_layout.h"
#include "cairn/pool/block_pool.h"
#include "cairn/tier/disk_entry_index.h"
#include "cairn/tier/disk_file.h"
#include "cairn/tier/tier_health.h"
#include "cairn/tier/tier_status.h"
#include "cairn/tokens/key_hasher.h"
#include "cairn/transfer/checksum.h"

namespace cairn {

enum class TierUse : std::uint8_t { kReading, kWriting };
[[nodiscard]] constexpr const char* to_string(TierUse use) { return use == TierUse::kReading ? "reading" : "writing"; }

// A direction of a tier was taken out of use, or is back in use.
struct TierChange {
  CacheLevel level = CacheLevel::kG1;
  TierUse use = TierUse::kReading;
  bool is_up = true;
  std::string reason = {};  // why it is out of use
};

// The generation of new weights and the namespace of blocks from now on.
struct TierNewWeights {
  std::uint64_t generation = 0;
  NamespaceId space{};
};

// What a block's checksum is bound to.
[[nodiscard]] BlockTag block_tag(NamespaceId space, const BlockKey& key);

class Tier {
 public:
  struct Options {
    CacheLevel level = CacheLevel::kG1;
    BlockLayoutPtr layout = {};
    // Capacity, level, checksums and clock are set by the tier. std::nullopt if the engine manages the blocks.
    std::optional<BlockPoolOptions> pool = {};
    NamespaceId space = {};
    std::optional<DiskFile> file = {};
    std::string damage = {};  // what was wrong with the file when it was opened (disk_opening.h)
    TierHealth::Options health = {};
    const Clock* clock = &steady_clock();
    // Called on any thread; neither may call the tier.
    std::function<void(const TierChange&)> on_change = {};
    std::function<void(CacheLevel, std::span<const BlockKey>)> on_dropped = {};  // the keys that drop() removed
    // Makes what a store holds void, as settle_fence() does with a file; waits for the store. `weights` are set already.
    std::function<Status(const std::optional<TierNewWeights>& weights)> fence_store = {};
  };
  [[nodiscard]] static Result<std::unique_ptr<Tier>> make(Options&& options);
  Tier(const Tier&) = delete;
  Tier& operator=(const Tier&) = delete;
  ~Tier();

  [[nodiscard]] CacheLevel level() const { return level_; }
  [[nodiscard]] BlockPool* pool() { return pool_.get(); }
  [[nodiscard]] const BlockPool* pool() const { return pool_.get(); }
  [[nodiscard]] const BlockLayoutPtr& layout() const { return layout_; }
  [[nodiscard]] std::uint64_t block_bytes() const { return layout_->shape().block_bytes(); }
  [[nodiscard]] BlockTag tag_of(const BlockKey& key) const {
    return block_tag(space_.load(std::memory_order_relaxed), key);
  }

  // Whether the tier may be used so now. If it returns true while it is out of use, this is a trial, and the caller has to call
  // succeeded(), failed(), verified() or not_tried().
  [[nodiscard]] bool may(TierUse use) { return health(use).may_use(clock_.now()); }
  [[nodiscard]] bool is_up(TierUse use) const { return health(use).is_up(); }
  // It is in use, or the time to try it again has come. Begins no trial.
  [[nodiscard]] bool may_be_tried(TierUse use) const { return is_up(use) || health(use).may_be_tried(clock_.now()); }
  void succeeded(TierUse use);
  void failed(TierUse use, const std::string& reason);
  // Blocks that were read with the right checksum and with a wrong one; at least one in all.
  void verified(std::uint64_t right, std::uint64_t wrong, const std::string& reason);
  void not_tried(TierUse use) { health(use).not_tried(); }
  [[nodiscard]] TierHealth::Report report(TierUse use) const { return health(use).report(); }

  // Call them before and after a transfer writes blocks. They erase and write the entries of a file; memory has nothing to do.
  // `fence`: fence_number() from before the blocks were seen to be current. kCancelled if the tier was fenced since: then no entry
  // is written.
  [[nodiscard]] Status before_writing(std::span<const BlockId> block_ids);
  [[nodiscard]] Status after_writing(std::span<const BlockId> block_ids, std::span<const BlockFacts> facts,
                                     std::uint64_t fence);
  // Grows with every raise_fence().
  [[nodiscard]] std::uint64_t fence_number() const { return fence_number_; }

  // The bytes of these blocks are wrong: they are not found here any more, nor after a restart.
  void drop(std::span<const BlockKey> keys);
  // The store that the tier stands for no longer has these blocks: they are not found here any more.
  void forget(std::span<const BlockKey> keys) { pool_->discard(keys); }
  // Drops those of the blocks that are not in use. Those in use stay until they are evicted. None is found after a restart.
  ResetOutcome reset(std::span<const BlockKey> keys);

  // A fence over the tier (see BlockPool::plan_fence()): nothing that was stored before it, or is in flight to the tier, is found
  // in it again. In steps, so that several tiers are fenced as one:
  //     plan_fence()   of each; nothing has changed if one fails
  //     raise_fence()  of each
  //     settle_fence() of each: what the file holds is void, on the disk too when it returns
  //     lower_fence()  of each
  // One fence at a time. A tier without a pool has nothing to fence and only learns of new weights.
  [[nodiscard]] Result<std::optional<PoolFence>> plan_fence() const;
  PoolFenceOutcome raise_fence(std::optional<PoolFence> fence);
  using NewWeights = TierNewWeights;
  // Fails if the file or the store could not be written: the fence holds, but old blocks may be found after a restart.
  [[nodiscard]] Status settle_fence(const std::optional<NewWeights>& weights);
  void lower_fence();
  // When it returns, what was written before survives a loss of power.
  [[nodiscard]] Status sync();

  using Recovered = TierRecovered;
  [[nodiscard]] const Recovered& recovered() const { return recovered_; }
  [[nodiscard]] bool has_file() const { return has_file_; }
  // The secret that the file's keys were made with; std::nullopt if there is no file, or it keeps none.
  [[nodiscard]] const std::optional<KeySecret>& key_secret() const { return key_secret_; }

 private:
  explicit Tier(Options&& options);
  [[nodiscard]] Status recover();
  [[nodiscard]] Status erase(std::span<const BlockId> block_ids) CAIRN_REQUIRES(file_mutex_);
  [[nodiscard]] TierHealth& health(TierUse use) { return use == TierUse::kReading ? reading_ : writing_; }
  [[nodiscard]] const TierHealth& health(TierUse use) const { return use == TierUse::kReading ? reading_ : writing_; }
  void tell(TierUse use, TierHealth::Change change, const std::string& reason) const;
  // Erases the entries of the keys; a failure takes writing out of use.
  void erase_entries_of(std::span<const BlockKey> keys);

  const CacheLevel level_;
  const BlockLayoutPtr layout_;
  std::atomic<NamespaceId> space_;  // relaxed: it changes while a fence is up, and what read the old one is fenced
  const Clock& clock_;
  const bool has_file_;
  const std::optional<KeySecret> key_secret_;
  const std::function<void(const TierChange&)> on_change_;
  const std::function<void(CacheLevel, std::span<const BlockKey>)> on_dropped_;
  const std::function<Status(const std::optional<NewWeights>&)> fence_store_;
  TierHealth reading_;
  TierHealth writing_;
  Recovered recovered_;
  // Written with file_mutex_ held. Sequentially consistent: a copy reads it before it asks the pool, which fences first.
  std::atomic<std::uint64_t> fence_number_{0};
  mutable Mutex file_mutex_{LockRank::kDiskFile};
  std::optional<DiskFile> file_ CAIRN_GUARDED_BY(file_mutex_);
  // A block keeps its entry until it is written again: its block may have left the pool long before.
  DiskEntryIndex entries_ CAIRN_GUARDED_BY(file_mutex_);
  std::unique_ptr<BlockPool> pool_;
};

}  // namespace cairn
