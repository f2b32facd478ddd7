#include "cairn/connector/operation_inbox.h"

#include <gtest/gtest.h>

#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "cairn/connector/worker_operations.h"

namespace cairn {
namespace {

OperationPtr operation(std::uint32_t number, bool is_load = false) {
  auto made = std::make_shared<Operation>();
  made->id = {.slot = 1, .number = number};
  made->is_load = is_load;
  return made;
}

TEST(OperationInboxTest, AnOperationIsOverWhenNothingHoldsIt) {
  std::vector<OperationNotice> told;
  const auto inbox = std::make_shared<OperationInbox>([&](const OperationNotice& notice) { told.push_back(notice); });
  const OperationPtr load = operation(3, true);
  auto in_blocks = std::make_shared<OperationHold>(inbox, load);
  auto in_callback = in_blocks;
  in_callback->arrived(5);
  in_callback.reset();
  EXPECT_TRUE(inbox->empty()) << "its blocks are touched still";
  EXPECT_FALSE(load->is_over);
  in_blocks.reset();
  EXPECT_TRUE(load->is_over);
  EXPECT_FALSE(inbox->empty());
  std::vector<OperationInbox::Over> over;
  inbox->take(over);
  ASSERT_EQ(over.size(), 1);
  EXPECT_EQ(over[0].operation, load);
  EXPECT_EQ(over[0].arrived, 5);
  EXPECT_TRUE(inbox->empty());
  ASSERT_EQ(told.size(), 1);
  EXPECT_EQ(told[0], (OperationNotice{.loads = {{.id = load->id, .arrived = 5}}}));
  inbox->take(over);
  EXPECT_TRUE(over.empty());
}

TEST(OperationInboxTest, WhatNobodyTookUpIsOverWithNothing) {
  const auto inbox = std::make_shared<OperationInbox>([](const OperationNotice&) {});
  {
    const OperationHold refused(inbox, operation(1, true));
  }
  std::vector<OperationInbox::Over> over;
  inbox->take(over);
  ASSERT_EQ(over.size(), 1);
  EXPECT_EQ(over[0].arrived, 0);
}

TEST(OperationInboxTest, ManyThreadsEndOperationsAndEachIsToldOnceAfterItIsThere) {
  constexpr std::uint32_t kThreads = 4;
  constexpr std::uint32_t kEach = 500;
  std::vector<std::uint32_t> told(kThreads * kEach);
  std::atomic<int> tellers{0};
  std::shared_ptr<OperationInbox> inbox;
  inbox = std::make_shared<OperationInbox>([&](const OperationNotice& notice) {
    EXPECT_EQ(tellers.fetch_add(1), 0) << "one at a time";
    for (const OperationId id : notice.saves) {
      ++told[id.number];
    }
    tellers.fetch_sub(1);
  });
  std::vector<std::thread> threads;
  for (std::uint32_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (std::uint32_t i = 0; i < kEach; ++i) {
        const OperationHold ends(inbox, operation(t * kEach + i));
      }
    });
  }
  std::vector<std::uint32_t> taken(told.size());
  std::vector<OperationInbox::Over> over;
  std::uint32_t count = 0;
  while (count < taken.size()) {
    inbox->take(over);
    for (const OperationInbox::Over& one : over) {
      ++taken[one.operation->id.number];
      ++count;
    }
    std::this_thread::yield();
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(taken, std::vector<std::uint32_t>(taken.size(), 1));
  EXPECT_EQ(told, std::vector<std::uint32_t>(told.size(), 1));
}

TEST(OperationInboxTest, ARankThatIsReadyHearsWhatIsUnderWay) {
  std::vector<OperationNotice> told;
  const auto inbox = std::make_shared<OperationInbox>([&](const OperationNotice& notice) { told.push_back(notice); });
  inbox->tell_under_way();
  EXPECT_TRUE(told.empty()) << "nothing was ever given out";
  const std::vector<OperationPtr> given = {operation(1), operation(2, true), operation(3)};
  inbox->given_out(7, given);
  std::vector<std::unique_ptr<OperationHold>> holds;
  for (const OperationPtr& each : given) {
    holds.push_back(std::make_unique<OperationHold>(inbox, each));
  }
  holds[0].reset();
  inbox->tell_under_way();
  ASSERT_EQ(told.size(), 2);
  EXPECT_EQ(told[0], (OperationNotice{.saves = {given[0]->id}}));
  EXPECT_EQ(told[1], (OperationNotice{.over_before = 8, .under_way = {given[2]->id, given[1]->id}}));
  holds.clear();
  inbox->tell_under_way();
  EXPECT_EQ(told.back(), (OperationNotice{.over_before = 8})) << "nothing is kept of what is over";
  inbox->close();
  inbox->tell_under_way();
  EXPECT_EQ(told.size(), 5);
}

// A rank that is not ready misses what is told; whenever it is ready again, everything comes to an end for it, and what
// is told on its behalf changes nothing for one that was ready all along.
TEST(OperationInboxTest, RanksThatComeAndGoHearTheEndOfEverything) {
  constexpr std::uint32_t kIterations = 600;
  constexpr std::uint32_t kEach = 3;
  WorkerOperations steady(steady_clock());
  WorkerOperations fickle(steady_clock());
  steady.follow({});
  fickle.follow({});
  std::atomic<bool> is_ready{false};
  const auto inbox = std::make_shared<OperationInbox>([&](const OperationNotice& notice) {
    const std::vector<std::byte> bytes = notice.encode();
    steady.told({}, bytes);
    if (is_ready) {
      fickle.told({}, bytes);
    }
  });
  std::mutex mutex;
  std::vector<std::unique_ptr<OperationHold>> holds;
  std::atomic<std::uint32_t> ended{0};
  std::vector<std::thread> threads;
  for (std::uint32_t t = 0; t < 2; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937_64 random(t);
      while (ended < kIterations * kEach) {
        std::unique_ptr<OperationHold> ends;
        {
          const std::lock_guard lock(mutex);
          if (!holds.empty()) {
            std::swap(holds[random() % holds.size()], holds.back());
            ends = std::move(holds.back());
            holds.pop_back();
          }
        }
        if (ends != nullptr) {
          ends->arrived(1);
          ends.reset();
          ++ended;
        }
        std::this_thread::yield();
      }
    });
  }
  threads.emplace_back([&] {
    while (ended < kIterations * kEach) {
      is_ready = false;
      std::this_thread::yield();
      is_ready = true;
      inbox->tell_under_way();
      std::this_thread::yield();
    }
  });
  std::vector<WorkerReport> reports(2);
  const auto take = [&] {
    for (std::size_t i = 0; i < reports.size(); ++i) {
      const WorkerReport more = (i == 0 ? steady : fickle).take();
      reports[i].loaded.insert(reports[i].loaded.end(), more.loaded.begin(), more.loaded.end());
      reports[i].failed_blocks.insert(reports[i].failed_blocks.end(), more.failed_blocks.begin(),
                                      more.failed_blocks.end());
    }
  };
  for (std::uint32_t iteration = 0; iteration < kIterations; ++iteration) {
    std::vector<OperationPtr> given;
    IterationMetadata metadata{.iteration = iteration};
    for (std::uint32_t i = 0; i < kEach; ++i) {
      given.push_back(operation(iteration * kEach + i, true));
      metadata.loads.push_back(
          {.id = given.back()->id, .request = RequestId(given.back()->id.number), .blocks = {BlockId{1}}});
    }
    inbox->given_out(iteration, given);
    {
      const std::lock_guard lock(mutex);
      for (const OperationPtr& each : given) {
        holds.push_back(std::make_unique<OperationHold>(inbox, each));
      }
    }
    IterationMetadata again = metadata;
    steady.bind(metadata, 1);
    fickle.bind(again, 1);
    take();
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  is_ready = true;
  inbox->tell_under_way();
  take();
  EXPECT_EQ(reports[0].loaded.size(), kIterations * kEach);
  EXPECT_TRUE(reports[0].failed_blocks.empty());
  EXPECT_EQ(reports[1].loaded.size(), kIterations * kEach);
  EXPECT_FALSE(steady.has_any());
  EXPECT_FALSE(fickle.has_any());
}

TEST(OperationInboxTest, AfterItIsClosedNobodyIsTold) {
  int told = 0;
  const auto inbox = std::make_shared<OperationInbox>([&](const OperationNotice&) { ++told; });
  inbox->close();
  {
    const OperationHold late(inbox, operation(1));
  }
  EXPECT_EQ(told, 0);
  EXPECT_TRUE(inbox->empty());
}

}  // namespace
}  // namespace cairn
