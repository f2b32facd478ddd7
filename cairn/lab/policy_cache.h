// PolicyCache: a cache of a trace's blocks under a real policy, without handles, locks and bytes.
//
// Thread safety: none.
// Errors: create() fails if the policy cannot be made.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "cairn/base/clock.h"
#include "cairn/base/result.h"
#include "cairn/evict/eviction_policy.h"
#include "cairn/evict/hint_book.h"
#include "cairn/lab/block_trace.h"
#include "cairn/lab/request_hints.h"
#include "cairn/pool/retention_clock.h"

namespace cairn::lab {

class PolicyCache final : public ParentFinder {
 public:
  struct Options {
    PolicyKind policy;
    std::uint32_t capacity;  // blocks
    bool leaves_first = false;
    bool hints = false;  // use() gets hints
    // The largest request: its blocks are inserted whatever they are worth, and then evicted like any others. 0: they
    // take the place of others from the beginning.
    std::uint32_t bypass = 0;
    std::shared_ptr<ReturnModel> returns = nullptr;  // shared with other caches; null: its own
  };
  // A block that moves between caches, and what the policy knew of it.
  struct Moved {
    std::uint32_t block;
    BlockPast past;
  };
  // The trace outlives the cache.
  [[nodiscard]] static Result<std::unique_ptr<PolicyCache>> create(const Trace& trace, const Options& options);
  PolicyCache(const PolicyCache&) = delete;
  PolicyCache& operator=(const PolicyCache&) = delete;
  ~PolicyCache() override = default;

  [[nodiscard]] std::uint32_t capacity() const { return capacity_; }
  [[nodiscard]] bool contains(std::uint32_t block) const { return id_of_block_[block] != kNoBlock; }

  // A request uses the blocks and releases them all at once, the last one first. Blocks that are missing are added;
  // appends the blocks that were evicted for them. `hints`: not null if the cache was created with hints. Requires: no
  // more blocks than the capacity, or than `bypass`. `from_below`: missing blocks that a cache below has, in the order of
  // the request.
  void use(std::span<const std::uint32_t> blocks, std::span<const Moved> from_below, TimePoint now,
           RequestEnding ending, const RequestHints* hints, std::vector<Moved>& evicted);
  // Requires: contains(block).
  [[nodiscard]] BlockPast past_of(std::uint32_t block) const { return policy_->past_of(id_of_block_[block]); }
  // Adds blocks that a cache above evicted; of one sequence, leaf first. Blocks that are here already get the newer past.
  // Requires: no more blocks than the capacity.
  void add(std::span<const Moved> blocks, TimePoint now, std::vector<Moved>& evicted);
  // Whether the block is worth more than the one that would be evicted for it, or none would be.
  [[nodiscard]] bool is_worth_adding(const Moved& block, TimePoint now);

  [[nodiscard]] BlockId find_parent(const BlockKey& child) const override;

 private:
  // The time of the trace.
  class TraceClock final : public Clock {
   public:
    [[nodiscard]] TimePoint now() const override { return now_; }
    void set(TimePoint now) { now_ = std::max(now_, now); }

   private:
    TimePoint now_{0};
  };

  PolicyCache(const Trace& trace, const Options& options);

  void make_room(std::size_t wanted, TimePoint now, std::vector<Moved>& evicted);
  void evict(std::size_t count, TimePoint now, std::vector<Moved>& evicted);
  void place(std::uint32_t block);
  void adopt(std::span<const Moved> blocks);
  void review_hints(TimePoint now);
  void hint(std::span<const std::uint32_t> blocks, TimePoint now, const RequestHints& hints);
  void record_uses(std::span<const std::uint32_t> blocks, TimePoint now);

  const Trace& trace_;
  const std::uint32_t capacity_;
  TraceClock clock_;
  std::vector<BlockId> id_of_block_;        // by block of the trace; kNoBlock if it is not in the cache
  std::vector<std::uint32_t> block_of_id_;  // by block id
  std::vector<BlockKey> keys_;              // by block id
  std::vector<EvictionClass> classes_;      // by block id
  std::unique_ptr<EvictionPolicy> policy_;
  std::optional<HintBook> hints_;
  std::optional<RetentionClock> reviews_;
  std::uint32_t never_used_ = 0;
  std::vector<BlockId> free_;
  std::vector<BlockId> block_ids_;  // of the request in use()
  std::vector<BlockId> victims_;
  std::vector<BlockPast> pasts_;
};

}  // namespace cairn::lab
