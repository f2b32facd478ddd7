#include "cairn/ranks/rank_copies.h"

#include <algorithm>
#include <utility>

#include "cairn/base/str_cat.h"

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

// How bad it is: what is wrong is dropped, what failed is tried again, and so on.
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

// A bijection of 64 bits in which every bit moves many others.
std::uint64_t spread(std::uint64_t value) {
  value ^= value >> 31;
  value *= 0xD6E8FEB86659FD93ULL;
  value ^= value >> 29;
  value *= 0xD6E8FEB86659FD93ULL;
  value ^= value >> 32;
  return value;
}

}  // namespace

std::optional<RankRoute> route_of(const CopyPlan& plan) {
  const std::optional<CacheLevel> from = level_of(plan.source().kind());
  const std::optional<CacheLevel> to = level_of(plan.destination().kind());
  if (!from || !to || *from == *to || !plan.is_whole()) {
    return std::nullopt;
  }
  return RankRoute{*from, *to};
}

Checksum combine(std::span<const Checksum> of_ranks) {
  std::uint64_t state = of_ranks.size();
  for (const Checksum each : of_ranks) {
    state = spread(state + static_cast<std::uint64_t>(each)) + 0x9E3779B97F4A7C15ULL;
  }
  return Checksum{state == 0 ? 1 : state};
}

std::uint64_t& RankCopies::epoch_of(std::uint32_t host_block_id) {
  if (host_block_id >= host_epochs_.size()) {
    host_epochs_.resize(std::max<std::size_t>(std::size_t{host_block_id} + 1, host_epochs_.size() * 2));
  }
  return host_epochs_[host_block_id];
}

void RankCopies::object(Copy& copy, std::uint32_t block, BlockState state, const std::string& error) {
  BlockOutcome& outcome = copy.outcomes[block];
  if (badness(state) > badness(outcome.state)) {
    outcome.state = state;
    if (copy.error.empty() || block <= copy.error_block) {
      copy.error_block = block;
      copy.error = error;
    }
  }
}

// Ranks get those blocks that may be read.
void RankCopies::choose_blocks(Copy& copy) {
  const std::vector<TransferBlock>& blocks = copy.transfer->transfer().blocks;
  copy.outcomes.resize(blocks.size());
  copy.sent.reserve(blocks.size());
  for (std::uint32_t block = 0; block < blocks.size(); ++block) {
    if (copy.route.from == CacheLevel::kG2 && epoch_of(blocks[block].pair.source) != epoch_) {
      object(copy, block, BlockState::kMismatch,
             "a rank was replaced since it was written to host memory: its part is not there any more");
      continue;
    }
    if (copy.route.to == CacheLevel::kG2) {
      epoch_of(blocks[block].pair.destination) = 0;
    }
    copy.sent.push_back(block);
  }
}

std::optional<RankCopy> RankCopies::begin(std::shared_ptr<ActiveTransfer> transfer, std::span<const RankPresence> ranks,
                                          TimePoint now) {
  const Transfer& asked = transfer->transfer();
  const auto blocks = static_cast<std::uint32_t>(asked.blocks.size());
  if (transfer->begin_run(0, blocks) != blocks) {
    return std::nullopt;  // cancelled or expired, as a whole
  }
  Copy copy{.transfer = std::move(transfer), .route = *route_of(*asked.plan), .epoch = epoch_};
  choose_blocks(copy);
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    if (!ranks[rank].is_there) {
      fail_all(copy, str_cat("rank ", rank, " is not connected: ", ranks[rank].reason));
      copy.sent.clear();
      break;
    }
  }
  if (copy.sent.empty()) {
    tell(copy);
    let_go_if_over(copy);
    return std::nullopt;
  }
  for (const RankPresence& rank : ranks) {
    copy.parts.push_back({.generation = rank.generation});
  }
  const TransferId id{next_id_++};
  RankCopy message;
  message.id = id;
  message.from = copy.route.from;
  message.to = copy.route.to;
  message.not_before = asked.not_before;
  message.time_left = asked.deadline == TimePoint::max() ? Duration::max() : asked.deadline - now;
  message.pairs.reserve(copy.sent.size());
  message.tags.reserve(copy.sent.size());
  for (const std::uint32_t block : copy.sent) {
    message.pairs.push_back(asked.blocks[block].pair);
    message.tags.push_back(asked.blocks[block].tag);
  }
  copies_.emplace(id, std::move(copy));
  return message;
}

void RankCopies::fail_all(Copy& copy, const std::string& error) {
  for (std::uint32_t block = 0; block < copy.outcomes.size(); ++block) {
    object(copy, block, BlockState::kFailed, error);
  }
}

// Of what is done, now that all ranks have answered.
void RankCopies::add_checksums(Copy& copy) {
  const Transfer& asked = copy.transfer->transfer();
  if (asked.verify == Verify::kOff) {
    return;
  }
  std::vector<Checksum> of_ranks(copy.parts.size());
  for (std::size_t i = 0; i < copy.sent.size(); ++i) {
    const std::uint32_t block = copy.sent[i];
    if (copy.outcomes[block].state != BlockState::kDone) {
      continue;
    }
    std::transform(copy.parts.begin(), copy.parts.end(), of_ranks.begin(),
                   [i](const Part& part) { return part.checksums[i]; });
    copy.outcomes[block].checksum = combine(of_ranks);
    if (asked.verify == Verify::kCheck && copy.outcomes[block].checksum != asked.blocks[block].expected) {
      object(copy, block, BlockState::kMismatch, "what the ranks read is not what was written under this key");
    }
  }
}

void RankCopies::tell(Copy& copy) {
  const std::vector<TransferBlock>& blocks = copy.transfer->transfer().blocks;
  if (copy.route.to == CacheLevel::kG2) {
    for (const std::uint32_t block : copy.sent) {
      if (copy.outcomes[block].state == BlockState::kDone) {
        epoch_of(blocks[block].pair.destination) = copy.epoch;
      }
    }
  }
  copy.is_told = true;
  copy.transfer->tell_early(0, copy.outcomes, copy.error);
}

bool RankCopies::let_go_if_over(Copy& copy) {
  const auto is_over = [](const Part& part) { return part.step == Step::kOver; };
  if (!copy.is_told || !std::all_of(copy.parts.begin(), copy.parts.end(), is_over)) {
    return false;
  }
  copy.transfer->let_go(0, static_cast<std::uint32_t>(copy.outcomes.size()));
  return true;
}

void RankCopies::cancel(Copies::value_type& each, Needless& needless) {
  if (!each.second.is_cancelled) {
    each.second.is_cancelled = true;
    needless.push_back(each.first);
  }
}

Result<RankCopies::Needless> RankCopies::answered(std::uint32_t rank, std::uint32_t generation,
                                                  const RankCopyDone& answer) {
  const auto found = copies_.find(answer.id);
  if (found == copies_.end() || found->second.parts[rank].generation != generation ||
      found->second.parts[rank].step != Step::kOut) {
    return fail(ErrorCode::kInvalidArgument,
                str_cat("it answers copy ", static_cast<std::uint64_t>(answer.id), ", which it was not asked for"));
  }
  Copy& copy = found->second;
  if (answer.states.size() != copy.sent.size() || answer.checksums.size() != copy.sent.size()) {
    return fail(ErrorCode::kInvalidArgument,
                str_cat("it answers for ", answer.states.size(), " blocks and was asked for ", copy.sent.size()));
  }
  Part& part = copy.parts[rank];
  part.step = Step::kAnswered;
  part.checksums = answer.checksums;
  const std::string error = str_cat("rank ", rank, ": ", answer.error);
  for (std::size_t i = 0; i < copy.sent.size(); ++i) {
    object(copy, copy.sent[i], answer.states[i], error);
  }
  Needless needless;
  if (copy.is_told) {
    return needless;
  }
  const auto has_answered = [](const Part& each) { return each.step != Step::kOut; };
  const auto is_done = [](const BlockOutcome& each) { return each.state == BlockState::kDone; };
  if (std::all_of(copy.parts.begin(), copy.parts.end(), has_answered)) {
    add_checksums(copy);
    tell(copy);
  } else if (std::none_of(copy.outcomes.begin(), copy.outcomes.end(), is_done)) {
    tell(copy);
    cancel(*found, needless);
  }
  return needless;
}

Status RankCopies::settled(std::uint32_t rank, std::uint32_t generation, TransferId id) {
  const auto found = copies_.find(id);
  if (found == copies_.end() || found->second.parts[rank].generation != generation ||
      found->second.parts[rank].step != Step::kAnswered) {
    return fail(ErrorCode::kInvalidArgument,
                str_cat("it settles copy ", static_cast<std::uint64_t>(id), ", which it has not answered"));
  }
  found->second.parts[rank].step = Step::kOver;
  if (let_go_if_over(found->second)) {
    copies_.erase(found);
  }
  return {};
}

RankCopies::Needless RankCopies::gone(std::uint32_t rank, std::uint32_t generation, const std::string& reason) {
  Needless needless;
  for (auto& each : copies_) {
    Copy& copy = each.second;
    if (copy.is_told || copy.parts[rank].generation != generation) {
      continue;
    }
    // Also where it had answered: what it copied to its host memory is not to be read by a later generation.
    fail_all(copy, str_cat("rank ", rank, " is gone: ", reason));
    tell(copy);
    cancel(each, needless);
  }
  return needless;
}

void RankCopies::over(std::uint32_t rank, std::uint32_t generation) {
  for (auto each = copies_.begin(); each != copies_.end();) {
    Copy& copy = each->second;
    if (copy.parts[rank].generation == generation) {
      copy.parts[rank].step = Step::kOver;
    }
    each = let_go_if_over(copy) ? copies_.erase(each) : std::next(each);
  }
}

void RankCopies::give_up(const std::string& reason) {
  for (auto& [id, copy] : copies_) {
    if (!copy.is_told) {
      fail_all(copy, reason);
      tell(copy);
    }
    copy.parts.clear();
    let_go_if_over(copy);
  }
  copies_.clear();
}

RankCopies::Needless RankCopies::cancelled(TransferId transfer) {
  Needless needless;
  for (auto& each : copies_) {
    if (each.second.transfer->id() == transfer) {
      cancel(each, needless);
    }
  }
  return needless;
}

RankCopies::Needless RankCopies::all_cancelled() {
  Needless needless;
  for (auto& each : copies_) {
    cancel(each, needless);
  }
  return needless;
}

RankCopies::Needless RankCopies::expired(TimePoint now) {
  Needless needless;
  for (auto& each : copies_) {
    if (each.second.transfer->transfer().deadline <= now) {
      cancel(each, needless);
    }
  }
  return needless;
}

std::optional<TimePoint> RankCopies::next_deadline() const {
  std::optional<TimePoint> next;
  for (const auto& [id, copy] : copies_) {
    const TimePoint deadline = copy.transfer->transfer().deadline;
    if (!copy.is_cancelled && deadline != TimePoint::max() && (!next || deadline < *next)) {
      next = deadline;
    }
  }
  return next;
}

std::uint32_t RankCopies::in_hand(std::uint32_t rank) const {
  return static_cast<std::uint32_t>(std::count_if(copies_.begin(), copies_.end(), [rank](const auto& each) {
    return each.second.parts[rank].step != Step::kOver;
  }));
}

}  // namespace cairn
