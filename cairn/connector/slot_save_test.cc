// When blocks are offered to be saved: chunks, decoding, draft tokens; and iterations and arguments that make no sense.
#include "cairn/connector/slot_testing.h"

namespace cairn {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)

std::vector<std::size_t> saved_blocks(ExternallyManagedDeviceSlot& slot) {
  std::vector<std::size_t> blocks;
  for (const Operation& save : saves_of(slot.take_pending_operations())) {
    for (std::size_t i = 0; i < save.keys.size(); ++i) {
      EXPECT_EQ(save.keys[i], slot.sequence().keys()[save.first_block + i]);
      EXPECT_EQ(save.block_ids[i], slot.device_blocks()[save.first_block + i]);
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
  const auto saves = saves_of(slot.take_pending_operations());
  ASSERT_EQ(saves.size(), 1);
  CAIRN_SLOT_OK(slot.retreat_computed_position(18 - 9));
  EXPECT_EQ(slot.computed_tokens(), 9);
  EXPECT_EQ(slot.state(), SlotState::not_scheduled());
  EXPECT_EQ(ids_of(slot.take_pending_operations().fence), std::vector{saves[0].id})
      << "the engine writes to blocks that the save reads";
  EXPECT_TRUE(slot.pending_operations().empty());

  CAIRN_SLOT_OK(slot.mark_as_scheduled(2));
  EXPECT_EQ(slot.state(), SlotState::prefilling());
  CAIRN_SLOT_OK(slot.advance_computed_position(9));
  EXPECT_FALSE(slot.pending_operations().empty());
  EXPECT_EQ(saved_blocks(slot), Blocks({2, 3}));
}

TEST(SlotSaveTest, SavesThatNobodyTookAreWithdrawnWithWhatIsComputedAgain) {
  ExternallyManagedDeviceSlot slot = new_slot(18);
  ASSERT_NO_FATAL_FAILURE(prefill(slot, 1));
  CAIRN_SLOT_OK(slot.retreat_computed_position(18 - 9));
  EXPECT_EQ(slot.operations_in_flight(), 1);
  CAIRN_SLOT_OK(slot.retreat_computed_position(2));
  EXPECT_EQ(saved_blocks(slot), Blocks({0})) << "of those whose tokens are computed still";
  CAIRN_SLOT_OK(slot.retreat_computed_position(0));
  EXPECT_TRUE(is_invalid_operation(slot.retreat_computed_position(8))) << "more than are computed";
  EXPECT_EQ(slot.computed_tokens(), 7);

  ExternallyManagedDeviceSlot loads = new_slot(18);
  ASSERT_NO_FATAL_FAILURE(bring_to(SlotState::Kind::kOnboarding, loads));
  EXPECT_TRUE(is_invalid_operation(loads.retreat_computed_position(0))) << "a load is in flight";
}

TEST(SlotSaveTest, DraftTokensAreNotSavedBeforeTheyAreSettled) {
  ExternallyManagedDeviceSlot slot = new_slot(6);
  ASSERT_NO_FATAL_FAILURE(prefill(slot, 1));
  EXPECT_EQ(saved_blocks(slot), Blocks({0}));
  CAIRN_SLOT_OK(slot.append_tokens(tokens(1, 500)));
  CAIRN_SLOT_OK(slot.append_draft_tokens(tokens(6, 600)));
  CAIRN_SLOT_OK(slot.mark_as_scheduled(2));
  CAIRN_SLOT_OK(slot.advance_computed_position(7));
  EXPECT_EQ(slot.computed_tokens(), 13);
  EXPECT_EQ(saved_blocks(slot), Blocks({})) << "blocks 1 and 2 are computed, of draft tokens";
  EXPECT_TRUE(is_invalid_operation(slot.append_tokens(tokens(1, 700))));

  EXPECT_TRUE(is_invalid_operation(slot.settle_draft_tokens(7)));
  CAIRN_SLOT_OK(slot.settle_draft_tokens(3));
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

TEST(SlotSaveTest, AllDraftTokensMayBeTakenBack) {
  ExternallyManagedDeviceSlot slot = new_slot(8);
  ASSERT_NO_FATAL_FAILURE(prefill(slot, 1));
  EXPECT_EQ(saved_blocks(slot), Blocks({0, 1}));
  CAIRN_SLOT_OK(slot.append_draft_tokens(tokens(4, 600)));
  CAIRN_SLOT_OK(slot.mark_as_scheduled(2));
  CAIRN_SLOT_OK(slot.advance_computed_position(4));
  CAIRN_SLOT_OK(slot.settle_draft_tokens(0));
  EXPECT_EQ(slot.computed_tokens(), 8);
  EXPECT_EQ(slot.sequence().size(), 8);
  EXPECT_EQ(saved_blocks(slot), Blocks({}));
  CAIRN_SLOT_OK(slot.settle_draft_tokens(0));
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
    EXPECT_EQ(is_invalid_operation(slot.append_draft_tokens({})), !runs);
    EXPECT_TRUE(is_invalid_operation(slot.append_mutable_device_blocks(std::vector{kNoBlock})));
    EXPECT_TRUE(is_invalid_operation(slot.offload_done({1, 77})));
    EXPECT_TRUE(is_invalid_operation(slot.onboard_done({1, 77}, 0)));
    EXPECT_EQ(SlotView(slot), before);
  }
}

TEST(SlotSaveTest, ABlockWhoseKeyTheEngineGivesIsOfferedOnceItHasIt) {
  const KeyHasher hasher = KeyHasher::make({.scheme = KeyScheme::kVllm});
  const TokenBlockSequence named = *TokenBlockSequence::create(tokens(16), kBlockSize);
  const std::vector<BlockKey> given(named.keys().begin(), named.keys().end());
  ExternallyManagedDeviceSlot slot(1, *TokenBlockSequence::create_adopting(tokens(18), kBlockSize, hasher));
  EXPECT_TRUE(slot.keys_to_match(0).empty());
  CAIRN_SLOT_OK(slot.append_block_keys(std::span(given).first(2)));
  EXPECT_EQ(slot.keys_to_match(0).size(), 2);
  ASSERT_NO_FATAL_FAILURE(prefill(slot, 1));
  EXPECT_EQ(saved_blocks(slot), Blocks({0, 1}));
  CAIRN_SLOT_OK(slot.append_block_keys(std::span(given).subspan(2)));
  EXPECT_EQ(saved_blocks(slot), Blocks({2, 3}));
  EXPECT_TRUE(is_invalid_operation(slot.append_block_keys(std::span(given).first(1)))) << "block 4 is not full";
}

}  // namespace
}  // namespace cairn
