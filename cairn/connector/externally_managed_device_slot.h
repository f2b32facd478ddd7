// ExternallyManagedDeviceSlot: a slot whose device blocks belong to the engine, which says which it has and how far they
// are filled.
//
// Order:    in each iteration first what the last ones computed (append_tokens, advance_computed_position), then the new
//           device blocks, then the mark. What is computed counts as computed for all that is given out afterwards.
// Trust:    that a device block is this request's alone to write is not checked here: a slot knows no other requests.
//           SchedulerConnector checks it (device_block_use.h).
// Else:     as slot.h says.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "cairn/base/ids.h"
#include "cairn/connector/slot.h"

namespace cairn {

class ExternallyManagedDeviceSlot final : public Slot {
 public:
  // `serial` names it in its operations. Requires: a sequence with a token.
  ExternallyManagedDeviceSlot(std::uint64_t serial, TokenBlockSequence sequence);

  [[nodiscard]] SlotState state() const override { return state_; }
  [[nodiscard]] const TokenBlockSequence& sequence() const override { return sequence_; }
  [[nodiscard]] std::size_t computed_tokens() const override { return computed_; }
  [[nodiscard]] std::size_t num_device_blocks_allocated() const override { return device_blocks_.size(); }
  [[nodiscard]] std::size_t operations_under_way() const override { return under_way_.size(); }
  // device_blocks()[i] holds block i of the sequence. Good until blocks are appended or taken away.
  [[nodiscard]] std::span<const BlockId> device_blocks() const { return device_blocks_; }
  // Whether the engine has computed anything of it since it was made or preempted.
  [[nodiscard]] bool has_run() const { return has_run_; }

  [[nodiscard]] SlotStatus mark_as_scheduled(std::uint64_t iteration) override;
  [[nodiscard]] SlotStatus mark_as_prefilling(std::uint64_t iteration) override;
  [[nodiscard]] SlotStatus mark_as_decoding(std::uint64_t iteration) override;
  [[nodiscard]] SlotStatus mark_as_onboarding(std::uint64_t iteration) override;
  [[nodiscard]] SlotStatus mark_as_not_scheduled(std::uint64_t iteration) override;
  [[nodiscard]] SlotStatus mark_as_finished(std::uint64_t iteration) override;
  [[nodiscard]] std::span<const BlockKey> keys_to_match(std::size_t local_tokens) const override;
  [[nodiscard]] SlotStatus acquire_all_local_matches(std::size_t local_tokens,
                                                     const Result<std::size_t>& found) override;
  using Slot::append_tokens;
  [[nodiscard]] SlotStatus append_tokens(std::span<const Token> tokens, std::span<const MmRun> runs) override;
  [[nodiscard]] SlotStatus append_speculative_tokens(std::span<const Token> tokens) override;
  [[nodiscard]] SlotStatus settle_speculation(std::size_t accepted) override;
  [[nodiscard]] std::vector<SlotOperation> take_pending_operations() override;
  // The last of what was taken could not be carried out, and is to be taken again. Nothing came up meanwhile.
  void put_back(std::vector<SlotOperation> operations) noexcept;
  // Whether that would give any.
  [[nodiscard]] bool has_pending_operations() const { return !pending_.empty(); }
  [[nodiscard]] SlotStatus onboard_done(OperationId id, std::size_t arrived) override;
  [[nodiscard]] SlotStatus offload_done(OperationId id) override;

  // The KV of so many more tokens is on the device: they were computed, or, before the request first ran since it was
  // made or preempted, the engine found them in its own cache. Not beyond the tokens or the device blocks there are.
  [[nodiscard]] SlotStatus advance_computed_position(std::size_t num_tokens);
  // The engine takes back what it counted of the last tokens, and computes them again into the same blocks: what they were
  // made of did not come. Saves of those blocks that nobody took are withdrawn, the others are fenced; all are offered
  // again. What was staged is dropped, and the request has to be marked anew. Not while a load is under way.
  [[nodiscard]] SlotStatus retreat_computed_position(std::size_t num_tokens);
  // The engine's blocks for what comes after those it gave before. It may give more than the tokens need.
  [[nodiscard]] SlotStatus append_mutable_device_blocks(std::span<const BlockId> blocks);
  // The engine takes all device blocks away: nothing is computed any more, guesses are taken back, and the request can be
  // matched anew. Saves of those blocks are fenced. Not while a load writes to them: wait for it, or finish.
  [[nodiscard]] SlotStatus preempt(std::uint64_t iteration);

 private:
  using enum SlotState::Kind;

  enum class Copy : std::uint8_t { kOnboard, kOffload };
  struct UnderWay {
    std::uint32_t number;
    Copy copy;
    std::size_t end_block;  // of the sequence
  };

  // What every mark asks first: the table, and that iterations do not go back.
  [[nodiscard]] SlotStatus check_step(SlotState to, std::uint64_t iteration) const;
  void step(SlotState to, std::uint64_t iteration);
  [[nodiscard]] SlotStatus check_tokens(const char* operation) const;
  [[nodiscard]] SlotStatus add_tokens(std::span<const Token> tokens, std::span<const MmRun> runs = {});
  // Cuts off the last `count` tokens.
  void take_back(std::size_t count);
  [[nodiscard]] std::size_t certain_tokens() const { return sequence_.size() - speculative_; }
  [[nodiscard]] std::size_t block_size() const { return sequence_.block_size(); }
  void offer_saves();
  // Full blocks that are computed, up to that one.
  void offer_saves_to(std::size_t end);
  [[nodiscard]] OperationId next_id() const { return {serial_, next_number_}; }
  void give(Copy copy, BlockRange blocks, SlotOperation&& operation);
  // Cuts saves that nobody took off at that block.
  void withdraw_saves_from(std::size_t block);
  // Memory for the fence that comes with a change: once the change is made, the fence must not be lost.
  [[nodiscard]] FenceOperation room_for_fence();
  // The saves under way that reach beyond that block.
  void fence_saves_from(std::size_t block, FenceOperation fence);
  [[nodiscard]] bool is_taken(const UnderWay& copy) const { return copy.number < taken_below_; }
  // Where a copy that was given out stands in under_way_.
  [[nodiscard]] SlotResult<std::size_t> find(OperationId id, Copy copy) const;
  void is_over(std::size_t place);

  const std::uint64_t serial_;
  TokenBlockSequence sequence_;
  std::vector<BlockId> device_blocks_;
  SlotState state_ = SlotState::initialized();
  std::uint64_t iteration_ = 0;         // the latest that was told
  std::size_t computed_ = 0;            // tokens
  std::size_t speculative_ = 0;         // tokens at the end that may be taken back
  std::size_t known_at_start_;          // tokens: Prefilling until they are computed
  std::size_t next_to_save_ = 0;        // block; those before it were offered, or need not be
  bool has_run_ = false;                // since it was made or preempted
  bool load_fell_short_ = false;        // since it was made or preempted
  BlockRange staged_;                   // to be loaded, or being loaded
  std::vector<SlotOperation> pending_;  // not taken
  std::vector<UnderWay> under_way_;     // taken or not
  std::uint32_t next_number_ = 0;
  std::uint32_t taken_below_ = 0;
};

// --- inlined: told of every running request in every iteration, of hundreds in a few microseconds ---

inline SlotStatus ExternallyManagedDeviceSlot::check_step(SlotState to, std::uint64_t iteration) const {
  if (!is_legal(state_.kind(), to.kind())) {
    return slot_fail(SlotError::InvalidState{state_, to});
  }
  if (iteration < iteration_) {
    return invalid_operation(ErrorCode::kInvalidArgument, "iteration ", iteration, " comes after iteration ",
                             iteration_, "; iterations do not go back");
  }
  return SlotStatus();
}

inline void ExternallyManagedDeviceSlot::step(SlotState to, std::uint64_t iteration) {
  state_ = to;
  iteration_ = iteration;
}

inline SlotStatus ExternallyManagedDeviceSlot::mark_as_prefilling(std::uint64_t iteration) {
  if (SlotStatus checked = check_step(SlotState::prefilling(), iteration); !checked) {
    return checked;
  }
  if (computed_ >= known_at_start_) {
    return invalid_operation(ErrorCode::kFailedPrecondition, "all ", known_at_start_,
                             " tokens are computed; mark it as decoding");
  }
  staged_ = {};
  has_run_ = true;
  step(SlotState::prefilling(), iteration);
  return SlotStatus();
}

inline SlotStatus ExternallyManagedDeviceSlot::mark_as_decoding(std::uint64_t iteration) {
  if (SlotStatus checked = check_step(SlotState::decoding(), iteration); !checked) {
    return checked;
  }
  if (computed_ < known_at_start_) {
    return invalid_operation(ErrorCode::kFailedPrecondition, "only ", computed_, " of ", known_at_start_,
                             " tokens are computed; mark it as prefilling");
  }
  step(SlotState::decoding(), iteration);
  return SlotStatus();
}

inline SlotStatus ExternallyManagedDeviceSlot::mark_as_scheduled(std::uint64_t iteration) {
  if (state_.kind() == kOnboardStaged) {
    return mark_as_onboarding(iteration);
  }
  return computed_ < known_at_start_ ? mark_as_prefilling(iteration) : mark_as_decoding(iteration);
}

inline SlotStatus ExternallyManagedDeviceSlot::check_tokens(const char* operation) const {
  const SlotState::Kind kind = state_.kind();
  if (kind == kNotScheduled || kind == kPrefilling || kind == kDecoding) {
    return SlotStatus();
  }
  return invalid_operation(ErrorCode::kFailedPrecondition, operation, ": a slot that is ", state_.to_string(),
                           " makes no tokens");
}

inline SlotStatus ExternallyManagedDeviceSlot::append_tokens(std::span<const Token> tokens,
                                                             std::span<const MmRun> runs) {
  if (SlotStatus checked = check_tokens("append_tokens"); !checked) {
    return checked;
  }
  if (speculative_ != 0) {
    return invalid_operation(ErrorCode::kFailedPrecondition, speculative_,
                             " guesses are not settled; settle them first");
  }
  if (SlotStatus added = add_tokens(tokens, runs); !added) {
    return added;
  }
  if (!has_run_) {
    known_at_start_ = sequence_.size();
  }
  return SlotStatus();
}

inline void ExternallyManagedDeviceSlot::offer_saves() {
  const std::size_t tokens = std::min(computed_, certain_tokens());
  if (tokens >= (next_to_save_ + 1) * block_size()) {
    offer_saves_to(tokens / block_size());
  }
}

inline SlotStatus ExternallyManagedDeviceSlot::advance_computed_position(std::size_t num_tokens) {
  const SlotState::Kind kind = state_.kind();
  if (kind == kOnboarding || kind == kFinishing || kind == kFinished) {
    return invalid_operation(ErrorCode::kFailedPrecondition, "a slot that is ", state_.to_string(),
                             " computes nothing");
  }
  std::size_t end = std::min(sequence_.size(), device_blocks_.size() * block_size());
  if (!has_run_) {
    end = std::min(end, sequence_.size() - 1);  // one token stays to be computed
  }
  if (kind == kOnboardStaged) {
    end = std::min(end, staged_.begin * block_size());
  }
  if (num_tokens > end - computed_) {
    return invalid_operation(ErrorCode::kOutOfRange, num_tokens, " more tokens than ", computed_,
                             " would be computed, of ", sequence_.size(), " in ", device_blocks_.size(),
                             " device blocks; at most ", end, " can be");
  }
  computed_ += num_tokens;
  if (has_run_) {
    offer_saves();
  } else {
    next_to_save_ = std::max(next_to_save_, computed_ / block_size());
  }
  return SlotStatus();
}

}  // namespace cairn
