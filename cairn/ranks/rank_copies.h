// RankCopies: the copies that ranks have in hand: who answered what, what it comes to, and when nothing touches their
// blocks any more.
//
// Does:     makes of a transfer the copy that every rank gets, and of their answers its outcome. A block is done only when
//           all ranks say so; of several reasons why not the worst counts: mismatch, failed, expired, cancelled. The
//           outcome is told once it is certain: all have answered, or no block can be done any more.
// Checksum: of a block: those of the ranks mixed in their order, also for one rank: state = ranks; for each rank
//           state = mix(state + its checksum) + 0x9E3779B97F4A7C15. Each step is a bijection: what changes on one rank
//           changes the whole.
// Settled:  when each rank has settled its part, or its part is proven over (over()): an earlier generation's word does
//           not count.
// Epochs:   grow with every rank that becomes ready. Blocks in host memory keep that in which their copy began; to read one
//           of another epoch is a mismatch, told without asking a rank: on some rank the bytes may be gone.
// Threads:  one at a time: under the leader's lock. Pure but for the ledger's transfers.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cairn/base/clock.h"
#include "cairn/base/ids.h"
#include "cairn/base/result.h"
#include "cairn/ranks/rank_message.h"
#include "cairn/transfer/transfer_ledger.h"

namespace cairn {

// A rank as copies see it.
struct RankPresence {
  bool is_there = false;
  std::uint32_t generation = 0;
  std::string reason = {};  // why it is not there
};

// Which tiers a plan joins, by the kinds of memory; none: it is not one that ranks carry out.
struct RankRoute {
  CacheLevel from = CacheLevel::kG1;
  CacheLevel to = CacheLevel::kG1;
};
[[nodiscard]] std::optional<RankRoute> route_of(const CopyPlan& plan);

// See above. Never 0: that says nothing is known.
[[nodiscard]] Checksum combine(std::span<const Checksum> of_ranks);

class RankCopies {
 public:
  // What every rank is to get; none: it is over, or nobody has to do anything.
  [[nodiscard]] std::optional<RankCopy> begin(std::shared_ptr<ActiveTransfer> transfer,
                                              std::span<const RankPresence> ranks, TimePoint now);

  // Copies that the other ranks need not begin any more. Errors are the rank's, which cannot be trusted any more: answers
  // that do not fit what was asked.
  using Needless = std::vector<TransferId>;
  [[nodiscard]] Result<Needless> answered(std::uint32_t rank, std::uint32_t generation, const RankCopyDone& answer);
  [[nodiscard]] Status settled(std::uint32_t rank, std::uint32_t generation, TransferId id);
  // Its copies that are not told fail; what it may still touch stays its own until over().
  [[nodiscard]] Needless gone(std::uint32_t rank, std::uint32_t generation, const std::string& reason);
  // Nothing of this generation of the rank touches any block.
  void over(std::uint32_t rank, std::uint32_t generation);
  void next_epoch() { ++epoch_; }
  // Fails what is not told, and lets go of everything, proven over or not.
  void give_up(const std::string& reason);

  // The copies that ranks have in hand of this transfer of the ledger.
  [[nodiscard]] Needless cancelled(TransferId transfer);
  [[nodiscard]] Needless all_cancelled();
  // Those whose deadline has passed; each once.
  [[nodiscard]] Needless expired(TimePoint now);
  [[nodiscard]] std::optional<TimePoint> next_deadline() const;

  // In the hands of a rank, of any generation.
  [[nodiscard]] std::uint32_t in_hand(std::uint32_t rank) const;
  [[nodiscard]] bool empty() const { return copies_.empty(); }

 private:
  enum class Step : std::uint8_t { kOut, kAnswered, kOver };
  struct Part {  // a rank's
    std::uint32_t generation = 0;
    Step step = Step::kOut;
    std::vector<Checksum> checksums = {};
  };
  struct Copy {
    std::shared_ptr<ActiveTransfer> transfer;
    RankRoute route;
    std::uint64_t epoch = 0;
    std::vector<std::uint32_t> sent = {};     // which blocks of the transfer the ranks got
    std::vector<BlockOutcome> outcomes = {};  // of all its blocks, as far as known: done, where nobody objected
    std::uint32_t error_block = 0;            // whose error it is, where there is one
    std::string error = {};
    std::vector<Part> parts = {};
    bool is_told = false;
    bool is_cancelled = false;
  };
  using Copies = std::map<TransferId, Copy>;

  void choose_blocks(Copy& copy);
  static void object(Copy& copy, std::uint32_t block, BlockState state, const std::string& error);
  static void fail_all(Copy& copy, const std::string& error);
  static void add_checksums(Copy& copy);
  void tell(Copy& copy);
  static bool let_go_if_over(Copy& copy);
  static void cancel(Copies::value_type& each, Needless& needless);
  [[nodiscard]] std::uint64_t& epoch_of(std::uint32_t host_block_id);

  Copies copies_;
  std::uint64_t next_id_ = 1;  // never used again, also by another ledger's transfers
  std::uint64_t epoch_ = 1;
  std::vector<std::uint64_t> host_epochs_;  // by block; 0: nothing that may be read
};

}  // namespace cairn
