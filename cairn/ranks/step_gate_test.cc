#include "cairn/ranks/step_gate.h"

#include <gtest/gtest.h>

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
  gate.reached(StepMark::computed(5), std::make_shared<FakeEvent>());
  gate.reached(StepMark::begun(5), nullptr);
  EXPECT_EQ(gate.now(), StepMark());
  gate.reached(StepMark::begun(6), nullptr);
  EXPECT_EQ(gate.now(), StepMark::begun(6));
  gate.reset();
  EXPECT_EQ(gate.now(), StepMark());
  gate.reached(StepMark::begun(2), nullptr);
  EXPECT_EQ(gate.now(), StepMark::begun(2));
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

TEST(StepGateTest, OfManyMarksTheLatestIsKept) {
  StepGate gate;
  std::vector<std::shared_ptr<FakeEvent>> events;
  for (std::uint64_t i = 1; i <= 1000; ++i) {
    events.push_back(std::make_shared<FakeEvent>());
    gate.reached(StepMark::begun(i), events.back());
  }
  std::size_t held = 0;
  for (const auto& event : events) {
    held += event.use_count() > 1 ? 1 : 0;
  }
  EXPECT_LE(held, 16U);
  for (std::size_t i = 0; i + 1 < events.size(); ++i) {
    events[i]->over = true;
  }
  EXPECT_LT(gate.now(), StepMark::begun(1000));
  events.back()->over = true;
  EXPECT_EQ(gate.now(), StepMark::begun(1000));
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
