#include "cairn/events/event_log.h"

#include <algorithm>
#include <array>
#include <bitset>
#include <limits>
#include <optional>
#include <utility>
#include <variant>

#include "cairn/base/check.h"
#include "cairn/base/str_cat.h"

// Why the result is exact. Let s0 be the last number of the log before the walk, and s1 the last number after it. A pool
// changes a key and appends the event under one hold of its lock, and a key stays in its block as long as it is registered.
//   - A key without an event in (s0, s1] did not change during the walk, so the walk saw its state.
//   - A key with such an event has, after s1, the state of its last event (or of a later Cleared of its tier); what the
//     walk saw of it is not used.
// Every key is one or the other, so both together are the state after s1. Suspended tiers work the same way: the walk reads
// the state once, after s0 and before s1, and an event in between decides.

namespace cairn {

namespace {

// The last attempts walk a pool under one hold of its lock: it has no event in between then.
constexpr std::uint32_t kWholePool = std::numeric_limits<std::uint32_t>::max();
constexpr std::array<std::uint32_t, 4> kBlocksPerTry = {16 * 1024, 256 * 1024, kWholePool, kWholePool};
constexpr std::size_t kBlocksPerRead = 4096;

// The changes of one tier by the events during the walk.
class TierWindow {
 public:
  void add(const Stored& stored) {
    SequenceHash parent = stored.parent.value_or(SequenceHash{0});
    for (const StoredBlock& block : stored.blocks) {
      changes_.push_back({{block.key, parent, block.tokens_hash}, changes_.size(), true});
      parent = block.key.sequence_hash();
    }
  }
  void add(const Removed& removed) {
    for (const BlockKey& key : removed.keys) {
      changes_.push_back({{.key = key}, changes_.size(), false});
    }
  }
  void add(const Cleared&) {
    changes_.clear();
    cleared_ = true;
  }

  void add(const Invalidated&) { add(Cleared()); }

  // Cleared and Invalidated do not change whether the tier is suspended.
  void add(const Suspended&) { suspended_ = true; }
  void add(const Resumed&) { suspended_ = false; }

  // Whether the tier is suspended after the events, given what the walk saw.
  [[nodiscard]] bool is_suspended(bool seen) const { return suspended_.value_or(seen); }

  // The blocks after the events, sorted by key, given what the walk saw in any order.
  [[nodiscard]] std::vector<ResidentBlock> resolve(std::vector<ResidentBlock> seen) && {
    if (cleared_) {
      seen.clear();
    }
    std::ranges::sort(seen, {}, &ResidentBlock::key);
    std::ranges::sort(changes_, [](const Change& a, const Change& b) {
      const auto order = a.block.key <=> b.block.key;
      return order != 0 ? order < 0 : a.number < b.number;
    });
    std::vector<ResidentBlock> resolved;
    resolved.reserve(seen.size());
    auto block = seen.begin();
    for (auto change = changes_.begin(); change != changes_.end(); ++change) {
      if (std::next(change) != changes_.end() && std::next(change)->block.key == change->block.key) {
        continue;  // a later event decides
      }
      while (block != seen.end() && block->key < change->block.key) {
        append(resolved, *block++);
      }
      while (block != seen.end() && block->key == change->block.key) {
        ++block;
      }
      if (change->present) {
        append(resolved, change->block);
      }
    }
    std::for_each(block, seen.end(), [&](const ResidentBlock& b) { append(resolved, b); });
    return resolved;
  }

 private:
  struct Change {
    ResidentBlock block;
    std::size_t number = 0;  // in the order of events
    bool present = false;
  };
  // Appends each key once, because a pool may have duplicates.
  static void append(std::vector<ResidentBlock>& to, ResidentBlock block) {
    if (!to.empty() && to.back().key == block.key) {
      return;
    }
    if (block.key.position() == 0) {
      block.parent = SequenceHash{0};
    }
    to.push_back(block);
  }

  std::vector<Change> changes_;  // since the last Cleared
  bool cleared_ = false;
  std::optional<bool> suspended_;  // by the last of its events
};

class Walk {
 public:
  explicit Walk(const EventLog& log) : log_(log), next_(log.last_sequence() + 1) {}

  // std::nullopt if the log dropped events during the walk.
  [[nodiscard]] std::optional<Snapshot> run(std::span<const ResidentSource* const> pools,
                                            std::uint32_t blocks_per_lock) {
    Snapshot snapshot;
    for (const ResidentSource* pool : pools) {
      TierSnapshot& seen = snapshot.tiers.emplace_back(TierSnapshot{.tier = pool->tier()});
      seen.suspended = log_.is_suspended(seen.tier);
      std::uint32_t block_id = 0;
      do {
        block_id = pool->list_resident(block_id, std::min(blocks_per_lock, pool->capacity() - block_id), seen.blocks);
        // After each part, so that the log has to keep only the events of one part.
        if (!follow()) {
          return std::nullopt;
        }
      } while (block_id < pool->capacity());
    }
    for (TierSnapshot& tier : snapshot.tiers) {
      TierWindow& window = windows_[index_of(tier.tier)];
      tier.suspended = window.is_suspended(tier.suspended);
      tier.blocks = std::move(window).resolve(std::move(tier.blocks));
      if (log_.keeps_token_ids()) {
        tier.token_ids = log_.token_ids_of(tier.blocks);
      }
    }
    snapshot.sequence = next_ - 1;
    snapshot.source = log_.source();
    return snapshot;
  }

 private:
  // Reads the events up to now; false if some were dropped.
  [[nodiscard]] bool follow() {
    const std::uint64_t last = log_.last_sequence();
    while (next_ <= last) {
      const Result<EventBatch> batch = log_.read(next_, kBlocksPerRead);
      CAIRN_CHECK(batch.has_value(), "a walk reads only numbers that the log has given out");
      const auto* events = std::get_if<std::vector<Event>>(&*batch);
      if (events == nullptr) {
        return false;
      }
      for (const Event& event : *events) {
        std::visit([&](const auto& data) { windows_[index_of(event.tier)].add(data); }, event.data);
      }
      next_ += events->size();
    }
    return true;
  }

  const EventLog& log_;
  std::uint64_t next_;
  std::array<TierWindow, kCacheLevels> windows_;
};

}  // namespace

Result<Snapshot> take_snapshot(const EventLog& log, std::span<const ResidentSource* const> pools) {
  std::bitset<kCacheLevels> seen;
  for (const ResidentSource* pool : pools) {
    if (seen[index_of(pool->tier())]) {
      return fail(ErrorCode::kInvalidArgument, str_cat("two pools of tier ", to_string(pool->tier()),
                                                       " were given for one snapshot; a log has one pool a tier"));
    }
    seen.set(index_of(pool->tier()));
  }
  for (const std::uint32_t blocks_per_lock : kBlocksPerTry) {
    if (std::optional<Snapshot> snapshot = Walk(log).run(pools, blocks_per_lock)) {
      return *std::move(snapshot);
    }
  }
  return fail(
      ErrorCode::kExhausted,
      str_cat("no snapshot: in ", kBlocksPerTry.size(),
              " attempts the event log dropped events faster than the pools could be walked; make the log larger"));
}

}  // namespace cairn
