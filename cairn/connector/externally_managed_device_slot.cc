#include "cairn/connector/externally_managed_device_slot.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "cairn/base/check.h"

namespace cairn {
namespace {

std::vector<BlockKey> keys_of(const TokenBlockSequence& sequence, BlockRange blocks) {
  const std::span<const BlockKey> keys = sequence.keys().subspan(blocks.begin, blocks.size());
  return {keys.begin(), keys.end()};
}

std::vector<BlockId> slots_of(std::span<const BlockId> device_blocks, BlockRange blocks) {
  const std::span<const BlockId> slots = device_blocks.subspan(blocks.begin, blocks.size());
  return {slots.begin(), slots.end()};
}

}  // namespace

ExternallyManagedDeviceSlot::ExternallyManagedDeviceSlot(std::uint64_t serial, TokenBlockSequence sequence)
    : serial_(serial), sequence_(std::move(sequence)), known_at_start_(sequence_.size()) {
  CAIRN_CHECK(!sequence_.empty(), "a request has a token");
}

// --- marks ---

SlotStatus ExternallyManagedDeviceSlot::mark_as_onboarding(std::uint64_t iteration) {
  if (SlotStatus checked = check_step(SlotState::onboarding(iteration), iteration); !checked) {
    return checked;
  }
  if (computed_ != staged_.begin * block_size() || device_blocks_.size() < staged_.end) {
    return invalid_operation(ErrorCode::kFailedPrecondition, "blocks ", staged_.begin, " to ", staged_.end,
                             " are to be loaded, but there are ", device_blocks_.size(), " device blocks with ",
                             computed_, " tokens computed; tell what the engine has and allocated first");
  }
  give(Copy::kOnboard, staged_,
       OnboardOperation{.id = next_id(),
                        .iteration = iteration,
                        .first_block = staged_.begin,
                        .keys = keys_of(sequence_, staged_),
                        .slots = slots_of(device_blocks_, staged_)});
  step(SlotState::onboarding(iteration), iteration);
  return SlotStatus();
}

SlotStatus ExternallyManagedDeviceSlot::mark_as_not_scheduled(std::uint64_t iteration) {
  if (SlotStatus checked = check_step(SlotState::not_scheduled(), iteration); !checked) {
    return checked;
  }
  if (state_.kind() == kOnboarding) {
    return invalid_operation(ErrorCode::kFailedPrecondition,
                             "a load writes to its device blocks; wait until it is over, or finish the request");
  }
  staged_ = {};
  step(SlotState::not_scheduled(), iteration);
  return SlotStatus();
}

SlotStatus ExternallyManagedDeviceSlot::mark_as_finished(std::uint64_t iteration) {
  // A load that nobody took has not begun: it is withdrawn. One that was taken is waited for.
  const auto load = std::ranges::find(under_way_, Copy::kOnboard, &UnderWay::copy);
  const bool withdraws = load != under_way_.end() && !is_taken(*load);
  const SlotState to = under_way_.size() == (withdraws ? 1U : 0U) ? SlotState::finished() : SlotState::finishing();
  if (SlotStatus checked = check_step(to, iteration); !checked) {
    return checked;
  }
  if (withdraws) {
    std::erase_if(pending_, [](const SlotOperation& op) { return std::holds_alternative<OnboardOperation>(op); });
    under_way_.erase(load);
  } else if (load != under_way_.end()) {
    pending_.emplace_back(CancelOperation{.id = {serial_, load->number}});
  }
  take_back(speculative_);
  staged_ = {};
  if (to == SlotState::finished()) {
    device_blocks_.clear();
  }
  step(to, iteration);
  return SlotStatus();
}

SlotStatus ExternallyManagedDeviceSlot::preempt(std::uint64_t iteration) {
  FenceOperation fence = room_for_fence();
  if (SlotStatus passed_over = mark_as_not_scheduled(iteration); !passed_over) {
    return passed_over;
  }
  fence_saves_from(0, std::move(fence));
  take_back(speculative_);
  device_blocks_.clear();
  computed_ = 0;
  known_at_start_ = sequence_.size();
  next_to_save_ = 0;
  has_run_ = false;
  load_fell_short_ = false;
  return SlotStatus();
}

// --- matching ---

std::span<const BlockKey> ExternallyManagedDeviceSlot::keys_to_match(std::size_t local_tokens) const {
  const std::size_t begin = local_tokens / block_size();
  const std::size_t end = (certain_tokens() - 1) / block_size();  // the last token is computed, whatever there is
  if (local_tokens % block_size() != 0 || local_tokens < computed_ || begin >= end || load_fell_short_) {
    return {};
  }
  return sequence_.keys().subspan(begin, end - begin);
}

SlotStatus ExternallyManagedDeviceSlot::acquire_all_local_matches(std::size_t local_tokens,
                                                                  const Result<std::size_t>& found) {
  const std::size_t blocks = found ? *found : 0;
  const SlotState staged = SlotState::onboard_staged(blocks * block_size());
  if (SlotStatus checked = check_step(staged, iteration_); !checked) {
    return checked;
  }
  if (!found) {
    return slot_fail(SlotError::PoolError{found.error()});
  }
  if (const std::size_t asked = keys_to_match(local_tokens).size(); blocks > asked) {
    return invalid_operation(ErrorCode::kOutOfRange, blocks, " blocks were found where ", asked, " were asked for");
  }
  if (blocks > 0) {
    const std::size_t begin = local_tokens / block_size();
    staged_ = {begin, begin + blocks};
    state_ = staged;
  } else if (state_.kind() == kOnboardStaged) {
    staged_ = {};
    state_ = SlotState::not_scheduled();
  }
  return SlotStatus();
}

// --- tokens and device blocks ---

SlotStatus ExternallyManagedDeviceSlot::add_tokens(std::span<const Token> tokens, std::span<const MmRun> runs) {
  if (tokens.size() == 1 && runs.empty()) {  // as in most iterations
    if (Result<std::optional<std::size_t>> appended = sequence_.append(tokens.front()); !appended) {
      return invalid_operation(std::move(appended).error());
    }
  } else if (Result<BlockRange> extended = sequence_.extend(tokens, runs); !extended) {
    return invalid_operation(std::move(extended).error());
  }
  return SlotStatus();
}

SlotStatus ExternallyManagedDeviceSlot::append_speculative_tokens(std::span<const Token> tokens) {
  if (SlotStatus checked = check_tokens("append_speculative_tokens"); !checked) {
    return checked;
  }
  if (!has_run_) {
    return invalid_operation(ErrorCode::kFailedPrecondition, "a request that has not run makes no guesses");
  }
  if (SlotStatus added = add_tokens(tokens); !added) {
    return added;
  }
  speculative_ += tokens.size();
  return SlotStatus();
}

SlotStatus ExternallyManagedDeviceSlot::settle_speculation(std::size_t accepted) {
  if (accepted > speculative_) {
    return invalid_operation(ErrorCode::kOutOfRange, accepted, " of ", speculative_, " guesses cannot be accepted");
  }
  take_back(speculative_ - accepted);
  speculative_ = 0;
  offer_saves();
  return SlotStatus();
}

void ExternallyManagedDeviceSlot::take_back(std::size_t count) {
  CAIRN_CHECK(count <= speculative_ && sequence_.unwind(count), "only guesses are taken back");
  speculative_ -= count;
  computed_ = std::min(computed_, sequence_.size());
}

SlotStatus ExternallyManagedDeviceSlot::retreat_computed_position(std::size_t num_tokens) {
  const SlotState::Kind kind = state_.kind();
  if (kind == kOnboarding || kind == kFinishing || kind == kFinished) {
    return invalid_operation(ErrorCode::kFailedPrecondition, "a slot that is ", state_.to_string(),
                             " computes nothing again");
  }
  if (num_tokens > computed_) {
    return invalid_operation(ErrorCode::kOutOfRange, "only ", computed_, " tokens are computed; ", num_tokens,
                             " cannot be computed again");
  }
  if (num_tokens == 0) {
    return SlotStatus();
  }
  FenceOperation fence = room_for_fence();
  computed_ -= num_tokens;
  const std::size_t block = computed_ / block_size();
  withdraw_saves_from(block);
  fence_saves_from(block, std::move(fence));
  next_to_save_ = std::min(next_to_save_, block);
  if (kind != kInitialized) {
    staged_ = {};
    state_ = SlotState::not_scheduled();
  }
  return SlotStatus();
}

SlotStatus ExternallyManagedDeviceSlot::append_mutable_device_blocks(std::span<const BlockId> blocks) {
  if (state_.kind() == kFinishing || state_.kind() == kFinished) {
    return invalid_operation(ErrorCode::kFailedPrecondition, "a slot that is ", state_.to_string(),
                             " takes no device blocks");
  }
  if (std::ranges::find(blocks, kNoBlock) != blocks.end()) {
    return invalid_operation(ErrorCode::kInvalidArgument, "one of the device blocks is none");
  }
  device_blocks_.insert(device_blocks_.end(), blocks.begin(), blocks.end());
  return SlotStatus();
}

// --- operations ---

// Nothing changes if there is no memory for it.
void ExternallyManagedDeviceSlot::give(Copy copy, BlockRange blocks, SlotOperation&& operation) {
  pending_.push_back(std::move(operation));
  try {
    under_way_.push_back({next_number_, copy, blocks.end});
  } catch (...) {
    pending_.pop_back();
    throw;
  }
  ++next_number_;
}

void ExternallyManagedDeviceSlot::offer_saves_to(std::size_t end) {
  const BlockRange savable{next_to_save_, end};
  give(Copy::kOffload, savable,
       OffloadOperation{.id = next_id(),
                        .first_block = savable.begin,
                        .keys = keys_of(sequence_, savable),
                        .slots = slots_of(device_blocks_, savable)});
  next_to_save_ = savable.end;
}

void ExternallyManagedDeviceSlot::withdraw_saves_from(std::size_t block) {
  for (SlotOperation& operation : pending_) {
    auto* save = std::get_if<OffloadOperation>(&operation);
    if (save == nullptr || save->first_block + save->keys.size() <= block) {
      continue;
    }
    const std::size_t kept = block > save->first_block ? block - save->first_block : 0;
    save->keys.resize(kept);
    save->slots.resize(kept);
    const auto place = std::ranges::find(under_way_, save->id.number, &UnderWay::number);
    if (kept > 0) {
      place->end_block = block;
    } else {
      under_way_.erase(place);
    }
  }
  std::erase_if(pending_, [](const SlotOperation& operation) {
    const auto* save = std::get_if<OffloadOperation>(&operation);
    return save != nullptr && save->keys.empty();
  });
}

FenceOperation ExternallyManagedDeviceSlot::room_for_fence() {
  FenceOperation fence;
  fence.saves.reserve(under_way_.size());
  pending_.reserve(pending_.size() + 1);
  return fence;
}

void ExternallyManagedDeviceSlot::fence_saves_from(std::size_t block, FenceOperation fence) {
  for (const UnderWay& save : under_way_) {
    if (save.end_block > block) {
      fence.saves.push_back({serial_, save.number});
    }
  }
  if (!fence.saves.empty()) {
    pending_.emplace_back(std::move(fence));
  }
}

std::vector<SlotOperation> ExternallyManagedDeviceSlot::take_pending_operations() {
  taken_below_ = next_number_;
  return std::exchange(pending_, {});
}

void ExternallyManagedDeviceSlot::put_back(std::vector<SlotOperation> operations) noexcept {
  CAIRN_CHECK(pending_.empty(), "operations are put back before new ones come up");
  pending_ = std::move(operations);
}

SlotResult<std::size_t> ExternallyManagedDeviceSlot::find(OperationId id, Copy copy) const {
  const auto found = std::ranges::find(under_way_, id.number, &UnderWay::number);
  if (id.slot != serial_ || found == under_way_.end() || found->copy != copy || !is_taken(*found)) {
    return invalid_operation(ErrorCode::kNotFound, "operation ", id.slot, '.', id.number, " is not under way in slot ",
                             serial_);
  }
  return static_cast<std::size_t>(found - under_way_.begin());
}

void ExternallyManagedDeviceSlot::is_over(std::size_t place) {
  under_way_.erase(under_way_.begin() + static_cast<std::ptrdiff_t>(place));
  if (under_way_.empty() && state_ == SlotState::finishing()) {
    device_blocks_.clear();
    state_ = SlotState::finished();
  }
}

SlotStatus ExternallyManagedDeviceSlot::onboard_done(OperationId id, std::size_t arrived) {
  const SlotResult<std::size_t> place = find(id, Copy::kOnboard);
  if (!place) {
    return Unexpected(place.error());
  }
  if (state_.kind() == kOnboarding) {
    if (arrived > staged_.size()) {
      return invalid_operation(ErrorCode::kOutOfRange, arrived, " of ", staged_.size(), " blocks cannot have arrived");
    }
    const std::size_t end = staged_.begin + arrived;
    computed_ = end * block_size();
    next_to_save_ = std::max(next_to_save_, end);
    load_fell_short_ = arrived < staged_.size();
    staged_ = {};
    state_ = SlotState::not_scheduled();
  }
  is_over(*place);
  return SlotStatus();
}

SlotStatus ExternallyManagedDeviceSlot::offload_done(OperationId id) {
  const SlotResult<std::size_t> place = find(id, Copy::kOffload);
  if (!place) {
    return Unexpected(place.error());
  }
  is_over(*place);
  return SlotStatus();
}

}  // namespace cairn
