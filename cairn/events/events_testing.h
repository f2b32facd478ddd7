// Helpers of the tests of events/: chains of blocks, and a simple pool.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "cairn/base/mutex.h"
#include "cairn/events/event_log.h"
#include "cairn/pool/pool_observer.h"

namespace cairn::events_testing {

// The sequence hash of the block of a made-up sequence; different for all of them.
inline SequenceHash hash_at(std::uint32_t sequence, std::uint32_t position) {
  return SequenceHash{(std::uint64_t{sequence} << 32) + position + 1};
}

inline ResidentBlock block_at(std::uint32_t sequence, std::uint32_t position) {
  const SequenceHash parent = position == 0 ? SequenceHash{0} : hash_at(sequence, position - 1);
  return {.key = BlockKey::make_checked(position, hash_at(sequence, position), parent),
          .parent = parent,
          .tokens_hash = BlockHash{value_of(hash_at(sequence, position)) * 7}};
}

inline std::vector<ResidentBlock> chain(std::uint32_t sequence, std::uint32_t first, std::uint32_t count) {
  std::vector<ResidentBlock> blocks;
  for (std::uint32_t i = 0; i < count; ++i) {
    blocks.push_back(block_at(sequence, first + i));
  }
  return blocks;
}

inline std::vector<BlockKey> keys_of(std::span<const ResidentBlock> blocks) {
  std::vector<BlockKey> keys;
  for (const ResidentBlock& block : blocks) {
    keys.push_back(block.key);
  }
  return keys;
}

// A minimal pool: blocks under one lock, and a log that it reports to.
class PlainPool final : public ResidentSource {
 public:
  PlainPool(CacheLevel tier, std::uint32_t capacity, EventLog& log) : tier_(tier), log_(log), blocks_(capacity) {}

  // Puts a block at a block id and removes the block that was there. Does nothing if the pool has the block.
  void put(std::uint32_t block_id, const ResidentBlock& block) {
    const MutexLock lock(mutex_);
    const bool known = std::ranges::any_of(blocks_, [&](const auto& b) { return b && b->key == block.key; });
    if (known) {
      return;
    }
    remove_locked(block_id);
    blocks_[block_id] = block;
    log_.on_registered(tier_, {&block, 1}, {});
  }
  void remove(std::uint32_t block_id) {
    const MutexLock lock(mutex_);
    remove_locked(block_id);
  }
  void clear() {
    const MutexLock lock(mutex_);
    blocks_.assign(blocks_.size(), std::nullopt);
    log_.on_cleared(tier_);
  }

  [[nodiscard]] std::uint32_t list_resident(std::uint32_t first, std::uint32_t count,
                                            std::vector<ResidentBlock>& out) const override {
    const MutexLock lock(mutex_);
    const std::uint32_t end = first + count;
    for (std::uint32_t block_id = first; block_id < end; ++block_id) {
      if (blocks_[block_id]) {
        out.push_back(*blocks_[block_id]);
      }
    }
    return end;
  }
  [[nodiscard]] std::vector<ResidentBlock> sorted_blocks() const {
    std::vector<ResidentBlock> blocks;
    static_cast<void>(list_resident(0, capacity(), blocks));
    std::ranges::sort(blocks, {}, &ResidentBlock::key);
    return blocks;
  }
  [[nodiscard]] CacheLevel tier() const override { return tier_; }
  [[nodiscard]] std::uint32_t capacity() const override {
    const MutexLock lock(mutex_);
    return static_cast<std::uint32_t>(blocks_.size());
  }

 private:
  void remove_locked(std::uint32_t block_id) CAIRN_REQUIRES(mutex_) {
    if (blocks_[block_id]) {
      log_.on_removed(tier_, {&blocks_[block_id]->key, 1});
      blocks_[block_id].reset();
    }
  }

  const CacheLevel tier_;
  EventLog& log_;
  mutable Mutex mutex_{LockRank::kPool};
  std::vector<std::optional<ResidentBlock>> blocks_ CAIRN_GUARDED_BY(mutex_);
};

}  // namespace cairn::events_testing
