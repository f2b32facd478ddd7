#include "cairn/rank/step_gate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

namespace cairn {
namespace {

class FakeEvent final : public StepEvent {
 public:
  StepState state() override { return now; }
  StepState wait_until(TimePoint /*deadline*/) override { return now; }
  StepState now = StepState::kPending;
};

TEST(StepGateTest, AMarkIsReachedWhenItsEventHasEnded) {
  StepGate gate;
  EXPECT_EQ(gate.now(), StepMark());
  gate.reached(StepMark::begun(1), nullptr);
  EXPECT_EQ(gate.now(), StepMark::begun(1));
  const auto event = std::make_shared<FakeEvent>();
  gate.reached(StepMark::computed(1), event);
  EXPECT_EQ(gate.now(), StepMark::begun(1));
  event->now = StepState::kOver;
  EXPECT_EQ(gate.now(), StepMark::computed(1));
}

TEST(StepGateTest, MarksDoNotGoBack) {
  StepGate gate;
  gate.reached(StepMark::computed(5), nullptr);
  gate.reached(StepMark::begun(5), std::make_shared<FakeEvent>());
  gate.reached(StepMark::begun(6), nullptr);
  EXPECT_EQ(gate.now(), StepMark::begun(6)) << "marks that are not later are ignored";
  gate.reset();
  EXPECT_EQ(gate.now(), StepMark());
  gate.reached(StepMark::begun(2), nullptr);
  EXPECT_EQ(gate.now(), StepMark::begun(2));
}

// The next step begins on the engine's thread while the device still computes this one: its KV is not written yet.
TEST(StepGateTest, AMarkWithoutAnEventWaitsForThoseBeforeIt) {
  StepGate gate;
  const auto event = std::make_shared<FakeEvent>();
  gate.reached(StepMark::computed(5), event);
  gate.reached(StepMark::begun(6), nullptr);
  EXPECT_EQ(gate.now(), StepMark());
  event->now = StepState::kOver;
  EXPECT_EQ(gate.now(), StepMark::begun(6));
}

TEST(StepGateTest, MarksAreReachedInTheirOrder) {
  StepGate gate;
  const auto first = std::make_shared<FakeEvent>();
  const auto second = std::make_shared<FakeEvent>();
  gate.reached(StepMark::begun(1), first);
  gate.reached(StepMark::begun(2), second);
  second->now = StepState::kOver;
  EXPECT_EQ(gate.now(), StepMark());
  first->now = StepState::kOver;
  EXPECT_EQ(gate.now(), StepMark::begun(2));
}

TEST(StepGateTest, MarksThatAreReachedAreDropped) {
  StepGate gate;
  std::vector<std::shared_ptr<FakeEvent>> events;
  for (std::uint64_t i = 1; i <= 1000; ++i) {
    events.push_back(std::make_shared<FakeEvent>());
    gate.reached(StepMark::computed(i), events.back());
    gate.reached(StepMark::begun(i + 1), nullptr);
    if (i >= 3) {
      events[i - 3]->now = StepState::kOver;  // the device is some steps behind
    }
  }
  const auto held = std::ranges::count_if(events, [](const auto& event) { return event.use_count() > 1; });
  EXPECT_LE(held, 17);
  for (const auto& event : events) {
    event->now = StepState::kOver;
  }
  EXPECT_EQ(gate.now(), StepMark::begun(1001));
}

TEST(StepGateTest, AWaitEnds) {
  StepGate gate;
  gate.wait_for(StepMark::begun(1), std::chrono::milliseconds(1));  // times out
  gate.wake();
  gate.wait_for(StepMark::begun(1), Duration::max());  // woken before
  gate.reached(StepMark::begun(1), nullptr);
  gate.wait_for(StepMark::begun(1), Duration::max());  // reached
  gate.reached(StepMark::begun(2), std::make_shared<FakeEvent>());
  gate.wait_for(StepMark::begun(2), std::chrono::milliseconds(1));
  EXPECT_EQ(gate.now(), StepMark::begun(1));
}

// What the device has computed since the last mark that was reached is unknown, and stays so.
TEST(StepGateTest, AFailedEventIsNeverReachedNorIsWhatComesAfterIt) {
  StepGate gate;
  gate.reached(StepMark::computed(1), nullptr);
  const auto failing = std::make_shared<FakeEvent>();
  gate.reached(StepMark::computed(2), failing);
  gate.reached(StepMark::begun(3), nullptr);
  EXPECT_FALSE(gate.has_failed(StepMark::computed(2)));
  failing->now = StepState::kFailed;
  EXPECT_EQ(gate.now(), StepMark::computed(1));
  EXPECT_FALSE(gate.has_failed(StepMark::computed(1))) << "reached before";
  EXPECT_TRUE(gate.has_failed(StepMark::computed(2)));
  gate.reached(StepMark::computed(3), nullptr);
  EXPECT_EQ(gate.now(), StepMark::computed(1));
  EXPECT_TRUE(gate.has_failed(StepMark::computed(3)));
  gate.wait_for(StepMark::computed(3), Duration::max());  // returns at once: the mark has failed
  gate.reset();
  gate.reached(StepMark::begun(1), nullptr);
  EXPECT_EQ(gate.now(), StepMark::begun(1)) << "another leader's";
}

TEST(StepGateTest, LayersAreReachedOneAfterTheOther) {
  StepGate gate;
  gate.reached(StepMark::begun(4), nullptr);
  EXPECT_LT(gate.now(), StepPoint(StepMark::begun(4), 1));
  const auto first = std::make_shared<FakeEvent>();
  const auto second = std::make_shared<FakeEvent>();
  gate.reached({StepMark::begun(4), 1}, first);
  gate.reached({StepMark::begun(4), 2}, second);
  gate.reached(StepMark::computed(4), nullptr);
  second->now = StepState::kOver;
  EXPECT_EQ(gate.now(), StepMark::begun(4)) << "the first layer is not computed";
  first->now = StepState::kOver;
  EXPECT_EQ(gate.now(), StepMark::computed(4));
  EXPECT_LT(StepPoint(StepMark::begun(4), 1000), StepPoint(StepMark::computed(4)));
  EXPECT_LT(StepMark::computed(4), StepMark::begun(5));
  const auto broken = std::make_shared<FakeEvent>();
  gate.reached(StepMark::begun(5), nullptr);
  gate.reached({StepMark::begun(5), 1}, nullptr);
  gate.reached({StepMark::begun(5), 2}, broken);
  broken->now = StepState::kFailed;
  EXPECT_FALSE(gate.has_failed({StepMark::begun(5), 1}));
  EXPECT_TRUE(gate.has_failed({StepMark::begun(5), 2}));
  EXPECT_TRUE(gate.has_failed(StepMark::computed(5)));
}

}  // namespace
}  // namespace cairn
