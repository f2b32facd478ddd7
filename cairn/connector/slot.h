// Slot: one request of an engine: its tokens, how far their KV is on the device, and what is to be loaded and saved.
//
// Pure logic: the scheduler says what the engine does, takes the operations that follow from it (operation.h), starts them,
// and says when each is over. A slot calls nobody. The engine's device blocks are told to ExternallyManagedDeviceSlot.
// A block is offered for saving when its KV is computed through its last token and no token of it can be taken back, never
// when it is merely full. Blocks that the engine already had, or that a load brought, are not offered.
//
// Thread safety: none; the scheduler's thread alone. Outcomes of operations are brought to that thread.
// Ownership: a SlotManager.
// Errors: a failed call changes nothing. The seeds' kinds are codes of Error: a slot that is unknown is kNotFound; a step
// that kSlotTransitions does not have, or a call that the state does not allow, is kFailedPrecondition; any other invalid
// operation is kInvalidArgument, kOutOfRange, kAlreadyExists or kNotFound (of an operation); errors of pools are passed on.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "cairn/base/ids.h"
#include "cairn/base/result.h"
#include "cairn/base/str_cat.h"
#include "cairn/connector/operation.h"
#include "cairn/connector/slot_state.h"
#include "cairn/tokens/token_sequence.h"

namespace cairn {

// What take_pending_operations() returns.
struct SlotOperations {
  std::vector<OperationPtr> start = {};  // loads and saves, in the order in which they are to be started
  std::vector<OperationPtr> cancel =
      {};  // loads that nobody waits for; each may be over, and is reported as over as ever
  // Saves whose device blocks the engine is about to use again: the next iteration begins only when they are over. Some may
  // be over already.
  std::vector<OperationPtr> fence = {};

  [[nodiscard]] bool empty() const { return start.empty() && cancel.empty() && fence.empty(); }
};

// The error of a call that a slot or the scheduler refuses; the message is the pieces, as in str_cat().
template <typename... Pieces>
[[nodiscard, gnu::cold, gnu::noinline]] Unexpected<Error> refuse(ErrorCode code, const Pieces&... pieces) {
  return fail(code, str_cat(pieces...));
}

class Slot {
 public:
  [[nodiscard]] SlotState state() const { return state_; }
  [[nodiscard]] const TokenBlockSequence& sequence() const { return sequence_; }
  // Tokens, from the first on, whose KV is on the device.
  [[nodiscard]] std::size_t computed_tokens() const { return computed_; }
  [[nodiscard]] std::size_t num_device_blocks_allocated() const { return device_blocks_.size(); }
  // Loads and saves that are not over, taken or not.
  [[nodiscard]] std::size_t operations_in_flight() const { return in_flight_.size(); }
  // Whether the engine has computed anything of the request since it was created or preempted.
  [[nodiscard]] bool has_run() const { return has_run_; }

  // --- what the scheduler decided for an iteration; iteration numbers never decrease ---
  // Onboarding if a load is staged, else Prefilling or Decoding, by what is computed.
  [[nodiscard]] Status mark_as_scheduled(std::uint64_t iteration);
  [[nodiscard]] Status mark_as_prefilling(std::uint64_t iteration);
  [[nodiscard]] Status mark_as_decoding(std::uint64_t iteration);
  // Offers the staged load. Requires its device blocks, and that the engine's own tokens are counted as computed.
  [[nodiscard]] Status mark_as_onboarding(std::uint64_t iteration);
  // Keeps the device blocks and drops a staged load: match again. Fails while a load is in flight.
  [[nodiscard]] Status mark_as_not_scheduled(std::uint64_t iteration);
  // The request ended or was aborted: Finished, or Finishing while operations use its device blocks. A load is cancelled,
  // saves go on.
  [[nodiscard]] Status mark_as_finished(std::uint64_t iteration);

  // --- matching ---
  // The blocks to look up in the tiers if the engine itself has the first `local_tokens`. Leaves at least one token to
  // compute, in a block that is computed whole. Empty if local_tokens is inside a block, or after a load that fell short:
  // what did not come once is computed.
  [[nodiscard]] std::span<const BlockKey> keys_to_match(std::size_t local_tokens) const;
  // How many of those keys, from the first on, the tiers have. Above 0: OnboardStaged. 0: unchanged, or NotScheduled if a
  // load was staged. An error of the lookup is passed on.
  [[nodiscard]] Status acquire_all_local_matches(std::size_t local_tokens, const Result<std::size_t>& found);

  // --- tokens ---
  // Tokens that the request has for certain. `runs` are the multimodal items among them, with offsets from the start of the
  // request.
  [[nodiscard]] Status append_tokens(std::span<const Token> tokens, std::span<const MmRun> runs = {});
  // Keys of the next full blocks, if the engine gives them (TokenBlockSequence::adopt()). Not of draft tokens.
  [[nodiscard]] Status append_block_keys(std::span<const BlockKey> keys);
  // Draft tokens of speculative decoding, which the next iterations compute and verify.
  [[nodiscard]] Status append_draft_tokens(std::span<const Token> tokens);
  // Keeps the first `accepted` of all draft tokens, and takes back the others and what was computed of them.
  [[nodiscard]] Status settle_draft_tokens(std::size_t accepted);

  // --- operations ---
  [[nodiscard]] const SlotOperations& pending_operations() const { return pending_; }
  // What came up since the last call. The caller starts each operation and reports when it is over.
  [[nodiscard]] SlotOperations take_pending_operations() noexcept;
  // A load is over: its first `arrived` blocks are on the device, verified, and nothing writes to any of its blocks.
  [[nodiscard]] Status onboard_done(OperationId id, std::size_t arrived);
  // A save is over, whatever became of it: nothing reads its device blocks.
  [[nodiscard]] Status offload_done(OperationId id);

 protected:
  using enum SlotState::Kind;

  // Requires: a sequence with a token.
  Slot(std::uint64_t serial, TokenBlockSequence sequence);
  Slot(Slot&&) = default;
  ~Slot() = default;

  // What every mark checks first: the table, and that iteration numbers do not decrease.
  [[nodiscard]] Status check_step(SlotState to, std::uint64_t iteration) const;
  [[nodiscard, gnu::cold, gnu::noinline]] Unexpected<Error> illegal_step(SlotState to) const;
  void step(SlotState to, std::uint64_t iteration) {
    state_ = to;
    iteration_ = iteration;
  }
  [[nodiscard]] Status check_tokens(const char* operation) const;
  [[nodiscard]] Status add_tokens(std::span<const Token> tokens, std::span<const MmRun> runs = {});
  // Cuts off the last `count` draft tokens.
  void take_back(std::size_t count);
  [[nodiscard]] std::size_t certain_tokens() const { return sequence_.size() - draft_tokens_; }
  [[nodiscard]] std::size_t block_size() const { return sequence_.block_size(); }
  void offer_saves();
  void add_operation(bool is_load, BlockRange blocks);
  // Cuts saves that were not taken off at that block.
  void withdraw_saves_from(std::size_t block);
  // Memory for the fence that comes with a change: once the change is made, the fence must not be lost.
  void reserve_fence();
  // Fences the saves in flight that reach beyond that block.
  void fence_saves_from(std::size_t block);
  [[nodiscard]] bool is_taken(const Operation& operation) const { return operation.id.number < taken_below_; }
  // The index in in_flight_ of an operation that was taken.
  [[nodiscard]] Result<std::size_t> find(OperationId id, bool is_load) const;
  void remove_operation(std::size_t index);

  std::uint64_t serial_;
  TokenBlockSequence sequence_;
  std::vector<BlockId> device_blocks_;  // device_blocks_[i] holds block i of the sequence
  SlotState state_ = SlotState::initialized();
  std::uint64_t iteration_ = 0;          // the latest one
  std::size_t computed_ = 0;             // tokens
  std::size_t draft_tokens_ = 0;         // tokens at the end that may be taken back
  std::size_t known_at_start_;           // tokens: Prefilling until they are computed
  std::size_t next_to_save_ = 0;         // block; those before it were offered, or need not be
  bool has_run_ = false;                 // since it was created or preempted
  bool load_fell_short_ = false;         // since it was created or preempted
  BlockRange staged_;                    // to be loaded, or being loaded
  SlotOperations pending_;               // not taken
  std::vector<OperationPtr> in_flight_;  // taken or not, by number
  std::uint32_t next_number_ = 0;
  std::uint32_t taken_below_ = 0;
};

// --- inlined: called for every running request in every iteration, of hundreds in a few microseconds ---

inline Status Slot::check_step(SlotState to, std::uint64_t iteration) const {
  if (!is_legal(state_.kind(), to.kind())) {
    return illegal_step(to);
  }
  if (iteration < iteration_) {
    return refuse(ErrorCode::kInvalidArgument, "iteration ", iteration, " follows iteration ", iteration_,
                  "; iteration numbers never decrease");
  }
  return {};
}

inline Status Slot::mark_as_prefilling(std::uint64_t iteration) {
  CAIRN_TRY(check_step(SlotState::prefilling(), iteration));
  if (computed_ >= known_at_start_) {
    return refuse(ErrorCode::kFailedPrecondition, "all ", known_at_start_, " tokens are computed; mark it as decoding");
  }
  staged_ = {};
  has_run_ = true;
  step(SlotState::prefilling(), iteration);
  return {};
}

inline Status Slot::mark_as_decoding(std::uint64_t iteration) {
  CAIRN_TRY(check_step(SlotState::decoding(), iteration));
  if (computed_ < known_at_start_) {
    return refuse(ErrorCode::kFailedPrecondition, "only ", computed_, " of ", known_at_start_,
                  " tokens are computed; mark it as prefilling");
  }
  step(SlotState::decoding(), iteration);
  return {};
}

inline Status Slot::mark_as_scheduled(std::uint64_t iteration) {
  if (state_.kind() == kOnboardStaged) {
    return mark_as_onboarding(iteration);
  }
  return computed_ < known_at_start_ ? mark_as_prefilling(iteration) : mark_as_decoding(iteration);
}

inline Status Slot::check_tokens(const char* operation) const {
  const SlotState::Kind kind = state_.kind();
  if (kind == kNotScheduled || kind == kPrefilling || kind == kDecoding) {
    return {};
  }
  return refuse(ErrorCode::kFailedPrecondition, operation, ": a slot that is ", to_string(kind), " gets no tokens");
}

inline Status Slot::append_tokens(std::span<const Token> tokens, std::span<const MmRun> runs) {
  CAIRN_TRY(check_tokens("append_tokens"));
  if (draft_tokens_ != 0) {
    return refuse(ErrorCode::kFailedPrecondition, draft_tokens_,
                  " draft tokens are not settled; say first how many of them were accepted");
  }
  CAIRN_TRY(add_tokens(tokens, runs));
  if (!has_run_) {
    known_at_start_ = sequence_.size();
  }
  return {};
}

inline void Slot::offer_saves() {
  const std::size_t tokens = std::min(computed_, certain_tokens());
  if (tokens >= (next_to_save_ + 1) * block_size()) {
    const std::size_t end =
        std::min(tokens / block_size(), sequence_.block_count());  // keys of the engine may come later
    if (end > next_to_save_) {
      add_operation(false, {next_to_save_, end});
      next_to_save_ = end;
    }
  }
}

}  // namespace cairn
