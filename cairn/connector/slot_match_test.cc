// Matching and loading: which keys are looked up, what is staged, and what a load brings.
#include "cairn/connector/slot_testing.h"

namespace cairn {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)

TEST(SlotMatchTest, AsksForFullBlocksAfterTheEnginesOwn) {
  const ExternallyManagedDeviceSlot slot = new_slot(18);
  EXPECT_EQ(slot.keys_to_match(0).size(), 4);
  const auto rest = slot.keys_to_match(8);
  ASSERT_EQ(rest.size(), 2);
  EXPECT_EQ(rest[0], slot.sequence().keys()[2]);
  EXPECT_TRUE(slot.keys_to_match(16).empty());
  EXPECT_TRUE(slot.keys_to_match(7).empty()) << "inside a block";
  EXPECT_TRUE(slot.keys_to_match(400).empty());
}

TEST(SlotMatchTest, OfAPromptOfWholeBlocksOneTokenStaysToBeComputed) {
  ExternallyManagedDeviceSlot slot = new_slot(16);
  EXPECT_EQ(slot.keys_to_match(0).size(), 3) << "the last block holds the token that is computed";
  EXPECT_TRUE(slot.keys_to_match(12).empty());
  EXPECT_TRUE(is_invalid_operation(slot.acquire_all_local_matches(0, 4)));
  CAIRN_SLOT_OK(slot.acquire_all_local_matches(0, 3));
  CAIRN_SLOT_OK(slot.append_mutable_device_blocks(device_blocks(4)));
  CAIRN_SLOT_OK(slot.mark_as_scheduled(1));
  const auto loads = loads_of(take_operations(slot));
  ASSERT_EQ(loads.size(), 1);
  CAIRN_SLOT_OK(slot.onboard_done(loads[0].id, 3));
  EXPECT_EQ(slot.computed_tokens(), 12);
  EXPECT_TRUE(is_invalid_operation(slot.mark_as_decoding(2)));
  CAIRN_SLOT_OK(slot.mark_as_scheduled(2));
  EXPECT_EQ(slot.state(), SlotState::prefilling());

  EXPECT_TRUE(new_slot(1).keys_to_match(0).empty());
  EXPECT_TRUE(new_slot(4).keys_to_match(0).empty());
  EXPECT_EQ(new_slot(5).keys_to_match(0).size(), 1);
}

TEST(SlotMatchTest, TheEngineCannotHaveAllOfAPromptEither) {
  ExternallyManagedDeviceSlot slot = new_slot(16);
  CAIRN_SLOT_OK(slot.append_mutable_device_blocks(device_blocks(4)));
  EXPECT_TRUE(is_invalid_operation(slot.advance_computed_position(16)));
  EXPECT_EQ(slot.computed_tokens(), 0);
  CAIRN_SLOT_OK(slot.advance_computed_position(15));
}

TEST(SlotMatchTest, StagesGivesOutAndCountsWhatCame) {
  ExternallyManagedDeviceSlot slot = new_slot(18);
  CAIRN_SLOT_OK(slot.acquire_all_local_matches(4, 2));
  EXPECT_EQ(slot.state(), SlotState::onboard_staged(8));
  EXPECT_TRUE(take_operations(slot).empty()) << "nothing is loaded before it is scheduled";

  CAIRN_SLOT_OK(slot.append_mutable_device_blocks(device_blocks(5)));
  CAIRN_SLOT_OK(slot.advance_computed_position(4));
  CAIRN_SLOT_OK(slot.mark_as_onboarding(7));
  EXPECT_EQ(slot.state(), SlotState::onboarding(7));
  const auto loads = loads_of(take_operations(slot));
  ASSERT_EQ(loads.size(), 1);
  EXPECT_EQ(loads[0].first_block, 1);
  EXPECT_EQ(loads[0].keys, std::vector<BlockKey>({slot.sequence().keys()[1], slot.sequence().keys()[2]}));
  EXPECT_EQ(loads[0].block_ids, device_blocks(2, 11));
  EXPECT_EQ(slot.computed_tokens(), 4) << "blocks do not count before the load has ended";

  EXPECT_TRUE(is_invalid_operation(slot.onboard_done(loads[0].id, 3)));
  CAIRN_SLOT_OK(slot.onboard_done(loads[0].id, 2));
  EXPECT_EQ(slot.state(), SlotState::not_scheduled());
  EXPECT_EQ(slot.computed_tokens(), 12);
  EXPECT_TRUE(is_invalid_operation(slot.onboard_done(loads[0].id, 2))) << "reported twice";
}

TEST(SlotMatchTest, ALoadNeedsDeviceBlocksAndTheEnginesTokens) {
  ExternallyManagedDeviceSlot slot = new_slot(18);
  CAIRN_SLOT_OK(slot.acquire_all_local_matches(4, 2));
  EXPECT_TRUE(is_invalid_operation(slot.mark_as_onboarding(1)));
  CAIRN_SLOT_OK(slot.append_mutable_device_blocks(device_blocks(2)));
  CAIRN_SLOT_OK(slot.advance_computed_position(4));
  EXPECT_TRUE(is_invalid_operation(slot.mark_as_onboarding(1)));
  EXPECT_TRUE(is_invalid_operation(slot.advance_computed_position(1))) << "into blocks that are to be loaded";
  CAIRN_SLOT_OK(slot.append_mutable_device_blocks(device_blocks(1, 12)));
  CAIRN_SLOT_OK(slot.mark_as_onboarding(1));
}

TEST(SlotMatchTest, WhatFellShortIsComputedAndSaved) {
  ExternallyManagedDeviceSlot slot = new_slot(18);
  CAIRN_SLOT_OK(slot.acquire_all_local_matches(0, 4));
  CAIRN_SLOT_OK(slot.append_mutable_device_blocks(device_blocks(5)));
  CAIRN_SLOT_OK(slot.mark_as_onboarding(1));
  const auto loads = loads_of(take_operations(slot));
  CAIRN_SLOT_OK(slot.onboard_done(loads.at(0).id, 1));
  EXPECT_EQ(slot.computed_tokens(), 4);
  EXPECT_TRUE(slot.keys_to_match(4).empty()) << "it would be looked up again and again";

  CAIRN_SLOT_OK(slot.mark_as_prefilling(2));
  CAIRN_SLOT_OK(slot.advance_computed_position(14));
  const auto saves = saves_of(take_operations(slot));
  ASSERT_EQ(saves.size(), 1);
  EXPECT_EQ(saves[0].first_block, 1) << "what was loaded is not saved again";
  EXPECT_EQ(saves[0].block_ids, device_blocks(3, 11));
}

TEST(SlotMatchTest, MatchesAgainUntilItIsScheduled) {
  ExternallyManagedDeviceSlot slot = new_slot(18);
  CAIRN_SLOT_OK(slot.acquire_all_local_matches(0, 0));
  EXPECT_EQ(slot.state(), SlotState::initialized());
  CAIRN_SLOT_OK(slot.acquire_all_local_matches(0, 4));
  CAIRN_SLOT_OK(slot.acquire_all_local_matches(8, 1));
  EXPECT_EQ(slot.state(), SlotState::onboard_staged(4));
  CAIRN_SLOT_OK(slot.acquire_all_local_matches(8, 0));
  EXPECT_EQ(slot.state(), SlotState::not_scheduled());
  CAIRN_SLOT_OK(slot.acquire_all_local_matches(0, 2));
  EXPECT_EQ(slot.state(), SlotState::onboard_staged(8));
  CAIRN_SLOT_OK(slot.mark_as_prefilling(1));
  EXPECT_EQ(slot.state(), SlotState::prefilling()) << "computed instead";
}

TEST(SlotMatchTest, WhatThePoolsAnsweredIsPassedOn) {
  ExternallyManagedDeviceSlot slot = new_slot(18);
  const Status status = slot.acquire_all_local_matches(0, fail(ErrorCode::kUnavailable, "no tier"));
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(status.error().message, "no tier");
  EXPECT_EQ(slot.state(), SlotState::initialized());
}

}  // namespace
}  // namespace cairn
