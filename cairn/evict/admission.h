// AdmissionFilter: which blocks are worth writing to a lower tier at all.
//
// Does:     is told of every block that is used and asked about every block that could be written; says yes, or why not,
//           and counts. From the uses it learns, for blocks used once, twice and so on, after what time they are used
//           again, if they are; from what it admits, how long the tier keeps a block. Together they give the chance that
//           a block is read before the tier evicts it. Near the end of the budget only the likelier ones are admitted.
//           A block is of no use without those before it: what stands before an admitted one is admitted too, where
//           leaves are offered first, for as long as the budget lasts.
// Owner:    whoever moves blocks down; one for each tier that is written to.
// Threads:  none. Deterministic; time is handed in and is used for the budget alone.
// Costs:    O(1) a call; 20 bytes for each block of the tier, at least 64 KiB; nothing is allocated after create().
// Fails:    create() on options that make no sense, or without memory.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "cairn/base/clock.h"
#include "cairn/base/page_array.h"
#include "cairn/base/result.h"
#include "cairn/evict/reuse_history.h"
#include "cairn/evict/reuse_model.h"
#include "cairn/evict/write_budget.h"
#include "cairn/hash/key_seed.h"
#include "cairn/tokens/block_key.h"

namespace cairn {

struct AdmissionOptions {
  std::uint32_t capacity = 0;       // blocks of the tier that is written to
  std::uint32_t least_uses = 1;     // 2: only what was used again, as far back as it is remembered
  std::uint32_t least_blocks = 1;   // a shorter sequence is sooner computed than read
  double least_chance = 0.02;       // of being read again before it is evicted; 0: whatever it is
  std::uint64_t bytes_per_day = 0;  // that may be written; 0: any number
  std::uint64_t block_bytes = 0;    // of one block; needed where bytes_per_day is given
  KeySeed seed = {};                // of what it remembers of keys
};

enum class Admission : std::uint8_t {
  kAdmitted,
  kTooShort,        // its sequence has fewer blocks than least_blocks
  kNeverSeenTwice,  // it was used fewer times than least_uses
  kWouldNotLast,    // it would be evicted before it is read again, most likely
  kOverBudget,      // the disk has taken what it may, or is so near to it that likelier ones are waited for
};
inline constexpr Admission kAllAdmissions[] = {Admission::kAdmitted, Admission::kTooShort, Admission::kNeverSeenTwice,
                                               Admission::kWouldNotLast, Admission::kOverBudget};
// "admitted", "too short", "never seen twice", "would not last", "over budget"
[[nodiscard]] std::string_view to_string(Admission admission);

class AdmissionFilter {
 public:
  [[nodiscard]] static Result<AdmissionFilter> create(const AdmissionOptions& options, TimePoint now);

  // A request used these blocks.
  void used(std::span<const BlockKey> blocks);
  // Whether to write the block, which is part of a sequence of so many blocks. An admitted one counts as written.
  [[nodiscard]] Admission offer(const BlockKey& block, std::uint32_t sequence_blocks, TimePoint now);
  // The same of a block that somebody asked to be written: only the budget can refuse it.
  [[nodiscard]] Admission demand(const BlockKey& block, TimePoint now);

  // Of all offers and demands.
  [[nodiscard]] std::uint64_t count(Admission admission) const { return counts_[static_cast<std::size_t>(admission)]; }
  // That a block used so often, the last time this many uses of blocks ago, is read again before the tier evicts it.
  [[nodiscard]] double chance(std::uint32_t uses, std::uint64_t age) const;
  [[nodiscard]] std::size_t bytes() const { return history_.bytes() + needed_.bytes(); }

 private:
  AdmissionFilter(const AdmissionOptions& options, ReuseHistory history, PageArray<std::uint32_t> needed,
                  TimePoint now);

  [[nodiscard]] Admission judge(const BlockKey& block, std::uint32_t sequence_blocks, TimePoint now);
  [[nodiscard]] Admission within_budget(double chance, TimePoint now);
  [[nodiscard]] Admission note(const BlockKey& block, Admission verdict);
  void note_written(const BlockKey& block);

  AdmissionOptions options_;
  ReuseHistory history_;
  PageArray<std::uint32_t> needed_;  // prints of the parents of admitted blocks, the later over the earlier
  ReuseModel model_;
  std::optional<WriteBudget> budget_;
  std::array<std::uint64_t, std::size(kAllAdmissions)> counts_{};
  std::uint64_t now_ = 0;  // uses of blocks
  // How long the tier keeps a block, in uses; measured whenever a quarter of it was written anew.
  std::uint64_t lifetime_;
  std::uint64_t measured_at_ = 0;
  std::uint32_t written_since_ = 0;
  double best_chance_ = 0;  // of those offered of late
};

}  // namespace cairn
