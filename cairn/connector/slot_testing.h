// Shared by the tests of slots: prompts, device blocks, slots in every state, and operations by kind.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <numeric>
#include <vector>

#include "cairn/connector/slot_manager.h"

namespace cairn::testing {

inline constexpr std::uint32_t kBlockSize = 4;

[[nodiscard]] inline std::vector<Token> tokens(std::size_t count, Token first = 100) {
  std::vector<Token> out(count);
  std::iota(out.begin(), out.end(), first);
  return out;
}

[[nodiscard]] inline std::vector<BlockId> device_blocks(std::size_t count, std::uint32_t first = 10) {
  std::vector<BlockId> out;
  for (std::uint32_t i = 0; i < count; ++i) {
    out.push_back(BlockId{first + i});
  }
  return out;
}

[[nodiscard]] inline ExternallyManagedDeviceSlot new_slot(std::size_t prompt, std::uint64_t serial = 1) {
  return {serial, *TokenBlockSequence::create(tokens(prompt), kBlockSize)};
}

[[nodiscard]] inline ::testing::AssertionResult is_ok(const Status& status) {
  return status ? ::testing::AssertionSuccess() : ::testing::AssertionFailure() << status.error().to_string();
}
#define CAIRN_SLOT_OK(expression) ASSERT_TRUE(::cairn::testing::is_ok(expression))

// A step that kSlotTransitions does not have; any other error is an invalid operation.
[[nodiscard]] inline bool is_invalid_state(const Status& status) {
  return !status && status.error().code == ErrorCode::kFailedPrecondition &&
         status.error().message.starts_with("a slot cannot go from ");
}
[[nodiscard]] inline bool is_invalid_operation(const Status& status) { return !status && !is_invalid_state(status); }

[[nodiscard]] inline SlotOperations take_operations(Slot& slot) {
  SlotOperations taken;
  slot.take_pending_operations(taken);
  return taken;
}

// The loads and the saves that are to be started.
[[nodiscard]] inline std::vector<Operation> started(const SlotOperations& operations, bool are_loads) {
  std::vector<Operation> out;
  for (const OperationPtr& operation : operations.start) {
    if (operation->is_load == are_loads) {
      out.push_back(*operation);
    }
  }
  return out;
}
[[nodiscard]] inline std::vector<Operation> loads_of(const SlotOperations& operations) {
  return started(operations, true);
}
[[nodiscard]] inline std::vector<Operation> saves_of(const SlotOperations& operations) {
  return started(operations, false);
}
[[nodiscard]] inline std::vector<OperationId> ids_of(const std::vector<OperationPtr>& operations) {
  std::vector<OperationId> out;
  for (const OperationPtr& operation : operations) {
    out.push_back(operation->id);
  }
  return out;
}

// A prompt of 16 tokens in device blocks from 10 on, computed in one go: three or four full blocks are to be saved.
inline void prefill(ExternallyManagedDeviceSlot& slot, std::uint64_t iteration) {
  CAIRN_SLOT_OK(slot.append_mutable_device_blocks(device_blocks(8)));
  CAIRN_SLOT_OK(slot.mark_as_prefilling(iteration));
  CAIRN_SLOT_OK(slot.advance_computed_position(slot.sequence().size() - slot.computed_tokens()));
}

// A slot with a prompt of 16 tokens in that state, with nothing in flight except a load in Onboarding and a save in
// Finishing.
inline void bring_to(SlotState::Kind kind, ExternallyManagedDeviceSlot& slot) {
  using enum SlotState::Kind;
  switch (kind) {
    case kInitialized:
      return;
    case kOnboardStaged:
      CAIRN_SLOT_OK(slot.acquire_all_local_matches(0, 2));
      return;
    case kOnboarding:
      CAIRN_SLOT_OK(slot.acquire_all_local_matches(0, 2));
      CAIRN_SLOT_OK(slot.append_mutable_device_blocks(device_blocks(4)));
      CAIRN_SLOT_OK(slot.mark_as_onboarding(1));
      ASSERT_EQ(take_operations(slot).start.size(), 1);
      return;
    case kPrefilling:
      CAIRN_SLOT_OK(slot.append_mutable_device_blocks(device_blocks(8)));
      CAIRN_SLOT_OK(slot.mark_as_prefilling(1));
      return;
    case kNotScheduled:
      CAIRN_SLOT_OK(slot.mark_as_prefilling(1));
      CAIRN_SLOT_OK(slot.mark_as_not_scheduled(2));
      return;
    case kDecoding:
    case kFinishing:
    case kFinished:
      break;
  }
  prefill(slot, 1);
  CAIRN_SLOT_OK(slot.mark_as_decoding(2));
  const auto saves = saves_of(take_operations(slot));
  ASSERT_EQ(saves.size(), 1);
  if (kind == kFinishing) {
    CAIRN_SLOT_OK(slot.mark_as_finished(3));
    return;
  }
  CAIRN_SLOT_OK(slot.offload_done(saves[0].id));
  if (kind == kFinished) {
    CAIRN_SLOT_OK(slot.mark_as_finished(3));
  }
}

inline constexpr auto kAllKinds = [] {
  std::array<SlotState::Kind, SlotState::kKinds> kinds{};
  for (std::size_t i = 0; i < kinds.size(); ++i) {
    kinds[i] = static_cast<SlotState::Kind>(i);
  }
  return kinds;
}();

// All visible state of a slot, to find out whether anything changed.
struct SlotView {
  explicit SlotView(const ExternallyManagedDeviceSlot& slot)
      : state(slot.state()),
        computed(slot.computed_tokens()),
        in_flight(slot.operations_in_flight()),
        blocks(slot.device_blocks().begin(), slot.device_blocks().end()),
        content(slot.sequence().tokens().begin(), slot.sequence().tokens().end()) {}
  friend bool operator==(const SlotView&, const SlotView&) = default;

  SlotState state;
  std::size_t computed;
  std::size_t in_flight;
  std::vector<BlockId> blocks;
  std::vector<Token> content;
};

}  // namespace cairn::testing
