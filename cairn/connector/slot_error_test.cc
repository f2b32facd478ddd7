#include "cairn/connector/slot_error.h"

#include <gtest/gtest.h>

namespace cairn {
namespace {

TEST(SlotErrorTest, EachKindIsAnErrorOfItsOwn) {
  const Error not_found = SlotError(SlotError::NotFound{"cmpl-1"}).to_error();
  EXPECT_EQ(not_found.code, ErrorCode::kNotFound);
  EXPECT_EQ(not_found.message, "request \"cmpl-1\" has no slot; create one");

  const Error state =
      SlotError(SlotError::InvalidState{SlotState::onboard_staged(32), SlotState::onboarding(7)}).to_error();
  EXPECT_EQ(state.code, ErrorCode::kFailedPrecondition);
  EXPECT_EQ(state.message, "a slot cannot go from OnboardStaged(32) to Onboarding(7)");

  const Error operation = SlotError(SlotError::InvalidOperation{{ErrorCode::kOutOfRange, "too many"}}).to_error();
  EXPECT_EQ(operation.code, ErrorCode::kOutOfRange);
  EXPECT_EQ(operation.message, "too many");

  const Error pool = SlotError(SlotError::PoolError{{ErrorCode::kUnavailable, "no tier"}}).to_error();
  EXPECT_EQ(pool.code, ErrorCode::kUnavailable);
  EXPECT_EQ(pool.message, "no tier");
}

TEST(SlotErrorTest, StatesSayTheirNumbers) {
  EXPECT_EQ(SlotState::prefilling().to_string(), "Prefilling");
  EXPECT_EQ(SlotState::onboard_staged(8).staged_tokens(), 8);
  EXPECT_EQ(SlotState::onboarding(3).onboarding_iteration(), 3);
  EXPECT_EQ(SlotState::onboarding(3).staged_tokens(), std::nullopt);
  EXPECT_EQ(SlotState::onboard_staged(8).onboarding_iteration(), std::nullopt);
  EXPECT_NE(SlotState::onboard_staged(8), SlotState::onboard_staged(4));
}

}  // namespace
}  // namespace cairn
