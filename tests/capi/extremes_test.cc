// The largest possible numbers at the C interface: such durations never end, such indices and counts are errors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>

#include "tests/capi/c_engine_testing.h"

namespace cairn_c_test {
namespace {

using ::testing::HasSubstr;

constexpr std::uint64_t kExtremes[] = {std::numeric_limits<std::uint64_t>::max(), std::uint64_t{1} << 63,
                                       std::uint64_t{1} << 62, 10'000'000'000'000};

class ExtremesTest : public ::testing::TestWithParam<std::uint64_t> {
 protected:
  cairn_error error_ = sized<cairn_error>();
};

INSTANTIATE_TEST_SUITE_P(Milliseconds, ExtremesTest, ::testing::ValuesIn(kExtremes));

TEST_P(ExtremesTest, ALoadWithALongDeadlineLoadsItsBlocks) {
  cairn_manager* const manager = make_manager();
  const std::vector<cairn_key> keys = keys_of(manager, 1, 3);
  cairn_blocks* blocks = nullptr;
  ASSERT_EQ(cairn_manager_allocate(manager, CAIRN_G1, 3, &blocks, &error_), CAIRN_OK);
  ASSERT_EQ(cairn_blocks_register(blocks, keys.data(), keys.size(), nullptr, &error_), CAIRN_OK);
  cairn_blocks_release(blocks);
  EXPECT_EQ(cairn_manager_drain(manager, GetParam(), &error_), CAIRN_OK) << error_.message;
  ASSERT_EQ(cairn_manager_reset(manager, CAIRN_G1, nullptr, &error_), CAIRN_OK);
  ASSERT_EQ(cairn_manager_load(manager, keys.data(), keys.size(), GetParam(), &blocks, &error_), CAIRN_OK);
  EXPECT_EQ(cairn_blocks_count(blocks), 3U);
  cairn_blocks_release(blocks);
  cairn_manager_destroy(manager);
}

TEST_P(ExtremesTest, AnEngineWithLongLimitsLoadsAndSaves) {
  cairn_scheduler_options options = Engine::options();
  options.load_deadline_ms = GetParam();
  options.save_deadline_ms = GetParam();
  cairn_scheduler* scheduler = nullptr;
  ASSERT_EQ(cairn_scheduler_create(&options, &scheduler, &error_), CAIRN_OK) << error_.message;
  Engine engine(scheduler, GetParam());
  EXPECT_EQ(cairn_scheduler_wait_for_ranks(scheduler, GetParam(), &error_), CAIRN_OK) << error_.message;
  engine.save({1, 2, 3});
  cairn_request request = 0;
  ASSERT_EQ(engine.add(engine.next_id(), &request), CAIRN_OK);
  std::size_t tokens = 0;
  std::int32_t when = 0;
  ASSERT_EQ(cairn_scheduler_match(scheduler, request, 0, &tokens, &when, &error_), CAIRN_OK);
  ASSERT_EQ(tokens, 8U);
  const std::uint32_t blocks[] = {4, 5, 6};
  ASSERT_EQ(cairn_scheduler_allocated(scheduler, request, blocks, 3, 0, 8, &error_), CAIRN_OK) << error_.message;
  engine.step();
  auto outcomes = sized<cairn_outcomes>();
  while (outcomes.loaded_count == 0) {
    ASSERT_EQ(cairn_scheduler_take_outcomes(scheduler, &outcomes, &error_), CAIRN_OK);
  }
  EXPECT_EQ(outcomes.loaded[0].tokens, 8U) << "the load did not time out";
  engine.finish(request);
}

TEST(ExtremeNumbersTest, LargeIndicesAndCountsAreErrors) {
  cairn_manager* const manager = make_manager();
  auto error = sized<cairn_error>();
  constexpr std::uint32_t kMost = std::numeric_limits<std::uint32_t>::max();
  void* address = nullptr;
  EXPECT_EQ(cairn_manager_address(manager, CAIRN_G1, kMost, 0, 0, 0, 0, &address, &error), CAIRN_OUT_OF_RANGE);
  EXPECT_EQ(cairn_manager_address(manager, CAIRN_G1, 0, kMost, kMost, kMost, kMost, &address, &error),
            CAIRN_OUT_OF_RANGE);
  EXPECT_EQ(cairn_manager_address(manager, kMost, 0, 0, 0, 0, 0, &address, &error), CAIRN_INVALID_ARGUMENT);
  cairn_blocks* blocks = nullptr;
  EXPECT_EQ(cairn_manager_allocate(manager, CAIRN_G1, kMost, &blocks, &error), CAIRN_EXHAUSTED);
  EXPECT_EQ(cairn_manager_allocate(manager, kMost, 1, &blocks, &error), CAIRN_INVALID_ARGUMENT);
  EXPECT_EQ(cairn_manager_resize_host(manager, kMost, &error), CAIRN_OUT_OF_RANGE);
  EXPECT_EQ(cairn_manager_pause(manager, kMost, kMost, 1, &error), CAIRN_INVALID_ARGUMENT);
  cairn_manager_destroy(manager);

  Engine engine;
  cairn_request request = 0;
  ASSERT_EQ(engine.add(engine.next_id(), &request), CAIRN_OK);
  const std::uint32_t none[] = {kMost};
  EXPECT_EQ(cairn_scheduler_allocated(engine.scheduler, request, none, 1, 0, 0, &error), CAIRN_INVALID_ARGUMENT);
  EXPECT_EQ(cairn_scheduler_allocated(engine.scheduler, request, none, 1, SIZE_MAX, 0, &error), CAIRN_OUT_OF_RANGE);
  EXPECT_NE(cairn_scheduler_allocated(engine.scheduler, UINT64_MAX, none, 1, 0, 0, &error), CAIRN_OK);
  std::size_t tokens = 9;
  std::int32_t when = 0;
  EXPECT_EQ(cairn_scheduler_match(engine.scheduler, request, SIZE_MAX, &tokens, &when, &error), CAIRN_OK);
  EXPECT_EQ(tokens, 0U);
  auto scheduled = sized<cairn_scheduled>();
  scheduled.request = request;
  scheduled.computed_tokens = SIZE_MAX;
  scheduled.accepted_draft_tokens = SIZE_MAX;
  scheduled.scheduled_tokens = SIZE_MAX;
  ASSERT_EQ(engine.build(&scheduled, UINT64_MAX), CAIRN_OK);
  auto refusals = sized<cairn_refusals>();
  ASSERT_EQ(cairn_scheduler_get_refusals(engine.scheduler, &refusals, &error), CAIRN_OK);
  ASSERT_EQ(refusals.refused_count, 1U);
  engine.finish(request);
}

}  // namespace
}  // namespace cairn_c_test
