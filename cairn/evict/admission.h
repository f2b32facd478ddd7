// AdmissionFilter: which blocks are worth writing to a lower tier.
//
// The caller reports every use of a block and offers every block that could be written; the filter admits the block or
// says why not, and counts. From the uses it learns, for blocks used once, twice and so on, after what time they are
// used again; from the blocks it admits, how long the tier keeps a block. Together these give the probability that a
// block is read before the tier evicts it. Near the end of the budget, only likelier blocks are admitted. A block is
// useless without the blocks before it: if leaves are offered first, the blocks before an admitted block are admitted
// too, as far as the budget allows.
//
// Deterministic; the time is passed in and used for the budget only.
//
// Thread safety: none.
// Ownership: the offloader; one for each tier that is written to.
// Errors: create() fails on contradictory options, and without memory.
// Complexity: O(1) a call. 20 bytes for each block of the tier, at least 64 KiB; nothing is allocated after create().
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
#include "cairn/tokens/block_key.h"

namespace cairn {

struct AdmissionOptions {
  std::uint32_t capacity = 0;       // blocks of the tier that is written to
  std::uint32_t least_uses = 1;     // 2: only blocks that were used again, as far back as uses are remembered
  std::uint32_t least_blocks = 1;   // refuse shorter sequences: computing them takes less time than reading them
  double least_chance = 0.02;       // of being read again before it is evicted; 0: any
  std::uint64_t bytes_per_day = 0;  // that may be written; 0: any number
  std::uint64_t block_bytes = 0;    // of one block; needed with bytes_per_day
  KeySeed seed = {};                // of what it remembers of keys
};

enum class Admission : std::uint8_t {
  kAdmitted,
  kTooShort,        // its sequence has fewer blocks than least_blocks
  kNeverSeenTwice,  // it was used fewer times than least_uses
  kWouldNotLast,    // it would most likely be evicted before it is read again
  kOverBudget,      // the budget is used up, or so low that it is kept for likelier blocks
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
  // Whether to write the block, which is part of a sequence of so many blocks. An admitted block counts as written.
  [[nodiscard]] Admission offer(const BlockKey& block, std::uint32_t sequence_blocks, TimePoint now);
  // The same for a block that a caller wants written: only the budget can refuse it.
  [[nodiscard]] Admission demand(const BlockKey& block, TimePoint now);

  // A block that was admitted is not written after all.
  void take_back() {
    if (budget_) {
      budget_->give_back(options_.block_bytes);
    }
  }
  // How often the block was used, as far back as uses are remembered; at most ReuseHistory::kMaxUses.
  [[nodiscard]] std::uint32_t uses(const BlockKey& block) const;

  // How many offers and demands had this outcome.
  [[nodiscard]] std::uint64_t count(Admission admission) const { return counts_[static_cast<std::size_t>(admission)]; }
  // The probability that a block is read again before the tier evicts it, if it was used so often, the last time `age`
  // uses of any blocks ago.
  [[nodiscard]] double chance(std::uint32_t uses, std::uint64_t age) const;
  [[nodiscard]] std::size_t bytes() const { return history_.bytes() + needed_.bytes(); }

 private:
  AdmissionFilter(const AdmissionOptions& options, ReuseHistory history, PageArray<std::uint32_t> needed,
                  TimePoint now);

  [[nodiscard]] Admission judge(const BlockKey& block, std::uint32_t sequence_blocks, TimePoint now);
  [[nodiscard]] Admission within_budget(double chance, TimePoint now);
  [[nodiscard]] Admission count_verdict(const BlockKey& block, Admission verdict);
  void on_written(const BlockKey& block);

  AdmissionOptions options_;
  ReuseHistory history_;
  // Fingerprints of the parents of admitted blocks; later ones overwrite earlier ones.
  PageArray<std::uint32_t> needed_;
  ReuseModel model_;
  std::optional<WriteBudget> budget_;
  std::array<std::uint64_t, std::size(kAllAdmissions)> counts_{};
  std::uint64_t now_ = 0;  // counted in uses of blocks
  // How long the tier keeps a block, in uses; measured each time a quarter of its blocks was written.
  std::uint64_t lifetime_;
  std::uint64_t measured_at_ = 0;
  std::uint32_t written_since_ = 0;
  double best_chance_ = 0;  // of recent offers
};

}  // namespace cairn
