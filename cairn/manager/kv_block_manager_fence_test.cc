// Resets and new weights: nothing that was stored before is found after them, at any time during a copy.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <variant>

#include "cairn/manager/manager_testing.h"

namespace cairn::testing {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr CacheLevel kLevels[] = {CacheLevel::kG1, CacheLevel::kG2, CacheLevel::kG3};

class KvBlockManagerFenceTest : public ::testing::Test {
 protected:
  // Some milliseconds for a copy of one block.
  static constexpr SimulatedExecutor::Options kSlow{.bytes_per_second = 1e6, .latency = microseconds(100)};

  [[nodiscard]] ManagerConfig config() const {
    ManagerConfig config = reference_config(path_, 16, 32, 32);
    config.event_log = 1024;
    return config;
  }
  static void expect_empty(const KvBlockManager& manager) {
    for (const CacheLevel level : kLevels) {
      EXPECT_EQ(manager.pool(level)->counts().registered, 0U) << to_string(level);
      EXPECT_THAT(resident_keys(*manager.pool(level)), IsEmpty()) << to_string(level);
      manager.pool(level)->check_invariants();
    }
    EXPECT_EQ(manager.locate(chain(1, 8)).blocks(), 0U);
  }
  // Keeps the file as it is now, as if the process had been killed at this moment.
  void keep_file() {
    std::filesystem::copy_file(path_, path_ + ".kept", std::filesystem::copy_options::overwrite_existing);
  }
  void put_file_back() { std::filesystem::rename(path_ + ".kept", path_); }

  TestFolder folder_;
  const std::string path_ = folder_.in("blocks");
};

// A block is copied from the device to the disk and back; the reset comes after so many microseconds.
TEST_F(KvBlockManagerFenceTest, NothingOfBeforeIsFoundWheneverTheResetComes) {
  const Keys keys = chain(1, 8);
  std::uint64_t in_flight = 0;
  std::uint32_t loads = 0;
  for (const bool has_new_weights : {false, true}) {
    for (Duration when = Duration::zero(); when < milliseconds(40); when += microseconds(700)) {
      SCOPED_TRACE(::testing::Message() << "after " << when.count() / 1000 << " us");
      std::filesystem::remove(path_);
      {
        VirtualManager manager(config(), kSlow);
        cache_on_device(*manager, keys);
        if (when > milliseconds(20)) {
          manager.advance(milliseconds(100));
          (void)manager->reset(CacheLevel::kG1);
          (void)manager->reset(CacheLevel::kG2);
        }
        std::optional<LoadOutcome> loaded;
        LoadRequest request{.keys = keys};
        request.done = [&loaded](LoadOutcome&& result) { loaded.emplace(std::move(result)); };
        const bool loads_too = when > milliseconds(20);
        if (loads_too) {
          ASSERT_TRUE(manager->load(std::move(request)));
        }
        manager.advance(loads_too ? when - milliseconds(20) : when);
        const bool had_ended = loaded.has_value();
        const Result<ResetReport> report = has_new_weights ? manager->invalidate(1) : manager->reset_all();
        ASSERT_TRUE(report);
        in_flight += report->copies;
        loads += report->loads;
        expect_empty(*manager);
        keep_file();
        manager.advance(seconds(1));
        expect_empty(*manager);
        if (loads_too && !had_ended) {
          ASSERT_TRUE(loaded.has_value());
          EXPECT_EQ(loaded->prefix, 0U);
          EXPECT_TRUE(loaded->blocks.empty());
          EXPECT_THAT(loaded->why, HasSubstr("the cache was reset"));
        }
        loaded.reset();
        EXPECT_TRUE(manager->drain(seconds(1)));
      }
      ManagerConfig again = config();
      again.model.weights_generation = has_new_weights ? 1 : 0;
      {
        expect_empty(*VirtualManager(again));
      }
      put_file_back();
      {
        expect_empty(*VirtualManager(again));
      }
    }
  }
  EXPECT_GT(in_flight, 20U);
  EXPECT_GT(loads, 10U);
}

TEST_F(KvBlockManagerFenceTest, SaysWhatItDid) {
  VirtualManager manager(config(), kSlow);
  const ImmutableBlocks held = compute(*manager, chain(1, 3));
  manager.advance(seconds(1));
  cache_on_device(*manager, chain(2, 2));
  manager.settle();
  const ResetReport report = *manager->reset_all();
  EXPECT_EQ(report.tiers[0].dropped, 2U) << "a copy reads them, and no request uses them";
  EXPECT_EQ(report.tiers[0].in_use, 3U);
  EXPECT_EQ(report.tiers[1].dropped, 3U);
  EXPECT_EQ(report.tiers[2].dropped, 3U);
  EXPECT_EQ(report.reset, 8U);
  EXPECT_EQ(report.in_use, 3U);
  EXPECT_EQ(report.copies, 2U);
  EXPECT_EQ(report.loads, 0U);
  EXPECT_EQ(manager->fences(), 1U);
  EXPECT_TRUE(hold_their_bytes(*manager, held)) << "it is unchanged for its holder";
  EXPECT_EQ(manager->pool(CacheLevel::kG1)->counts().free, 13U);
}

TEST_F(KvBlockManagerFenceTest, WorksAsBeforeAfterwards) {
  const Keys keys = chain(1, 8);
  {
    VirtualManager manager(config(), kSlow);
    cache_on_device(*manager, keys);
    manager.advance(milliseconds(3));
    ASSERT_TRUE(manager->reset_all());
    cache_on_device(*manager, keys);
    manager.advance(seconds(1));
    for (const CacheLevel level : kLevels) {
      EXPECT_EQ(manager->pool(level)->count_prefix(keys), 8U) << to_string(level);
      EXPECT_EQ(manager->pool(level)->counts().active, 0U);
    }
    (void)manager->reset(CacheLevel::kG1);
    (void)manager->reset(CacheLevel::kG2);
  }
  VirtualManager again(config());
  ASSERT_EQ(again->locate(keys).blocks(), 8U);
  ASSERT_TRUE(again->load(LoadRequest{.keys = keys}));
  again.settle();
  EXPECT_TRUE(hold_their_bytes(*again, again->device()->match_prefix(keys)));
}

TEST_F(KvBlockManagerFenceTest, AFileIsOfTheGenerationThatItWasInvalidatedTo) {
  const Keys keys = chain(1, 4);
  ManagerConfig before = config();
  before.model.weights_generation = 7;
  {
    VirtualManager manager(before);
    EXPECT_EQ(manager->weights_generation(), 7U);
    cache_on_device(*manager, chain(2, 4));
    manager.settle();
    for (const std::uint64_t wrong : {0, 6, 7}) {
      const Result<ResetReport> refused = manager->invalidate(wrong);
      ASSERT_FALSE(refused);
      EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
      EXPECT_THAT(refused.error().message, HasSubstr("is not above the present one, 7"));
    }
    EXPECT_EQ(manager->disk()->counts().registered, 4U) << "a refused call has no effect";
    ASSERT_TRUE(manager->invalidate(9));
    EXPECT_EQ(manager->weights_generation(), 9U);
    EXPECT_FALSE(manager->invalidate(9));
    cache_on_device(*manager, keys);
    manager.settle();
  }
  ManualClock clock;
  const Result<KvBlockManager> old = KvBlockManager::make(before, {.clock = &clock, .own_thread = false});
  ASSERT_FALSE(old);
  EXPECT_THAT(old.error().message, HasSubstr("weights generation '9', not '7'"));
  ManagerConfig after = before;
  after.model.weights_generation = 9;
  VirtualManager manager(after);
  EXPECT_EQ(manager->disk()->counts().registered, 4U);
  ASSERT_TRUE(manager->load(LoadRequest{.keys = keys}));
  manager.settle();
  EXPECT_TRUE(hold_their_bytes(*manager, manager->device()->match_prefix(keys)));
  EXPECT_EQ(manager->device()->count_prefix(keys), 4U) << "checksums are of the new namespace";
}

TEST_F(KvBlockManagerFenceTest, FollowersOfEventsAreNotified) {
  VirtualManager manager(config());
  cache_on_device(*manager, chain(1, 2));
  manager.settle();
  const std::uint64_t first = manager->events()->last_sequence() + 1;
  ASSERT_TRUE(manager->invalidate(3));
  cache_on_device(*manager, chain(2, 1));
  const EventBatch batch = *manager->events()->read(first, 100);
  const auto& events = std::get<std::vector<Event>>(batch);
  ASSERT_EQ(events.size(), 7U);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_TRUE(std::holds_alternative<Cleared>(events[i].data));
    EXPECT_EQ(events[3 + i].tier, kLevels[i]);
    EXPECT_EQ(std::get<Invalidated>(events[3 + i].data).weights_generation, 3U);
  }
  EXPECT_TRUE(std::holds_alternative<Stored>(events[6].data));
}

TEST_F(KvBlockManagerFenceTest, AResetOfOneTierLeavesTheOthers) {
  VirtualManager manager(config(), kSlow);
  const Keys keys = chain(1, 4);
  cache_on_device(*manager, keys);
  manager.advance(milliseconds(1));
  const ResetReport report = *manager->reset(CacheLevel::kG2);
  EXPECT_EQ(report.copies, 4U);
  manager.advance(seconds(1));
  EXPECT_EQ(manager->host()->counts().registered, 0U) << "copies in flight were not registered";
  EXPECT_EQ(manager->device()->count_prefix(keys), 4U);
  EXPECT_EQ(manager->fences(), 0U);
}

TEST_F(KvBlockManagerFenceTest, AFileThatCannotBeWrittenIsAnErrorAndTheResetHolds) {
  VirtualManager manager(config());
  cache_on_device(*manager, chain(1, 2));
  manager.settle();
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &limit), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit none{.rlim_cur = 0, .rlim_max = limit.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &none), 0);
  const Result<ResetReport> report = manager->reset_all();
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  std::signal(SIGXFSZ, handler);
  ASSERT_FALSE(report);
  EXPECT_THAT(report.error().message,
              HasSubstr("the reset holds in this process but could not be written: cannot write"));
  expect_empty(*manager);
  EXPECT_TRUE(manager->reset_all()) << "it can be repeated";
}

// Callbacks of earlier requests run in the same call, without a lock: they may reset again.
TEST_F(KvBlockManagerFenceTest, CallbacksOfLoadsMayResetToo) {
  VirtualManager manager(config(), kSlow);
  const Keys keys = chain(1, 2);
  cache_on_device(*manager, keys);
  manager.advance(seconds(1));
  (void)manager->reset(CacheLevel::kG1);
  (void)manager->reset(CacheLevel::kG2);
  bool was_reset = false;
  LoadRequest request{.keys = keys};
  request.done = [&](LoadOutcome&& result) {
    EXPECT_EQ(result.prefix, 0U);
    was_reset = manager->reset_all().has_value();
  };
  ASSERT_TRUE(manager->load(std::move(request)));
  ASSERT_TRUE(manager->reset_all());
  manager.advance(seconds(1));
  EXPECT_TRUE(was_reset);
  EXPECT_EQ(manager->fences(), 2U);
}

// A full tier: the manager's thread reclaims the blocks in steps, and allocations meanwhile find room.
TEST_F(KvBlockManagerFenceTest, BlocksAreReclaimedAfterwards) {
  ManagerConfig large = reference_config(path_, 20'000, 0, 0);
  VirtualManager manager(large);
  cache_on_device(*manager, chain(1, 20'000));
  ASSERT_TRUE(manager->invalidate(1));
  EXPECT_EQ(manager->device()->counts().free, 20'000U);
  cache_on_device(*manager, chain(2, 100));
  std::uint32_t steps = 0;
  while (manager->pump()) {
    ++steps;
  }
  EXPECT_GE(steps, 4U);
  EXPECT_EQ(manager->device()->counts().free, 19'900U);
  EXPECT_FALSE(manager->device()->reclaim(1)) << "nothing is left to do";
  manager->device()->check_invariants();
}

}  // namespace
}  // namespace cairn::testing
