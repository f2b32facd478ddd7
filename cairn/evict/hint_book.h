// HintBook: the hints for the blocks of a pool, what they mean for the order of eviction, and how far each tenant's
// hints can be trusted.
//
// A hint gives a block one of sixteen levels within its priority. Levels below kNormalLevel are evicted before blocks
// without hints, levels above it after them. Blocks that will not return are evicted first. Blocks that return are
// ranked by the time until then, the longest first. They rank above normal if that is at most twice the time that a
// block takes on average to be hit; otherwise their place is worth more to other blocks. A system prompt ranks with
// blocks that return at once, for four times that time after its last use.
//
// A level lasts as long as the hint says and a quarter more; then the block is ranked as without a hint. Whether blocks
// return as predicted is counted for each tenant and kind of hint. Hints of a kind that is wrong too often have no
// effect until it is right again.
//
// Thread safety: none; the lock of the pool guards it.
// Complexity: O(1) a call. 16.5 bytes a block; nothing is allocated after create().
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "cairn/base/clock.h"
#include "cairn/base/ids.h"
#include "cairn/base/page_array.h"
#include "cairn/base/result.h"
#include "cairn/evict/retention.h"
#include "cairn/tokens/block_key.h"

namespace cairn {

using HintLevel = std::uint32_t;
inline constexpr HintLevel kHintLevels = 16;
inline constexpr HintLevel kNormalLevel = 8;

class HintBook {
 public:
  static constexpr TimePoint kNoReview = TimePoint::max();
  // A level, and the time at which to call rank() again.
  struct Rank {
    HintLevel level = kNormalLevel;
    TimePoint review = kNoReview;
    friend bool operator==(const Rank&, const Rank&) = default;
  };

  // `tenants`: each is trusted by its own record.
  [[nodiscard]] static Result<HintBook> create(std::uint32_t capacity, std::uint32_t tenants, const KeySeed& seed = {});

  // Adds a hint for a block. If there are several expected returns, the earliest counts; kWillNotReturn is ignored if a
  // return is expected or the block is of a system prompt. Requires: `hint.in` is not negative.
  void add(BlockId block_id, const RetentionHint& hint, TimePoint now);
  // The block became inactive.
  void on_released(BlockId block_id, TimePoint now);
  // The rank of an inactive block. A hint whose time has passed is dropped, and counted as wrong.
  [[nodiscard]] Rank rank(BlockId block_id, TenantId tenant, TimePoint now);
  // The block was used again: its hint is counted as right or wrong and, unless it is a system prompt, dropped.
  void on_used(BlockId block_id, TenantId tenant, const BlockKey& key);
  // The block lost its key, by eviction or otherwise.
  void on_removed(BlockId block_id, TenantId tenant, const BlockKey& key);
  // A key was registered: if a hint said that it would not return, that is counted as wrong.
  void on_registered(TenantId tenant, const BlockKey& key);

  // Measures the average time that a block was inactive for each hit, recently: so many inactive blocks were hit or
  // evicted, while `inactive` blocks were inactive.
  void observe(std::uint32_t hits, std::uint32_t evictions, std::uint32_t inactive, TimePoint now);
  [[nodiscard]] bool believes(TenantId tenant, RetentionHint::Kind kind) const;
  [[nodiscard]] std::size_t bytes() const;

 private:
  static constexpr std::size_t kKinds = 4;
  // How often the hints of a tenant were right recently, in blocks.
  struct Trust {
    std::uint32_t kept = 0;
    std::uint32_t broken = 0;
    void add_kept();
    void add_broken();
    void fade();
  };
  struct Record {
    std::int64_t at_ns;    // kReturns: when; kSystemPrompt: when it ends
    std::uint32_t for_ms;  // kReturns: the time that the hint gave
    RetentionHint::Kind kind;
  };

  HintBook(PageArray<Record> records, PageArray<std::uint32_t> departed, std::uint32_t capacity, std::uint32_t tenants,
           const KeySeed& seed);

  [[nodiscard]] Trust& trust(TenantId tenant, RetentionHint::Kind kind) {
    return trust_[index_of(tenant)][static_cast<std::size_t>(kind)];
  }
  [[nodiscard]] Rank rank_of_return(const Record& record, TimePoint now) const;
  // Where to remember a key that a hint said will not return; null if the key is not in the sample.
  [[nodiscard]] std::uint32_t* departed_at(const BlockKey& key, std::uint32_t& print);

  KeySeed seed_;
  PageArray<Record> records_;
  PageArray<std::uint32_t> departed_;  // fingerprints of keys; later ones overwrite earlier ones; 0: empty
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
