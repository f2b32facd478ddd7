// Slot: one request of an engine: its tokens, how far their KV is on the device, and what is to be loaded and saved.
//
// Does:     pure logic. It is told what the engine does, gives out operations (slot_operation.h) for others to carry out,
//           and is told when they are over. It calls nobody.
// Saving:   a block is offered when its KV is computed through its last token and none of its tokens can be taken back;
//           never when it is merely full. What the engine had already, or a load brought, is not offered again.
// Fails:    a step that kSlotTransitions does not have is InvalidState; a legal one with a wrong argument
//           InvalidOperation. Nothing changes.
// Owner:    a SlotManager.
// Threads:  one at a time, the scheduler's. Results of copies come to that thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "cairn/base/result.h"
#include "cairn/connector/slot_error.h"
#include "cairn/connector/slot_operation.h"
#include "cairn/connector/slot_state.h"
#include "cairn/tokens/token_sequence.h"

namespace cairn {

class Slot {
 public:
  virtual ~Slot() = default;

  [[nodiscard]] virtual SlotState state() const = 0;
  [[nodiscard]] virtual const TokenBlockSequence& sequence() const = 0;
  // Tokens, from the first on, whose KV is on the device.
  [[nodiscard]] virtual std::size_t computed_tokens() const = 0;
  [[nodiscard]] virtual std::size_t num_device_blocks_allocated() const = 0;
  // Loads and saves that are not over, given out or not.
  [[nodiscard]] virtual std::size_t operations_under_way() const = 0;

  // --- what the scheduler decided for an iteration; iterations do not go back ---
  // Onboarding if loading is staged, else Prefilling or Decoding, by what is computed.
  [[nodiscard]] virtual SlotStatus mark_as_scheduled(std::uint64_t iteration) = 0;
  [[nodiscard]] virtual SlotStatus mark_as_prefilling(std::uint64_t iteration) = 0;
  [[nodiscard]] virtual SlotStatus mark_as_decoding(std::uint64_t iteration) = 0;
  // Gives out the load that is staged. The device blocks for it have been appended, and the engine's own tokens told.
  [[nodiscard]] virtual SlotStatus mark_as_onboarding(std::uint64_t iteration) = 0;
  // Device blocks stay. What was staged is dropped: match again. Not while a load is under way.
  [[nodiscard]] virtual SlotStatus mark_as_not_scheduled(std::uint64_t iteration) = 0;
  // The engine is done with it, by its end or an abort: Finished, or Finishing while copies use its device blocks. A load
  // is cancelled, saves go on.
  [[nodiscard]] virtual SlotStatus mark_as_finished(std::uint64_t iteration) = 0;

  // --- matching ---
  // The blocks worth asking the tiers for, if the engine itself has the first `local_tokens`. At least one token is left
  // to be computed, in a block that is computed whole. None: where local_tokens is inside a block, or a load fell short
  // before (what did not come once is computed).
  [[nodiscard]] virtual std::span<const BlockKey> keys_to_match(std::size_t local_tokens) const = 0;
  // What the tiers answered to those keys: how many of them, from the first on, can be loaded. Any: OnboardStaged. None:
  // unchanged, but NotScheduled if something was staged. An error is passed on as a PoolError.
  [[nodiscard]] virtual SlotStatus acquire_all_local_matches(std::size_t local_tokens,
                                                             const Result<std::size_t>& found) = 0;

  // --- tokens ---
  // Tokens that the request has for certain. `runs` are the multimodal items among them, with offsets from the start of the
  // request.
  [[nodiscard]] virtual SlotStatus append_tokens(std::span<const Token> tokens, std::span<const MmRun> runs) = 0;
  [[nodiscard]] SlotStatus append_tokens(std::span<const Token> tokens) { return append_tokens(tokens, {}); }
  // Guesses, which the next iterations compute and check.
  [[nodiscard]] virtual SlotStatus append_speculative_tokens(std::span<const Token> tokens) = 0;
  // Keeps the first `accepted` of all guesses, takes back the others and what was computed of them.
  [[nodiscard]] virtual SlotStatus settle_speculation(std::size_t accepted) = 0;

  // --- operations ---
  // What came up since the last call. The caller sees to it that each is carried out and told as over.
  [[nodiscard]] virtual std::vector<SlotOperation> take_pending_operations() = 0;
  // A load is over: its first `arrived` blocks are on the device, verified; nothing writes to any of them.
  [[nodiscard]] virtual SlotStatus onboard_done(OperationId id, std::size_t arrived) = 0;
  // A save is over, whatever became of it: nothing reads its device blocks.
  [[nodiscard]] virtual SlotStatus offload_done(OperationId id) = 0;
};

}  // namespace cairn
