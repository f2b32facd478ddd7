#include "cairn/connector/slot_manager.h"

#include <gmock/gmock.h>

#include "cairn/connector/slot_testing.h"

namespace cairn {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)

class SlotManagerTest : public ::testing::Test {
 protected:
  ExternallyManagedDeviceSlot* create(const RequestId& id) { return *slots_.create_slot(id, tokens(16)); }

  SlotManager slots_ = *SlotManager::make(kBlockSize, KeyHasher::of_process());
};

TEST_F(SlotManagerTest, MakesFindsAndRemoves) {
  EXPECT_FALSE(slots_.has_slot("a"));
  ExternallyManagedDeviceSlot* text = create("7");
  ExternallyManagedDeviceSlot* number = create(7U);
  EXPECT_NE(text, number);
  EXPECT_EQ(*slots_.get_slot("7"), text);
  EXPECT_EQ(*slots_.get_slot(7U), number);
  EXPECT_EQ(text->state(), SlotState::initialized());
  EXPECT_EQ(text->sequence().block_count(), 4);

  CAIRN_SLOT_OK(text->mark_as_finished(0));
  CAIRN_SLOT_OK(slots_.remove_slot("7"));
  EXPECT_FALSE(slots_.has_slot("7"));
  EXPECT_TRUE(slots_.has_slot(7U));
  EXPECT_EQ(slots_.size(), 1);
}

TEST_F(SlotManagerTest, SaltMakesOtherKeys) {
  ExternallyManagedDeviceSlot* plain = create("plain");
  ExternallyManagedDeviceSlot* salted = *slots_.create_slot("salted", tokens(16), {.salt = "99"});
  ExternallyManagedDeviceSlot* adapted = *slots_.create_slot("adapted", tokens(16), {.lora_name = "99"});
  EXPECT_NE(plain->sequence().keys()[0], salted->sequence().keys()[0]);
  EXPECT_NE(salted->sequence().keys()[0], adapted->sequence().keys()[0]);
  ExternallyManagedDeviceSlot* again = *slots_.create_slot("again", tokens(16), {.salt = "99"});
  EXPECT_EQ(salted->sequence().keys()[0], again->sequence().keys()[0]);
}

TEST_F(SlotManagerTest, ASchemeWithoutKeysForTokensIsRefused) {
  SlotManager slots = *SlotManager::make(kBlockSize, KeyHasher::make({.scheme = KeyScheme::kVllm}));
  const auto slot = slots.create_slot("a", tokens(16));
  ASSERT_FALSE(slot);
  EXPECT_THAT(slot.error().message, ::testing::HasSubstr("scheme vllm"));
  EXPECT_FALSE(slots.has_slot("a"));
}

TEST_F(SlotManagerTest, UnknownRequestsAreNotFound) {
  const auto found = slots_.get_slot("a");
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().code, ErrorCode::kNotFound);
  EXPECT_EQ(found.error().message, "request \"a\" has no slot; create one");
  const Status removed = slots_.remove_slot("a");
  ASSERT_FALSE(removed);
  EXPECT_EQ(removed.error().code, ErrorCode::kNotFound);
}

TEST_F(SlotManagerTest, RefusesWhatMakesNoSlot) {
  EXPECT_FALSE(SlotManager::make(0, KeyHasher::of_process()));
  const auto empty = slots_.create_slot("a", {});
  ASSERT_FALSE(empty);
  EXPECT_EQ(empty.error().code, ErrorCode::kInvalidArgument);
  const MmRun outside{.offset = 20, .length = 4};
  EXPECT_FALSE(slots_.create_slot("a", tokens(16), {}, std::span(&outside, 1)));
  EXPECT_FALSE(slots_.has_slot("a"));
}

TEST_F(SlotManagerTest, AnIdThatIsInUseIsRefusedAndItsRequestContinues) {
  ExternallyManagedDeviceSlot* slot = create("a");
  ASSERT_NO_FATAL_FAILURE(bring_to(SlotState::Kind::kFinishing, *slot));
  const auto again = slots_.create_slot("a", tokens(4));
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code, ErrorCode::kAlreadyExists);
  EXPECT_EQ(*slots_.get_slot("a"), slot);
  EXPECT_EQ(slot->state(), SlotState::finishing());
}

TEST_F(SlotManagerTest, OnlyAFinishedSlotIsRemoved) {
  for (const SlotState::Kind kind : kAllKinds) {
    const RequestId id(static_cast<std::uint64_t>(kind));
    ASSERT_NO_FATAL_FAILURE(bring_to(kind, *create(id)));
    const Status removed = slots_.remove_slot(id);
    EXPECT_EQ(removed.has_value(), kind == SlotState::Kind::kFinished) << to_string(kind);
    EXPECT_EQ(slots_.has_slot(id), kind != SlotState::Kind::kFinished);
    EXPECT_TRUE(removed || is_invalid_operation(removed));
  }
}

TEST_F(SlotManagerTest, OutcomesOfARequestAreNotThoseOfALaterOneWithItsId) {
  ExternallyManagedDeviceSlot* first = create("a");
  ASSERT_NO_FATAL_FAILURE(prefill(*first, 1));
  const auto old_saves = saves_of(take_operations(*first));
  ASSERT_EQ(old_saves.size(), 1);
  CAIRN_SLOT_OK(first->offload_done(old_saves[0].id));
  CAIRN_SLOT_OK(first->mark_as_finished(2));
  CAIRN_SLOT_OK(slots_.remove_slot("a"));

  ExternallyManagedDeviceSlot* second = create("a");
  EXPECT_EQ(second->computed_tokens(), 0);
  ASSERT_NO_FATAL_FAILURE(prefill(*second, 1));
  ASSERT_EQ(take_operations(*second).start.size(), 1);
  EXPECT_TRUE(is_invalid_operation(second->offload_done(old_saves[0].id)));
  EXPECT_EQ(second->operations_in_flight(), 1);
}

}  // namespace
}  // namespace cairn
