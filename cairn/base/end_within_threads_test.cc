#include "cairn/base/end_within.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <memory>
#include <thread>

namespace cairn {
namespace {

class Slow {
 public:
  Slow(std::future<void> may_end, std::shared_ptr<int> memory)
      : may_end_(std::move(may_end)), memory_(std::move(memory)) {}
  Slow(const Slow&) = delete;
  Slow& operator=(const Slow&) = delete;
  ~Slow() { may_end_.wait(); }

 private:
  const std::future<void> may_end_;
  const std::shared_ptr<int> memory_;
};

TEST(EndWithinTest, WhatEndsInTimeIsGone) {
  std::promise<void> now;
  now.set_value();
  const auto memory = std::make_shared<int>();
  auto object = std::make_unique<Slow>(now.get_future(), memory);
  EXPECT_TRUE(end_within(std::move(object), std::chrono::hours(1)));
  EXPECT_EQ(memory.use_count(), 1);
}

// Leaves something for its thread to destroy when the thread ends.
class LeavesSomething {
 public:
  explicit LeavesSomething(std::atomic<bool>& is_gone) : is_gone_(is_gone) {}
  LeavesSomething(const LeavesSomething&) = delete;
  LeavesSomething& operator=(const LeavesSomething&) = delete;
  ~LeavesSomething() {
    struct AtExit {
      std::atomic<bool>* is_gone = nullptr;
      ~AtExit() {
        for (int i = 0; i < 10'000; ++i) {
          std::this_thread::yield();
        }
        *is_gone = true;
      }
    };
    thread_local AtExit at_exit;
    at_exit.is_gone = &is_gone_;
  }

 private:
  std::atomic<bool>& is_gone_;
};

TEST(EndWithinTest, TheThreadThatEndedInTimeIsGoneToo) {
  std::atomic<bool> is_gone = false;
  EXPECT_TRUE(end_within(std::make_unique<LeavesSomething>(is_gone), std::chrono::hours(1)));
  EXPECT_TRUE(is_gone);
}

TEST(EndWithinTest, WhatDoesNotEndKeepsItsMemoryUntilItDoes) {
  std::promise<void> later;
  const auto memory = std::make_shared<int>();
  auto object = std::make_unique<Slow>(later.get_future(), memory);
  EXPECT_FALSE(end_within(std::move(object), std::chrono::milliseconds(1)));
  EXPECT_EQ(memory.use_count(), 2);
  later.set_value();
  while (memory.use_count() != 1) {
    std::this_thread::yield();
  }
}

TEST(EndWithinTest, TheLimitDoesNotOverflow) {
  EXPECT_EQ(end_limit(std::chrono::seconds(5)), std::chrono::seconds(11));
  EXPECT_EQ(end_limit(Duration::max()), std::chrono::hours(48) + std::chrono::seconds(1));
  EXPECT_EQ(end_limit(Duration::min()), std::chrono::seconds(1));
}

}  // namespace
}  // namespace cairn
