// When blocks are offered to be saved: chunks, decoding, guesses; and iterations and arguments that make no sense.
#include "cairn/connector/slot_testing.h"

namespace cairn {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)

std::vector<std::size_t> saved_blocks(ExternallyManagedDeviceSlot& slot) {
  std::vector<std::size_t> blocks;
  for (const OffloadOperation& save : only<OffloadOperation>(slot.take_pending_operations())) {
    for (std::size_t i = 0; i < save.keys.size(); ++i) {
      EXPECT_EQ(save.keys[i], slot.sequence().keys()[save.first_block + i]);
      EXPECT_EQ(save.slots[i], slot.device_blocks()[save.first_block + i]);
      blocks.push_back(save.first_block + i);
    }
  }
  return blocks;
}
using Blocks = std::vector<std::size_t>;

TEST(SlotSaveTest, ChunkedPrefillOffersBlocksAsTheyAreComputed) {
  ExternallyManagedDeviceSlot slot = new_slot(18);
  CAIRN_SLOT_OK(slot.append_mutable_device_blocks(device_blocks(2)));
  CAIRN_SLOT_OK(slot.mark_as_scheduled(1));
  EXPECT_EQ(saved_blocks(slot), Blocks({})) << "full, but not computed";
  CAIRN_SLOT_OK(slot.advance_computed_position(6));
  EXPECT_EQ(saved_blocks(slot), Blocks({0}));

  EXPECT_TRUE(is_invalid_operation(slot.advance_computed_position(4))) << "there are two device blocks";
  CAIRN_SLOT_OK(slot.append_mutable_device_blocks(device_blocks(3, 20)));
  CAIRN_SLOT_OK(slot.mark_as_scheduled(2));
  EXPECT_EQ(slot.state(), SlotState::prefilling());
  EXPECT_TRUE(is_invalid_operation(slot.mark_as_decoding(2)));
  CAIRN_SLOT_OK(slot.advance_computed_position(5));
  EXPECT_EQ(saved_blocks(slot), Blocks({1}));
  CAIRN_SLOT_OK(slot.mark_as_scheduled(3));
  CAIRN_SLOT_OK(slot.advance_computed_position(7));
  EXPECT_EQ(saved_blocks(slot), Blocks({2, 3}));

  EXPECT_TRUE(is_invalid_operation(slot.mark_as_prefilling(4)));
  CAIRN_SLOT_OK(slot.append_tokens(tokens(1, 500)));
  CAIRN_SLOT_OK(slot.mark_as_scheduled(4));
  EXPECT_EQ(slot.state(), SlotState::decoding());
}

TEST(SlotSaveTest, ABlockIsOfferedWhenItsLastTokenIsComputedNotWhenItIsAppended) {
  ExternallyManagedDeviceSlot slot = new_slot(7);
  ASSERT_NO_FATAL_FAILURE(prefill(slot, 1));
  EXPECT_EQ(saved_blocks(slot), Blocks({0}));
  CAIRN_SLOT_OK(slot.append_tokens(tokens(1, 500)));  // fills block 1
  CAIRN_SLOT_OK(slot.mark_as_decoding(2));
  EXPECT_EQ(slot.sequence().block_count(), 2);
  EXPECT_EQ(saved_blocks(slot), Blocks({}));
  CAIRN_SLOT_OK(slot.advance_computed_position(1));
  EXPECT_EQ(saved_blocks(slot), Blocks({1}));
}

TEST(SlotSaveTest, WhatTheEngineHadIsNotOffered) {
  ExternallyManagedDeviceSlot slot = new_slot(18);
  CAIRN_SLOT_OK(slot.append_mutable_device_blocks(device_blocks(5)));
  CAIRN_SLOT_OK(slot.advance_computed_position(10));
  CAIRN_SLOT_OK(slot.mark_as_scheduled(1));
  CAIRN_SLOT_OK(slot.advance_computed_position(8));
  EXPECT_EQ(saved_blocks(slot), Blocks({2, 3}));
}

TEST(SlotSaveTest, BlocksOfASkippedIterationAreOfferedAllTheSame) {
  ExternallyManagedDeviceSlot slot = new_slot(18);
  CAIRN_SLOT_OK(slot.append_mutable_device_blocks(device_blocks(5)));
  CAIRN_SLOT_OK(slot.mark_as_scheduled(1));
  CAIRN_SLOT_OK(slot.mark_as_not_scheduled(2));
  CAIRN_SLOT_OK(slot.advance_computed_position(8));  // the result of iteration 1
  EXPECT_EQ(saved_blocks(slot), Blocks({0, 1}));
}

TEST(SlotSaveTest, WhatIsComputedAgainIsOfferedAgainAndItsSavesAreFenced) {
  ExternallyManagedDeviceSlot slot = new_slot(18);
  ASSERT_NO_FATAL_FAILURE(prefill(slot, 1));
  const auto saves = only<OffloadOperation>(slot.take_pending_operations());
  ASSERT_EQ(saves.size(), 1);
  CAIRN_SLOT_OK(slot.retreat_computed_position(18 - 9));
  EXPECT_EQ(slot.computed_tokens(), 9);
  EXPECT_EQ(slot.state(), SlotState::not_scheduled());
  const auto fences = only<FenceOperation>(slot.take_pending_operations());
  ASSERT_EQ(fences.size(), 1) << "the engine writes to blocks that it reads";
  EXPECT_EQ(fences[0].saves, std::vector{saves[0].id});
  EXPECT_FALSE(slot.has_pending_operations());

  CAIRN_SLOT_OK(slot.mark_as_scheduled(2));
  EXPECT_EQ(slot.state(), SlotState::prefilling());
  CAIRN_SLOT_OK(slot.advance_computed_position(9));
  EXPECT_TRUE(slot.has_pending_operations());
  EXPECT_EQ(saved_blocks(slot), Blocks({2, 3}));
}

TEST(SlotSaveTest, SavesThatNobodyTookAreWithdrawnWithWhatIsComputedAgain) {
  ExternallyManagedDeviceSlot slot = new_slot(18);
  ASSERT_NO_FATAL_FAILURE(prefill(slot, 1));
  CAIRN_SLOT_OK(slot.retreat_computed_position(18 - 9));
  EXPECT_EQ(slot.operations_under_way(), 1);
  CAIRN_SLOT_OK(slot.retreat_computed_position(2));
  EXPECT_EQ(saved_blocks(slot), Blocks({0})) << "of those whose tokens are computed still";
  CAIRN_SLOT_OK(slot.retreat_computed_position(0));
  EXPECT_TRUE(is_invalid_operation(slot.retreat_computed_position(8))) << "more than are computed";
  EXPECT_EQ(slot.computed_tokens(), 7);

  ExternallyManagedDeviceSlot loads = new_slot(18);
  ASSERT_NO_FATAL_FAILURE(bring_to(SlotState::Kind::kOnboarding, loads));
  EXPECT_TRUE(is_invalid_operation(loads.retreat_computed_position(0))) << "a load is under way";
}

TEST(SlotSaveTest, GuessesAreNotSavedBeforeTheyAreSettled) {
  ExternallyManagedDeviceSlot slot = new_slot(6);
  ASSERT_NO_FATAL_FAILURE(prefill(slot, 1));
  EXPECT_EQ(saved_blocks(slot), Blocks({0}));
  CAIRN_SLOT_OK(slot.append_tokens(tokens(1, 500)));
  CAIRN_SLOT_OK(slot.append_speculative_tokens(tokens(6, 600)));
  CAIRN_SLOT_OK(slot.mark_as_scheduled(2));
  CAIRN_SLOT_OK(slot.advance_computed_position(7));
  EXPECT_EQ(slot.computed_tokens(), 13);
  EXPECT_EQ(saved_blocks(slot), Blocks({})) << "blocks 1 and 2 are computed, of guesses";
  EXPECT_TRUE(is_invalid_operation(slot.append_tokens(tokens(1, 700))));

  EXPECT_TRUE(is_invalid_operation(slot.settle_speculation(7)));
  CAIRN_SLOT_OK(slot.settle_speculation(3));
  EXPECT_EQ(slot.sequence().size(), 10);
  EXPECT_EQ(slot.computed_tokens(), 10);
  EXPECT_EQ(saved_blocks(slot), Blocks({1}));

  // What comes in the place of the others makes block 2 anew.
  CAIRN_SLOT_OK(slot.append_tokens(tokens(2, 700)));
  CAIRN_SLOT_OK(slot.mark_as_scheduled(3));
  EXPECT_EQ(saved_blocks(slot), Blocks({}));
  CAIRN_SLOT_OK(slot.advance_computed_position(2));
  EXPECT_EQ(saved_blocks(slot), Blocks({2}));
  EXPECT_EQ(slot.sequence().tokens()[10], 700);
}

TEST(SlotSaveTest, AllGuessesMayBeTakenBack) {
  ExternallyManagedDeviceSlot slot = new_slot(8);
  ASSERT_NO_FATAL_FAILURE(prefill(slot, 1));
  EXPECT_EQ(saved_blocks(slot), Blocks({0, 1}));
  CAIRN_SLOT_OK(slot.append_speculative_tokens(tokens(4, 600)));
  CAIRN_SLOT_OK(slot.mark_as_scheduled(2));
  CAIRN_SLOT_OK(slot.advance_computed_position(4));
  CAIRN_SLOT_OK(slot.settle_speculation(0));
  EXPECT_EQ(slot.computed_tokens(), 8);
  EXPECT_EQ(slot.sequence().size(), 8);
  EXPECT_EQ(saved_blocks(slot), Blocks({}));
  CAIRN_SLOT_OK(slot.settle_speculation(0));
}

TEST(SlotSaveTest, IterationsDoNotGoBack) {
  ExternallyManagedDeviceSlot slot = new_slot(18);
  CAIRN_SLOT_OK(slot.mark_as_prefilling(5));
  EXPECT_TRUE(is_invalid_operation(slot.mark_as_prefilling(4)));
  EXPECT_TRUE(is_invalid_operation(slot.mark_as_not_scheduled(4)));
  EXPECT_TRUE(is_invalid_operation(slot.preempt(4)));
  EXPECT_TRUE(is_invalid_operation(slot.mark_as_finished(4)));
  EXPECT_EQ(slot.state(), SlotState::prefilling());
  CAIRN_SLOT_OK(slot.mark_as_prefilling(5));
}

TEST(SlotSaveTest, OperationsThatTheStateHasNoUseForAreRefused) {
  using enum SlotState::Kind;
  for (const SlotState::Kind kind : kAllKinds) {
    SCOPED_TRACE(to_string(kind));
    ExternallyManagedDeviceSlot slot = new_slot(16);
    ASSERT_NO_FATAL_FAILURE(bring_to(kind, slot));
    const SlotView before(slot);
    const bool is_over = kind == kFinishing || kind == kFinished;
    const bool runs = kind == kNotScheduled || kind == kPrefilling || kind == kDecoding;
    EXPECT_EQ(is_invalid_operation(slot.advance_computed_position(0)), is_over || kind == kOnboarding);
    EXPECT_EQ(is_invalid_operation(slot.append_mutable_device_blocks({})), is_over);
    EXPECT_EQ(is_invalid_operation(slot.append_tokens({})), !runs);
    EXPECT_EQ(is_invalid_operation(slot.append_speculative_tokens({})), !runs);
    EXPECT_TRUE(is_invalid_operation(slot.append_mutable_device_blocks(std::vector{kNoBlock})));
    EXPECT_TRUE(is_invalid_operation(slot.offload_done({1, 77})));
    EXPECT_TRUE(is_invalid_operation(slot.onboard_done({1, 77}, 0)));
    EXPECT_EQ(SlotView(slot), before);
  }
}

}  // namespace
}  // namespace cairn
