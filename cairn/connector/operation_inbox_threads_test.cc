#include "cairn/connector/operation_inbox.h"

#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <vector>

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
