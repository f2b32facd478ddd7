#include "cairn/connector/slot.h"

#include <algorithm>
#include <utility>

#include "cairn/base/check.h"
#include "cairn/base/str_cat.h"
#include "cairn/connector/refuse.h"

namespace cairn {

Slot::Slot(std::uint64_t serial, TokenBlockSequence&& sequence)
    : serial_(serial), sequence_(std::move(sequence)), known_at_start_(sequence_.size()) {
  CAIRN_CHECK(!sequence_.empty(), "a request has a token");
}

Unexpected<Error> Slot::illegal_step(SlotState to) const {
  return refuse(ErrorCode::kFailedPrecondition, "a slot cannot go from ", state_.to_string(), " to ", to.to_string());
}

Unexpected<Error> Slot::earlier_iteration(std::uint64_t iteration) const {
  return refuse(ErrorCode::kInvalidArgument, "iteration ", iteration, " follows iteration ", iteration_,
                "; iteration numbers never decrease");
}

Unexpected<Error> Slot::wrong_phase() const {
  return computed_ < known_at_start_ ? refuse(ErrorCode::kFailedPrecondition, "only ", computed_, " of ",
                                              known_at_start_, " tokens are computed; mark it as prefilling")
                                     : refuse(ErrorCode::kFailedPrecondition, "all ", known_at_start_,
                                              " tokens are computed; mark it as decoding");
}

Unexpected<Error> Slot::gets_no_tokens(const char* operation) const {
  return refuse(ErrorCode::kFailedPrecondition, operation, ": a slot that is ", to_string(state_.kind()),
                " gets no tokens");
}

Unexpected<Error> Slot::unsettled_draft_tokens() const {
  return refuse(ErrorCode::kFailedPrecondition, draft_tokens_,
                " draft tokens are not settled; say first how many of them were accepted");
}

// --- marks ---

Status Slot::mark_as_onboarding(std::uint64_t iteration) {
  CAIRN_TRY(check_step(SlotState::onboarding(iteration), iteration));
  if (computed_ != staged_.begin * block_size() || device_blocks_.size() < staged_.end) {
    return refuse(ErrorCode::kFailedPrecondition, "blocks ", staged_.begin, " to ", staged_.end,
                  " are to be loaded, but the request has ", device_blocks_.size(), " device blocks with ", computed_,
                  " tokens computed; append the device blocks and count the engine's own tokens first");
  }
  add_operation(true, staged_);
  step(SlotState::onboarding(iteration), iteration);
  return {};
}

Status Slot::mark_as_not_scheduled(std::uint64_t iteration) {
  CAIRN_TRY(check_step(SlotState::not_scheduled(), iteration));
  if (state_.kind() == kOnboarding) {
    return refuse(ErrorCode::kFailedPrecondition,
                  "a load writes to its device blocks; wait until it has ended, or finish the request");
  }
  staged_ = {};
  step(SlotState::not_scheduled(), iteration);
  return {};
}

Status Slot::mark_as_finished(std::uint64_t iteration) {
  // A load that was not taken has not begun: it is withdrawn. One that was taken is waited for.
  const auto load = std::ranges::find_if(in_flight_, [](const OperationPtr& each) { return each->is_load; });
  const bool withdraws = load != in_flight_.end() && !is_taken(**load);
  const SlotState to = in_flight_.size() == (withdraws ? 1U : 0U) ? SlotState::finished() : SlotState::finishing();
  CAIRN_TRY(check_step(to, iteration));
  if (withdraws) {
    std::erase(pending_.start, *load);
    in_flight_.erase(load);
  } else if (load != in_flight_.end()) {
    pending_.cancel.push_back(*load);
  }
  take_back(draft_tokens_);
  staged_ = {};
  if (to == SlotState::finished()) {
    device_blocks_.clear();
  }
  step(to, iteration);
  return {};
}

// --- matching ---

std::span<const BlockKey> Slot::keys_to_match(std::size_t local_tokens) const {
  const std::size_t begin = local_tokens / block_size();
  // The last token is always computed.
  const std::size_t end = std::min((certain_tokens() - 1) / block_size(), sequence_.block_count());
  if (local_tokens % block_size() != 0 || local_tokens < computed_ || begin >= end || load_fell_short_) {
    return {};
  }
  return sequence_.keys().subspan(begin, end - begin);
}

Status Slot::acquire_all_local_matches(std::size_t local_tokens, const Result<std::size_t>& found) {
  const std::size_t blocks = found ? *found : 0;
  const SlotState staged = SlotState::onboard_staged(blocks * block_size());
  CAIRN_TRY(check_step(staged, iteration_));
  if (!found) {
    return Unexpected(found.error());
  }
  if (const std::size_t wanted = keys_to_match(local_tokens).size(); blocks > wanted) {
    return refuse(ErrorCode::kOutOfRange, blocks, " blocks were found, but only ", wanted, " were looked up");
  }
  if (blocks > 0) {
    const std::size_t begin = local_tokens / block_size();
    staged_ = {begin, begin + blocks};
    state_ = staged;
  } else if (state_.kind() == kOnboardStaged) {
    staged_ = {};
    state_ = SlotState::not_scheduled();
  }
  return {};
}

// --- tokens ---

Status Slot::add_tokens(std::span<const Token> tokens, std::span<const MmRun> runs) {
  if (tokens.size() == 1 && runs.empty()) {  // as in most iterations
    CAIRN_TRY(sequence_.append(tokens.front()));
  } else {
    CAIRN_TRY(sequence_.extend(tokens, runs));
  }
  return {};
}

Status Slot::append_block_names(const EngineBlockNames& names) {
  const std::span<const BlockKey> keys = names.keys;
  if (sequence_.block_count() + keys.size() > certain_tokens() / block_size()) {
    return refuse(ErrorCode::kOutOfRange, keys.size(), " keys after ", sequence_.block_count(), " for ",
                  certain_tokens(), " tokens in blocks of ", block_size(), "; give one for each full block, once");
  }
  CAIRN_TRY(sequence_.adopt(keys, names.event_hashes));
  if (has_run_) {
    offer_saves();
  }
  return {};
}

Status Slot::append_draft_tokens(std::span<const Token> tokens) {
  CAIRN_TRY(check_tokens("append_draft_tokens"));
  if (!has_run_) {
    return refuse(ErrorCode::kFailedPrecondition, "a request that has not run has no draft tokens");
  }
  CAIRN_TRY(add_tokens(tokens));
  draft_tokens_ += tokens.size();
  return {};
}

Status Slot::settle_draft_tokens(std::size_t accepted) {
  if (accepted > draft_tokens_) {
    return refuse(ErrorCode::kOutOfRange, accepted, " of ", draft_tokens_, " draft tokens cannot be accepted");
  }
  take_back(draft_tokens_ - accepted);
  draft_tokens_ = 0;
  offer_saves();
  return {};
}

void Slot::take_back(std::size_t count) {
  CAIRN_CHECK(count <= draft_tokens_ && sequence_.unwind(count), "only draft tokens are taken back");
  draft_tokens_ -= count;
  computed_ = std::min(computed_, sequence_.size());
}

// --- in-step saves ---

bool Slot::offer_in_step_save(std::size_t tokens, std::size_t least_blocks) {
  const std::size_t end =
      std::min({std::min(tokens, certain_tokens()) / block_size(), sequence_.block_count(), device_blocks_.size()});
  if (end < next_to_save_ + least_blocks) {
    return false;
  }
  add_operation(false, {next_to_save_, end});
  in_step_save_ = in_flight_.back();
  in_step_save_->in_step = true;
  next_to_save_ = end;
  return true;
}

Slot::SettledSave Slot::settle_in_step_save(std::size_t tokens) noexcept {
  SettledSave settled{.save = std::exchange(in_step_save_, nullptr)};
  const std::size_t first = settled.save->first_block;
  if (!is_taken(*settled.save)) {  // the iteration was not built
    withdraw_saves_from(first);
    next_to_save_ = std::min(next_to_save_, first);
    return settled;
  }
  const std::size_t end = std::clamp(tokens / block_size(), first, settled.save->end_block());
  settled.confirmed = end - first;
  if (end < settled.save->end_block()) {
    next_to_save_ = std::min(next_to_save_, end);
  }
  return settled;
}

// --- operations ---

// Changes nothing if there is no memory for it.
void Slot::add_operation(bool is_load, BlockRange blocks) {
  auto operation = std::make_shared<Operation>();
  const auto keys = sequence_.keys().subspan(blocks.begin, blocks.size());
  const auto block_ids = std::span(device_blocks_).subspan(blocks.begin, blocks.size());
  operation->id = {serial_, next_number_};
  operation->is_load = is_load;
  operation->first_block = blocks.begin;
  operation->keys.assign(keys.begin(), keys.end());
  operation->block_ids.assign(block_ids.begin(), block_ids.end());
  if (!is_load) {
    const auto hashes = sequence_.block_hashes().subspan(blocks.begin, blocks.size());
    operation->token_hashes.assign(hashes.begin(), hashes.end());
    if (blocks.begin > 0) {
      operation->parent = sequence_.keys()[blocks.begin - 1];
    }
  }
  pending_.start.push_back(operation);
  try {
    in_flight_.push_back(std::move(operation));
  } catch (...) {
    pending_.start.pop_back();
    throw;
  }
  ++next_number_;
}

void Slot::withdraw_saves_from(std::size_t block) {
  std::erase_if(pending_.start, [this, block](const OperationPtr& operation) {
    if (operation->is_load || operation->end_block() <= block) {
      return false;
    }
    const std::size_t kept = block > operation->first_block ? block - operation->first_block : 0;
    operation->keys.resize(kept);
    operation->block_ids.resize(kept);
    operation->token_hashes.resize(kept);
    if (kept == 0) {
      std::erase(in_flight_, operation);
    }
    return kept == 0;
  });
}

void Slot::reserve_fence() { pending_.fence.reserve(pending_.fence.size() + in_flight_.size()); }

void Slot::fence_saves_from(std::size_t block) {
  for (const OperationPtr& save : in_flight_) {
    if (save->end_block() > block) {
      pending_.fence.push_back(save);
    }
  }
}

Result<std::size_t> Slot::find(OperationId id, bool is_load) const {
  const auto found = std::ranges::find(in_flight_, id, [](const OperationPtr& each) { return each->id; });
  if (found == in_flight_.end() || (*found)->is_load != is_load || !is_taken(**found)) {
    return refuse(ErrorCode::kNotFound, is_load ? "load " : "save ", id.slot, '.', id.number,
                  " is not in flight in slot ", serial_);
  }
  return static_cast<std::size_t>(found - in_flight_.begin());
}

void Slot::remove_operation(std::size_t index) {
  in_flight_.erase(in_flight_.begin() + static_cast<std::ptrdiff_t>(index));
  if (in_flight_.empty() && state_ == SlotState::finishing()) {
    device_blocks_.clear();
    state_ = SlotState::finished();
  }
}

Status Slot::onboard_done(OperationId id, std::size_t arrived) {
  CAIRN_TRY_ASSIGN(const std::size_t index, find(id, true));
  if (state_.kind() == kOnboarding) {
    if (arrived > staged_.size()) {
      return refuse(ErrorCode::kOutOfRange, arrived, " of ", staged_.size(), " blocks cannot have been loaded");
    }
    const std::size_t end = staged_.begin + arrived;
    computed_ = end * block_size();
    next_to_save_ = std::max(next_to_save_, end);
    load_fell_short_ = arrived < staged_.size();
    staged_ = {};
    state_ = SlotState::not_scheduled();
  }
  remove_operation(index);
  return {};
}

Status Slot::offload_done(OperationId id) {
  CAIRN_TRY_ASSIGN(const std::size_t index, find(id, false));
  remove_operation(index);
  return {};
}

// --- ExternallyManagedDeviceSlot ---

Unexpected<Error> ExternallyManagedDeviceSlot::computes_nothing() const {
  return refuse(ErrorCode::kFailedPrecondition, "a slot that is ", to_string(state_.kind()), " computes nothing");
}

Unexpected<Error> ExternallyManagedDeviceSlot::beyond_end(std::size_t num_tokens, std::size_t end) const {
  return refuse(ErrorCode::kOutOfRange, num_tokens, " more tokens than ", computed_, " cannot be computed: of ",
                sequence_.size(), " tokens in ", device_blocks_.size(), " device blocks at most ", end, " can be");
}

Status ExternallyManagedDeviceSlot::preempt(std::uint64_t iteration) {
  reserve_fence();
  CAIRN_TRY(mark_as_not_scheduled(iteration));
  fence_saves_from(0);
  take_back(draft_tokens_);
  device_blocks_.clear();
  computed_ = 0;
  known_at_start_ = sequence_.size();
  next_to_save_ = 0;
  has_run_ = false;
  load_fell_short_ = false;
  return {};
}

Status ExternallyManagedDeviceSlot::retreat_computed_position(std::size_t num_tokens) {
  const SlotState::Kind kind = state_.kind();
  if (kind == kOnboarding || kind == kFinishing || kind == kFinished) {
    return refuse(ErrorCode::kFailedPrecondition, "cannot move the computed position back: the slot is ",
                  to_string(kind));
  }
  if (num_tokens > computed_) {
    return refuse(ErrorCode::kOutOfRange, "only ", computed_, " tokens are computed; ", num_tokens,
                  " cannot be computed again");
  }
  if (num_tokens == 0) {
    return {};
  }
  reserve_fence();
  computed_ -= num_tokens;
  const std::size_t block = computed_ / block_size();
  withdraw_saves_from(block);
  fence_saves_from(block);
  next_to_save_ = std::min(next_to_save_, block);
  if (kind != kInitialized) {
    staged_ = {};
    state_ = SlotState::not_scheduled();
  }
  return {};
}

Status ExternallyManagedDeviceSlot::append_mutable_device_blocks(std::span<const BlockId> blocks) {
  if (state_.kind() == kFinishing || state_.kind() == kFinished) {
    return refuse(ErrorCode::kFailedPrecondition, "a slot that is ", to_string(state_.kind()),
                  " takes no device blocks");
  }
  if (std::ranges::find(blocks, kNoBlock) != blocks.end()) {
    return refuse(ErrorCode::kInvalidArgument, "block id ", index_of(kNoBlock), " names no device block");
  }
  device_blocks_.insert(device_blocks_.end(), blocks.begin(), blocks.end());
  return {};
}

std::string_view to_string(SlotState::Kind kind) {
  constexpr std::array<std::string_view, SlotState::kKinds> kNames = {
      "Initialized", "NotScheduled", "OnboardStaged", "Onboarding", "Prefilling", "Decoding", "Finishing", "Finished"};
  return kNames[static_cast<std::size_t>(kind)];
}

std::string SlotState::to_string() const {
  const std::string_view name = cairn::to_string(kind_);
  const bool has_number = kind_ == Kind::kOnboardStaged || kind_ == Kind::kOnboarding;
  return has_number ? str_cat(name, '(', number_, ')') : std::string(name);
}

}  // namespace cairn
