#include "cairn/connector/operation_inbox.h"

#include <gtest/gtest.h>

#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "cairn/connector/operation_testing.h"
#include "cairn/connector/worker_operations.h"

namespace cairn {
namespace {

using testing::load_operation;

OperationPtr operation(std::uint32_t number, bool is_load = false) {
  auto made = std::make_shared<Operation>();
  made->id = {.slot = 1, .number = number};
  made->is_load = is_load;
  return made;
}

TEST(OperationInboxTest, AnOperationEndsWhenNothingHoldsIt) {
  std::vector<OperationOutcomes> sent;
  const auto inbox =
      std::make_shared<OperationInbox>([&](const OperationOutcomes& outcomes) { sent.push_back(outcomes); });
  const OperationPtr load = operation(3, true);
  OperationPtr in_blocks = OperationInbox::hold(inbox, load);
  OperationPtr in_callback = in_blocks;
  in_callback->loaded_blocks = 5;
  in_callback.reset();
  EXPECT_TRUE(inbox->empty()) << "its blocks are still in use";
  EXPECT_FALSE(inbox->is_over(*load));
  in_blocks.reset();
  EXPECT_TRUE(inbox->is_over(*load));
  EXPECT_FALSE(inbox->empty());
  std::vector<OperationPtr> over;
  inbox->take(over);
  ASSERT_EQ(over.size(), 1);
  EXPECT_EQ(over[0], load);
  EXPECT_EQ(over[0]->loaded_blocks, 5);
  EXPECT_TRUE(inbox->empty());
  ASSERT_EQ(sent.size(), 1);
  EXPECT_EQ(sent[0], (OperationOutcomes{.loads = {{.id = load->id, .loaded_blocks = 5}}}));
  inbox->take(over);
  EXPECT_TRUE(over.empty());
}

TEST(OperationInboxTest, AnOperationThatNothingStartedEndsWithoutBlocks) {
  const auto inbox = std::make_shared<OperationInbox>([](const OperationOutcomes&) {});
  {
    const OperationPtr refused = OperationInbox::hold(inbox, operation(1, true));
  }
  std::vector<OperationPtr> over;
  inbox->take(over);
  ASSERT_EQ(over.size(), 1);
  EXPECT_EQ(over[0]->loaded_blocks, 0);
}

TEST(OperationInboxTest, ManyThreadsEndOperationsAndEachIsReportedOnceAfterItIsInTheInbox) {
  constexpr std::uint32_t kThreads = 4;
  constexpr std::uint32_t kEach = 500;
  std::vector<std::uint32_t> sent(kThreads * kEach);
  std::atomic<int> reporters{0};
  std::shared_ptr<OperationInbox> inbox;
  inbox = std::make_shared<OperationInbox>([&](const OperationOutcomes& outcomes) {
    EXPECT_EQ(reporters.fetch_add(1), 0) << "one at a time";
    for (const OperationId id : outcomes.saves) {
      ++sent[id.number];
    }
    reporters.fetch_sub(1);
  });
  std::vector<std::thread> threads;
  for (std::uint32_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (std::uint32_t i = 0; i < kEach; ++i) {
        const OperationPtr ends = OperationInbox::hold(inbox, operation(t * kEach + i));
      }
    });
  }
  std::vector<std::uint32_t> taken(sent.size());
  std::vector<OperationPtr> over;
  std::uint32_t count = 0;
  while (count < taken.size()) {
    inbox->take(over);
    for (const OperationPtr& one : over) {
      ++taken[one->id.number];
      ++count;
    }
    std::this_thread::yield();
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(taken, std::vector<std::uint32_t>(taken.size(), 1));
  EXPECT_EQ(sent, std::vector<std::uint32_t>(sent.size(), 1));
}

TEST(OperationInboxTest, ARankThatIsReadyHearsWhatIsInFlight) {
  std::vector<OperationOutcomes> sent;
  const auto inbox =
      std::make_shared<OperationInbox>([&](const OperationOutcomes& outcomes) { sent.push_back(outcomes); });
  inbox->report_in_flight();
  EXPECT_TRUE(sent.empty()) << "no operation was started";
  const std::vector<OperationPtr> given = {operation(1), operation(2, true), operation(3)};
  inbox->add({.iteration = 7, .loads = {given[1]}, .saves = {given[0], given[2]}});
  std::vector<OperationPtr> holds;
  for (const OperationPtr& each : given) {
    holds.push_back(OperationInbox::hold(inbox, each));
  }
  holds[0].reset();
  inbox->report_in_flight();
  ASSERT_EQ(sent.size(), 2);
  EXPECT_EQ(sent[0], (OperationOutcomes{.saves = {given[0]->id}}));
  EXPECT_EQ(sent[1], (OperationOutcomes{.finished_before = 8, .in_flight = {given[1]->id, given[2]->id}}));
  holds.clear();
  inbox->report_in_flight();
  EXPECT_EQ(sent.back(), (OperationOutcomes{.finished_before = 8})) << "operations that have ended are not kept";
  inbox->close();
  inbox->report_in_flight();
  EXPECT_EQ(sent.size(), 5);
}

// A rank that is not ready misses outcomes. When it is ready again, every operation ends for it; the message that this
// takes changes nothing for a rank that was ready all along.
TEST(OperationInboxTest, RanksThatComeAndGoHearTheEndOfEverything) {
  constexpr std::uint32_t kIterations = 600;
  constexpr std::uint32_t kEach = 3;
  WorkerOperations steady(steady_clock());
  WorkerOperations fickle(steady_clock());
  steady.follow({});
  fickle.follow({});
  std::atomic<bool> is_ready{false};
  const auto inbox = std::make_shared<OperationInbox>([&](const OperationOutcomes& outcomes) {
    const std::vector<std::byte> bytes = outcomes.encode();
    steady.receive({}, bytes);
    if (is_ready) {
      fickle.receive({}, bytes);
    }
  });
  std::mutex mutex;
  std::vector<OperationPtr> holds;
  std::atomic<std::uint32_t> ended{0};
  std::vector<std::thread> threads;
  for (std::uint32_t t = 0; t < 2; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937_64 random(t);
      while (ended < kIterations * kEach) {
        OperationPtr ends;
        {
          const std::lock_guard lock(mutex);
          if (!holds.empty()) {
            std::swap(holds[random() % holds.size()], holds.back());
            ends = std::move(holds.back());
            holds.pop_back();
          }
        }
        if (ends != nullptr) {
          ends->loaded_blocks = 1;
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
      inbox->report_in_flight();
      std::this_thread::yield();
    }
  });
  std::vector<WorkerOutcomes> reports(2);
  const auto take = [&] {
    for (std::size_t i = 0; i < reports.size(); ++i) {
      const WorkerOutcomes more = (i == 0 ? steady : fickle).take();
      reports[i].loaded.insert(reports[i].loaded.end(), more.loaded.begin(), more.loaded.end());
      reports[i].failed_blocks.insert(reports[i].failed_blocks.end(), more.failed_blocks.begin(),
                                      more.failed_blocks.end());
    }
  };
  for (std::uint32_t iteration = 0; iteration < kIterations; ++iteration) {
    IterationMetadata metadata{.iteration = iteration};
    for (std::uint32_t i = 0; i < kEach; ++i) {
      const std::uint32_t number = iteration * kEach + i;
      metadata.loads.push_back(load_operation({.slot = 1, .number = number}, RequestId(number), {BlockId{1}}));
    }
    std::vector<std::byte> bytes;
    metadata.encode(bytes);
    inbox->add(metadata);
    {
      const std::lock_guard lock(mutex);
      for (const OperationPtr& each : metadata.loads) {
        holds.push_back(OperationInbox::hold(inbox, each));
      }
    }
    steady.bind(*IterationMetadata::decode(bytes), 1);
    fickle.bind(*IterationMetadata::decode(bytes), 1);
    take();
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  is_ready = true;
  inbox->report_in_flight();
  take();
  EXPECT_EQ(reports[0].loaded.size(), kIterations * kEach);
  EXPECT_TRUE(reports[0].failed_blocks.empty());
  EXPECT_EQ(reports[1].loaded.size(), kIterations * kEach);
  EXPECT_FALSE(steady.has_any());
  EXPECT_FALSE(fickle.has_any());
}

TEST(OperationInboxTest, AClosedInboxSendsNothing) {
  int sent = 0;
  const auto inbox = std::make_shared<OperationInbox>([&](const OperationOutcomes&) { ++sent; });
  inbox->close();
  {
    const OperationPtr late = OperationInbox::hold(inbox, operation(1));
  }
  EXPECT_EQ(sent, 0);
  EXPECT_TRUE(inbox->empty());
}

}  // namespace
}  // namespace cairn
