#include "cairn/offload/filter_thread.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <semaphore>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cairn/offload/filter_caller.h"

namespace cairn {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr Duration kPatience = hours(1);

// A filter that waits until the test lets it return. It keeps only blocks of priority 1. Shared with the thread, which may
// outlive the test's objects.
struct Held {
  std::counting_semaphore<> may_return{0};
  std::counting_semaphore<> has_returned{0};
  static OffloadFilter filter(const std::shared_ptr<Held>& held) {
    return [held](const FilteredRun& run, std::span<bool> keep) {
      held->may_return.acquire();
      for (std::size_t i = 0; i < keep.size(); ++i) {
        keep[i] = run.blocks[i].priority == 1;
      }
      held->has_returned.release();
    };
  }
};

std::vector<FilteredBlock> blocks_of(std::initializer_list<std::uint32_t> priorities) {
  std::vector<FilteredBlock> blocks;
  for (const std::uint32_t priority : priorities) {
    blocks.push_back({.key = {}, .priority = priority});
  }
  return blocks;
}
std::vector<FilteredBlock> three_blocks() { return blocks_of({1, 0, 1}); }

TEST(FilterThreadTest, PassesTheRunAndTheAnswersOn) {
  const auto caller = std::this_thread::get_id();
  FilterThread thread(
      [&](const FilteredRun& run, std::span<bool> keep) {
        EXPECT_NE(std::this_thread::get_id(), caller);
        EXPECT_EQ(run.to, CacheLevel::kG3);
        EXPECT_EQ(run.request, "cmpl-7");
        EXPECT_EQ(run.sequence_tokens, 21U);
        EXPECT_THAT(keep, Each(true));
        keep[1] = run.blocks[1].priority == 1;
      },
      steady_clock());
  const std::vector<FilteredBlock> blocks = three_blocks();
  for (int i = 0; i < 100; ++i) {
    std::array<bool, 3> keep = {};
    const FilterThread::Outcome outcome = thread.call(
        {.to = CacheLevel::kG3, .request = "cmpl-7", .sequence_tokens = 21, .blocks = blocks}, keep, kPatience);
    EXPECT_TRUE(outcome.has_returned);
    EXPECT_FALSE(outcome.has_thrown);
    EXPECT_THAT(keep, ElementsAre(true, false, true));
  }
}

TEST(FilterThreadTest, CallsOfManyThreadsTakeTurns) {
  FilterThread thread(
      [](const FilteredRun& run, std::span<bool> keep) {
        keep[0] = run.blocks[0].priority % 2 == 0;
        if (run.blocks[0].priority == 3) {
          throw std::runtime_error("of the user");
        }
      },
      steady_clock());
  std::vector<std::thread> callers;
  for (std::uint32_t priority = 0; priority < 4; ++priority) {
    callers.emplace_back([&thread, priority] {
      const std::vector<FilteredBlock> blocks = blocks_of({priority});
      for (int i = 0; i < 100; ++i) {
        std::array<bool, 1> keep = {};
        const FilterThread::Outcome outcome = thread.call({.blocks = blocks}, keep, kPatience);
        EXPECT_TRUE(outcome.has_returned);
        EXPECT_EQ(outcome.has_thrown, priority == 3);
        EXPECT_EQ(keep[0], priority % 2 == 0);
      }
    });
  }
  for (std::thread& caller : callers) {
    caller.join();
  }
}

TEST(FilterThreadTest, ACallThatDoesNotReturnIsGivenUp) {
  const auto held = std::make_shared<Held>();
  FilterThread thread(Held::filter(held), steady_clock());
  std::array<bool, 3> keep = {};
  {
    const std::vector<FilteredBlock> blocks = three_blocks();
    const std::string request = "a request whose id is longer than a short string";
    EXPECT_FALSE(thread.call({.request = request, .blocks = blocks}, keep, milliseconds(5)).has_returned);
  }  // the filter still reads its copies
  EXPECT_TRUE(thread.is_stuck());
  EXPECT_FALSE(thread.call({.blocks = {}}, {}, Duration::zero()).has_returned) << "it waits for its turn";
  held->may_return.release(2);
  const std::vector<FilteredBlock> blocks = three_blocks();
  EXPECT_TRUE(thread.call({.blocks = blocks}, keep, kPatience).has_returned);
  EXPECT_FALSE(thread.is_stuck());
  EXPECT_THAT(keep, ElementsAre(true, false, true));
}

TEST(FilterThreadTest, TheEndDoesNotWaitForACallThatDoesNotReturn) {
  const auto held = std::make_shared<Held>();
  {
    ManualClock clock;  // is gone when the call returns
    FilterThread thread(Held::filter(held), clock);
    const std::vector<FilteredBlock> blocks = three_blocks();
    std::array<bool, 3> keep = {};
    EXPECT_FALSE(thread.call({.blocks = blocks}, keep, milliseconds(5)).has_returned);
  }
  held->may_return.release();
  held->has_returned.acquire();
}

TEST(FilterCallerThreadsTest, AFilterIsBypassedUntilItReturns) {
  const auto held = std::make_shared<Held>();
  ManualClock clock;
  std::vector<std::string> reports;
  FilterCaller caller({.filter = Held::filter(held),
                       .limit = milliseconds(1),
                       .report = [&reports](std::string text) { reports.push_back(std::move(text)); }},
                      clock);
  const std::vector<FilteredBlock> blocks = three_blocks();
  const auto ask = [&] {
    std::array<bool, 3> keep = {};
    caller.ask({.blocks = blocks}, keep);
    return keep;
  };
  const auto status = [&caller] {
    OffloadStatus figures;
    caller.add_to(figures);
    return figures;
  };
  EXPECT_THAT(ask(), Each(false)) << "it may be there to keep blocks from being stored";
  EXPECT_THAT(reports, ElementsAre(HasSubstr("has not returned")));
  clock.advance(hours(1));
  EXPECT_TRUE(status().is_filter_bypassed) << "however long it takes";
  EXPECT_THAT(ask(), Each(false));
  EXPECT_EQ(status().filter_calls, 1U);
  EXPECT_EQ(status().filter_overruns, 1U);
  held->may_return.release(2);
  held->has_returned.acquire();
  while (status().is_filter_bypassed) {
    std::this_thread::yield();
  }
  EXPECT_THAT(ask(), ElementsAre(true, false, true));
  EXPECT_THAT(reports, ElementsAre(HasSubstr("has not returned"), HasSubstr("called again")));
}

}  // namespace
}  // namespace cairn
