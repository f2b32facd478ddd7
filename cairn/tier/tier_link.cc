#include "cairn/tier/tier_link.h"

#include <algorithm>
#include <new>
#include <utility>

#include "cairn/base/check.h"
#include "cairn/base/str_cat.h"

namespace cairn {

namespace {

// The likelier one to fail.
int frailty(const Tier& tier) {
  switch (tier.layout()->kind()) {
    case MemoryKind::kFile:
      return 2;
    case MemoryKind::kDevice:
      return 1;
    case MemoryKind::kSystem:
    case MemoryKind::kPinned:
      break;
  }
  return 0;
}

LinkMeter::Counts count(std::span<const BlockState> states) {
  const auto of = [states](BlockState state) {
    return static_cast<std::uint64_t>(std::count(states.begin(), states.end(), state));
  };
  return {.done = of(BlockState::kDone),
          .failed = of(BlockState::kFailed),
          .mismatched = of(BlockState::kMismatch),
          .expired = of(BlockState::kExpired),
          .cancelled = of(BlockState::kCancelled)};
}

bool all_done(std::span<const BlockState> states) {
  return std::all_of(states.begin(), states.end(), [](BlockState state) { return state == BlockState::kDone; });
}

// What the engine says of its blocks has to be such that they can be registered when they have arrived.
Status check_facts(const CopySource& source) {
  if (source.block_ids().size() != source.size()) {
    return fail(ErrorCode::kInvalidArgument, str_cat(source.block_ids().size(), " blocks to copy from and facts of ",
                                                     source.size(), " blocks; give one for each"));
  }
  std::vector<BlockKey> keys;
  keys.reserve(source.size());
  for (const BlockFacts& facts : source.facts()) {
    if (facts.priority > Retention::kMaxPriority) {
      return fail(ErrorCode::kInvalidArgument, str_cat("block ", facts.block.key.to_string(), " has priority ",
                                                       facts.priority, "; the highest is ", Retention::kMaxPriority));
    }
    keys.push_back(facts.block.key);
  }
  std::sort(keys.begin(), keys.end());
  if (const auto twice = std::adjacent_find(keys.begin(), keys.end()); twice != keys.end()) {
    return fail(ErrorCode::kInvalidArgument, str_cat("block ", twice->to_string(), " stands there twice"));
  }
  return {};
}

}  // namespace

std::span<const BlockId> CopySource::block_ids() const {
  if (const auto* pinned = std::get_if<PinnedBlocks>(&blocks_)) {
    return pinned->block_ids();
  }
  if (const auto* borrowed = std::get_if<std::shared_ptr<const BorrowedBlocks>>(&blocks_)) {
    return (*borrowed)->block_ids();
  }
  return std::get<EngineBlocks>(blocks_).block_ids;
}

StepMark CopySource::not_before() const {
  const auto* engine = std::get_if<EngineBlocks>(&blocks_);
  return engine != nullptr ? engine->not_before : StepMark();
}

bool CopySource::is_current() const {
  if (const auto* pinned = std::get_if<PinnedBlocks>(&blocks_)) {
    return pinned->is_current();
  }
  const auto* borrowed = std::get_if<std::shared_ptr<const BorrowedBlocks>>(&blocks_);
  return borrowed == nullptr || (*borrowed)->is_current();
}

// A copy from its submission until nothing touches its memory any more. Used by one thread at a time: the one that
// submits, then the executor's for its callbacks.
struct TierLink::Flight {
  Flight(CopySource copied, Done then) : source(std::move(copied)), done(std::move(then)) {}

  std::optional<CopySource> source;
  Done done;
  TimePoint began{};
  std::uint64_t fence = 0;                          // of the tier it goes to
  std::optional<MutableBlocks> targets = {};        // to be registered
  std::optional<EngineBlocks> engine_targets = {};  // or only to be filled
  std::optional<QuarantinedBlocks> late = {};
};

TierLink::TierLink(Tier& from, Tier& to, TransferExecutor& executor, const Clock& clock, CopyPlanPtr plan)
    : from_(from),
      to_(to),
      executor_(executor),
      clock_(clock),
      plan_(std::move(plan)),
      from_is_at_fault_(frailty(from) >= frailty(to)),
      to_is_at_fault_(frailty(to) >= frailty(from)) {}

Result<std::unique_ptr<TierLink>> TierLink::make(Tier& from, Tier& to, TransferExecutor& executor, const Clock& clock) {
  Result<CopyPlanPtr> plan = CopyPlan::make(from.layout(), to.layout());
  if (!plan) {
    return Unexpected(std::move(plan).error());
  }
  if (!executor.can_move(**plan)) {
    return fail(ErrorCode::kInvalidArgument, str_cat(executor.describe(), " cannot move blocks from ",
                                                     to_string(from.level()), " to ", to_string(to.level())));
  }
  return std::unique_ptr<TierLink>(new TierLink(from, to, executor, clock, *std::move(plan)));
}

bool TierLink::is_up() const {
  return !is_paused_ && (!from_is_at_fault_ || from_.is_up(TierUse::kReading)) &&
         (!to_is_at_fault_ || to_.is_up(TierUse::kWriting));
}

bool TierLink::may_be_tried() const {
  return !is_paused_ && (!from_is_at_fault_ || from_.may_be_tried(TierUse::kReading)) &&
         (!to_is_at_fault_ || to_.may_be_tried(TierUse::kWriting));
}

Status TierLink::may_copy() {
  if (is_paused_) {
    return fail(ErrorCode::kUnavailable,
                str_cat("the edge from ", to_string(from_.level()), " to ", to_string(to_.level()), " is paused"));
  }
  if (from_is_at_fault_ && !from_.may(TierUse::kReading)) {
    return fail(ErrorCode::kUnavailable,
                str_cat(to_string(from_.level()), " is out: ", from_.report(TierUse::kReading).reason,
                        "; it is tried again by itself"));
  }
  if (to_is_at_fault_ && !to_.may(TierUse::kWriting)) {
    if (from_is_at_fault_) {
      from_.not_tried(TierUse::kReading);
    }
    return fail(ErrorCode::kUnavailable,
                str_cat(to_string(to_.level()), " is not written to: ", to_.report(TierUse::kWriting).reason,
                        "; it is tried again by itself"));
  }
  return {};
}

// `written`: whether the entries of what arrived could be written.
void TierLink::report(std::span<const BlockState> states, const std::string& error, const Status& written) {
  const LinkMeter::Counts counts = count(states);
  const auto tell = [&](Tier& tier, TierUse use) {
    if (counts.done + counts.mismatched > 0) {
      // Wrong bytes are the fault of the tier that was read.
      use == TierUse::kReading ? tier.verified(counts.done, counts.mismatched, error) : tier.succeeded(use);
    } else if (counts.failed + counts.expired > 0) {
      tier.failed(use, error);
    } else {
      tier.not_tried(use);
    }
  };
  if (from_is_at_fault_) {
    tell(from_, TierUse::kReading);
  }
  if (!written) {
    to_.failed(TierUse::kWriting, written.error().message);
  } else if (to_is_at_fault_) {
    tell(to_, TierUse::kWriting);
  }
}

Result<TransferId, Rejected<TierLink::Bring>> TierLink::bring(Bring job) {
  CAIRN_CHECK(to_.pool() != nullptr, "blocks are brought to a tier that has a pool");
  const auto refuse = [&job](Error error) { return Unexpected(Rejected<Bring>{std::move(error), std::move(job)}); };
  if (job.source.size() != job.targets.size()) {
    return refuse({ErrorCode::kInvalidArgument,
                   str_cat(job.source.size(), " blocks for ", job.targets.size(), " targets; give one for each")});
  }
  if (const Status status = check_facts(job.source); !status) {
    return refuse(status.error());
  }
  // The number first: whatever is fenced after the blocks were seen to be current has another one.
  const std::uint64_t fence = to_.fence_number();
  if (!job.targets.is_current() || !job.source.is_current()) {
    return refuse({ErrorCode::kCancelled, str_cat("blocks of ", to_string(from_.level()), " were not copied to ",
                                                  to_string(to_.level()), ": a reset came first")});
  }
  if (const Status status = may_copy(); !status) {
    return refuse(status.error());
  }
  try {
    // The blocks' old names go before their bytes do.
    if (const Status status = to_.before_writing(job.targets.block_ids()); !status) {
      report({}, {}, status);
      return refuse(status.error());
    }
    const auto flight = std::make_shared<Flight>(std::move(job.source), std::move(job.done));
    flight->targets.emplace(std::move(job.targets));
    flight->fence = fence;
    Result<TransferId> id = submit(flight, flight->targets->block_ids(), job.deadline);
    if (!id) {
      return Unexpected(Rejected<Bring>{std::move(id).error(), Bring{.source = *std::move(flight->source),
                                                                     .targets = *std::move(flight->targets),
                                                                     .deadline = job.deadline,
                                                                     .done = std::move(flight->done)}});
    }
    return *id;
  } catch (const std::bad_alloc&) {
    report({}, {}, {});  // what may_copy() let through was not tried
    throw;
  }
}

Result<TransferId, Rejected<TierLink::Fill>> TierLink::fill(Fill job) {
  const auto refuse = [&job](Error error) { return Unexpected(Rejected<Fill>{std::move(error), std::move(job)}); };
  if (job.source.size() != job.targets.block_ids.size() || job.source.block_ids().size() != job.source.size()) {
    return refuse({ErrorCode::kInvalidArgument,
                   str_cat("facts of ", job.source.size(), " blocks for ", job.source.block_ids().size(), " blocks to ",
                           job.targets.block_ids.size(), " targets; give one for each")});
  }
  if (!job.source.is_current()) {
    return refuse({ErrorCode::kCancelled,
                   str_cat("blocks of ", to_string(from_.level()), " were not loaded: a reset came first")});
  }
  if (const Status status = may_copy(); !status) {
    return refuse(status.error());
  }
  try {
    const auto flight = std::make_shared<Flight>(std::move(job.source), std::move(job.done));
    flight->engine_targets.emplace(std::move(job.targets));
    Result<TransferId> id = submit(flight, flight->engine_targets->block_ids, job.deadline);
    if (!id) {
      return Unexpected(Rejected<Fill>{std::move(id).error(), Fill{.source = *std::move(flight->source),
                                                                   .targets = *std::move(flight->engine_targets),
                                                                   .deadline = job.deadline,
                                                                   .done = std::move(flight->done)}});
    }
    return *id;
  } catch (const std::bad_alloc&) {
    report({}, {}, {});  // what may_copy() let through was not tried
    throw;
  }
}

Result<TransferId> TierLink::submit(const FlightPtr& flight, std::span<const BlockId> targets, TimePoint deadline) {
  // The sum of what was copied is compared in landed(): of some blocks it is known, of others it is made here.
  Transfer transfer{
      .plan = plan_,
      .verify = Verify::kMake,
      .deadline = deadline,
      .not_before = flight->engine_targets ? flight->engine_targets->not_before : flight->source->not_before()};
  const std::uint64_t blocks = targets.size();
  transfer.blocks.reserve(blocks);
  for (std::size_t i = 0; i < blocks; ++i) {
    transfer.blocks.push_back({.pair = {index_of(flight->source->block_ids()[i]), index_of(targets[i])},
                               .tag = from_.tag_of(flight->source->facts()[i].block.key)});
  }
  transfer.done = [this, flight](TransferOutcome&& outcome) { landed(*flight, std::move(outcome)); };
  transfer.settled = [this, flight] {
    if (flight->late) {
      meter_.quarantined(-static_cast<std::int64_t>(flight->late->block_ids().size()));
      std::move(*flight->late).release_proven_finished();
      flight->late.reset();
    }
    flight->source.reset();
    flight->engine_targets.reset();
    meter_.settled();
  };
  flight->began = clock_.now();
  meter_.began(blocks, blocks * from_.block_bytes(), flight->began);
  try {
    Result<TransferId> id = executor_.submit(std::move(transfer));
    if (!id) {
      meter_.refused(blocks, blocks * from_.block_bytes(), clock_.now());
      report({}, {}, {});
    }
    return id;
  } catch (const std::bad_alloc&) {
    meter_.refused(blocks, blocks * from_.block_bytes(), clock_.now());
    throw;
  }
}

void TierLink::landed(Flight& flight, TransferOutcome&& outcome) {
  const std::vector<BlockFacts> facts = compare(flight, outcome);
  Arrived arrived{.blocks = {}, .states = {}, .error = std::move(outcome.error)};
  arrived.states.reserve(facts.size());
  for (const BlockOutcome& block : outcome.blocks) {
    arrived.states.push_back(block.state);
  }
  if (arrived.error.empty() && !all_done(arrived.states)) {
    arrived.error = str_cat(executor_.describe(), " did not copy every block, and does not say why");
  }
  const std::vector<BlockState> copied = arrived.states;
  const Status written = flight.targets ? sort_out(flight, facts, arrived) : Status();
  report(copied, arrived.error, written);
  meter_.ended(count(arrived.states), facts.size(), from_.block_bytes(), flight.began, clock_.now());
  if (const Done done = std::move(flight.done)) {
    done(std::move(arrived));
  }
}

// What is known of the blocks now, their checksums among it. A block that has another one than it must have is no longer
// done, and gone from where it was read.
std::vector<BlockFacts> TierLink::compare(const Flight& flight, TransferOutcome& outcome) {
  std::vector<BlockFacts> facts(flight.source->facts().begin(), flight.source->facts().end());
  std::vector<BlockKey> wrong;
  for (std::size_t i = 0; i < facts.size(); ++i) {
    BlockOutcome& block = outcome.blocks[i];
    const auto sum = static_cast<std::uint64_t>(block.checksum);
    if (block.state == BlockState::kDone && block.checksum == kNoChecksum) {
      block.state = BlockState::kFailed;
      if (outcome.error.empty()) {
        outcome.error = str_cat(executor_.describe(), " made no checksum of block ", facts[i].block.key.to_string());
      }
    }
    if (block.state == BlockState::kDone && facts[i].note != 0 && facts[i].note != sum) {
      block.state = BlockState::kMismatch;
      if (outcome.error.empty()) {
        outcome.error = str_cat("block ", facts[i].block.key.to_string(), " of ", to_string(from_.level()),
                                " has other bytes than it was stored with");
      }
    }
    if (block.state == BlockState::kMismatch) {
      wrong.push_back(facts[i].block.key);
    }
    facts[i].note = sum;
  }
  // After a fence the keys may be those of other blocks.
  if (!wrong.empty() && from_.pool() != nullptr && flight.source->is_current()) {
    from_.drop(wrong);
  }
  return facts;
}

// Registers what arrived, and puts the rest aside until the copy has settled: one that is late, or a part of one that
// failed elsewhere, may still write to it. Fails where the entries of what arrived could not be written: that is then not
// registered either.
Status TierLink::sort_out(Flight& flight, const std::vector<BlockFacts>& facts, Arrived& arrived) {
  MutableBlocks targets = *std::move(flight.targets);
  flight.targets.reset();
  const auto add = [](std::optional<MutableBlocks>& to, MutableBlocks blocks) {
    if (!to) {
      to.emplace(std::move(blocks));
    } else {
      CAIRN_CHECK(to->append(std::move(blocks)).has_value(), "the targets of one copy are of one pool");
    }
  };
  std::optional<MutableBlocks> whole;
  std::optional<MutableBlocks> late;
  std::vector<BlockFacts> whole_facts;
  if (all_done(arrived.states)) {
    whole.emplace(std::move(targets));
    whole_facts = facts;
  } else {
    for (std::size_t i = 0; i < facts.size(); ++i) {
      MutableBlocks block = targets.take_front(1);
      if (arrived.states[i] == BlockState::kDone) {
        add(whole, std::move(block));
        whole_facts.push_back(facts[i]);
      } else {
        add(late, std::move(block));
      }
    }
  }
  if (late) {
    meter_.quarantined(late->size());
    flight.late.emplace(std::move(*late).quarantine());
  }
  if (!whole) {
    return {};
  }
  const auto turn_down = [&arrived](BlockState state, const std::string& why) {
    std::replace(arrived.states.begin(), arrived.states.end(), BlockState::kDone, state);
    if (arrived.error.empty()) {
      arrived.error = why;
    }
  };
  if (Status status = to_.after_writing(whole->block_ids(), whole_facts, flight.fence); !status) {
    const bool is_fenced = status.error().code == ErrorCode::kCancelled;
    turn_down(is_fenced ? BlockState::kCancelled : BlockState::kFailed, status.error().message);
    return is_fenced ? Status() : status;
  }
  arrived.blocks = name(*std::move(whole), whole_facts);
  // The pool decides: what it took as fenced nobody else finds. An entry of it was written before the fence, and is void.
  if (!arrived.blocks.is_current()) {
    turn_down(BlockState::kCancelled, str_cat(to_string(to_.level()), " was reset while the copy was in flight"));
    arrived.blocks = {};
  }
  return {};
}

ImmutableBlocks TierLink::name(MutableBlocks blocks, std::span<const BlockFacts> facts) {
  ImmutableBlocks all;
  while (!facts.empty()) {
    const auto other = std::find_if(facts.begin(), facts.end(),
                                    [&](const BlockFacts& each) { return each.priority != facts.front().priority; });
    const auto alike = static_cast<std::uint32_t>(other - facts.begin());
    auto complete = blocks.take_front(alike).complete_as(facts.first(alike));
    CAIRN_CHECK(complete.has_value(), "there are facts of every block");
    auto registered = (*std::move(complete)).register_blocks(Retention{.priority = facts.front().priority});
    CAIRN_CHECK(registered.has_value(), "what was checked when the copy was asked for can be registered");
    CAIRN_CHECK(all.append(*std::move(registered)).has_value(), "the targets of one copy are of one pool");
    facts = facts.subspan(alike);
  }
  return all;
}

}  // namespace cairn
