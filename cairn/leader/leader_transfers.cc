#include "cairn/leader/leader_transfers.h"

#include <algorithm>
#include <utility>

#include "cairn/base/str_cat.h"
#include "cairn/wire/combined_checksum.h"

namespace cairn {

namespace {

std::optional<CacheLevel> level_of(MemoryKind kind) {
  switch (kind) {
    case MemoryKind::kDevice:
      return CacheLevel::kG1;
    case MemoryKind::kPinned:
      return CacheLevel::kG2;
    case MemoryKind::kFile:
      return CacheLevel::kG3;
    case MemoryKind::kSystem:
      break;
  }
  return std::nullopt;
}

// A higher number is worse: a mismatch drops the block, a failure counts against the tier, and so on.
int badness(BlockState state) {
  switch (state) {
    case BlockState::kDone:
      return 0;
    case BlockState::kCancelled:
      return 1;
    case BlockState::kExpired:
      return 2;
    case BlockState::kFailed:
      return 3;
    case BlockState::kMismatch:
      break;
  }
  return 4;
}

}  // namespace

std::optional<TransferRoute> route_of(const CopyPlan& plan) {
  const std::optional<CacheLevel> from = level_of(plan.source().kind());
  const std::optional<CacheLevel> to = level_of(plan.destination().kind());
  if (!from || !to || *from == *to || !plan.is_whole()) {
    return std::nullopt;
  }
  return TransferRoute{*from, *to};
}

std::uint64_t& LeaderTransfers::epoch_of(std::uint32_t host_block_id) {
  if (host_block_id >= host_epochs_.size()) {
    host_epochs_.resize(std::max<std::size_t>(std::size_t{host_block_id} + 1, host_epochs_.size() * 2));
  }
  return host_epochs_[host_block_id];
}

void LeaderTransfers::object(Entry& entry, std::uint32_t block, BlockState state, const std::string& error) {
  BlockOutcome& outcome = entry.outcomes[block];
  if (badness(state) > badness(outcome.state)) {
    outcome.state = state;
    if (entry.error.empty() || block <= entry.error_block) {
      entry.error_block = block;
      entry.error = error;
    }
  }
}

// Ranks get the blocks that may be read.
void LeaderTransfers::choose_blocks(Entry& entry) {
  const std::vector<TransferBlock>& blocks = entry.transfer->transfer().blocks;
  entry.outcomes.resize(blocks.size());
  entry.sent.reserve(blocks.size());
  for (std::uint32_t block = 0; block < blocks.size(); ++block) {
    if (entry.route.from == CacheLevel::kG2 && epoch_of(blocks[block].pair.source) != epoch_) {
      object(entry, block, BlockState::kMismatch,
             "a rank was replaced since the block was written to host memory; its part is gone");
      continue;
    }
    if (entry.route.to == CacheLevel::kG2) {
      epoch_of(blocks[block].pair.destination) = 0;
    }
    entry.sent.push_back(block);
  }
}

std::optional<RankTransfer> LeaderTransfers::begin(std::shared_ptr<ActiveTransfer> transfer,
                                                   std::span<const RankPresence> ranks, TimePoint now) {
  const Transfer& asked = transfer->transfer();
  const auto blocks = static_cast<std::uint32_t>(asked.blocks.size());
  if (transfer->begin_run(0, blocks) != blocks) {
    return std::nullopt;  // cancelled or expired
  }
  Entry entry{.transfer = std::move(transfer), .route = *route_of(*asked.plan), .epoch = epoch_};
  choose_blocks(entry);
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    if (!ranks[rank].is_there) {
      fail_all(entry, str_cat("rank ", rank, " is not connected: ", ranks[rank].reason));
      entry.sent.clear();
      break;
    }
  }
  if (entry.sent.empty()) {
    tell(entry);
    let_go_if_over(entry);
    return std::nullopt;
  }
  for (const RankPresence& rank : ranks) {
    entry.parts.push_back({.generation = rank.generation});
  }
  const TransferId id{next_id_++};
  RankTransfer message;
  message.id = id;
  message.from = entry.route.from;
  message.to = entry.route.to;
  message.not_before = asked.not_before;
  message.time_left = asked.deadline == TimePoint::max() ? Duration::max() : asked.deadline - now;
  message.pairs.reserve(entry.sent.size());
  message.tags.reserve(entry.sent.size());
  for (const std::uint32_t block : entry.sent) {
    message.pairs.push_back(asked.blocks[block].pair);
    message.tags.push_back(asked.blocks[block].tag);
  }
  open_.emplace(id, std::move(entry));
  return message;
}

void LeaderTransfers::fail_all(Entry& entry, const std::string& error) {
  for (std::uint32_t block = 0; block < entry.outcomes.size(); ++block) {
    object(entry, block, BlockState::kFailed, error);
  }
}

// Combines the checksums of the blocks that are done. Requires: all ranks have answered.
void LeaderTransfers::add_checksums(Entry& entry) {
  const Transfer& asked = entry.transfer->transfer();
  if (asked.verify == Verify::kOff) {
    return;
  }
  std::vector<Checksum> parts(entry.parts.size());
  for (std::size_t i = 0; i < entry.sent.size(); ++i) {
    const std::uint32_t block = entry.sent[i];
    if (entry.outcomes[block].state != BlockState::kDone) {
      continue;
    }
    std::transform(entry.parts.begin(), entry.parts.end(), parts.begin(),
                   [i](const Part& part) { return part.checksums[i]; });
    entry.outcomes[block].checksum = combine(parts);
    if (asked.verify == Verify::kCheck && entry.outcomes[block].checksum != asked.blocks[block].expected) {
      object(entry, block, BlockState::kMismatch, "the ranks read other bytes than were written under this key");
    }
  }
}

void LeaderTransfers::tell(Entry& entry) {
  const std::vector<TransferBlock>& blocks = entry.transfer->transfer().blocks;
  if (entry.route.to == CacheLevel::kG2) {
    for (const std::uint32_t block : entry.sent) {
      if (entry.outcomes[block].state == BlockState::kDone) {
        epoch_of(blocks[block].pair.destination) = entry.epoch;
      }
    }
  }
  entry.is_told = true;
  entry.transfer->tell_early(0, entry.outcomes, entry.error);
}

bool LeaderTransfers::let_go_if_over(Entry& entry) {
  const auto is_over = [](const Part& part) { return part.step == Step::kOver; };
  if (!entry.is_told || !std::all_of(entry.parts.begin(), entry.parts.end(), is_over)) {
    return false;
  }
  entry.transfer->let_go(0, static_cast<std::uint32_t>(entry.outcomes.size()));
  return true;
}

void LeaderTransfers::cancel(Entries::value_type& each, Needless& needless) {
  if (!each.second.is_cancelled) {
    each.second.is_cancelled = true;
    needless.push_back(each.first);
  }
}

Result<LeaderTransfers::Needless> LeaderTransfers::answered(std::uint32_t rank, std::uint32_t generation,
                                                            const RankTransferOutcome& answer) {
  const auto found = open_.find(answer.id);
  if (found == open_.end() || found->second.parts[rank].generation != generation ||
      found->second.parts[rank].step != Step::kSent) {
    return fail(ErrorCode::kInvalidArgument,
                str_cat("it answers transfer ", static_cast<std::uint64_t>(answer.id), ", which it was not asked for"));
  }
  Entry& entry = found->second;
  if (answer.states.size() != entry.sent.size() || answer.checksums.size() != entry.sent.size()) {
    return fail(ErrorCode::kInvalidArgument,
                str_cat("it answers for ", answer.states.size(), " blocks and was asked for ", entry.sent.size()));
  }
  Part& part = entry.parts[rank];
  part.step = Step::kAnswered;
  part.checksums = answer.checksums;
  const std::string error = str_cat("rank ", rank, ": ", answer.error);
  for (std::size_t i = 0; i < entry.sent.size(); ++i) {
    object(entry, entry.sent[i], answer.states[i], error);
  }
  Needless needless;
  if (entry.is_told) {
    return needless;
  }
  const auto has_answered = [](const Part& each) { return each.step != Step::kSent; };
  const auto is_done = [](const BlockOutcome& each) { return each.state == BlockState::kDone; };
  if (std::all_of(entry.parts.begin(), entry.parts.end(), has_answered)) {
    add_checksums(entry);
    tell(entry);
  } else if (std::none_of(entry.outcomes.begin(), entry.outcomes.end(), is_done)) {
    tell(entry);
    cancel(*found, needless);
  }
  return needless;
}

Status LeaderTransfers::settled(std::uint32_t rank, std::uint32_t generation, TransferId id) {
  const auto found = open_.find(id);
  if (found == open_.end() || found->second.parts[rank].generation != generation ||
      found->second.parts[rank].step != Step::kAnswered) {
    return fail(ErrorCode::kInvalidArgument,
                str_cat("it settles transfer ", static_cast<std::uint64_t>(id), ", which it has not answered"));
  }
  found->second.parts[rank].step = Step::kOver;
  if (let_go_if_over(found->second)) {
    open_.erase(found);
  }
  return {};
}

LeaderTransfers::Needless LeaderTransfers::gone(std::uint32_t rank, std::uint32_t generation,
                                                const std::string& reason) {
  Needless needless;
  for (auto& each : open_) {
    Entry& entry = each.second;
    if (entry.is_told || entry.parts[rank].generation != generation) {
      continue;
    }
    // Also where it had answered: what it copied to its host memory is not to be read by a later generation.
    fail_all(entry, str_cat("rank ", rank, " is gone: ", reason));
    tell(entry);
    cancel(each, needless);
  }
  return needless;
}

void LeaderTransfers::over(std::uint32_t rank, std::uint32_t generation) {
  for (auto each = open_.begin(); each != open_.end();) {
    Entry& entry = each->second;
    if (entry.parts[rank].generation == generation) {
      entry.parts[rank].step = Step::kOver;
    }
    each = let_go_if_over(entry) ? open_.erase(each) : std::next(each);
  }
}

void LeaderTransfers::give_up(const std::string& reason) {
  for (auto& [id, entry] : open_) {
    if (!entry.is_told) {
      fail_all(entry, reason);
      tell(entry);
    }
    entry.parts.clear();
    let_go_if_over(entry);
  }
  open_.clear();
}

LeaderTransfers::Needless LeaderTransfers::cancelled(TransferId transfer) {
  Needless needless;
  for (auto& each : open_) {
    if (each.second.transfer->id() == transfer) {
      cancel(each, needless);
    }
  }
  return needless;
}

LeaderTransfers::Needless LeaderTransfers::all_cancelled() {
  Needless needless;
  for (auto& each : open_) {
    cancel(each, needless);
  }
  return needless;
}

LeaderTransfers::Needless LeaderTransfers::expired(TimePoint now) {
  Needless needless;
  for (auto& each : open_) {
    if (each.second.transfer->transfer().deadline <= now) {
      cancel(each, needless);
    }
  }
  return needless;
}

std::optional<TimePoint> LeaderTransfers::next_deadline() const {
  std::optional<TimePoint> next;
  for (const auto& [id, entry] : open_) {
    const TimePoint deadline = entry.transfer->transfer().deadline;
    if (!entry.is_cancelled && deadline != TimePoint::max() && (!next || deadline < *next)) {
      next = deadline;
    }
  }
  return next;
}

std::uint32_t LeaderTransfers::in_flight(std::uint32_t rank) const {
  return static_cast<std::uint32_t>(std::count_if(
      open_.begin(), open_.end(), [rank](const auto& each) { return each.second.parts[rank].step != Step::kOver; }));
}

}  // namespace cairn
