#include "cairn/ranks/step_gate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

namespace cairn {
namespace {

class FakeEvent final : public StepEvent {
 public:
  bool is_over() override { return over; }
  bool wait_until(TimePoint /*deadline*/) override { return over; }
  bool over = false;
};

TEST(StepGateTest, AMarkIsReachedWhenItsEventIsOver) {
  StepGate gate;
  EXPECT_EQ(gate.now(), StepMark());
  gate.reached(StepMark::begun(1), nullptr);
  EXPECT_EQ(gate.now(), StepMark::begun(1));
  const auto event = std::make_shared<FakeEvent>();
  gate.reached(StepMark::computed(1), event);
  EXPECT_EQ(gate.now(), StepMark::begun(1));
  event->over = true;
  EXPECT_EQ(gate.now(), StepMark::computed(1));
}

TEST(StepGateTest, MarksDoNotGoBack) {
  StepGate gate;
  gate.reached(StepMark::computed(5), nullptr);
  gate.reached(StepMark::begun(5), std::make_shared<FakeEvent>());
  gate.reached(StepMark::begun(6), nullptr);
  EXPECT_EQ(gate.now(), StepMark::begun(6)) << "what was not later left nothing behind";
  gate.reset();
  EXPECT_EQ(gate.now(), StepMark());
  gate.reached(StepMark::begun(2), nullptr);
  EXPECT_EQ(gate.now(), StepMark::begun(2));
}

// The next step begins on the engine's thread while the device still computes this one: what it computes is not there.
TEST(StepGateTest, AMarkWithoutAnEventWaitsForThoseBeforeIt) {
  StepGate gate;
  const auto event = std::make_shared<FakeEvent>();
  gate.reached(StepMark::computed(5), event);
  gate.reached(StepMark::begun(6), nullptr);
  EXPECT_EQ(gate.now(), StepMark());
  event->over = true;
  EXPECT_EQ(gate.now(), StepMark::begun(6));
}

TEST(StepGateTest, MarksAreReachedInTheirOrder) {
  StepGate gate;
  const auto first = std::make_shared<FakeEvent>();
  const auto second = std::make_shared<FakeEvent>();
  gate.reached(StepMark::begun(1), first);
  gate.reached(StepMark::begun(2), second);
  second->over = true;
  EXPECT_EQ(gate.now(), StepMark());
  first->over = true;
  EXPECT_EQ(gate.now(), StepMark::begun(2));
}

TEST(StepGateTest, WhatIsOverIsLetGoOf) {
  StepGate gate;
  std::vector<std::shared_ptr<FakeEvent>> events;
  for (std::uint64_t i = 1; i <= 1000; ++i) {
    events.push_back(std::make_shared<FakeEvent>());
    gate.reached(StepMark::computed(i), events.back());
    gate.reached(StepMark::begun(i + 1), nullptr);
    if (i >= 3) {
      events[i - 3]->over = true;  // the device is some steps behind
    }
  }
  const auto held = std::ranges::count_if(events, [](const auto& event) { return event.use_count() > 1; });
  EXPECT_LE(held, 17);
  for (const auto& event : events) {
    event->over = true;
  }
  EXPECT_EQ(gate.now(), StepMark::begun(1001));
}

TEST(StepGateTest, AWaitEnds) {
  StepGate gate;
  gate.wait_for(StepMark::begun(1), std::chrono::milliseconds(1));  // its time
  gate.wake();
  gate.wait_for(StepMark::begun(1), Duration::max());  // woken before
  gate.reached(StepMark::begun(1), nullptr);
  gate.wait_for(StepMark::begun(1), Duration::max());  // reached
  gate.reached(StepMark::begun(2), std::make_shared<FakeEvent>());
  gate.wait_for(StepMark::begun(2), std::chrono::milliseconds(1));
  EXPECT_EQ(gate.now(), StepMark::begun(1));
}

}  // namespace
}  // namespace cairn
