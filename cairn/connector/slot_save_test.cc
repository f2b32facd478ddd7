// When blocks are offered to be saved: chunks, decoding, draft tokens; and invalid iterations and arguments.
#include "cairn/connector/slot_testing.h"

namespace cairn {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)

std::vector<std::size_t> saved_blocks(ExternallyManagedDeviceSlot& slot) {
  std::vector<std::size_t> blocks;
  for (const Operation& save : saves_of(take_operations(slot))) {
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

TEST(SlotSaveTest, WhatTheEngineHadIsOfferedIfItMayHaveBeenRejected) {
  ExternallyManagedDeviceSlot slot = new_slot(18);
  slot.offer_cached_blocks();
  CAIRN_SLOT_OK(slot.append_mutable_device_blocks(device_blocks(5)));
  CAIRN_SLOT_OK(slot.advance_computed_position(10));
  EXPECT_EQ(saved_blocks(slot), Blocks({})) << "not before the request has run";
  CAIRN_SLOT_OK(slot.mark_as_scheduled(1));
  CAIRN_SLOT_OK(slot.advance_computed_position(8));
  const std::vector<Operation> saves = saves_of(take_operations(slot));
  ASSERT_EQ(saves.size(), 1U);
  EXPECT_EQ(saves[0].first_block, 0U);
  EXPECT_EQ(saves[0].keys.size(), 4U);
  EXPECT_EQ(saves[0].parent, std::nullopt);
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
  const auto saves = saves_of(take_operations(slot));
  ASSERT_EQ(saves.size(), 1);
  CAIRN_SLOT_OK(slot.retreat_computed_position(18 - 9));
  EXPECT_EQ(slot.computed_tokens(), 9);
  EXPECT_EQ(slot.state(), SlotState::not_scheduled());
  EXPECT_EQ(ids_of(take_operations(slot).fence), std::vector{saves[0].id})
      << "the engine writes to blocks that the save reads";
  EXPECT_TRUE(slot.pending_operations().empty());

  CAIRN_SLOT_OK(slot.mark_as_scheduled(2));
  EXPECT_EQ(slot.state(), SlotState::prefilling());
  CAIRN_SLOT_OK(slot.advance_computed_position(9));
  EXPECT_FALSE(slot.pending_operations().empty());
  EXPECT_EQ(saved_blocks(slot), Blocks({2, 3}));
}

TEST(SlotSaveTest, SavesThatWereNotTakenAreWithdrawnIfBlocksAreComputedAgain) {
  ExternallyManagedDeviceSlot slot = new_slot(18);
  ASSERT_NO_FATAL_FAILURE(prefill(slot, 1));
  CAIRN_SLOT_OK(slot.retreat_computed_position(18 - 9));
  EXPECT_EQ(slot.operations_in_flight(), 1);
  CAIRN_SLOT_OK(slot.retreat_computed_position(2));
  EXPECT_EQ(saved_blocks(slot), Blocks({0})) << "of blocks whose tokens are still computed";
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

  // The tokens that replace the others fill block 2 anew.
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
  const auto names = [&](std::size_t first, std::size_t count) {
    EngineBlockNames some;
    for (std::size_t i = first; i < first + count; ++i) {
      some.append({.keys = {named.keys()[i]}, .event_hashes = {BlockHash{100 + i}}});
    }
    return some;
  };
  ExternallyManagedDeviceSlot slot(1, *TokenBlockSequence::create_adopting(tokens(18), kBlockSize, hasher));
  EXPECT_TRUE(slot.keys_to_match(0).empty());
  CAIRN_SLOT_OK(slot.append_block_names(names(0, 2)));
  EXPECT_EQ(slot.keys_to_match(0).size(), 2);
  ASSERT_NO_FATAL_FAILURE(prefill(slot, 1));
  EXPECT_EQ(saved_blocks(slot), Blocks({0, 1}));
  CAIRN_SLOT_OK(slot.append_block_names(names(2, 2)));
  EXPECT_EQ(saved_blocks(slot), Blocks({2, 3}));
  EXPECT_EQ(slot.sequence().block_hashes()[3], BlockHash{103}) << "events name the block as the engine's do";
  EXPECT_TRUE(is_invalid_operation(slot.append_block_names(names(0, 1)))) << "block 4 is not full";
}

// --- in-step saves ---

TEST(SlotSaveTest, AnInStepSaveHasTheBlocksThatTheIterationFills) {
  ExternallyManagedDeviceSlot slot = new_slot(18);
  CAIRN_SLOT_OK(slot.append_mutable_device_blocks(device_blocks(5)));
  CAIRN_SLOT_OK(slot.mark_as_scheduled(1));
  EXPECT_FALSE(slot.offer_in_step_save(11, 3)) << "it fills two";
  EXPECT_TRUE(slot.offer_in_step_save(11, 2));
  EXPECT_TRUE(slot.has_in_step_save());
  const auto saves = saves_of(take_operations(slot));
  ASSERT_EQ(saves.size(), 1U);
  EXPECT_TRUE(saves[0].in_step);
  EXPECT_EQ(saves[0].block_ids, device_blocks(2));
  // Computed as announced: it stands, and is not offered again.
  CAIRN_SLOT_OK(slot.advance_computed_position(11));
  const Slot::SettledSave settled = slot.settle_in_step_save(slot.computed_tokens());
  EXPECT_EQ(settled.save->id, saves[0].id);
  EXPECT_EQ(settled.confirmed, 2U);
  EXPECT_FALSE(slot.has_in_step_save());
  EXPECT_TRUE(slot.pending_operations().empty());
  EXPECT_FALSE(slot.offer_in_step_save(100, 3)) << "18 tokens fill two more";
  EXPECT_TRUE(slot.offer_in_step_save(100, 2));
}

// Asynchronous scheduling: the last token of a block becomes known after the iteration that computes it was built.
TEST(SlotSaveTest, ABlockThatIsFullWhenTheSaveIsSettledIsOfferedOnce) {
  ExternallyManagedDeviceSlot slot = new_slot(11);
  CAIRN_SLOT_OK(slot.append_mutable_device_blocks(device_blocks(5)));
  CAIRN_SLOT_OK(slot.mark_as_scheduled(1));
  ASSERT_TRUE(slot.offer_in_step_save(12, 1));
  EXPECT_EQ(saved_blocks(slot), (Blocks{0, 1}));
  CAIRN_SLOT_OK(slot.append_tokens(tokens(1)));
  CAIRN_SLOT_OK(slot.advance_computed_position(12));
  EXPECT_EQ(slot.settle_in_step_save(slot.computed_tokens()).confirmed, 2U);
  EXPECT_EQ(saved_blocks(slot), Blocks{2});
  CAIRN_SLOT_OK(slot.append_tokens(tokens(4)));
  CAIRN_SLOT_OK(slot.advance_computed_position(4));
  EXPECT_EQ(saved_blocks(slot), Blocks{3});
}

TEST(SlotSaveTest, BlocksThatWereNotComputedAreOfferedAgain) {
  ExternallyManagedDeviceSlot slot = new_slot(18);
  CAIRN_SLOT_OK(slot.append_mutable_device_blocks(device_blocks(5)));
  CAIRN_SLOT_OK(slot.mark_as_scheduled(1));
  ASSERT_TRUE(slot.offer_in_step_save(16, 1));
  (void)take_operations(slot);
  CAIRN_SLOT_OK(slot.advance_computed_position(9));
  EXPECT_EQ(slot.settle_in_step_save(slot.computed_tokens()).confirmed, 2U);
  EXPECT_TRUE(slot.pending_operations().empty());
  CAIRN_SLOT_OK(slot.advance_computed_position(7));
  const auto saves = saves_of(take_operations(slot));
  ASSERT_EQ(saves.size(), 1U);
  EXPECT_FALSE(saves[0].in_step);
  EXPECT_EQ(saves[0].first_block, 2U);
  EXPECT_EQ(saves[0].block_ids.size(), 2U);
}

TEST(SlotSaveTest, DraftTokensAndMissingDeviceBlocksAreNotSavedInTheStep) {
  ExternallyManagedDeviceSlot slot = new_slot(10);
  CAIRN_SLOT_OK(slot.append_mutable_device_blocks(device_blocks(2)));
  CAIRN_SLOT_OK(slot.mark_as_scheduled(1));
  CAIRN_SLOT_OK(slot.append_draft_tokens(tokens(4)));
  EXPECT_TRUE(slot.offer_in_step_save(14, 2)) << "10 tokens are certain";
  EXPECT_EQ(saves_of(take_operations(slot))[0].block_ids.size(), 2U);
  ExternallyManagedDeviceSlot short_of_blocks = new_slot(16);
  CAIRN_SLOT_OK(short_of_blocks.append_mutable_device_blocks(device_blocks(2)));
  CAIRN_SLOT_OK(short_of_blocks.mark_as_scheduled(1));
  EXPECT_FALSE(short_of_blocks.offer_in_step_save(16, 3));
}

// A step that failed: the engine computes the same tokens again, into the same blocks or, after a preemption, into others.
TEST(SlotSaveTest, AnInStepSaveOfAStepThatFailedIsSettledAndFencedWhereBlocksAreUsedAgain) {
  ExternallyManagedDeviceSlot slot = new_slot(18);
  CAIRN_SLOT_OK(slot.append_mutable_device_blocks(device_blocks(5)));
  CAIRN_SLOT_OK(slot.mark_as_scheduled(1));
  ASSERT_TRUE(slot.offer_in_step_save(16, 1));
  const OperationId id = take_operations(slot).start[0]->id;
  EXPECT_EQ(slot.settle_in_step_save(0).confirmed, 0U);
  CAIRN_SLOT_OK(slot.mark_as_not_scheduled(2));
  CAIRN_SLOT_OK(slot.preempt(2));
  EXPECT_EQ(ids_of(take_operations(slot).fence), std::vector{id}) << "a rank may still read the blocks";
  CAIRN_SLOT_OK(slot.append_mutable_device_blocks(device_blocks(5, 30)));
  CAIRN_SLOT_OK(slot.mark_as_scheduled(3));
  CAIRN_SLOT_OK(slot.advance_computed_position(16));
  EXPECT_EQ(saves_of(take_operations(slot))[0].block_ids, device_blocks(4, 30));
  CAIRN_SLOT_OK(slot.offload_done(id));
}

// The iteration could not be built: nobody was given the save.
TEST(SlotSaveTest, AnInStepSaveThatWasNotTakenIsWithdrawn) {
  ExternallyManagedDeviceSlot slot = new_slot(18);
  CAIRN_SLOT_OK(slot.append_mutable_device_blocks(device_blocks(5)));
  CAIRN_SLOT_OK(slot.mark_as_scheduled(1));
  ASSERT_TRUE(slot.offer_in_step_save(16, 1));
  const Slot::SettledSave settled = slot.settle_in_step_save(16);
  EXPECT_EQ(settled.confirmed, 0U);
  EXPECT_TRUE(settled.save->block_ids.empty());
  EXPECT_TRUE(slot.pending_operations().empty());
  EXPECT_EQ(slot.operations_in_flight(), 0U);
  CAIRN_SLOT_OK(slot.advance_computed_position(16));
  EXPECT_EQ(saves_of(take_operations(slot))[0].block_ids.size(), 4U);
}

}  // namespace
}  // namespace cairn
