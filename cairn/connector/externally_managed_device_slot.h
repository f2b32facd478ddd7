// ExternallyManagedDeviceSlot: a slot whose device blocks belong to the engine, which says which blocks the request has and
// how far they are filled.
//
// In each iteration the scheduler says first what the last iterations computed (append_tokens, advance_computed_position),
// then the new device blocks, then the mark. A slot knows no other requests: SchedulerConnector checks that nobody else
// writes to its device blocks (device_block_use.h).
//
// Thread safety, ownership, errors: as in slot.h.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "cairn/connector/slot.h"

namespace cairn {

class ExternallyManagedDeviceSlot final : public Slot {
 public:
  // `serial` is OperationId::slot of its operations. Requires: a sequence with a token.
  ExternallyManagedDeviceSlot(std::uint64_t serial, TokenBlockSequence sequence) : Slot(serial, std::move(sequence)) {}

  // device_blocks()[i] holds block i of the sequence. Valid until blocks are appended or taken away.
  [[nodiscard]] std::span<const BlockId> device_blocks() const { return device_blocks_; }
  // The KV of so many more tokens is on the device: the engine computed them or, before the request first ran since it was
  // created or preempted, found them in its own cache. Not beyond the tokens or the device blocks of the request.
  [[nodiscard]] Status advance_computed_position(std::size_t num_tokens);
  // The engine computes the last tokens again, into the same blocks: something that they were computed from did not come.
  // Saves of those blocks that were not taken are withdrawn, the others are fenced; all are offered again. A staged load is
  // dropped, and the request has to be marked anew. Fails while a load is in flight.
  [[nodiscard]] Status retreat_computed_position(std::size_t num_tokens);
  // The engine's blocks for what comes after the blocks it gave before; may be more than the tokens need.
  [[nodiscard]] Status append_mutable_device_blocks(std::span<const BlockId> blocks);
  // The engine takes all device blocks away: nothing is computed any more, draft tokens are taken back, and the request can
  // be matched anew. Saves of those blocks are fenced. Fails while a load writes to them: wait for it, or finish.
  [[nodiscard]] Status preempt(std::uint64_t iteration);
};

inline Status ExternallyManagedDeviceSlot::advance_computed_position(std::size_t num_tokens) {
  const SlotState::Kind kind = state_.kind();
  if (kind == kOnboarding || kind == kFinishing || kind == kFinished) {
    return refuse(ErrorCode::kFailedPrecondition, "a slot that is ", to_string(kind), " computes nothing");
  }
  std::size_t end = std::min(sequence_.size(), device_blocks_.size() * block_size());
  if (!has_run_) {
    end = std::min(end, sequence_.size() - 1);  // one token stays to be computed
  }
  if (kind == kOnboardStaged) {
    end = std::min(end, staged_.begin * block_size());
  }
  if (num_tokens > end - computed_) {
    return refuse(ErrorCode::kOutOfRange, num_tokens, " more tokens than ", computed_, " cannot be computed: of ",
                  sequence_.size(), " tokens in ", device_blocks_.size(), " device blocks at most ", end, " can be");
  }
  computed_ += num_tokens;
  if (has_run_) {
    offer_saves();
  } else {
    next_to_save_ = std::max(next_to_save_, computed_ / block_size());
  }
  return {};
}

}  // namespace cairn
