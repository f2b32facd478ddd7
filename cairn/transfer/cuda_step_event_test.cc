#include "cairn/transfer/cuda_step_event.h"

#include <gtest/gtest.h>

namespace cairn {
namespace {

// The driver's numbers: invalid value, launch failed, illegal address, unknown. None of them means that the engine's
// step was computed.
TEST(CudaStepEventTest, OnlySuccessMeansThatTheEventHasEnded) {
  EXPECT_EQ(step_state_of(0), StepState::kOver);
  EXPECT_EQ(step_state_of(600), StepState::kPending);
  for (const int error : {1, 719, 700, 999, -1}) {
    EXPECT_EQ(step_state_of(error), StepState::kFailed) << error;
  }
}

}  // namespace
}  // namespace cairn
