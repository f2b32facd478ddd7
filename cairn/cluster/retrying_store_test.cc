#include "cairn/cluster/retrying_store.h"

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "cairn/cluster/memory_store_testing.h"

namespace cairn::testing {
namespace {

using std::chrono::milliseconds;

class RetryingStoreTest : public ::testing::Test {
 protected:
  RetryingStoreTest() {
    server_->set_fault([this](StoreOperation, const StoreItem&) -> std::optional<StoreOutcome> {
      ++attempts_;
      return attempts_ <= failures_ ? std::optional(StoreOutcome{.state = failure_, .error = "broken"}) : std::nullopt;
    });
  }
  void ask(Duration within = std::chrono::seconds(1)) {
    ASSERT_TRUE(store_.submit({.operation = StoreOperation::kContains,
                               .items = {{.key = "a"}},
                               .deadline = clock_.now() + within,
                               .done = [this](std::size_t, StoreOutcome&& outcome) { outcomes_.push_back(outcome); }}));
  }

  ManualClock clock_;
  int attempts_ = 0;
  int failures_ = 0;
  int wakes_ = 0;
  double random_ = 0;
  StoreState failure_ = StoreState::kUnavailable;
  std::shared_ptr<MemoryServer> server_ = std::make_shared<MemoryServer>();
  std::vector<StoreOutcome> outcomes_;
  RetryingStore store_{std::make_unique<MemoryStore>(server_, clock_), clock_,
                       RetryingStore::Options{.attempts = 3,
                                              .first_wait = milliseconds(20),
                                              .random = [this] { return random_; },
                                              .wake = [this] { ++wakes_; }}};
};

TEST_F(RetryingStoreTest, WhatWorksIsNotTriedAgain) {
  ask();
  ASSERT_EQ(outcomes_.size(), 1U);
  EXPECT_EQ(outcomes_[0].state, StoreState::kAbsent);
  EXPECT_EQ(attempts_, 1);
  EXPECT_FALSE(store_.next_time().has_value());
}

TEST_F(RetryingStoreTest, WaitsDoubleAndAreShortenedAtRandom) {
  failures_ = 2;
  ask();
  EXPECT_EQ(wakes_, 1);
  EXPECT_EQ(*store_.next_time(), clock_.now() + milliseconds(10));  // half of it at least
  random_ = 1;
  clock_.advance(milliseconds(10));
  EXPECT_TRUE(store_.pump());
  EXPECT_EQ(*store_.next_time(), clock_.now() + milliseconds(40));
  EXPECT_TRUE(outcomes_.empty());
  clock_.advance(milliseconds(40));
  EXPECT_TRUE(store_.pump());
  ASSERT_EQ(outcomes_.size(), 1U);
  EXPECT_EQ(outcomes_[0].state, StoreState::kAbsent);
  EXPECT_EQ(store_.retries(), 2U);
  EXPECT_FALSE(store_.pump());
}

TEST_F(RetryingStoreTest, TheLastFailureIsTheOutcome) {
  failures_ = 100;
  ask();
  for (int i = 0; i < 2; ++i) {
    clock_.advance(std::chrono::milliseconds(100));
    EXPECT_TRUE(store_.pump());
  }
  ASSERT_EQ(outcomes_.size(), 1U);
  EXPECT_EQ(outcomes_[0].error, "broken");
  EXPECT_EQ(attempts_, 3);
}

TEST_F(RetryingStoreTest, NothingIsTriedBeyondTheDeadline) {
  failures_ = 100;
  ask(milliseconds(10));
  ASSERT_EQ(outcomes_.size(), 1U);
  EXPECT_EQ(attempts_, 1);
}

TEST_F(RetryingStoreTest, ARefusalIsNotTriedAgain) {
  failures_ = 100;
  failure_ = StoreState::kRefused;
  ask();
  ASSERT_EQ(outcomes_.size(), 1U);
  EXPECT_EQ(attempts_, 1);
}

TEST_F(RetryingStoreTest, CloseEndsWhatWaits) {
  failures_ = 100;
  ask();
  EXPECT_TRUE(outcomes_.empty());
  store_.close();
  ASSERT_EQ(outcomes_.size(), 1U);
  EXPECT_EQ(outcomes_[0].state, StoreState::kUnavailable);
}

}  // namespace
}  // namespace cairn::testing
