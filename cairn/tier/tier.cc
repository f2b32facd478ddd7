#include "cairn/tier/tier.h"

#include <algorithm>
#include <span>
#include <utility>

#include "cairn/base/check.h"
#include "cairn/base/str_cat.h"
#include "cairn/hash/secret_bytes.h"

namespace cairn {

namespace {

// Blocks are written parent first, and have to go children first.
void leaves_first(std::vector<RestoredBlock>& blocks) {
  for (auto first = blocks.begin(); first != blocks.end();) {
    auto end = first + 1;
    while (end != blocks.end() && (end - 1)->key.is_parent_of(end->key)) {
      ++end;
    }
    std::reverse(first, end);
    first = end;
  }
}

}  // namespace

BlockTag block_tag(NamespaceId space, const BlockKey& key) {
  return {.high = key.high_word() ^ value_of(space), .low = key.low_word()};
}

Tier::Tier(Options&& options)
    : level_(options.level),
      layout_(std::move(options.layout)),
      space_(options.space),
      clock_(*options.clock),
      has_file_(options.file.has_value()),
      key_secret_(options.file ? options.file->geometry().secret : std::nullopt),
      on_change_(std::move(options.on_change)),
      on_dropped_(std::move(options.on_dropped)),
      fence_store_(std::move(options.fence_store)),
      reading_(options.health),
      writing_(options.health),
      recovered_{.damage = std::move(options.damage)},
      file_(std::move(options.file)) {}

Tier::~Tier() = default;

Result<std::unique_ptr<Tier>> Tier::make(Options&& options) {
  CAIRN_CHECK(options.layout != nullptr && options.clock != nullptr, "a tier has a layout and a clock");
  const std::uint32_t blocks = options.layout->blocks();
  std::optional<BlockPoolOptions> pool_options = std::move(options.pool);
  if (options.file && (!pool_options || options.file->geometry().blocks != blocks)) {
    return fail(ErrorCode::kInvalidArgument,
                str_cat("the file ", options.file->path(), " has ", options.file->geometry().blocks,
                        " blocks for a layout of ", blocks, " blocks; a tier with a file has a pool of its size"));
  }
  std::unique_ptr<Tier> tier(new Tier(std::move(options)));
  if (!pool_options) {
    return tier;
  }
  pool_options->capacity = blocks;
  pool_options->tier = tier->level_;
  pool_options->checksums = true;
  pool_options->clock = &tier->clock_;
  CAIRN_TRY_ASSIGN(std::unique_ptr<BlockPool> pool, BlockPool::create(*pool_options));
  tier->pool_ = std::move(pool);
  if (tier->has_file_) {
    CAIRN_TRY(tier->recover());
  }
  return tier;
}

Status Tier::recover() {
  std::vector<RestoredBlock> blocks;
  Status erased;
  {
    const MutexLock lock(file_mutex_);
    CAIRN_TRY_ASSIGN(DiskRecovery recovery, file_->recover());
    recovered_.blocks = static_cast<std::uint32_t>(recovery.entries.size());
    recovered_.damaged = recovery.damaged;
    recovered_.cut_off = recovery.cut_off;
    recovered_.superseded = recovery.superseded;
    recovered_.clean = recovery.clean;
    recovered_.is_reserved = file_->is_reserved();
    // Not std::random_device, whose code in libstdc++ needs a newer glibc than all else in a wheel of the Python package.
    std::uint64_t seed = 0;
    internal::fill_random(std::as_writable_bytes(std::span(&seed, 1)));
    entries_ = DiskEntryIndex(pool_->capacity(), seed);
    blocks.reserve(recovery.entries.size());
    for (const DiskEntry& entry : recovery.entries) {
      entries_.set(entry.block_id, entry.key);
      blocks.push_back({.block_id = entry.block_id,
                        .key = entry.key,
                        .tokens_hash = entry.tokens_hash,
                        .checksum = static_cast<std::uint64_t>(entry.checksum)});
    }
    // Entries that were superseded would come back when the later entries are erased.
    erased = file_->erase(recovery.passed_over);
    if (!erased) {
      for (const BlockId block_id : recovery.passed_over) {
        entries_.set_unnamed(block_id);  // tried again before the block is written
      }
    }
  }
  if (!erased) {
    failed(TierUse::kWriting, erased.error().message);
  }
  leaves_first(blocks);
  return pool_->restore(blocks);
}

void Tier::tell(TierUse use, TierHealth::Change change, const std::string& reason) const {
  if (change != TierHealth::Change::kNone && on_change_) {
    on_change_({.level = level_, .use = use, .is_up = change == TierHealth::Change::kBack, .reason = reason});
  }
}

void Tier::succeeded(TierUse use) { tell(use, health(use).succeeded(), {}); }

void Tier::failed(TierUse use, const std::string& reason) {
  tell(use, health(use).failed(reason, clock_.now()), reason);
}

void Tier::verified(std::uint64_t right, std::uint64_t wrong, const std::string& reason) {
  tell(TierUse::kReading, reading_.verified(right, wrong, reason, clock_.now()), reason);
}

Status Tier::before_writing(std::span<const BlockId> block_ids) {
  if (!has_file_) {
    return {};
  }
  const MutexLock lock(file_mutex_);
  std::vector<BlockId> named;
  for (const BlockId block_id : block_ids) {
    if (entries_.has(block_id)) {
      named.push_back(block_id);
    }
  }
  return erase(named);
}

Status Tier::erase(std::span<const BlockId> block_ids) {
  Status status = file_->erase(block_ids);
  if (status) {
    for (const BlockId block_id : block_ids) {
      entries_.clear(block_id);
    }
  }
  return status;
}

Status Tier::after_writing(std::span<const BlockId> block_ids, std::span<const BlockFacts> facts, std::uint64_t fence) {
  if (!has_file_) {
    return {};
  }
  std::vector<DiskEntry> entries;
  entries.reserve(block_ids.size());
  for (std::size_t i = 0; i < block_ids.size(); ++i) {
    entries.push_back({.block_id = block_ids[i],
                       .key = facts[i].block.key,
                       .checksum = Checksum{facts[i].checksum},
                       .tokens_hash = facts[i].block.tokens_hash});
  }
  const MutexLock lock(file_mutex_);
  if (fence != fence_number_) {
    return fail(ErrorCode::kCancelled, str_cat(to_string(level_), " was reset while the transfer was in flight"));
  }
  // Even where it fails: some may have been written, and are to be erased before the blocks are written again.
  for (const DiskEntry& entry : entries) {
    entries_.set(entry.block_id, entry.key);
  }
  return file_->put(entries);
}

// What cannot be erased stays, and is found again after a restart: then its checksum decides.
void Tier::erase_entries_of(std::span<const BlockKey> keys) {
  if (!has_file_) {
    return;
  }
  Status status;
  {
    const MutexLock lock(file_mutex_);
    std::vector<BlockId> block_ids;
    for (const BlockKey& key : keys) {
      entries_.block_ids_of(key, block_ids);
    }
    status = erase(block_ids);
  }
  if (!status) {
    failed(TierUse::kWriting, status.error().message);
  }
}

void Tier::drop(std::span<const BlockKey> keys) {
  erase_entries_of(keys);
  pool_->discard(keys);
  if (on_dropped_) {
    on_dropped_(level_, keys);
  }
}

ResetOutcome Tier::reset(std::span<const BlockKey> keys) {
  erase_entries_of(keys);
  if (const Status status = sync(); !status) {
    failed(TierUse::kWriting, status.error().message);
  }
  return pool_->reset(keys);
}

Result<std::optional<PoolFence>> Tier::plan_fence() const {
  if (pool_ == nullptr) {
    return std::optional<PoolFence>();
  }
  CAIRN_TRY_ASSIGN(PoolFence fence, pool_->plan_fence());
  return std::optional<PoolFence>(std::move(fence));
}

PoolFenceOutcome Tier::raise_fence(std::optional<PoolFence> fence) {
  return fence ? pool_->raise_fence(*std::move(fence)) : PoolFenceOutcome();
}

// Blocks keep their entries, which are void, until they are written again.
Status Tier::settle_fence(const std::optional<NewWeights>& weights) {
  if (weights) {
    space_ = weights->space;
  }
  Status status;
  {
    const MutexLock lock(file_mutex_);
    ++fence_number_;
    if (has_file_) {
      status = file_->fence(weights ? std::optional(weights->generation) : std::nullopt);
    }
  }
  if (fence_store_) {
    status = fence_store_(weights);
  }
  if (!status) {
    failed(TierUse::kWriting, status.error().message);
  }
  return status;
}

void Tier::lower_fence() {
  if (pool_ != nullptr) {
    pool_->lower_fence();
  }
}

Status Tier::sync() {
  if (!has_file_) {
    return {};
  }
  const MutexLock lock(file_mutex_);
  return file_->sync();
}

}  // namespace cairn
