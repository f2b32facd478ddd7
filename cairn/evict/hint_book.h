// HintBook: what was said of the blocks in a pool's blocks, what it means for the order of eviction, and how far whoever
// said it is to be believed.
//
// Does:     a hint gives a block one of sixteen levels within its priority: levels below kNormalLevel are evicted before
//           blocks of which nothing is known, levels above it after them. What will not return goes first. What returns
//           is ranked by how long it still takes, the longest first, and stands above normal if that is at most twice the
//           time a block takes, on average, to bring a hit: beyond that the block is worth more to others. A system prompt
//           ranks with what returns at once, for four times that time after its last use.
// Bounds:   a level lasts as long as the hint says and a quarter more; then the block is where it would be without it.
//           Whether blocks came back as said is counted for each giver and kind, and hints of a kind that is wrong too
//           often have no effect until it is right again. What will not return can be the first to go, never more.
// Owner:    one pool, or a simulation of one. Threads: none.
// Costs:    O(1) a call, 16 bytes a block and half a byte for what has gone; nothing is allocated after create().
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "cairn/base/clock.h"
#include "cairn/base/ids.h"
#include "cairn/base/page_array.h"
#include "cairn/base/result.h"
#include "cairn/evict/retention_hint.h"
#include "cairn/hash/key_seed.h"
#include "cairn/tokens/block_key.h"

namespace cairn {

using HintLevel = std::uint32_t;
inline constexpr HintLevel kHintLevels = 16;
inline constexpr HintLevel kNormalLevel = 8;

class HintBook {
 public:
  static constexpr TimePoint kNoReview = TimePoint::max();
  // A level and the time at which to ask again.
  struct Rank {
    HintLevel level = kNormalLevel;
    TimePoint review = kNoReview;
    friend bool operator==(const Rank&, const Rank&) = default;
  };

  // `givers`: tenants, each believed by its own record.
  [[nodiscard]] static Result<HintBook> create(std::uint32_t capacity, std::uint32_t givers, const KeySeed& seed = {});

  // Of the block in the block. One that others expect back sooner is expected then; one that others want, or that begins
  // many requests, is not given up because one session is over. Requires: `in` is not negative.
  void say(BlockId block_id, const RetentionHint& hint, TimePoint now);
  // The block is in no use from now on.
  void released(BlockId block_id, TimePoint now);
  // Where it ranks now. A hint whose time is over is dropped, and counted against its giver.
  [[nodiscard]] Rank rank(BlockId block_id, TenantId giver, TimePoint now);
  // The block was wanted again: what was said is counted, and done with but for system prompts.
  void used(BlockId block_id, TenantId giver, const BlockKey& key);
  // The block left its block, by eviction or otherwise.
  void gone(BlockId block_id, TenantId giver, const BlockKey& key);
  // A block came into the pool: if it was said that it would not, that is counted.
  void came(TenantId giver, const BlockKey& key);

  // Keeps the measure of time: this many blocks out of use were wanted again, or evicted, while `unused` were there.
  void observe(std::uint32_t hits, std::uint32_t evictions, std::uint32_t unused, TimePoint now);
  // The time a block takes to bring a hit, as observed of late.
  [[nodiscard]] Duration time_per_hit() const { return scale_; }
  [[nodiscard]] bool believes(TenantId giver, RetentionHint::Kind kind) const;
  [[nodiscard]] std::size_t bytes() const;

 private:
  static constexpr std::size_t kKinds = 4;
  // How often a giver was right, in blocks of late.
  struct Trust {
    std::uint32_t kept = 0;
    std::uint32_t broken = 0;
    void add_kept();
    void add_broken();
    void fade();
  };
  struct Record {
    std::int64_t at_ns;    // kReturns: when; kSystemPrompt: when it ends
    std::uint32_t for_ms;  // kReturns: what was said
    RetentionHint::Kind kind;
  };

  HintBook(PageArray<Record> records, PageArray<std::uint32_t> departed, std::uint32_t capacity, std::uint32_t givers,
           const KeySeed& seed);

  [[nodiscard]] Trust& trust(TenantId giver, RetentionHint::Kind kind) {
    return trust_[index_of(giver)][static_cast<std::size_t>(kind)];
  }
  [[nodiscard]] Rank rank_of_return(const Record& record, TimePoint now) const;
  // Where a key that was said not to return is remembered; null where it is not of the sample.
  [[nodiscard]] std::uint32_t* departed_at(const BlockKey& key, std::uint32_t& print);

  KeySeed seed_;
  PageArray<Record> records_;
  PageArray<std::uint32_t> departed_;  // prints of keys, the later over the earlier; 0 is none
  std::uint32_t sampled_one_in_;
  std::vector<std::array<Trust, kKinds>> trust_;
  std::uint32_t window_;
  std::uint32_t window_events_ = 0;
  std::uint32_t window_hits_ = 0;
  TimePoint window_begin_{};
  bool window_open_ = false;
  Duration scale_;
};

}  // namespace cairn
