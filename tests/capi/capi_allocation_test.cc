// Calls every function of the C interface with an allocator that fails at its first, second, third... allocation, until
// the call succeeds: nothing is thrown, the code is CAIRN_EXHAUSTED, the handle still works, and nothing leaks.
//
// A function without a test here fails the program at its end (EveryFunctionIsTested).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <cairn/cairn_c.h>

#include "tests/capi/c_engine_testing.h"
#include "tests/capi/failing_allocator_testing.h"

namespace cairn_c_test {
namespace {

constexpr std::size_t kMostAllocations = 100'000;  // of one call; more would mean an endless loop
constexpr FailingAllocator::Mode kModes[] = {FailingAllocator::Mode::kOnce, FailingAllocator::Mode::kFromThenOn};

std::set<std::string>& tested() {
  static std::set<std::string> names;
  return names;
}

// The last unexpected code; recorded without allocating, and reported after the call.
struct Wrong {
  int32_t code = CAIRN_OK;
  const char* message = "";
};
Wrong wrong;

// Repeats `call` with a later failing allocation each time, until none fails. `call` returns whether it succeeded. If
// it succeeded although an allocation failed, `again` undoes it before the next call; `after` runs after every call
// that had a failure.
void starve(const char* function, FailingAllocator::Mode mode, const std::function<bool()>& call,
            const std::function<void()>& again = {}, const std::function<void()>& after = {}) {
  tested().insert(function);
  wrong = {};
  for (std::size_t n = 0; n < kMostAllocations; ++n) {
    bool is_done = false;
    bool has_failed = false;
    {
      const FailingAllocator failing(n, mode);
      is_done = call();
      has_failed = FailingAllocator::has_failed();
    }
    ASSERT_EQ(wrong.code, CAIRN_OK) << function << " without allocation " << n << ": " << wrong.message;
    if (!has_failed) {
      EXPECT_TRUE(is_done) << function << " fails with enough memory, after " << n << " failed calls";
      return;
    }
    if (is_done && again) {
      again();
    }
    if (after) {
      after();
    }
  }
  ADD_FAILURE() << function << " never ends";
}

// A call may fail only because memory ran out.
bool done(int32_t code, const cairn_error& error) {
  if (code != CAIRN_OK && code != CAIRN_EXHAUSTED) {
    wrong = {code, error.message};
  }
  return code == CAIRN_OK;
}

class AllocationTest : public ::testing::TestWithParam<FailingAllocator::Mode> {
 protected:
  cairn_error error_ = sized<cairn_error>();
};

INSTANTIATE_TEST_SUITE_P(Modes, AllocationTest, ::testing::ValuesIn(kModes));

TEST_P(AllocationTest, Names) {
  starve("cairn_api_version", GetParam(), [] { return cairn_api_version() == CAIRN_API_VERSION; });
  starve("cairn_version", GetParam(), [] { return std::strlen(cairn_version()) > 0; });
  starve("cairn_code_name", GetParam(), [] { return std::strcmp(cairn_code_name(CAIRN_OK), "ok") == 0; });
}

TEST_P(AllocationTest, AManagerIsMadeAndDestroyed) {
  auto options = sized<cairn_manager_options>();
  options.config = kConfig.c_str();
  cairn_manager* manager = nullptr;
  starve(
      "cairn_manager_create", GetParam(),
      [&] { return done(cairn_manager_create(&options, &manager, &error_), error_); },
      [&] { cairn_manager_destroy(manager); });
  starve(
      "cairn_manager_destroy", GetParam(),
      [&] {
        cairn_manager_destroy(manager);
        return true;
      },
      [&] { manager = make_manager(); });
}

class ManagerAllocationTest : public AllocationTest {
 protected:
  ManagerAllocationTest() : manager_(make_manager()) {}
  ~ManagerAllocationTest() override { cairn_manager_destroy(manager_); }

  cairn_blocks* allocate(std::uint32_t count) {
    cairn_blocks* blocks = nullptr;
    EXPECT_EQ(cairn_manager_allocate(manager_, CAIRN_G1, count, &blocks, &error_), CAIRN_OK) << error_.message;
    return blocks;
  }
  void cache(const std::vector<cairn_key>& keys) {
    cairn_blocks* const blocks = allocate(static_cast<std::uint32_t>(keys.size()));
    EXPECT_EQ(cairn_blocks_register(blocks, keys.data(), keys.size(), nullptr, &error_), CAIRN_OK) << error_.message;
    cairn_blocks_release(blocks);
    EXPECT_EQ(cairn_manager_drain(manager_, 10'000, &error_), CAIRN_OK) << error_.message;
  }

  cairn_manager* manager_;
};

INSTANTIATE_TEST_SUITE_P(Modes, ManagerAllocationTest, ::testing::ValuesIn(kModes));

TEST_P(ManagerAllocationTest, Keys) {
  const std::vector<std::uint32_t> tokens(64, 7);
  auto run = sized<cairn_mm_run>();
  run.offset = 4;
  run.length = 9;
  auto prompt = sized<cairn_prompt>();
  prompt.tokens = tokens.data();
  prompt.token_count = tokens.size();
  prompt.salt = "a tenant with a long name";
  prompt.lora_name = "and an adapter with a long name";
  prompt.mm_runs = &run;
  prompt.mm_run_count = 1;
  std::vector<cairn_key> keys(16);
  std::size_t count = 0;
  starve("cairn_manager_hash_prompt", GetParam(), [&] {
    return done(cairn_manager_hash_prompt(manager_, &prompt, keys.data(), keys.size(), &count, &error_), error_);
  });
  EXPECT_EQ(count, 16U);
}

TEST_P(ManagerAllocationTest, Blocks) {
  const std::vector<cairn_key> keys = keys_of(manager_, 1, 3);
  starve("cairn_manager_block_size", GetParam(), [&] { return cairn_manager_block_size(manager_) == 4; });
  cairn_blocks* blocks = nullptr;
  const auto release = [&] { cairn_blocks_release(blocks); };
  starve(
      "cairn_manager_allocate", GetParam(),
      [&] { return done(cairn_manager_allocate(manager_, CAIRN_G1, 3, &blocks, &error_), error_); }, release);
  starve("cairn_blocks_count", GetParam(), [&] { return cairn_blocks_count(blocks) == 3; });
  std::uint32_t block_ids[3];
  starve("cairn_blocks_ids", GetParam(), [&] { return cairn_blocks_ids(blocks, block_ids, 3) == 3; });
  void* address = nullptr;
  starve("cairn_manager_address", GetParam(), [&] {
    return done(cairn_manager_address(manager_, CAIRN_G1, block_ids[0], 0, 0, 0, 0, &address, &error_), error_);
  });
  starve(
      "cairn_blocks_register", GetParam(),
      [&] { return done(cairn_blocks_register(blocks, keys.data(), keys.size(), nullptr, &error_), error_); },
      [&] {
        cairn_blocks_release(blocks);
        blocks = allocate(3);
      });
  starve("cairn_blocks_release", GetParam(), [&] {
    cairn_blocks_release(blocks);
    blocks = nullptr;
    return true;
  });
  EXPECT_EQ(cairn_manager_drain(manager_, 10'000, &error_), CAIRN_OK) << error_.message;
  std::size_t found = 0;
  std::uint8_t levels[3];
  starve("cairn_manager_locate", GetParam(), [&] {
    return done(cairn_manager_locate(manager_, keys.data(), keys.size(), levels, &found, &error_), error_);
  });
  EXPECT_EQ(found, 3U) << "nothing was lost";
  starve(
      "cairn_manager_match", GetParam(),
      [&] { return done(cairn_manager_match(manager_, CAIRN_G1, keys.data(), 3, &blocks, &error_), error_); }, release);
  EXPECT_EQ(cairn_blocks_count(blocks), 3U);
  release();
  const auto forget = [&] { EXPECT_EQ(cairn_manager_reset(manager_, CAIRN_G1, nullptr, &error_), CAIRN_OK); };
  // A block that was not offloaded because memory ran out is not in the tier below: cache it again.
  forget();
  cache(keys);
  forget();
  // Without memory a load fails or loads a shorter prefix. It must end in either case, and leave nothing in flight. The
  // loaded blocks are dropped, so that the next call has as much to do.
  starve(
      "cairn_manager_load", GetParam(),
      [&] {
        blocks = nullptr;
        return done(cairn_manager_load(manager_, keys.data(), 3, 10'000, &blocks, &error_), error_);
      },
      {},
      [&] {
        release();
        EXPECT_EQ(cairn_manager_drain(manager_, 10'000, &error_), CAIRN_OK) << error_.message;
        forget();
      });
  EXPECT_EQ(cairn_blocks_count(blocks), 3U);
  release();
}

// Through host memory: two copies for each block; the end of the first begins the second.
TEST_P(ManagerAllocationTest, ALoadFromDisk) {
  const std::string path = ::testing::TempDir() + "cairn_allocation_test_" + std::to_string(::getpid());
  const std::string config =
      kConfig + "[disk]\npath = \"" + path + "\"\nblocks = 32\n[offload.disk]\nmode = \"write-through\"\n";
  auto options = sized<cairn_manager_options>();
  options.config = config.c_str();
  cairn_manager_destroy(std::exchange(manager_, nullptr));
  ASSERT_EQ(cairn_manager_create(&options, &manager_, &error_), CAIRN_OK) << error_.message;
  const std::vector<cairn_key> keys = keys_of(manager_, 1, 6);
  cache(keys);
  const auto forget = [&] {
    EXPECT_EQ(cairn_manager_reset(manager_, CAIRN_G1, nullptr, &error_), CAIRN_OK) << error_.message;
    EXPECT_EQ(cairn_manager_reset(manager_, CAIRN_G2, nullptr, &error_), CAIRN_OK) << error_.message;
  };
  forget();
  cairn_blocks* blocks = nullptr;
  starve(
      "cairn_manager_load", GetParam(),
      [&] {
        blocks = nullptr;
        return done(cairn_manager_load(manager_, keys.data(), keys.size(), 10'000, &blocks, &error_), error_);
      },
      {},
      [&] {
        cairn_blocks_release(blocks);
        EXPECT_EQ(cairn_manager_drain(manager_, 10'000, &error_), CAIRN_OK) << error_.message;
        forget();
      });
  EXPECT_EQ(cairn_blocks_count(blocks), 6U);
  cairn_blocks_release(blocks);
  cairn_manager_destroy(std::exchange(manager_, nullptr));
  (void)std::remove(path.c_str());
}

TEST_P(ManagerAllocationTest, Futures) {
  const std::vector<cairn_key> keys = keys_of(manager_, 1, 3);
  cairn_future* future = nullptr;
  const auto drop = [&] {
    cairn_future_destroy(std::exchange(future, nullptr));
    EXPECT_EQ(cairn_manager_drain(manager_, 10'000, &error_), CAIRN_OK) << error_.message;
  };
  cache(keys);
  auto load = sized<cairn_load_options>();
  load.keys = keys.data();
  load.key_count = keys.size();
  starve(
      "cairn_manager_start_load", GetParam(),
      [&] { return done(cairn_manager_start_load(manager_, &load, &future, &error_), error_); }, drop);
  auto outcome = sized<cairn_future_outcome>();
  starve("cairn_future_wait", GetParam(),
         [&] { return done(cairn_future_wait(future, 10'000, &outcome, &error_), error_); });
  EXPECT_EQ(outcome.blocks, 3U);
  cairn_blocks* taken = nullptr;
  starve("cairn_future_take_blocks", GetParam(), [&] {
    taken = cairn_future_take_blocks(future);
    return taken != nullptr;
  });
  EXPECT_EQ(cairn_blocks_count(taken), 3U) << "not lost, however often memory was short";
  cairn_blocks_release(taken);
  starve("cairn_future_cancel", GetParam(), [&] {
    cairn_future_cancel(future);
    return true;
  });
  drop();
  starve(
      "cairn_manager_start_prefetch", GetParam(),
      [&] { return done(cairn_manager_start_prefetch(manager_, keys.data(), keys.size(), &future, &error_), error_); },
      drop);
  drop();
  cairn_blocks* held = nullptr;
  ASSERT_EQ(cairn_manager_match(manager_, CAIRN_G2, keys.data(), 3, &held, &error_), CAIRN_OK);
  starve(
      "cairn_manager_start_onboard", GetParam(),
      [&] { return done(cairn_manager_start_onboard(manager_, held, nullptr, &future, &error_), error_); }, drop);
  drop();
  cairn_blocks* targets = allocate(3);
  starve(
      "cairn_manager_start_onboard", GetParam(),
      [&] { return done(cairn_manager_start_onboard(manager_, held, targets, &future, &error_), error_); },
      [&] {
        drop();
        cairn_blocks_release(targets);
        targets = allocate(3);
      },
      [&] { EXPECT_EQ(cairn_blocks_count(targets), 3U) << "a call that failed takes no blocks"; });
  EXPECT_EQ(cairn_blocks_count(targets), 0U);
  cairn_blocks_release(targets);
  cairn_blocks_release(held);
  drop();
  auto offload = sized<cairn_offload_options>();
  offload.keys = keys.data();
  offload.key_count = keys.size();
  starve(
      "cairn_manager_start_offload", GetParam(),
      [&] { return done(cairn_manager_start_offload(manager_, CAIRN_G2, &offload, &future, &error_), error_); }, drop);
  EXPECT_EQ(cairn_future_wait(future, 10'000, nullptr, &error_), CAIRN_OK) << error_.message;
  std::uint8_t is_below[3];
  starve("cairn_future_is_below", GetParam(), [&] { return cairn_future_is_below(future, is_below, 3) == 3; });
  starve("cairn_future_destroy", GetParam(), [&] {
    cairn_future_destroy(std::exchange(future, nullptr));
    return true;
  });
}

TEST_P(ManagerAllocationTest, LookupsAndHints) {
  const std::vector<cairn_key> keys = keys_of(manager_, 1, 3);
  cache(keys);
  cairn_blocks* blocks = nullptr;
  std::uint32_t positions[3];
  starve(
      "cairn_manager_match_scattered", GetParam(),
      [&] {
        return done(cairn_manager_match_scattered(manager_, CAIRN_G2, keys.data(), 3, positions, &blocks, &error_),
                    error_);
      },
      [&] { cairn_blocks_release(blocks); });
  EXPECT_EQ(cairn_blocks_count(blocks), 3U);
  cairn_blocks_release(blocks);
  std::uint32_t worth = 0;
  starve("cairn_manager_worth_loading", GetParam(),
         [&] { return done(cairn_manager_worth_loading(manager_, keys.data(), 3, 0, &worth, &error_), error_); });
  starve("cairn_manager_end_request", GetParam(), [&] {
    return done(cairn_manager_end_request(manager_, keys.data(), 3, CAIRN_ENDING_TOOL_CALL, nullptr, &error_), error_);
  });
  starve("cairn_manager_hint", GetParam(), [&] {
    const int32_t code = cairn_manager_hint(manager_, keys.data(), 3, CAIRN_HINT_NONE, 0, nullptr, &error_);
    return code == CAIRN_FAILED_PRECONDITION || done(code, error_);  // the setting is off
  });
  cairn_resets* resets = nullptr;
  starve(
      "cairn_resets_create", GetParam(), [&] { return done(cairn_resets_create(manager_, &resets, &error_), error_); },
      [&] { cairn_resets_destroy(resets); });
  ASSERT_EQ(cairn_manager_reset(manager_, CAIRN_G1, nullptr, &error_), CAIRN_OK);
  int32_t level = -1;
  starve("cairn_resets_next", GetParam(), [&] {
    level = cairn_resets_next(resets, nullptr);
    return true;
  });
  EXPECT_EQ(level, CAIRN_G1);
  starve("cairn_resets_destroy", GetParam(), [&] {
    cairn_resets_destroy(std::exchange(resets, nullptr));
    return true;
  });
  starve("cairn_manager_reset_keys", GetParam(),
         [&] { return done(cairn_manager_reset_keys(manager_, CAIRN_G2, keys.data(), 3, nullptr, &error_), error_); });
}

TEST_P(ManagerAllocationTest, Control) {
  const std::vector<cairn_key> keys = keys_of(manager_, 1, 3);
  cache(keys);
  starve("cairn_manager_reset", GetParam(),
         [&] { return done(cairn_manager_reset(manager_, CAIRN_G1, nullptr, &error_), error_); });
  auto report = sized<cairn_reset_report>();
  starve("cairn_manager_reset_all", GetParam(),
         [&] { return done(cairn_manager_reset_all(manager_, &report, &error_), error_); });
  std::uint64_t generation = 100;
  // A call that ran out of memory may have had its effect already, so the next call uses a higher generation.
  starve("cairn_manager_invalidate", GetParam(),
         [&] { return done(cairn_manager_invalidate(manager_, ++generation, &report, &error_), error_); });
  starve("cairn_manager_drain", GetParam(),
         [&] { return done(cairn_manager_drain(manager_, 10'000, &error_), error_); });
  for (const std::uint32_t paused : {1U, 0U}) {
    starve("cairn_manager_pause", GetParam(),
           [&] { return done(cairn_manager_pause(manager_, CAIRN_G1, CAIRN_G2, paused, &error_), error_); });
  }
  auto iteration = sized<cairn_engine_iteration>();
  iteration.prefill_tokens = 100;
  iteration.duration_ns = 1'000'000;
  starve("cairn_manager_report_iteration", GetParam(),
         [&] { return done(cairn_manager_report_iteration(manager_, &iteration, &error_), error_); });
  starve("cairn_manager_resize_host", GetParam(),
         [&] { return done(cairn_manager_resize_host(manager_, 12, &error_), error_); });
  std::string text(1 << 16, '\0');
  std::size_t needed = 9;
  const auto is_whole = [&] { return needed > 1 && needed <= text.size(); };
  starve("cairn_manager_status", GetParam(), [&] {
    (void)cairn_manager_status(manager_, text.data(), text.size(), &needed);
    return is_whole();
  });
  EXPECT_EQ(text[0], '{');
  starve("cairn_manager_metrics", GetParam(), [&] {
    (void)cairn_manager_metrics(manager_, text.data(), text.size(), &needed);
    return is_whole();
  });
}

TEST_P(ManagerAllocationTest, EventsHaveNoGap) {
  cairn_events* events = nullptr;
  starve(
      "cairn_events_create", GetParam(), [&] { return done(cairn_events_create(manager_, &events, &error_), error_); },
      [&] { cairn_events_destroy(events); });
  std::string text(1 << 16, '\0');
  std::size_t needed = 0;
  std::string all;
  const auto next = [&] {
    starve(
        "cairn_events_next", GetParam(),
        [&] { return done(cairn_events_next(events, 64, text.data(), text.size(), &needed, &error_), error_); },
        [&] { all.append(text.data(), needed - 1); });
    all.append(text.data(), needed - 1);
  };
  next();  // the snapshot
  all.clear();
  const std::vector<cairn_key> keys = keys_of(manager_, 1, 3);
  cache(keys);
  next();
  std::size_t stored = 0;
  for (std::size_t at = all.find("\"stored\""); at != std::string::npos; at = all.find("\"stored\"", at + 1)) {
    ++stored;
  }
  EXPECT_GE(stored, 2U) << "on the device and in host memory, though the reader was short of memory: " << all;
  starve("cairn_events_destroy", GetParam(), [&] {
    cairn_events_destroy(events);
    events = nullptr;
    return true;
  });
}

TEST_P(AllocationTest, ASchedulerAndAWorkerAreMadeAndDestroyed) {
  const cairn_scheduler_options options = Engine::options();
  cairn_scheduler* scheduler = nullptr;
  starve(
      "cairn_scheduler_create", GetParam(),
      [&] { return done(cairn_scheduler_create(&options, &scheduler, &error_), error_); },
      [&] { cairn_scheduler_destroy(scheduler); });
  Engine engine(scheduler);
  const auto leave = [&] { cairn_worker_destroy(std::exchange(engine.worker, nullptr)); };
  leave();
  starve("cairn_worker_create", GetParam(), [&] { return done(engine.create_worker(), engine.error); }, leave);
  EXPECT_EQ(cairn_scheduler_wait_for_ranks(engine.scheduler, 10'000, &error_), CAIRN_OK) << error_.message;
  engine.save({1, 2, 3});
  // These functions cannot report an error; they must succeed without memory.
  starve(
      "cairn_worker_destroy", GetParam(),
      [&] {
        leave();
        return true;
      },
      [&] { ASSERT_EQ(engine.create_worker(), CAIRN_OK) << engine.error.message; });
  starve(
      "cairn_scheduler_destroy", GetParam(),
      [&] {
        cairn_scheduler_destroy(std::exchange(engine.scheduler, nullptr));
        return true;
      },
      [&] { engine.scheduler = Engine::make_scheduler(); });
}

// The same after some work: the worker has saved, and the scheduler has an unfinished request.
TEST_P(AllocationTest, AnEngineIsDestroyedAfterWork) {
  bool has_failed = true;
  for (std::size_t n = 0; has_failed; ++n) {
    Engine engine;
    engine.save({1, 2, 3});
    cairn_request request = 0;
    ASSERT_EQ(engine.add(engine.next_id(), &request), CAIRN_OK) << engine.error.message;
    const FailingAllocator failing(n, GetParam());
    cairn_worker_destroy(std::exchange(engine.worker, nullptr));
    cairn_scheduler_destroy(std::exchange(engine.scheduler, nullptr));
    has_failed = FailingAllocator::has_failed();
  }
}

TEST_P(AllocationTest, Requests) {
  Engine engine;
  engine.save({1, 2, 3});
  starve("cairn_scheduler_manager", GetParam(), [&] { return cairn_scheduler_manager(engine.scheduler) != nullptr; });
  char address[64];
  std::size_t needed = 9;
  starve("cairn_scheduler_address", GetParam(), [&] {
    (void)cairn_scheduler_address(engine.scheduler, address, sizeof address, &needed);
    return needed == 1;
  });
  starve("cairn_scheduler_wait_for_ranks", GetParam(),
         [&] { return done(cairn_scheduler_wait_for_ranks(engine.scheduler, 10'000, &engine.error), engine.error); });
  auto saves = sized<cairn_save_status>();
  starve("cairn_scheduler_saves", GetParam(),
         [&] { return done(cairn_scheduler_saves(engine.scheduler, &saves, &engine.error), engine.error); });
  EXPECT_EQ(saves.saved, saves.asked);
  cairn_request request = 0;
  const std::string id = engine.next_id();
  starve(
      "cairn_scheduler_add", GetParam(), [&] { return done(engine.add(id, &request), engine.error); },
      [&] { engine.finish(request); });
  starve("cairn_scheduler_find", GetParam(),
         [&] { return cairn_scheduler_find(engine.scheduler, id.c_str()) == request; });
  std::size_t tokens = 0;
  std::int32_t when = 0;
  starve("cairn_scheduler_match", GetParam(), [&] {
    return done(cairn_scheduler_match(engine.scheduler, request, 0, &tokens, &when, &engine.error), engine.error);
  });
  EXPECT_EQ(tokens, 8U) << "it is found, however often memory was short";
  auto of_request = sized<cairn_token_counts>();
  starve("cairn_scheduler_get_request_counts", GetParam(), [&] {
    return done(cairn_scheduler_get_request_counts(engine.scheduler, request, &of_request, &engine.error),
                engine.error);
  });
  engine.finish(request);

  const std::vector<std::uint32_t> prompt_tokens(10, 7);
  auto run = sized<cairn_mm_run>();
  run.length = 3;
  auto prompt = sized<cairn_prompt>();
  prompt.tokens = prompt_tokens.data();
  prompt.token_count = prompt_tokens.size();
  prompt.mm_runs = &run;
  prompt.mm_run_count = 1;
  const std::string other = engine.next_id();
  auto given = sized<cairn_new_request>();
  given.id = other.c_str();
  given.prompt = &prompt;
  starve(
      "cairn_scheduler_add", GetParam(),
      [&] { return done(cairn_scheduler_add(engine.scheduler, &given, &request, &engine.error), engine.error); },
      [&] { engine.finish(request); });
  engine.finish(request);
}

TEST_P(AllocationTest, BlocksOfLayerGroups) {
  auto options = sized<cairn_scheduler_options>();
  options.config =
      "block_size = 4\n[model]\nlayers = 1\nheads = 1\nhead_size = 4\ngroups = \"global:full, local:sliding:3\"\n"
      "[host]\nblocks = 8\n";
  options.device_blocks = 16;
  cairn_scheduler* scheduler = nullptr;
  ASSERT_EQ(cairn_scheduler_create(&options, &scheduler, &error_), CAIRN_OK) << error_.message;
  const std::vector<std::uint32_t> tokens(8, 7);
  auto prompt = sized<cairn_prompt>();
  prompt.tokens = tokens.data();
  prompt.token_count = tokens.size();
  auto given = sized<cairn_new_request>();
  given.id = "a";
  given.prompt = &prompt;
  cairn_request request = 0;
  const auto add = [&] {
    ASSERT_EQ(cairn_scheduler_add(scheduler, &given, &request, &error_), CAIRN_OK) << error_.message;
  };
  add();
  const std::uint32_t blocks[] = {0, 1, CAIRN_NO_BLOCK, 2};
  const std::size_t counts[] = {2, 2};
  starve(
      "cairn_scheduler_allocated_groups", GetParam(),
      [&] {
        return done(cairn_scheduler_allocated_groups(scheduler, request, blocks, counts, 2, 0, 0, &error_), error_);
      },
      [&] {
        std::uint32_t held = 0;
        ASSERT_EQ(cairn_scheduler_finish(scheduler, request, 0, &held, &error_), CAIRN_OK) << error_.message;
        add();
      });
  cairn_scheduler_destroy(scheduler);
}

TEST_P(AllocationTest, Iterations) {
  Engine engine;
  engine.save({1, 2, 3});
  const std::vector<std::uint32_t> blocks = {4, 5, 6};
  cairn_request request = 0;
  std::string id = engine.next_id();
  const auto begin = [&] {
    ASSERT_EQ(engine.add(id, &request), CAIRN_OK) << engine.error.message;
    std::size_t tokens = 0;
    std::int32_t when = 0;
    ASSERT_EQ(cairn_scheduler_match(engine.scheduler, request, 0, &tokens, &when, &engine.error), CAIRN_OK);
    ASSERT_EQ(tokens, 8U);
  };
  const auto allocated = [&] {
    return cairn_scheduler_allocated(engine.scheduler, request, blocks.data(), 3, 0, 8, &engine.error);
  };
  begin();
  starve(
      "cairn_scheduler_allocated", GetParam(), [&] { return done(allocated(), engine.error); },
      [&] {
        engine.finish(request);
        begin();
      });
  // The load is part of the first iteration that can be built, however many attempts that takes.
  const auto bind = [&] {
    return cairn_worker_bind(engine.worker, engine.metadata, engine.metadata_size, &engine.error);
  };
  const auto start = [&] { return cairn_worker_start_load(engine.worker, nullptr, &engine.error); };
  // Binds the built metadata, and builds the next iteration.
  const auto next_iteration = [&] {
    ASSERT_EQ(bind(), CAIRN_OK) << engine.error.message;
    ASSERT_EQ(start(), CAIRN_OK) << engine.error.message;
    ++engine.iterations;
  };
  engine.iterations += 1000;  // away from the numbers used above
  starve(
      "cairn_scheduler_build", GetParam(), [&] { return done(engine.build(nullptr, engine.iterations), engine.error); },
      next_iteration);
  starve("cairn_scheduler_has_work", GetParam(), [&] { return cairn_scheduler_has_work(engine.scheduler) == 1; });
  const auto build_next = [&] {
    next_iteration();
    ASSERT_EQ(engine.build(nullptr, engine.iterations), CAIRN_OK) << engine.error.message;
  };
  starve("cairn_worker_bind", GetParam(), [&] { return done(bind(), engine.error); }, build_next);
  const auto bind_next = [&] {
    build_next();
    ASSERT_EQ(bind(), CAIRN_OK) << engine.error.message;
  };
  starve("cairn_worker_start_load", GetParam(), [&] { return done(start(), engine.error); }, bind_next);
  const auto start_next = [&] {
    bind_next();
    ASSERT_EQ(start(), CAIRN_OK) << engine.error.message;
  };
  starve("cairn_worker_wait_for_layer", GetParam(),
         [&] { return done(cairn_worker_wait_for_layer(engine.worker, 0, &engine.error), engine.error); });
  starve(
      "cairn_worker_save_layer", GetParam(),
      [&] { return done(cairn_worker_save_layer(engine.worker, 0, nullptr, &engine.error), engine.error); },
      start_next);
  starve(
      "cairn_worker_save_step", GetParam(),
      [&] { return done(cairn_worker_save_step(engine.worker, nullptr, &engine.error), engine.error); }, start_next);
  auto state = sized<cairn_worker_state>();
  starve("cairn_worker_get_state", GetParam(),
         [&] { return done(cairn_worker_get_state(engine.worker, &state), engine.error) && state.is_connected == 1; });
  auto report = sized<cairn_worker_outcomes>();
  std::size_t reported = 0;
  const auto take_outcomes = [&] {
    return done(cairn_worker_take_outcomes(engine.worker, &report, &engine.error), engine.error);
  };
  while (reported == 0 && !HasFailure()) {
    starve("cairn_worker_take_outcomes", GetParam(), take_outcomes, [&] { reported += report.loaded_count; });
    reported += report.loaded_count;
  }
  EXPECT_EQ(reported, 1U) << "the load is reported once";

  auto outcomes = sized<cairn_outcomes>();
  std::vector<cairn_request> loaded;
  const auto keep = [&] {
    for (std::size_t i = 0; i < outcomes.loaded_count; ++i) {
      loaded.push_back(CAIRN_AT(cairn_loaded, outcomes.loaded, outcomes.loaded_stride, i)->request);
    }
  };
  while (loaded.empty()) {
    starve(
        "cairn_scheduler_take_outcomes", GetParam(),
        [&] { return done(cairn_scheduler_take_outcomes(engine.scheduler, &outcomes, &engine.error), engine.error); },
        keep);
    keep();
  }
  EXPECT_EQ(loaded, std::vector<cairn_request>{request}) << "the load is reported once";

  // A request that could not be built because memory ran out continues without a cache; the others are not affected.
  auto scheduled = sized<cairn_scheduled>();
  scheduled.request = request;
  scheduled.computed_tokens = 8;
  starve(
      "cairn_scheduler_build", GetParam(),
      [&] { return done(engine.build(&scheduled, engine.iterations + 1), engine.error); },
      [&] { ++engine.iterations; });
  ++engine.iterations;
  auto refusals = sized<cairn_refusals>();
  scheduled.request = 12345;
  ASSERT_EQ(engine.build(&scheduled, ++engine.iterations), CAIRN_OK);
  starve("cairn_scheduler_get_refusals", GetParam(), [&] {
    return done(cairn_scheduler_get_refusals(engine.scheduler, &refusals, &engine.error), engine.error) &&
           refusals.refused_count == 1;
  });
  std::uint32_t held = 9;
  const auto add_again = [&] {
    if (held != 0) {
      engine.wait_for_release();
    }
    ASSERT_EQ(engine.add(id, &request), CAIRN_OK) << engine.error.message;
  };
  starve(
      "cairn_scheduler_finish", GetParam(),
      [&] {
        return done(cairn_scheduler_finish(engine.scheduler, request, CAIRN_NOT_SAID, &held, &engine.error),
                    engine.error);
      },
      add_again);
  add_again();
  starve(
      "cairn_scheduler_finish_as", GetParam(),
      [&] {
        return done(cairn_scheduler_finish_as(engine.scheduler, request, CAIRN_NOT_SAID, CAIRN_ENDING_TOOL_CALL, &held,
                                              &engine.error),
                    engine.error);
      },
      add_again);
  if (held != 0) {
    engine.wait_for_release();
  }
  EXPECT_EQ(cairn_scheduler_find(engine.scheduler, id.c_str()), 0U);
  auto counts = sized<cairn_token_counts>();
  starve("cairn_scheduler_get_counts", GetParam(), [&] {
    return done(cairn_scheduler_get_counts(engine.scheduler, CAIRN_COUNTS_TOTAL, "", &counts, &engine.error),
                engine.error);
  });
  auto reset = sized<cairn_reset_report>();
  starve("cairn_scheduler_reset", GetParam(),
         [&] { return done(cairn_scheduler_reset(engine.scheduler, &reset, &engine.error), engine.error); });
  std::uint64_t generation = 100;
  starve("cairn_scheduler_invalidate", GetParam(), [&] {
    return done(cairn_scheduler_invalidate(engine.scheduler, ++generation, &reset, &engine.error), engine.error);
  });
  // Everything still works.
  engine.save({7, 8, 9}, 100);
  request = 0;
  ASSERT_EQ(engine.add(engine.next_id(), &request, 100), CAIRN_OK);
  std::size_t tokens = 0;
  std::int32_t when = 0;
  ASSERT_EQ(cairn_scheduler_match(engine.scheduler, request, 0, &tokens, &when, &engine.error), CAIRN_OK);
  EXPECT_EQ(tokens, 8U);
  engine.finish(request);
}

// Saves that could not be built because memory ran out are made later: neither lost nor held forever.
TEST_P(AllocationTest, SavesOutliveAnIterationThatCouldNotBeBuilt) {
  Engine engine;
  for (std::uint32_t turn = 0; turn < 2; ++turn) {
    const std::uint32_t first = 200 + 100 * turn;
    cairn_request request = 0;
    ASSERT_EQ(engine.add(engine.next_id(), &request, first), CAIRN_OK);
    const std::uint32_t blocks[] = {1, 2, 3};
    ASSERT_EQ(cairn_scheduler_allocated(engine.scheduler, request, blocks, 3, 0, 0, &engine.error), CAIRN_OK);
    auto scheduled = sized<cairn_scheduled>();
    scheduled.request = request;
    engine.step(&scheduled);
    std::uint32_t held = 0;
    ASSERT_EQ(cairn_scheduler_finish(engine.scheduler, request, 10, &held, &engine.error), CAIRN_OK);
    ASSERT_EQ(held, 1U);
    starve(
        "cairn_scheduler_build", GetParam(),
        [&] { return done(engine.build(nullptr, engine.iterations + 1), engine.error); }, [&] { ++engine.iterations; });
    ++engine.iterations;
    EXPECT_EQ(cairn_worker_bind(engine.worker, engine.metadata, engine.metadata_size, &engine.error), CAIRN_OK);
    EXPECT_EQ(cairn_worker_start_load(engine.worker, nullptr, &engine.error), CAIRN_OK);
    EXPECT_EQ(cairn_worker_save_step(engine.worker, nullptr, &engine.error), CAIRN_OK);
    engine.wait_for_release();
    ASSERT_EQ(engine.add(engine.next_id(), &request, first), CAIRN_OK);
    std::size_t tokens = 0;
    std::int32_t when = 0;
    ASSERT_EQ(cairn_scheduler_match(engine.scheduler, request, 0, &tokens, &when, &engine.error), CAIRN_OK);
    EXPECT_EQ(tokens, 8U);
    engine.finish(request);
  }
}

// Objects that are created and destroyed leak nothing, even if their creation failed halfway.
TEST(AllocationLeakTest, NothingIsLeftBehind) {
  const auto all = [] {
    auto options = sized<cairn_manager_options>();
    options.config = kConfig.c_str();
    const cairn_scheduler_options scheduler_options = Engine::options();
    for (const FailingAllocator::Mode mode : kModes) {
      for (const std::size_t n : {1U, 10U, 30U, 60U, 90U, 150U, 250U, 400U, 700U}) {
        cairn_manager* manager = nullptr;
        cairn_scheduler* scheduler = nullptr;
        {
          const FailingAllocator failing(n, mode);
          (void)cairn_manager_create(&options, &manager, nullptr);
        }
        cairn_manager_destroy(manager);
        {
          const FailingAllocator failing(n, mode);
          (void)cairn_scheduler_create(&scheduler_options, &scheduler, nullptr);
        }
        cairn_scheduler_destroy(scheduler);
      }
    }
    Engine engine;
    engine.save({1, 2, 3});
  };
  all();  // creates what exists once per process
  const long before = live_allocations();
  all();
  EXPECT_EQ(live_allocations(), before);
}

// Runs after all tests and checks that they covered every function; skipped if a filter left tests out.
class EveryFunctionIsTested final : public ::testing::Environment {
 public:
  void TearDown() override {
    if (GTEST_FLAG_GET(filter) != "*") {
      return;
    }
    std::ifstream file(CAIRN_EXPORTED_SYMBOLS);
    std::size_t exported = 0;
    for (std::string name; file >> name; ++exported) {
      EXPECT_TRUE(tested().contains(name)) << name << " has no test with a failing allocator: add it here";
    }
    EXPECT_GT(exported, 0U) << CAIRN_EXPORTED_SYMBOLS;
  }
};

const auto* const kAfterAll = ::testing::AddGlobalTestEnvironment(new EveryFunctionIsTested);

}  // namespace
}  // namespace cairn_c_test
