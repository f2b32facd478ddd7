#include "cairn/connector/slot_manager.h"

#include <utility>

namespace cairn {

Result<SlotManager> SlotManager::make(std::uint32_t block_size, const KeyHasher& hasher) {
  if (block_size == 0) {
    return fail(ErrorCode::kInvalidArgument, "block size is 0; give the tokens per block");
  }
  return SlotManager(block_size, hasher);
}

SlotResult<ExternallyManagedDeviceSlot*> SlotManager::create_slot(const RequestId& request,
                                                                  std::span<const Token> tokens,
                                                                  const RequestSalt& salt,
                                                                  std::span<const MmRun> runs) {
  if (const auto found = slots_.find(request); found != slots_.end()) {
    return invalid_operation(ErrorCode::kAlreadyExists, "request ", request.to_string(), " has a slot, which is ",
                             found->second.state().to_string(), "; remove it when it is Finished");
  }
  if (tokens.empty()) {
    return invalid_operation(ErrorCode::kInvalidArgument, "request ", request.to_string(),
                             " has no tokens; give its prompt");
  }
  const bool is_salted = !salt.salt.empty() || !salt.lora_name.empty();
  Result<TokenBlockSequence> sequence =
      TokenBlockSequence::create(tokens, block_size_, is_salted ? hasher_.with(salt) : hasher_, runs);
  if (!sequence) {
    return invalid_operation(std::move(sequence).error());
  }
  return &slots_.try_emplace(request, next_serial_++, *std::move(sequence)).first->second;
}

SlotResult<ExternallyManagedDeviceSlot*> SlotManager::get_slot(const RequestId& request) {
  const auto found = slots_.find(request);
  if (found == slots_.end()) {
    return slot_fail(SlotError::NotFound{request});
  }
  return &found->second;
}

SlotStatus SlotManager::remove_slot(const RequestId& request) {
  const auto found = slots_.find(request);
  if (found == slots_.end()) {
    return slot_fail(SlotError::NotFound{request});
  }
  const ExternallyManagedDeviceSlot& slot = found->second;
  if (slot.state() != SlotState::finished()) {
    return invalid_operation(ErrorCode::kFailedPrecondition, "the slot of request ", request.to_string(), " is ",
                             slot.state().to_string(), " with ", slot.operations_under_way(),
                             " copies under way; finish it first");
  }
  slots_.erase(found);
  return SlotStatus();
}

}  // namespace cairn
