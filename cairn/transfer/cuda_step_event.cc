#include "cairn/transfer/cuda_step_event.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "cairn/base/str_cat.h"
#include "cairn/memory/cuda_driver.h"

namespace cairn {

namespace {

constexpr Duration kFirstPause = std::chrono::microseconds(20);
constexpr Duration kLongestPause = std::chrono::microseconds(500);

class CudaStepEvent final : public StepEvent {
 public:
  CudaStepEvent(const CudaDriver& driver, cuda::Event event, int device, std::shared_ptr<void> keep_alive)
      : driver_(driver), event_(event), device_(device), keep_alive_(std::move(keep_alive)) {}

  StepState state() override {
    const Result<GpuContext> context = GpuContext::enter(device_);
    return context ? step_state_of(driver_.event_query(event_)) : StepState::kFailed;
  }

  StepState wait_until(TimePoint deadline) override {
    const Clock& clock = steady_clock();
    for (Duration pause = kFirstPause;; pause = std::min(2 * pause, kLongestPause)) {
      const StepState now_is = state();
      const TimePoint now = clock.now();
      if (now_is != StepState::kPending || now >= deadline) {
        return now_is;
      }
      std::this_thread::sleep_for(std::min(pause, deadline - now));
    }
  }

 private:
  const CudaDriver& driver_;
  const cuda::Event event_;
  const int device_;
  const std::shared_ptr<void> keep_alive_;
};

}  // namespace

StepState step_state_of(int code) {
  switch (code) {
    case cuda::kSuccess:
      return StepState::kOver;
    case cuda::kNotReady:
      return StepState::kPending;
    default:
      return StepState::kFailed;
  }
}

Result<StepEventPtr> cuda_step_event(void* event, int device, std::shared_ptr<void> keep_alive) {
  if (event == nullptr) {
    return fail(ErrorCode::kInvalidArgument, "the CUDA event is null; pass an event that was recorded");
  }
  CAIRN_TRY_ASSIGN(const CudaDriver* const driver, CudaDriver::get());
  if (device < 0 || device >= driver->devices()) {
    return fail(ErrorCode::kNotFound, str_cat("an event of GPU ", device, "; there are ", driver->devices()));
  }
  return StepEventPtr(
      std::make_shared<CudaStepEvent>(*driver, static_cast<cuda::Event>(event), device, std::move(keep_alive)));
}

}  // namespace cairn
