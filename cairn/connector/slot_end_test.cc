// Preemption, resuming, finishing and aborting, while operations are in flight and not.
#include "cairn/connector/slot_testing.h"

namespace cairn {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)

TEST(SlotPreemptTest, TakesEverythingFromTheDeviceAndFencesSaves) {
  ExternallyManagedDeviceSlot slot = new_slot(18);
  ASSERT_NO_FATAL_FAILURE(prefill(slot, 1));
  const auto saves = saves_of(take_operations(slot));
  ASSERT_EQ(saves.size(), 1);
  CAIRN_SLOT_OK(slot.append_tokens(tokens(2, 500)));
  CAIRN_SLOT_OK(slot.mark_as_decoding(2));
  CAIRN_SLOT_OK(slot.advance_computed_position(2));  // block 4, not taken yet

  CAIRN_SLOT_OK(slot.preempt(3));
  EXPECT_EQ(slot.state(), SlotState::not_scheduled());
  EXPECT_EQ(slot.computed_tokens(), 0);
  EXPECT_EQ(slot.num_device_blocks_allocated(), 0);
  EXPECT_EQ(slot.sequence().size(), 20);
  const SlotOperations operations = take_operations(slot);
  ASSERT_EQ(operations.start.size(), 1) << "the save that was not taken";
  EXPECT_FALSE(operations.start[0]->is_load);
  EXPECT_EQ(ids_of(operations.fence), std::vector<OperationId>({saves[0].id, operations.start[0]->id}));
}

TEST(SlotPreemptTest, WithoutSavesThereIsNoFence) {
  ExternallyManagedDeviceSlot slot = new_slot(3);
  ASSERT_NO_FATAL_FAILURE(prefill(slot, 1));
  CAIRN_SLOT_OK(slot.preempt(2));
  EXPECT_TRUE(take_operations(slot).empty());
}

TEST(SlotPreemptTest, ResumesWithFewerBlocksByLoadingAndComputing) {
  ExternallyManagedDeviceSlot slot = new_slot(18);
  ASSERT_NO_FATAL_FAILURE(prefill(slot, 1));
  CAIRN_SLOT_OK(slot.append_tokens(tokens(3, 500)));
  CAIRN_SLOT_OK(slot.preempt(2));
  for (const Operation& save : saves_of(take_operations(slot))) {
    CAIRN_SLOT_OK(slot.offload_done(save.id));
  }

  // The tokens that it generated are known now: all of 21 tokens but the last can be matched.
  EXPECT_EQ(slot.keys_to_match(0).size(), 5);
  CAIRN_SLOT_OK(slot.acquire_all_local_matches(4, 2));
  CAIRN_SLOT_OK(slot.append_mutable_device_blocks(device_blocks(4, 50)));
  CAIRN_SLOT_OK(slot.advance_computed_position(4));
  CAIRN_SLOT_OK(slot.mark_as_scheduled(3));
  const auto loads = loads_of(take_operations(slot));
  ASSERT_EQ(loads.size(), 1);
  EXPECT_EQ(loads[0].block_ids, device_blocks(2, 51));
  CAIRN_SLOT_OK(slot.onboard_done(loads[0].id, 2));

  CAIRN_SLOT_OK(slot.mark_as_scheduled(4));
  EXPECT_EQ(slot.state(), SlotState::prefilling());
  EXPECT_TRUE(is_invalid_operation(slot.advance_computed_position(9))) << "it has four blocks, not the eight it had";
  CAIRN_SLOT_OK(slot.advance_computed_position(4));
  const auto saves = saves_of(take_operations(slot));
  ASSERT_EQ(saves.size(), 1);
  EXPECT_EQ(saves[0].first_block, 3);
  EXPECT_EQ(saves[0].block_ids, device_blocks(1, 53));

  CAIRN_SLOT_OK(slot.append_mutable_device_blocks(device_blocks(2, 70)));
  CAIRN_SLOT_OK(slot.mark_as_scheduled(5));
  EXPECT_EQ(slot.state(), SlotState::prefilling()) << "its own tokens are computed again, too";
  CAIRN_SLOT_OK(slot.advance_computed_position(5));
  CAIRN_SLOT_OK(slot.mark_as_scheduled(6));
  EXPECT_EQ(slot.state(), SlotState::decoding());
}

TEST(SlotPreemptTest, TakesDraftTokensBackAndLateTokensIn) {
  ExternallyManagedDeviceSlot slot = new_slot(7);
  ASSERT_NO_FATAL_FAILURE(prefill(slot, 1));
  CAIRN_SLOT_OK(slot.append_draft_tokens(tokens(3, 600)));
  CAIRN_SLOT_OK(slot.preempt(2));
  EXPECT_EQ(slot.sequence().size(), 7);
  EXPECT_TRUE(is_invalid_operation(slot.settle_draft_tokens(1)));
  EXPECT_TRUE(is_invalid_operation(slot.append_draft_tokens(tokens(1))));
  CAIRN_SLOT_OK(slot.append_tokens(tokens(1, 500)));  // of the iteration before
  CAIRN_SLOT_OK(slot.append_mutable_device_blocks(device_blocks(2)));
  CAIRN_SLOT_OK(slot.mark_as_scheduled(3));
  CAIRN_SLOT_OK(slot.advance_computed_position(7));
  CAIRN_SLOT_OK(slot.mark_as_scheduled(4));
  EXPECT_EQ(slot.state(), SlotState::prefilling()) << "the late token is computed, too";
}

TEST(SlotPreemptTest, ALoadIsNotPreempted) {
  ExternallyManagedDeviceSlot slot = new_slot(16);
  ASSERT_NO_FATAL_FAILURE(bring_to(SlotState::Kind::kOnboarding, slot));
  const SlotView before(slot);
  EXPECT_TRUE(is_invalid_operation(slot.preempt(2)));
  EXPECT_TRUE(is_invalid_operation(slot.mark_as_not_scheduled(2)));
  EXPECT_EQ(SlotView(slot), before);
}

TEST(SlotPreemptTest, AShortLoadMayBeTriedAgainAfterwards) {
  ExternallyManagedDeviceSlot slot = new_slot(16);
  ASSERT_NO_FATAL_FAILURE(bring_to(SlotState::Kind::kOnboarding, slot));
  CAIRN_SLOT_OK(slot.onboard_done({1, 0}, 0));
  EXPECT_TRUE(slot.keys_to_match(0).empty());
  CAIRN_SLOT_OK(slot.preempt(2));
  EXPECT_EQ(slot.keys_to_match(0).size(), 3);
}

TEST(SlotFinishTest, IsFinishingUntilTheLastSaveHasEnded) {
  ExternallyManagedDeviceSlot slot = new_slot(18);
  ASSERT_NO_FATAL_FAILURE(prefill(slot, 1));
  const auto first = saves_of(take_operations(slot));
  CAIRN_SLOT_OK(slot.append_tokens(tokens(2, 500)));
  CAIRN_SLOT_OK(slot.mark_as_decoding(2));
  CAIRN_SLOT_OK(slot.advance_computed_position(2));
  CAIRN_SLOT_OK(slot.mark_as_finished(3));
  EXPECT_EQ(slot.state(), SlotState::finishing());
  EXPECT_EQ(slot.num_device_blocks_allocated(), 8) << "the saves read them";

  // The last block was computed before the end: its save is still returned.
  const auto last = saves_of(take_operations(slot));
  ASSERT_EQ(last.size(), 1);
  EXPECT_EQ(last[0].first_block, 4);
  CAIRN_SLOT_OK(slot.offload_done(last[0].id));
  EXPECT_EQ(slot.state(), SlotState::finishing());
  EXPECT_TRUE(is_invalid_operation(slot.offload_done(last[0].id))) << "reported twice";
  CAIRN_SLOT_OK(slot.offload_done(first.at(0).id));
  EXPECT_EQ(slot.state(), SlotState::finished());
  EXPECT_EQ(slot.num_device_blocks_allocated(), 0);
}

TEST(SlotFinishTest, ASaveThatWasNotTakenHasNotEnded) {
  ExternallyManagedDeviceSlot slot = new_slot(18);
  ASSERT_NO_FATAL_FAILURE(prefill(slot, 1));
  EXPECT_TRUE(is_invalid_operation(slot.offload_done({1, 0})));
  CAIRN_SLOT_OK(slot.mark_as_finished(2));
  EXPECT_EQ(slot.state(), SlotState::finishing());
}

TEST(SlotFinishTest, AnAbortedLoadIsCancelledAndWaitedFor) {
  ExternallyManagedDeviceSlot slot = new_slot(16);
  ASSERT_NO_FATAL_FAILURE(bring_to(SlotState::Kind::kOnboarding, slot));
  CAIRN_SLOT_OK(slot.mark_as_finished(2));
  EXPECT_EQ(slot.state(), SlotState::finishing()) << "it writes to the device blocks";
  EXPECT_EQ(slot.num_device_blocks_allocated(), 4);
  const std::vector<OperationPtr> cancelled = take_operations(slot).cancel;
  ASSERT_EQ(cancelled.size(), 1);
  CAIRN_SLOT_OK(slot.onboard_done(cancelled[0]->id, 1));
  EXPECT_EQ(slot.state(), SlotState::finished());
  EXPECT_EQ(slot.computed_tokens(), 0);
}

TEST(SlotFinishTest, ALoadThatWasNotTakenIsWithdrawn) {
  ExternallyManagedDeviceSlot slot = new_slot(16);
  CAIRN_SLOT_OK(slot.acquire_all_local_matches(0, 2));
  CAIRN_SLOT_OK(slot.append_mutable_device_blocks(device_blocks(4)));
  CAIRN_SLOT_OK(slot.mark_as_onboarding(1));
  CAIRN_SLOT_OK(slot.mark_as_finished(1));
  EXPECT_EQ(slot.state(), SlotState::finished());
  EXPECT_TRUE(take_operations(slot).empty());
}

TEST(SlotFinishTest, AbortInEveryStateLeavesNothingOnceItsCopiesHaveEnded) {
  for (const SlotState::Kind kind : kAllKinds) {
    SCOPED_TRACE(to_string(kind));
    ExternallyManagedDeviceSlot slot = new_slot(16);
    ASSERT_NO_FATAL_FAILURE(bring_to(kind, slot));
    const bool is_over = kind == SlotState::Kind::kFinishing || kind == SlotState::Kind::kFinished;
    EXPECT_EQ(slot.mark_as_finished(9).has_value(), !is_over);
    EXPECT_TRUE(loads_of(take_operations(slot)).empty()) << "nothing new is loaded";
    // Each of those slots has at most one copy, its first.
    const bool has_copy = slot.operations_in_flight() == 1;
    EXPECT_EQ(has_copy, slot.state() == SlotState::finishing());
    if (has_copy) {
      CAIRN_SLOT_OK(kind == SlotState::Kind::kOnboarding ? slot.onboard_done({1, 0}, 2) : slot.offload_done({1, 0}));
    }
    EXPECT_EQ(slot.state(), SlotState::finished());
    EXPECT_EQ(slot.operations_in_flight(), 0);
    EXPECT_EQ(slot.num_device_blocks_allocated(), 0);
  }
}

TEST(SlotFinishTest, SavesFromBeforeAPreemptionAreWaitedForInEveryState) {
  for (const bool is_staged : {false, true}) {
    ExternallyManagedDeviceSlot slot = new_slot(18);
    ASSERT_NO_FATAL_FAILURE(prefill(slot, 1));
    CAIRN_SLOT_OK(slot.preempt(2));
    const auto saves = saves_of(take_operations(slot));
    if (is_staged) {
      CAIRN_SLOT_OK(slot.acquire_all_local_matches(0, 2));
    }
    CAIRN_SLOT_OK(slot.mark_as_finished(3));
    EXPECT_EQ(slot.state(), SlotState::finishing());
    CAIRN_SLOT_OK(slot.offload_done(saves.at(0).id));
    EXPECT_EQ(slot.state(), SlotState::finished());
  }
}

}  // namespace
}  // namespace cairn
