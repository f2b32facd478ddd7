#include "cairn/events/event_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <variant>

#include "cairn/events/events_testing.h"

namespace cairn {
namespace {

using events_testing::chain;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr CacheLevel kG1 = CacheLevel::kG1;

class EventSubscriberTest : public ::testing::Test {
 protected:
  void store(std::uint32_t events) {
    for (std::uint32_t i = 0; i < events; ++i) {
      log_->on_registered(kG1, chain(stored_++, 0, 2), {});
    }
  }
  static std::vector<Event> events(EventBatch batch) { return std::get<std::vector<Event>>(std::move(batch)); }

  std::unique_ptr<EventLog> log_ = *EventLog::create({.blocks = 8});

 private:
  std::uint32_t stored_ = 0;
};

TEST_F(EventSubscriberTest, GivesEachEventOnceInOrder) {
  auto subscriber = *EventSubscriber::resuming(*log_, 1);
  EXPECT_THAT(events(subscriber.poll()), IsEmpty());
  store(3);
  const std::vector<Event> first = events(subscriber.poll(4));
  ASSERT_THAT(first, SizeIs(2));
  EXPECT_EQ(first[0].sequence, 1U);
  EXPECT_EQ(first[1].sequence, 2U);
  const std::vector<Event> second = events(subscriber.poll());
  ASSERT_THAT(second, SizeIs(1));
  EXPECT_EQ(second[0].sequence, 3U);
  EXPECT_THAT(events(subscriber.poll()), IsEmpty());
  EXPECT_EQ(subscriber.next_sequence(), 4U);
}

TEST_F(EventSubscriberTest, JoiningNeedsASnapshotFirst) {
  store(6);
  auto subscriber = EventSubscriber::joining(*log_);
  EXPECT_TRUE(subscriber.needs_snapshot());
  EXPECT_EQ(std::get<Lagged>(subscriber.poll()), (Lagged{.missed_from = 1, .oldest = 3}));
  ASSERT_TRUE(subscriber.resume_at(5));
  EXPECT_FALSE(subscriber.needs_snapshot());
  EXPECT_THAT(events(subscriber.poll()), SizeIs(2));
}

TEST_F(EventSubscriberTest, GetsLaggedUntilItResumes) {
  auto subscriber = *EventSubscriber::resuming(*log_, 1);
  store(2);
  EXPECT_THAT(events(subscriber.poll()), SizeIs(2));
  store(5);
  EXPECT_EQ(std::get<Lagged>(subscriber.poll()), (Lagged{.missed_from = 3, .oldest = 4}));
  EXPECT_TRUE(subscriber.needs_snapshot());
  store(1);
  EXPECT_EQ(std::get<Lagged>(subscriber.poll()), (Lagged{.missed_from = 3, .oldest = 5}));
  ASSERT_TRUE(subscriber.resume_at(9));
  EXPECT_THAT(events(subscriber.poll()), IsEmpty());
  store(1);
  EXPECT_EQ(events(subscriber.poll()).at(0).sequence, 9U);
}

TEST_F(EventSubscriberTest, ResumingAtADroppedEventLags) {
  store(10);
  auto subscriber = *EventSubscriber::resuming(*log_, 2);
  EXPECT_EQ(std::get<Lagged>(subscriber.poll()), (Lagged{.missed_from = 2, .oldest = 7}));
}

TEST_F(EventSubscriberTest, ResumingAheadOfTheLogFailsAndChangesNothing) {
  store(2);
  const auto ahead = EventSubscriber::resuming(*log_, 4);
  ASSERT_FALSE(ahead);
  EXPECT_EQ(ahead.error().code, ErrorCode::kOutOfRange);
  EXPECT_THAT(ahead.error().message, HasSubstr("at event 4"));
  EXPECT_FALSE(EventSubscriber::resuming(*log_, 0));

  auto subscriber = *EventSubscriber::resuming(*log_, 2);
  EXPECT_FALSE(subscriber.resume_at(4));
  EXPECT_EQ(events(subscriber.poll()).at(0).sequence, 2U);
}

}  // namespace
}  // namespace cairn
