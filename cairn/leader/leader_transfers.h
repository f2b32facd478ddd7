// LeaderTransfers: the transfers that are in flight at ranks: which rank answered what, the outcome, and when nothing touches
// the blocks any more.
//
// begin() makes of a transfer the message that every rank gets; the outcomes of the ranks make its outcome. A block is done
// only if it is done on all ranks; otherwise the worst state counts: mismatch, failed, expired, cancelled. The outcome is
// reported as soon as it is certain: all ranks have answered, or no block can be done any more. A transfer is settled when
// every rank has settled its part, or the part is proven over (over()); the word of an earlier generation does not count.
//
// Checksums do not depend on how blocks are split: ranks number their rows as in the whole model, so their sums add up to
// those of the block. Replicas that each keep a copy are checked each for itself (wire/combined_checksum.h).
// Replicas that share their host memory and file hold a block once. Every one of them loads it to its own device; any other
// transfer is dealt to them, block by block, by the number of the destination block.
//
// The epoch grows with every rank that becomes ready. A block in host memory keeps the epoch in which its transfer began. To
// read a block of another epoch is a mismatch, without asking the ranks: on one of them the bytes may be gone.
//
// A save of what the engine is about to compute (in_step_mark()) is copied by the ranks, but its outcome waits until
// the engine's scheduler has said of every block whether it was computed: confirm() or withdraw().
//
// Thread safety: one thread at a time, under the leader's lock. Pure, except for the ledger's transfers.
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
#include "cairn/transfer/transfer_ledger.h"
#include "cairn/wire/rank_message.h"

namespace cairn {

// A rank as transfers see it.
struct RankPresence {
  bool is_there = false;
  std::uint32_t generation = 0;
  std::uint32_t replica = 0;  // among the ranks that hold the same part of each block; consecutive ranks
  std::uint32_t replicas = 1;
  bool shares = false;      // the replicas have one host memory and one file between them
  std::string reason = {};  // why it is not connected
};

// The tiers that a plan joins, by the kinds of memory; std::nullopt if ranks cannot carry it out.
struct TransferRoute {
  CacheLevel from = CacheLevel::kG1;
  CacheLevel to = CacheLevel::kG1;
};
[[nodiscard]] std::optional<TransferRoute> route_of(const CopyPlan& plan);

class LeaderTransfers {
 public:
  // The message for every rank; std::nullopt if the transfer has already ended.
  [[nodiscard]] std::optional<RankTransfer> begin(std::shared_ptr<ActiveTransfer> transfer,
                                                  std::span<const RankPresence> ranks, TimePoint now);

  // What a rank gets of the message that begin() returned, if its blocks are dealt to replicas: std::nullopt if nothing.
  [[nodiscard]] std::optional<RankTransfer> part_of(const RankTransfer& message, std::uint32_t rank) const;
  [[nodiscard]] bool is_dealt(TransferId id) const { return open_.at(id).is_dealt; }

  // Transfers that the other ranks need not begin. An error means that the rank can no longer be trusted: its answer
  // does not fit the transfer.
  using Needless = std::vector<TransferId>;
  [[nodiscard]] Result<Needless> answered(std::uint32_t rank, std::uint32_t generation,
                                          const RankTransferOutcome& answer);
  [[nodiscard]] Status settled(std::uint32_t rank, std::uint32_t generation, TransferId id);
  // The engine has computed these device blocks in the step of the mark, or has not: a save of them with that mark, begun or
  // not, may succeed, or is cancelled. A word with a later mark ends earlier saves of the block that nothing was said of.
  [[nodiscard]] Needless confirm(StepMark mark, std::span<const BlockId> blocks);
  [[nodiscard]] Needless withdraw(StepMark mark, std::span<const BlockId> blocks);
  // Fails the rank's transfers whose outcome is not reported yet. Their blocks are settled by over().
  [[nodiscard]] Needless gone(std::uint32_t rank, std::uint32_t generation, const std::string& reason);
  // No transfer of this generation of the rank touches a block from now on.
  void over(std::uint32_t rank, std::uint32_t generation);
  void next_epoch() { ++epoch_; }
  // Fails all transfers whose outcome is not reported yet and forgets all, whether or not they are known to have ended.
  void give_up(const std::string& reason);

  // By its id in the ledger.
  [[nodiscard]] Needless cancelled(TransferId transfer);
  [[nodiscard]] Needless all_cancelled();
  // Those whose deadline has passed; each is returned once.
  [[nodiscard]] Needless expired(TimePoint now);
  [[nodiscard]] std::optional<TimePoint> next_deadline() const;

  // At this rank, of any generation.
  [[nodiscard]] std::uint32_t in_flight(std::uint32_t rank) const;
  [[nodiscard]] bool empty() const { return open_.empty(); }

 private:
  enum class Step : std::uint8_t { kSent, kAnswered, kOver };
  struct Part {  // of one rank
    std::uint32_t generation = 0;
    std::uint32_t replica = 0;
    std::uint32_t replicas = 1;
    bool shares = false;
    Step step = Step::kSent;
    std::vector<BlockSums> sums = {};  // of the blocks that it carries out, in the order of Entry::sent
  };
  struct Entry {
    std::shared_ptr<ActiveTransfer> transfer;
    TransferRoute route;
    std::uint64_t epoch = 0;
    std::vector<std::uint32_t> sent = {};     // the blocks of the transfer that the ranks got
    std::vector<BlockOutcome> outcomes = {};  // of all blocks; done until a rank says otherwise
    std::uint32_t error_block = 0;            // the block that `error` is about
    std::string error = {};
    Duration copied = Duration::zero();  // by the slowest rank
    std::vector<Part> parts = {};        // by rank
    bool is_dealt = false;               // ranks that share their memory carry out some of the blocks each
    bool is_in_step_save = false;        // its outcome waits for the engine's word
    bool is_told = false;                // its outcome is reported
    bool is_cancelled = false;
  };
  using Entries = std::map<TransferId, Entry>;

  void choose_blocks(Entry& entry);
  static void object(Entry& entry, std::uint32_t block, BlockState state, const std::string& error);
  static void fail_all(Entry& entry, const std::string& error);
  // Whether the rank of this part copies the block, which is one of Entry::sent.
  [[nodiscard]] static bool carries_out(const Entry& entry, const Part& part, std::uint32_t block);
  static void add_checksums(Entry& entry);
  void tell(Entry& entry);
  // Reports the outcome if it is certain.
  void tell_if_certain(Entries::value_type& each, Needless& needless);
  enum class Word : std::uint8_t { kNone, kConfirmed, kWithdrawn };
  [[nodiscard]] Needless decide(StepMark mark, std::span<const BlockId> blocks, Word word);
  // What the engine said of the source of an in-step save.
  [[nodiscard]] Word word_of(const Entry& entry, std::uint32_t block) const;
  // Cancels the blocks that were withdrawn. Returns whether nothing is known yet of a block that may still be done.
  [[nodiscard]] bool apply_words(Entry& entry);
  static bool let_go_if_over(const Entry& entry);
  // Forgets the transfers that are reported and over on all ranks.
  void let_go_of_all_over();
  // An in-step save that is cancelled does not wait for the engine's word any more.
  void cancel(Entries::value_type& each, Needless& needless);
  [[nodiscard]] std::uint64_t& epoch_of(std::uint32_t host_block_id);

  Entries open_;
  std::uint64_t next_id_ = 1;  // ids are unique over all ledgers
  std::uint64_t epoch_ = 1;
  std::vector<std::uint64_t> host_epochs_;  // by block; 0: the block may not be read
  struct Decision {
    StepMark mark = {};  // the latest that something was said of
    Word word = Word::kNone;
  };
  std::vector<Decision> decisions_;  // by device block
};

}  // namespace cairn
