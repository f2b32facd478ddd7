#include "cairn/leader/leader_transfers.h"

#include <algorithm>
#include <utility>

#include "cairn/base/str_cat.h"
#include "cairn/transfer/in_step_mark.h"
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
    case BlockState::kGone:
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
  entry.is_in_step_save = entry.route.from == CacheLevel::kG1 && is_in_step(asked.not_before);
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
  entry.is_dealt = entry.route.to != CacheLevel::kG1 && std::ranges::any_of(ranks, [](const RankPresence& rank) {
                     return rank.shares && rank.replicas > 1;
                   });
  for (const RankPresence& rank : ranks) {
    Part& part = entry.parts.emplace_back(
        Part{.generation = rank.generation, .replica = rank.replica, .replicas = rank.replicas, .shares = rank.shares});
    const bool has_some = !entry.is_dealt || std::ranges::any_of(entry.sent, [&](std::uint32_t block) {
      return carries_out(entry, part, block);
    });
    part.step = has_some ? Step::kSent : Step::kOver;
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

bool LeaderTransfers::carries_out(const Entry& entry, const Part& part, std::uint32_t block) {
  return !entry.is_dealt || !part.shares ||
         entry.transfer->transfer().blocks[block].pair.destination % part.replicas == part.replica;
}

std::optional<RankTransfer> LeaderTransfers::part_of(const RankTransfer& message, std::uint32_t rank) const {
  const Entry& entry = open_.at(message.id);
  const Part& part = entry.parts[rank];
  if (part.step == Step::kOver) {
    return std::nullopt;
  }
  RankTransfer own = message;
  own.pairs.clear();
  own.tags.clear();
  for (std::size_t i = 0; i < entry.sent.size(); ++i) {
    if (carries_out(entry, part, entry.sent[i])) {
      own.pairs.push_back(message.pairs[i]);
      own.tags.push_back(message.tags[i]);
    }
  }
  return own;
}

// Adds up the sums of the blocks that are done. Requires: all ranks have answered.
void LeaderTransfers::add_checksums(Entry& entry) {
  const Transfer& asked = entry.transfer->transfer();
  if (asked.verify == Verify::kOff) {
    return;
  }
  std::vector<std::size_t> next(entry.parts.size());  // of the sums of each part
  for (const std::uint32_t block : entry.sent) {
    BlockSums whole;
    std::optional<BlockSums> of_replicas;  // of the replicas before this one
    bool replicas_differ = false;
    for (std::size_t rank = 0; rank < entry.parts.size(); ++rank) {
      const Part& part = entry.parts[rank];
      if (part.replica == 0) {
        of_replicas.reset();
      }
      if (!carries_out(entry, part, block)) {
        continue;
      }
      const BlockSums& sums = part.sums[next[rank]++];
      if (!part.shares && part.replica > 0) {
        whole += combine(std::span(&sums, 1), part.replica);  // a copy of its own, which may differ from the others
      } else if (!of_replicas) {
        whole += sums;
        of_replicas = sums;
      } else {
        replicas_differ = replicas_differ || *of_replicas != sums;
      }
    }
    BlockOutcome& outcome = entry.outcomes[block];
    if (outcome.state != BlockState::kDone) {
      continue;
    }
    outcome.checksum = finish(whole, asked.plan->whole_block_bytes(), asked.blocks[block].tag);
    if (replicas_differ) {
      object(entry, block, BlockState::kMismatch, "ranks that share their memory read different bytes of this block");
    } else if (asked.verify == Verify::kCheck && outcome.checksum != asked.blocks[block].expected) {
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
  entry.transfer->set_copied(entry.copied);
  entry.transfer->report_early(0, entry.outcomes, entry.error);
}

bool LeaderTransfers::let_go_if_over(const Entry& entry) {
  const auto is_over = [](const Part& part) { return part.step == Step::kOver; };
  if (!entry.is_told || !std::all_of(entry.parts.begin(), entry.parts.end(), is_over)) {
    return false;
  }
  entry.transfer->release(0, static_cast<std::uint32_t>(entry.outcomes.size()));
  return true;
}

// --- in-step saves ---

LeaderTransfers::Needless LeaderTransfers::confirm(StepMark mark, std::span<const BlockId> blocks) {
  return decide(mark, blocks, Word::kConfirmed);
}

LeaderTransfers::Needless LeaderTransfers::withdraw(StepMark mark, std::span<const BlockId> blocks) {
  return decide(mark, blocks, Word::kWithdrawn);
}

LeaderTransfers::Needless LeaderTransfers::decide(StepMark mark, std::span<const BlockId> blocks, Word word) {
  for (const BlockId block : blocks) {
    if (index_of(block) >= decisions_.size()) {
      decisions_.resize(std::max<std::size_t>(std::size_t{index_of(block)} + 1, decisions_.size() * 2));
    }
    decisions_[index_of(block)] = {mark, word};
  }
  Needless needless;
  for (auto& each : open_) {
    if (each.second.is_in_step_save && !each.second.is_told) {
      tell_if_certain(each, needless);
    }
  }
  let_go_of_all_over();
  return needless;
}

LeaderTransfers::Word LeaderTransfers::word_of(const Entry& entry, std::uint32_t block) const {
  const std::uint32_t source = entry.transfer->transfer().blocks[block].pair.source;
  const Decision decision = source < decisions_.size() ? decisions_[source] : Decision();
  const StepMark mark = entry.transfer->transfer().not_before;
  return decision.mark == mark ? decision.word : decision.mark > mark ? Word::kWithdrawn : Word::kNone;
}

bool LeaderTransfers::apply_words(Entry& entry) {
  bool is_open = false;
  for (const std::uint32_t block : entry.sent) {
    if (entry.outcomes[block].state != BlockState::kDone) {
      continue;
    }
    const Word word = word_of(entry, block);
    is_open = is_open || word == Word::kNone;
    if (word == Word::kWithdrawn) {
      object(entry, block, BlockState::kCancelled,
             "the engine did not compute the block in the step that was to compute it");
    }
  }
  return is_open;
}

void LeaderTransfers::tell_if_certain(Entries::value_type& each, Needless& needless) {
  Entry& entry = each.second;
  const bool is_open = entry.is_in_step_save && apply_words(entry);
  const auto has_answered = [](const Part& part) { return part.step != Step::kSent; };
  const auto is_done = [](const BlockOutcome& outcome) { return outcome.state == BlockState::kDone; };
  if (std::none_of(entry.outcomes.begin(), entry.outcomes.end(), is_done)) {
    tell(entry);
    if (!std::all_of(entry.parts.begin(), entry.parts.end(), has_answered)) {
      cancel(each, needless);
    }
  } else if (!is_open && std::all_of(entry.parts.begin(), entry.parts.end(), has_answered)) {
    add_checksums(entry);
    tell(entry);
  }
}

void LeaderTransfers::let_go_of_all_over() {
  std::erase_if(open_, [](const auto& each) { return let_go_if_over(each.second); });
}

void LeaderTransfers::cancel(Entries::value_type& each, Needless& needless) {
  Entry& entry = each.second;
  if (entry.is_cancelled) {
    return;
  }
  entry.is_cancelled = true;
  needless.push_back(each.first);
  if (entry.is_in_step_save && !entry.is_told) {
    for (const std::uint32_t block : entry.sent) {
      object(entry, block, BlockState::kCancelled, "it was cancelled before its step was known to be computed");
    }
    tell(entry);
  }
}

Result<LeaderTransfers::Needless> LeaderTransfers::answered(std::uint32_t rank, std::uint32_t generation,
                                                            const RankTransferOutcome& answer) {
  const auto found = open_.find(answer.id);
  if (found == open_.end() || found->second.parts[rank].generation != generation ||
      found->second.parts[rank].step != Step::kSent) {
    return fail(ErrorCode::kInvalidArgument,
                str_cat("it answers transfer ", static_cast<std::uint64_t>(answer.id), ", which was not sent to it"));
  }
  Entry& entry = found->second;
  Part& part = entry.parts[rank];
  const auto is_its = [&](std::uint32_t block) { return carries_out(entry, part, block); };
  const auto blocks = static_cast<std::size_t>(std::ranges::count_if(entry.sent, is_its));
  if (answer.states.size() != blocks || answer.sums.size() != blocks) {
    return fail(ErrorCode::kInvalidArgument,
                str_cat("it answers for ", answer.states.size(), " blocks, but the transfer has ", blocks));
  }
  part.step = Step::kAnswered;
  part.sums = answer.sums;
  entry.copied = std::max(entry.copied, answer.copied);
  const std::string error = str_cat("rank ", rank, ": ", answer.error);
  std::size_t next = 0;
  for (const std::uint32_t block : entry.sent) {
    if (is_its(block)) {
      object(entry, block, answer.states[next++], error);
    }
  }
  Needless needless;
  if (entry.is_told) {
    return needless;
  }
  tell_if_certain(*found, needless);
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
    const Part& part = entry.parts[rank];
    const bool has_no_block = part.step == Step::kOver && part.sums.empty();
    if (entry.is_told || part.generation != generation || has_no_block) {
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
  for (auto& [id, entry] : open_) {
    if (entry.parts[rank].generation == generation) {
      entry.parts[rank].step = Step::kOver;
    }
  }
  let_go_of_all_over();
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
  let_go_of_all_over();
  return needless;
}

LeaderTransfers::Needless LeaderTransfers::all_cancelled() {
  Needless needless;
  for (auto& each : open_) {
    cancel(each, needless);
  }
  let_go_of_all_over();
  return needless;
}

LeaderTransfers::Needless LeaderTransfers::expired(TimePoint now) {
  Needless needless;
  for (auto& each : open_) {
    if (each.second.transfer->transfer().deadline <= now) {
      cancel(each, needless);
    }
  }
  let_go_of_all_over();
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
