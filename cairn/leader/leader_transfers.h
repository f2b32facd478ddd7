// LeaderTransfers: the transfers that are in flight at ranks: which rank answered what, the outcome, and when nothing touches
// the blocks any more.
//
// begin() makes of a transfer the message that every rank gets; the outcomes of the ranks make its outcome. A block is done
// only if it is done on all ranks; otherwise the worst state counts: mismatch, failed, expired, cancelled. The outcome is
// reported as soon as it is certain: all ranks have answered, or no block can be done any more. Its checksums are combined
// from those of the ranks (wire/combined_checksum.h). A transfer is settled when every rank has settled its part, or the
// part is proven over (over()); the word of an earlier generation does not count.
//
// The epoch grows with every rank that becomes ready. A block in host memory keeps the epoch in which its transfer began. To
// read a block of another epoch is a mismatch, without asking the ranks: on one of them the bytes may be gone.
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
  std::string reason = {};  // why it is not there
};

// The tiers that a plan joins, by the kinds of memory; std::nullopt if ranks cannot carry it out.
struct TransferRoute {
  CacheLevel from = CacheLevel::kG1;
  CacheLevel to = CacheLevel::kG1;
};
[[nodiscard]] std::optional<TransferRoute> route_of(const CopyPlan& plan);

class LeaderTransfers {
 public:
  // The message for every rank; std::nullopt if the transfer is over already.
  [[nodiscard]] std::optional<RankTransfer> begin(std::shared_ptr<ActiveTransfer> transfer,
                                                  std::span<const RankPresence> ranks, TimePoint now);

  // Transfers that the other ranks need not begin any more. An error means that the rank cannot be trusted any more: its
  // answer does not fit what it was asked for.
  using Needless = std::vector<TransferId>;
  [[nodiscard]] Result<Needless> answered(std::uint32_t rank, std::uint32_t generation,
                                          const RankTransferOutcome& answer);
  [[nodiscard]] Status settled(std::uint32_t rank, std::uint32_t generation, TransferId id);
  // Fails the rank's transfers whose outcome is not reported yet. Their blocks are settled by over().
  [[nodiscard]] Needless gone(std::uint32_t rank, std::uint32_t generation, const std::string& reason);
  // No transfer of this generation of the rank touches any block any more.
  void over(std::uint32_t rank, std::uint32_t generation);
  void next_epoch() { ++epoch_; }
  // Fails all transfers whose outcome is not reported yet and forgets all, proven over or not.
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
    Step step = Step::kSent;
    std::vector<Checksum> checksums = {};
  };
  struct Entry {
    std::shared_ptr<ActiveTransfer> transfer;
    TransferRoute route;
    std::uint64_t epoch = 0;
    std::vector<std::uint32_t> sent = {};     // the blocks of the transfer that the ranks got
    std::vector<BlockOutcome> outcomes = {};  // of all blocks; done until a rank says otherwise
    std::uint32_t error_block = 0;            // the block that `error` is about
    std::string error = {};
    std::vector<Part> parts = {};
    bool is_told = false;  // its outcome is reported
    bool is_cancelled = false;
  };
  using Entries = std::map<TransferId, Entry>;

  void choose_blocks(Entry& entry);
  static void object(Entry& entry, std::uint32_t block, BlockState state, const std::string& error);
  static void fail_all(Entry& entry, const std::string& error);
  static void add_checksums(Entry& entry);
  void tell(Entry& entry);
  static bool let_go_if_over(Entry& entry);
  static void cancel(Entries::value_type& each, Needless& needless);
  [[nodiscard]] std::uint64_t& epoch_of(std::uint32_t host_block_id);

  Entries open_;
  std::uint64_t next_id_ = 1;  // ids are unique over all ledgers
  std::uint64_t epoch_ = 1;
  std::vector<std::uint64_t> host_epochs_;  // by block; 0: the block may not be read
};

}  // namespace cairn
