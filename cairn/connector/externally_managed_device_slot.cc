#include "cairn/connector/externally_managed_device_slot.h"

#include <algorithm>

namespace cairn {

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
    return refuse(ErrorCode::kFailedPrecondition, "a slot that is ", to_string(kind), " computes nothing again");
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

}  // namespace cairn
