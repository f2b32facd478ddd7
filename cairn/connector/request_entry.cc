#include "cairn/connector/request_entry.h"

#include <new>

#include "cairn/base/check.h"
#include "cairn/connector/refuse.h"
#include "cairn/onboard/group_prefix.h"

namespace cairn {

Unexpected<Error> RequestEntry::never_scheduled(std::size_t computed_tokens) const {
  return refuse(ErrorCode::kInvalidArgument, computed_tokens, " tokens of request ", id->to_string(),
                " are said to be computed, but at most ", most_computed(),
                " can be when this iteration begins: what earlier iterations scheduled, what was loaded, and what "
                "match() or allocated() said of the engine's own cache; computed_tokens counts before the iteration, "
                "not after it");
}

Status RequestEntry::check_allocated(std::size_t blocks, std::size_t local_tokens, std::size_t loaded_tokens) const {
  return check_tokens((slot.num_device_blocks_allocated() + blocks) * block_size(), local_tokens, loaded_tokens);
}

Status RequestEntry::check_allocated(const CacheGroups& groups, std::span<const std::span<const BlockId>> blocks,
                                     std::size_t local_tokens, std::size_t loaded_tokens,
                                     std::vector<BlockId>& targets) const {
  if (blocks.size() != groups.size()) {
    return refuse(ErrorCode::kInvalidArgument, blocks.size(), " lists of device blocks for ", groups.size(),
                  " layer groups; give one for each");
  }
  std::size_t room = std::numeric_limits<std::size_t>::max();
  for (std::uint32_t group = 0; group < groups.size(); ++group) {
    room = std::min(room, (slot.group_table(group).size() + blocks[group].size()) * groups[group].block_size);
  }
  CAIRN_TRY(check_tokens(room, local_tokens, loaded_tokens));
  if (loaded_tokens == 0) {
    return {};
  }
  // A shorter prefix needs blocks that were not looked up.
  if (const std::size_t staged = slot.state().staged_tokens().value_or(0); loaded_tokens != staged) {
    return refuse(ErrorCode::kInvalidArgument, "match() found ", staged, " tokens and ", loaded_tokens,
                  " are to be loaded; in a model with layer groups load all of them, or none");
  }
  const std::size_t first = local_tokens / block_size();
  for (const GroupBlock& block : blocks_to_load(groups, first, first + loaded_tokens / block_size())) {
    const std::span<const BlockId> before = slot.group_table(block.group);
    const BlockId target =
        block.block < before.size() ? before[block.block] : blocks[block.group][block.block - before.size()];
    if (target == kNoBlock) {
      return refuse(ErrorCode::kInvalidArgument, "block ", block.block, " of group '", groups[block.group].name,
                    "' is to be loaded and has no device block; give it one");
    }
    targets.push_back(target);
  }
  return {};
}

Status RequestEntry::check_tokens(std::size_t room, std::size_t local_tokens, std::size_t loaded_tokens) const {
  using enum SlotState::Kind;
  const SlotState::Kind kind = slot.state().kind();
  if ((kind != kInitialized && kind != kNotScheduled && kind != kOnboardStaged) || wants_load) {
    return refuse(ErrorCode::kFailedPrecondition, "allocated() was called for a request that is ", to_string(kind),
                  wants_load ? " and has its blocks already" : "");
  }
  const std::size_t staged = slot.state().staged_tokens().value_or(0);
  if (loaded_tokens > staged || loaded_tokens % block_size() != 0 ||
      (loaded_tokens > 0 && local_tokens != matched_at)) {
    return refuse(ErrorCode::kInvalidArgument, loaded_tokens, " tokens after ", local_tokens,
                  " cannot be loaded; match() found ", staged, " after ", matched_at,
                  ", of which fewer whole blocks may be loaded");
  }
  if (local_tokens < slot.computed_tokens() || local_tokens >= slot.sequence().size() ||
      local_tokens + loaded_tokens > room) {
    return refuse(ErrorCode::kOutOfRange, local_tokens, " local tokens and ", loaded_tokens,
                  " tokens to load do not fit a request of ", slot.sequence().size(), " tokens with ",
                  slot.computed_tokens(), " computed, in blocks for ", room, " tokens; at least one token is computed");
  }
  if (slot.has_run() && local_tokens > most_computed()) {
    return never_scheduled(local_tokens);
  }
  return {};
}

Status RequestEntry::set_computed(std::size_t computed_tokens) {
  const std::size_t before = slot.computed_tokens();
  if (computed_tokens < before) {
    load_fell_short = false;
    CAIRN_TRY(slot.retreat_computed_position(before - computed_tokens));
    counting.computes_again(before - computed_tokens);
    may_count = true;
    return {};
  }
  if (std::exchange(load_fell_short, false) && computed_tokens > before) {
    return refuse(ErrorCode::kFailedPrecondition, computed_tokens,
                  " tokens are said to be computed, but the load of the request ended at ", before,
                  "; compute the rest again");
  }
  if (computed_tokens > most_computed()) {
    return never_scheduled(computed_tokens);
  }
  return computed_tokens > before ? slot.advance_computed_position(computed_tokens - before) : Status();
}

// Draft tokens are in the slot unless a preemption took them back or a load is in flight. In those cases the accepted ones
// are tokens as any others.
Status RequestEntry::settle_drafts(std::size_t accepted, std::vector<Token>& kept) {
  if (accepted > draft_tokens.size()) {
    return refuse(ErrorCode::kOutOfRange, accepted, " of ", draft_tokens.size(), " draft tokens cannot be accepted");
  }
  computable -= std::min(computable, draft_tokens.size() - accepted);
  if (!drafts_are_aside) {
    draft_tokens.clear();
    return slot.settle_draft_tokens(accepted);
  }
  kept.insert(kept.end(), draft_tokens.begin(), draft_tokens.begin() + static_cast<std::ptrdiff_t>(accepted));
  draft_tokens.clear();
  drafts_are_aside = false;
  return {};
}

void RequestEntry::note_scheduled(const Scheduled& scheduled, std::size_t tokens) {
  const std::size_t computed = scheduled.computed_tokens;
  computable =
      scheduled.scheduled_tokens == 0
          ? tokens
          : computed + std::min(scheduled.scheduled_tokens, std::numeric_limits<std::size_t>::max() - computed);
}

// The slot takes the tokens later: what is wrong with their runs is found now.
Status RequestEntry::check_late_runs(const Scheduled& scheduled) const {
  if (scheduled.new_runs.empty()) {
    return {};
  }
  const std::size_t first = slot.sequence().size() + late_tokens.size();
  const std::size_t end = first + scheduled.new_tokens.size();
  std::vector<MmRun> runs(scheduled.new_runs.begin(), scheduled.new_runs.end());
  std::ranges::sort(runs, {}, &MmRun::offset);
  CAIRN_TRY(check_mm_runs(runs));
  if (runs.front().offset < first || runs.back().end() > end) {
    return refuse(ErrorCode::kInvalidArgument, "multimodal runs from token ", runs.front().offset, " to ",
                  runs.back().end(), " come with tokens ", first, " to ", end,
                  "; give runs inside the tokens they come with");
  }
  return {};
}

Status RequestEntry::begin_step_beside_load(const Scheduled& scheduled) {
  const std::size_t loaded = slot.computed_tokens() + staged_blocks * block_size();
  if (wants_load ? scheduled.computed_tokens != loaded : scheduled.computed_tokens < loaded) {
    return refuse(ErrorCode::kInvalidArgument, scheduled.computed_tokens,
                  " tokens are said to be computed, but the load of the request brings them to ", loaded);
  }
  CAIRN_TRY(settle_drafts(scheduled.accepted_draft_tokens, late_tokens));
  if (!wants_load && scheduled.computed_tokens > computable) {
    return never_scheduled(scheduled.computed_tokens);
  }
  return check_late_runs(scheduled);
}

void RequestEntry::end_step_beside_load(const Scheduled& scheduled) {
  late_tokens.insert(late_tokens.end(), scheduled.new_tokens.begin(), scheduled.new_tokens.end());
  late_runs.insert(late_runs.end(), scheduled.new_runs.begin(), scheduled.new_runs.end());
  note_scheduled(scheduled, slot.sequence().size() + late_tokens.size() + scheduled.draft_tokens.size());
  draft_tokens.assign(scheduled.draft_tokens.begin(), scheduled.draft_tokens.end());
  drafts_are_aside = !draft_tokens.empty();
  computes_beside_load = true;
}

bool RequestEntry::catch_up(std::uint64_t iteration) {
  try {
    if (!slot.append_tokens(std::exchange(late_tokens, {}), std::exchange(late_runs, {})) ||
        !slot.append_block_names(std::exchange(late_names, {}))) {
      return false;
    }
  } catch (const std::bad_alloc&) {
    return false;
  }
  CAIRN_CHECK(slot.mark_as_scheduled(scheduled_in).has_value(), "a request that was loaded can run");
  if (scheduled_in != iteration) {
    CAIRN_CHECK(slot.mark_as_not_scheduled(iteration).has_value(), "a request that runs can be passed over");
  }
  return true;
}

}  // namespace cairn
