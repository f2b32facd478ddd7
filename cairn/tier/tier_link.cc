#include "cairn/tier/tier_link.h"

#include <algorithm>
#include <new>
#include <utility>

#include "cairn/base/check.h"
#include "cairn/base/str_cat.h"
#include "cairn/transfer/in_step_mark.h"

namespace cairn {

namespace {

// The likelier one to fail.
int frailty(const Tier& tier) {
  if (tier.level() == CacheLevel::kG4) {
    return 3;
  }
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
          .cancelled = of(BlockState::kCancelled),
          .gone = of(BlockState::kGone)};
}

bool all_done(std::span<const BlockState> states) {
  return std::all_of(states.begin(), states.end(), [](BlockState state) { return state == BlockState::kDone; });
}

Retention retention_of(const BlockFacts& facts) {
  const auto duration = [](std::uint32_t ms) {
    return ms == 0 ? std::nullopt : std::optional<Duration>(std::chrono::milliseconds(ms));
  };
  return {.priority = facts.priority,
          .priority_duration = duration(facts.priority_ms),
          .time_to_live = duration(facts.time_to_live_ms)};
}

// Facts that can be registered: the engine's may be anything.
Status check_facts(std::span<const BlockFacts> all) {
  std::vector<BlockKey> keys;
  keys.reserve(all.size());
  for (const BlockFacts& facts : all) {
    if (facts.priority > Retention::kMaxPriority) {
      return fail(ErrorCode::kInvalidArgument, str_cat("block ", facts.block.key.to_string(), " has priority ",
                                                       facts.priority, "; the highest is ", Retention::kMaxPriority));
    }
    keys.push_back(facts.block.key);
  }
  std::sort(keys.begin(), keys.end());
  if (const auto twice = std::adjacent_find(keys.begin(), keys.end()); twice != keys.end()) {
    return fail(ErrorCode::kInvalidArgument, str_cat("block ", twice->to_string(), " is named twice; name it once"));
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

std::span<const BlockId> CopyTargets::block_ids() const {
  const MutableBlocks* const blocks = pool_blocks();
  return blocks != nullptr ? blocks->block_ids() : std::get<EngineBlocks>(blocks_).block_ids;
}

StepMark CopyTargets::not_before() const {
  const auto* engine = std::get_if<EngineBlocks>(&blocks_);
  return engine != nullptr ? engine->not_before : StepMark();
}

// A transfer from its submission until nothing touches its memory any more. Used by one thread at a time: the one that
// submits, then the executor's for its callbacks.
struct TierLink::InFlight {
  std::optional<LinkTransfer> transfer;  // until every block is done, or it has settled
  std::uint64_t fence = 0;               // fence_number() of the target tier
  LinkMeter::Submitted submitted = {};
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
  CAIRN_TRY_ASSIGN(CopyPlanPtr plan, CopyPlan::make(from.layout(), to.layout()));
  if (!executor.can_move(*plan)) {
    return fail(ErrorCode::kInvalidArgument, str_cat(executor.describe(), " cannot move blocks from ",
                                                     to_string(from.level()), " to ", to_string(to.level())));
  }
  return std::unique_ptr<TierLink>(new TierLink(from, to, executor, clock, std::move(plan)));
}

bool TierLink::is_up() const {
  return !is_paused_ && (!from_is_at_fault_ || from_.is_up(TierUse::kReading)) &&
         (!to_is_at_fault_ || to_.is_up(TierUse::kWriting));
}

bool TierLink::may_be_tried() const {
  return !is_paused_ && (!from_is_at_fault_ || from_.may_be_tried(TierUse::kReading)) &&
         (!to_is_at_fault_ || to_.may_be_tried(TierUse::kWriting));
}

Status TierLink::ask_tiers() {
  if (is_paused_) {
    return fail(ErrorCode::kUnavailable, str_cat("the link from ", to_string(from_.level()), " to ",
                                                 to_string(to_.level()), " is paused; resume it"));
  }
  if (from_is_at_fault_ && !from_.may(TierUse::kReading)) {
    return fail(ErrorCode::kUnavailable,
                str_cat(to_string(from_.level()), " is out of use: ", from_.report(TierUse::kReading).reason,
                        "; it is retried automatically"));
  }
  if (to_is_at_fault_ && !to_.may(TierUse::kWriting)) {
    if (from_is_at_fault_) {
      from_.not_tried(TierUse::kReading);
    }
    return fail(ErrorCode::kUnavailable,
                str_cat(to_string(to_.level()), " is not written to: ", to_.report(TierUse::kWriting).reason,
                        "; it is retried automatically"));
  }
  return {};
}

void TierLink::report(std::span<const BlockState> states, const std::string& error, const Status& written) {
  const LinkMeter::Counts counts = count(states);
  const auto tell = [&](Tier& tier, TierUse use) {
    if (counts.done + counts.mismatched + counts.gone > 0) {
      // Wrong bytes are the fault of the tier that was read. That it no longer has a block is a right answer.
      use == TierUse::kReading ? tier.verified(counts.done + counts.gone, counts.mismatched, error)
                               : tier.succeeded(use);
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

Status TierLink::check(const LinkTransfer& transfer) {
  const std::size_t blocks = transfer.source.size();
  if (blocks != transfer.targets.size()) {
    return fail(ErrorCode::kInvalidArgument,
                str_cat(blocks, " blocks for ", transfer.targets.size(), " targets; give one target for each block"));
  }
  if (transfer.source.block_ids().size() != blocks) {
    return fail(ErrorCode::kInvalidArgument,
                str_cat(transfer.source.block_ids().size(), " blocks to copy from and facts of ", blocks,
                        " blocks; give one for each"));
  }
  return transfer.targets.pool_blocks() != nullptr ? check_facts(transfer.source.facts()) : Status();
}

Result<TransferId, Rejected<LinkTransfer>> TierLink::submit(LinkTransfer transfer) {
  const auto refuse = [&transfer](Error error) {
    return Unexpected(Rejected<LinkTransfer>{std::move(error), std::move(transfer)});
  };
  CAIRN_CHECK(transfer.targets.pool_blocks() == nullptr || to_.pool() != nullptr, "the target tier has a pool");
  if (const Status status = check(transfer); !status) {
    return refuse(status.error());
  }
  // The fence number is read first: if a fence comes after the blocks were seen to be current, the number differs.
  const std::uint64_t fence = to_.fence_number();
  if (!transfer.targets.is_current() || !transfer.source.is_current()) {
    return refuse({ErrorCode::kCancelled, str_cat("blocks of ", to_string(from_.level()), " were not copied to ",
                                                  to_string(to_.level()), ": a reset came first")});
  }
  if (const Status status = ask_tiers(); !status) {
    return refuse(status.error());
  }
  try {
    if (transfer.targets.pool_blocks() != nullptr) {
      // A file forgets what the blocks held before they are overwritten.
      if (const Status status = to_.before_writing(transfer.targets.block_ids()); !status) {
        report({}, {}, status);
        return refuse(status.error());
      }
    }
    const auto in_flight = std::make_shared<InFlight>(InFlight{.transfer = std::move(transfer), .fence = fence});
    Result<TransferId> id = submit_to_executor(in_flight);
    if (!id) {
      return Unexpected(Rejected<LinkTransfer>{std::move(id).error(), *std::move(in_flight->transfer)});
    }
    return *id;
  } catch (const std::bad_alloc&) {
    report({}, {}, {});  // the tiers were reserved, but not used
    throw;
  }
}

Result<TransferId> TierLink::submit_to_executor(const InFlightPtr& in_flight) {
  const CopySource& source = in_flight->transfer->source;
  const std::span<const BlockId> targets = in_flight->transfer->targets.block_ids();
  // verify() compares the checksums: they are known for some blocks, and only computed for the others.
  Transfer transfer{.plan = plan_,
                    .verify = Verify::kMake,
                    .deadline = in_flight->transfer->deadline,
                    .not_before = std::max(source.not_before(), in_flight->transfer->targets.not_before())};
  const std::uint64_t blocks = targets.size();
  transfer.blocks.reserve(blocks);
  for (std::size_t i = 0; i < blocks; ++i) {
    const BlockFacts& facts = source.facts()[i];
    transfer.blocks.push_back({.pair = {index_of(source.block_ids()[i]), index_of(targets[i])},
                               .tag = from_.tag_of(facts.block.key),
                               .expected = Checksum{facts.checksum},
                               .note = value_of(facts.block.tokens_hash)});
  }
  if (to_.level() == CacheLevel::kG4) {
    transfer.is_current = [in_flight] {
      return in_flight->transfer->source.is_current() && in_flight->transfer->targets.is_current();
    };
  }
  transfer.done = [this, in_flight](TransferOutcome&& outcome) { on_done(*in_flight, std::move(outcome)); };
  transfer.settled = [this, in_flight] {
    if (in_flight->late) {
      meter_.quarantined(-static_cast<std::int64_t>(in_flight->late->block_ids().size()));
      std::move(*in_flight->late).release_proven_finished();
      in_flight->late.reset();
    }
    in_flight->transfer.reset();
    meter_.settled();
  };
  in_flight->submitted = {.blocks = blocks,
                          .block_bytes = from_.block_bytes(),
                          .at = clock_.now(),
                          .may_be_held = executor_.holds_back() && transfer.not_before != StepMark()};
  meter_.began(in_flight->submitted);
  try {
    Result<TransferId> id = executor_.submit(std::move(transfer));
    if (!id) {
      meter_.refused(in_flight->submitted, clock_.now());
      report({}, {}, {});
    }
    return id;
  } catch (const std::bad_alloc&) {
    meter_.refused(in_flight->submitted, clock_.now());
    throw;
  }
}

void TierLink::on_done(InFlight& in_flight, TransferOutcome&& transferred) {
  const std::vector<BlockFacts> facts = verify(in_flight, transferred);
  LinkOutcome outcome{.blocks = {}, .states = {}, .error = std::move(transferred.error)};
  outcome.states.reserve(facts.size());
  for (const BlockOutcome& block : transferred.blocks) {
    outcome.states.push_back(block.state);
  }
  if (outcome.error.empty() && !all_done(outcome.states)) {
    outcome.error = str_cat(executor_.describe(), " did not copy every block and gave no reason");
  }
  std::vector<BlockState> copied = outcome.states;
  if (is_in_step(in_flight.transfer->source.not_before())) {
    // The engine has not ended its step in time: no fault of a tier.
    std::replace(copied.begin(), copied.end(), BlockState::kExpired, BlockState::kCancelled);
  }
  const Status written = register_done(in_flight, facts, outcome);
  report(copied, outcome.error, written);
  meter_.ended(in_flight.submitted, count(outcome.states), transferred.copied, clock_.now());
  const auto done = std::move(in_flight.transfer->done);
  if (all_done(outcome.states)) {
    in_flight.transfer.reset();  // nothing touches the blocks any more: `done` may need their room
  }
  if (done) {
    done(std::move(outcome));
  }
}

// Returns the facts of the blocks with the checksums of what was copied. A block with another checksum than expected becomes
// kMismatch and is dropped from the tier it was read from.
std::vector<BlockFacts> TierLink::verify(const InFlight& in_flight, TransferOutcome& outcome) {
  const CopySource& source = in_flight.transfer->source;
  std::vector<BlockFacts> facts(source.facts().begin(), source.facts().end());
  std::vector<BlockKey> wrong;
  std::vector<BlockKey> gone;
  // A store compares with the checksum that it has: another process may have stored the block, with other bytes of its own.
  const bool knows_checksums = from_.level() != CacheLevel::kG4;
  for (std::size_t i = 0; i < facts.size(); ++i) {
    BlockOutcome& block = outcome.blocks[i];
    const auto sum = static_cast<std::uint64_t>(block.checksum);
    if (block.state == BlockState::kDone && block.checksum == kNoChecksum) {
      block.state = BlockState::kFailed;
      if (outcome.error.empty()) {
        outcome.error = str_cat(executor_.describe(), " made no checksum of block ", facts[i].block.key.to_string());
      }
    }
    if (block.state == BlockState::kDone && knows_checksums && facts[i].checksum != 0 && facts[i].checksum != sum) {
      block.state = BlockState::kMismatch;
      if (outcome.error.empty()) {
        outcome.error = str_cat("block ", facts[i].block.key.to_string(), " of ", to_string(from_.level()),
                                " has other bytes than it was stored with");
      }
    }
    if (block.state == BlockState::kMismatch) {
      wrong.push_back(facts[i].block.key);
    } else if (block.state == BlockState::kGone) {
      gone.push_back(facts[i].block.key);
    }
    facts[i].checksum = sum;
  }
  // After a fence the keys may name other blocks.
  if (!wrong.empty() && from_.pool() != nullptr && source.is_current()) {
    from_.drop(wrong);
  }
  if (!gone.empty() && from_.pool() != nullptr && source.is_current()) {
    from_.forget(gone);
  }
  return facts;
}

// Registers the blocks that are kDone. The others are quarantined until the transfer has settled: a late copy, or the part
// of a failed one, may still write to them. Fails if the entries of the blocks could not be written: then none is registered.
Status TierLink::register_done(InFlight& in_flight, const std::vector<BlockFacts>& facts, LinkOutcome& outcome) {
  MutableBlocks* const pool_blocks = in_flight.transfer->targets.pool_blocks();
  if (pool_blocks == nullptr) {
    return {};
  }
  MutableBlocks targets = std::move(*pool_blocks);
  const auto add = [](std::optional<MutableBlocks>& to, MutableBlocks blocks) {
    if (!to) {
      to.emplace(std::move(blocks));
    } else {
      CAIRN_CHECK(to->append(std::move(blocks)).has_value(), "the targets of one transfer are of one pool");
    }
  };
  std::optional<MutableBlocks> whole;
  std::optional<MutableBlocks> late;
  std::vector<BlockFacts> whole_facts;
  if (all_done(outcome.states)) {
    whole.emplace(std::move(targets));
    whole_facts = facts;
  } else {
    for (std::size_t i = 0; i < facts.size(); ++i) {
      MutableBlocks block = targets.take_front(1);
      if (outcome.states[i] == BlockState::kDone) {
        add(whole, std::move(block));
        whole_facts.push_back(facts[i]);
      } else {
        add(late, std::move(block));
      }
    }
  }
  if (late) {
    meter_.quarantined(late->size());
    in_flight.late.emplace(std::move(*late).quarantine());
  }
  if (!whole) {
    return {};
  }
  const auto turn_down = [&outcome](BlockState state, const std::string& why) {
    std::replace(outcome.states.begin(), outcome.states.end(), BlockState::kDone, state);
    if (outcome.error.empty()) {
      outcome.error = why;
    }
  };
  if (Status status = to_.after_writing(whole->block_ids(), whole_facts, in_flight.fence); !status) {
    const bool is_fenced = status.error().code == ErrorCode::kCancelled;
    turn_down(is_fenced ? BlockState::kCancelled : BlockState::kFailed, status.error().message);
    return is_fenced ? Status() : status;
  }
  outcome.blocks = register_as(*std::move(whole), whole_facts);
  // A fence may have come since: then the pool registered nothing that others find, and the entries just written are void.
  if (!outcome.blocks.is_current()) {
    turn_down(BlockState::kCancelled, str_cat(to_string(to_.level()), " was reset while the transfer was in flight"));
    outcome.blocks = {};
  }
  return {};
}

ImmutableBlocks TierLink::register_as(MutableBlocks blocks, std::span<const BlockFacts> facts) {
  ImmutableBlocks all;
  while (!facts.empty()) {
    const Retention retention = retention_of(facts.front());
    const auto other = std::find_if(facts.begin(), facts.end(), [&](const BlockFacts& each) {
      return each.priority != facts.front().priority || each.priority_ms != facts.front().priority_ms ||
             each.time_to_live_ms != facts.front().time_to_live_ms;
    });
    const auto alike = static_cast<std::uint32_t>(other - facts.begin());
    auto complete = blocks.take_front(alike).complete_as(facts.first(alike));
    CAIRN_CHECK(complete.has_value(), "there are facts for every block");
    auto registered = (*std::move(complete)).register_blocks(retention);
    CAIRN_CHECK(registered.has_value(), "the facts were checked in submit()");
    registered->adopt(facts.first(alike));
    CAIRN_CHECK(all.append(*std::move(registered)).has_value(), "the targets of one transfer are of one pool");
    facts = facts.subspan(alike);
  }
  return all;
}

}  // namespace cairn
