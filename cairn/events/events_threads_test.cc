#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <memory>
#include <random>
#include <thread>
#include <variant>
#include <vector>

#include "cairn/events/event_log.h"
#include "cairn/events/events_testing.h"
#include "cairn/events/residency_view.h"

namespace cairn {
namespace {

using events_testing::block_at;
using events_testing::PlainPool;

constexpr std::uint32_t kPools = 3;
constexpr std::uint32_t kBlocks = 64;
constexpr int kStepsPerPool = 10'000;

// Keeps a view up to date from a log, however often it falls behind.
class Follower {
 public:
  Follower(const EventLog& log, std::span<const ResidentSource* const> pools)
      : pools_(pools), log_(log), subscriber_(EventSubscriber::joining(log)) {}

  // One poll; false if there was nothing new.
  bool step() {
    const EventBatch batch = subscriber_.poll(16);
    if (const auto* events = std::get_if<std::vector<Event>>(&batch)) {
      for (const Event& event : *events) {
        const Status applied = view_.apply(event);
        EXPECT_TRUE(applied) << applied.error().to_string();
      }
      return !events->empty();
    }
    resynchronise();
    return true;
  }

  [[nodiscard]] const ResidencyView& view() const { return view_; }
  [[nodiscard]] int snapshots() const { return snapshots_; }

 private:
  void resynchronise() {
    const Result<Snapshot> snapshot = take_snapshot(log_, pools_);
    if (!snapshot) {
      EXPECT_EQ(snapshot.error().code, ErrorCode::kExhausted);
      return;  // the log is small on purpose: try again at the next step
    }
    ++snapshots_;
    EXPECT_TRUE(view_.apply(*snapshot));
    EXPECT_TRUE(subscriber_.resume_at(snapshot->sequence + 1));
  }

  std::span<const ResidentSource* const> pools_;
  const EventLog& log_;
  EventSubscriber subscriber_;
  ResidencyView view_;
  int snapshots_ = 0;
};

void churn(PlainPool& pool, std::uint32_t seed) {
  std::mt19937 random(seed);
  for (int i = 0; i < kStepsPerPool; ++i) {
    const auto block_id = static_cast<std::uint32_t>(random() % kBlocks);
    const auto dice = random() % 100;
    if (dice < 70) {
      pool.put(block_id, block_at(static_cast<std::uint32_t>(random() % 200), 0));
    } else if (dice < 99) {
      pool.remove(block_id);
    } else {
      pool.clear();
    }
    if (i % 16 == 0) {
      std::this_thread::yield();
    }
  }
}

// Two of these race for each change; only one may make it an event, because the followers' views refuse a second one.
void suspend_and_resume(EventLog& log, std::uint32_t seed) {
  std::mt19937 random(seed);
  for (int i = 0; i < kStepsPerPool; ++i) {
    const auto tier = static_cast<CacheLevel>(random() % kPools);
    if (random() % 2 == 0) {
      log.suspend(tier);
    } else {
      log.resume(tier);
    }
    if (i % 16 == 0) {
      std::this_thread::yield();
    }
  }
}

void run_with_log_of(std::uint32_t blocks) {
  const auto log = *EventLog::create({.blocks = blocks});
  std::array<PlainPool, kPools> pools = {PlainPool(CacheLevel::kG1, kBlocks, *log),
                                         PlainPool(CacheLevel::kG2, kBlocks, *log),
                                         PlainPool(CacheLevel::kG3, kBlocks, *log)};
  const std::array<const ResidentSource*, kPools> sources = {&pools[0], &pools[1], &pools[2]};
  std::vector<Follower> followers(3, Follower(*log, sources));
  std::atomic<bool> done{false};

  std::vector<std::thread> readers;
  for (Follower& follower : followers) {
    readers.emplace_back([&] {
      while (!done.load(std::memory_order_acquire)) {
        if (!follower.step()) {
          std::this_thread::yield();
        }
      }
      while (follower.step()) {
      }
    });
  }
  std::vector<std::thread> writers;
  for (std::size_t i = 0; i < pools.size(); ++i) {
    writers.emplace_back([&, i] { churn(pools[i], static_cast<std::uint32_t>(i)); });
  }
  for (const std::uint32_t seed : {100, 101}) {
    writers.emplace_back([&, seed] { suspend_and_resume(*log, seed); });
  }
  for (std::thread& writer : writers) {
    writer.join();
  }
  done.store(true, std::memory_order_release);
  for (std::thread& reader : readers) {
    reader.join();
  }
  for (const Follower& follower : followers) {
    EXPECT_EQ(follower.view().sequence(), log->last_sequence());
    EXPECT_GE(follower.snapshots(), 1);
    for (std::size_t i = 0; i < pools.size(); ++i) {
      EXPECT_EQ(follower.view().sorted_blocks(pools[i].tier()), pools[i].sorted_blocks());
      EXPECT_EQ(follower.view().is_suspended(pools[i].tier()), log->is_suspended(pools[i].tier()));
    }
  }
}

TEST(EventsThreadsTest, FollowersOfALargeLogEqualThePools) { run_with_log_of(1 << 16); }

TEST(EventsThreadsTest, FollowersThatLagResynchroniseAndEqualThePools) { run_with_log_of(24); }

// Readers of large events while they are overwritten get the whole event or Lagged.
TEST(EventsThreadsTest, AnEventThatIsOverwrittenIsGoneNotTorn) {
  constexpr std::uint32_t kKeys = 4'000;
  constexpr std::uint32_t kTokens = 4;
  const auto log = *EventLog::create({.blocks = kKeys * 3, .token_ids = kKeys * kTokens * 2});
  std::atomic<bool> done{false};
  std::thread reader([&] {
    auto subscriber = EventSubscriber::joining(*log);
    while (!done.load(std::memory_order_acquire)) {
      const EventBatch batch = subscriber.poll(1);
      if (const auto* lagged = std::get_if<Lagged>(&batch)) {
        EXPECT_TRUE(subscriber.resume_at(lagged->oldest));
        continue;
      }
      for (const Event& event : std::get<std::vector<Event>>(batch)) {
        const auto& stored = std::get<Stored>(event.data);
        ASSERT_EQ(stored.blocks.size(), kKeys);
        for (std::uint32_t i = 0; i < kKeys; ++i) {
          ASSERT_EQ(stored.blocks[i].key, block_at(static_cast<std::uint32_t>(event.sequence), i).key);
        }
        for (const Token token : stored.token_ids) {
          ASSERT_EQ(token, event.sequence);
        }
      }
    }
  });
  for (std::uint32_t n = 1; n <= 60; ++n) {
    log->on_registered(CacheLevel::kG1, events_testing::chain(n, 0, kKeys),
                       std::vector<Token>(kKeys * kTokens, Token{n}));
  }
  done.store(true, std::memory_order_release);
  reader.join();
}

}  // namespace
}  // namespace cairn
