// The C interface as its callers see it: codes, messages, structs of other sizes, buffers that are too small. Behaviour
// beyond that is tested in C++; examples/c runs it end to end.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include <cairn/cairn_c.h>

#include "cairn/capi/capi_testing.h"

namespace {

using cairn_c_test::config_text;
using cairn_c_test::sized;
using ::testing::HasSubstr;
using ::testing::StartsWith;

const std::string kConfig = config_text(1, 4, 8);

class CapiTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto options = sized<cairn_manager_options>();
    options.config = kConfig.c_str();
    ASSERT_EQ(cairn_manager_create(&options, &manager_, &error_), CAIRN_OK) << error_.message;
  }
  void TearDown() override { cairn_manager_destroy(manager_); }

  std::vector<cairn_key> keys(std::uint32_t first_token, std::size_t blocks) {
    return cairn_c_test::keys_of(manager_, first_token, blocks);
  }
  void cache(const std::vector<cairn_key>& names) {
    cairn_blocks* blocks = nullptr;
    ASSERT_EQ(cairn_manager_allocate(manager_, CAIRN_G1, static_cast<std::uint32_t>(names.size()), &blocks, &error_),
              CAIRN_OK)
        << error_.message;
    ASSERT_EQ(cairn_blocks_register(blocks, names.data(), names.size(), nullptr, &error_), CAIRN_OK);
    cairn_blocks_release(blocks);
  }
  std::string next_events(cairn_events* events, std::size_t capacity = 1 << 16) {
    std::string text(capacity, '\0');
    std::size_t needed = 0;
    EXPECT_EQ(cairn_events_next(events, 64, text.data(), text.size(), &needed, &error_), CAIRN_OK) << error_.message;
    text.resize(std::min(needed, capacity) - 1);
    return text;
  }

  cairn_manager* manager_ = nullptr;
  cairn_error error_ = sized<cairn_error>();
};

TEST_F(CapiTest, SaysItsVersions) {
  EXPECT_EQ(cairn_api_version(), CAIRN_API_VERSION);
  EXPECT_THAT(cairn_version(), HasSubstr("."));
  EXPECT_STREQ(cairn_code_name(CAIRN_OK), "ok");
  EXPECT_STREQ(cairn_code_name(CAIRN_EXHAUSTED), "exhausted");
  EXPECT_STREQ(cairn_code_name(CAIRN_CANCELLED), "cancelled");
  EXPECT_STREQ(cairn_code_name(-1), "unknown");
  EXPECT_STREQ(cairn_code_name(99), "unknown");
}

TEST_F(CapiTest, RefusesMissingArgumentsAndNamesThem) {
  cairn_manager* made = nullptr;
  EXPECT_EQ(cairn_manager_create(nullptr, &made, &error_), CAIRN_INVALID_ARGUMENT);
  EXPECT_THAT(error_.message, HasSubstr("options is NULL"));
  cairn_manager_options no_size{};
  EXPECT_EQ(cairn_manager_create(&no_size, &made, &error_), CAIRN_INVALID_ARGUMENT);
  EXPECT_THAT(error_.message, HasSubstr("CAIRN_INIT"));
  auto options = sized<cairn_manager_options>();
  options.config = "[host]\nsiez = 1\n";
  EXPECT_EQ(cairn_manager_create(&options, &made, &error_), CAIRN_INVALID_ARGUMENT);
  EXPECT_THAT(error_.message, HasSubstr("siez"));
  EXPECT_EQ(error_.code, CAIRN_INVALID_ARGUMENT);
  EXPECT_EQ(made, nullptr);
  // `error` may be null.
  EXPECT_EQ(cairn_manager_create(&options, &made, nullptr), CAIRN_INVALID_ARGUMENT);
}

TEST_F(CapiTest, CallersOfAnEarlierVersionHaveSmallerStructs) {
  cairn_manager_options early{};
  early.struct_size = offsetof(cairn_manager_options, config_file);
  early.config = kConfig.c_str();
  early.config_file = "/nowhere";  // beyond the caller's struct: ignored
  cairn_manager* made = nullptr;
  EXPECT_EQ(cairn_manager_create(&early, &made, &error_), CAIRN_OK) << error_.message;
  cairn_manager_destroy(made);

  cairn_error small{};
  small.struct_size = offsetof(cairn_error, message) + 8;
  small.message[8] = 'x';
  EXPECT_EQ(cairn_manager_create(nullptr, &made, &small), CAIRN_INVALID_ARGUMENT);
  EXPECT_STREQ(small.message, "options");
  EXPECT_EQ(small.message[8], 'x');
}

TEST_F(CapiTest, BlocksGoTheirWay) {
  const std::vector<cairn_key> names = keys(1, 2);
  cairn_blocks* blocks = nullptr;
  ASSERT_EQ(cairn_manager_allocate(manager_, CAIRN_G1, 2, &blocks, &error_), CAIRN_OK);
  ASSERT_EQ(cairn_blocks_count(blocks), 2U);
  EXPECT_EQ(cairn_blocks_register(blocks, names.data(), 1, nullptr, &error_), CAIRN_INVALID_ARGUMENT);
  EXPECT_EQ(cairn_blocks_count(blocks), 2U);  // as they were
  EXPECT_EQ(cairn_blocks_register(blocks, names.data(), 2, nullptr, &error_), CAIRN_OK) << error_.message;
  EXPECT_EQ(cairn_blocks_register(blocks, names.data(), 2, nullptr, &error_), CAIRN_FAILED_PRECONDITION);
  cairn_blocks_release(blocks);
  ASSERT_EQ(cairn_manager_match(manager_, CAIRN_G1, names.data(), 2, &blocks, &error_), CAIRN_OK);
  EXPECT_EQ(cairn_blocks_count(blocks), 2U);
  cairn_blocks_release(blocks);
  ASSERT_EQ(cairn_manager_match(manager_, CAIRN_G1, keys(500, 1).data(), 1, &blocks, &error_), CAIRN_OK);
  EXPECT_EQ(blocks, nullptr);
  EXPECT_EQ(cairn_blocks_count(blocks), 0U);
  cairn_blocks_release(blocks);
  EXPECT_EQ(cairn_manager_allocate(manager_, CAIRN_G1, 5, &blocks, &error_), CAIRN_EXHAUSTED);
  EXPECT_EQ(cairn_manager_allocate(manager_, CAIRN_G3, 1, &blocks, &error_), CAIRN_NOT_FOUND);
  EXPECT_EQ(cairn_manager_allocate(manager_, 9, 1, &blocks, &error_), CAIRN_INVALID_ARGUMENT);
}

TEST_F(CapiTest, TiersAreToldHowARequestEnded) {
  const auto names = keys(1, 3);
  cache(names);
  ASSERT_EQ(cairn_manager_drain(manager_, 10'000, &error_), CAIRN_OK);
  std::uint32_t found = 0;
  EXPECT_EQ(cairn_manager_end_request(manager_, names.data(), 3, CAIRN_ENDING_END_OF_TURN, &found, &error_), CAIRN_OK)
      << error_.message;
  EXPECT_GE(found, 3U);
  EXPECT_EQ(cairn_manager_end_request(manager_, names.data(), 3, CAIRN_ENDING_ABORT, nullptr, &error_), CAIRN_OK);
  EXPECT_EQ(cairn_manager_end_request(manager_, keys(500, 1).data(), 1, CAIRN_ENDING_LENGTH, &found, &error_),
            CAIRN_OK);
  EXPECT_EQ(found, 0U);
  EXPECT_EQ(cairn_manager_end_request(manager_, names.data(), 3, 5, &found, &error_), CAIRN_INVALID_ARGUMENT);
}

TEST_F(CapiTest, AResetIsAFenceAndSaysWhatItDid) {
  const auto names = keys(1, 3);
  cache(names);
  ASSERT_EQ(cairn_manager_drain(manager_, 10'000, &error_), CAIRN_OK);
  cairn_blocks* held = nullptr;
  ASSERT_EQ(cairn_manager_match(manager_, CAIRN_G1, names.data(), 1, &held, &error_), CAIRN_OK);
  cairn_reset_report no_size{};
  EXPECT_EQ(cairn_manager_reset_all(manager_, &no_size, &error_), CAIRN_INVALID_ARGUMENT);
  std::size_t found = 0;
  ASSERT_EQ(cairn_manager_locate(manager_, names.data(), 3, nullptr, &found, &error_), CAIRN_OK);
  EXPECT_EQ(found, 3U) << "a refused reset has no effect";
  auto report = sized<cairn_reset_report>();
  ASSERT_EQ(cairn_manager_reset_all(manager_, &report, &error_), CAIRN_OK) << error_.message;
  EXPECT_EQ(report.reset, 5U);
  EXPECT_EQ(report.in_use, 1U);
  EXPECT_EQ(report.copies, 0U);
  EXPECT_EQ(report.loads, 0U);
  ASSERT_EQ(cairn_manager_locate(manager_, names.data(), 3, nullptr, &found, &error_), CAIRN_OK);
  EXPECT_EQ(found, 0U);
  cairn_blocks_release(held);
  EXPECT_EQ(cairn_manager_reset_all(manager_, nullptr, &error_), CAIRN_OK);
}

TEST_F(CapiTest, NewWeightsInvalidateWhatIsStored) {
  const auto names = keys(1, 3);
  cache(names);
  cairn_events* events = nullptr;
  ASSERT_EQ(cairn_events_create(manager_, &events, &error_), CAIRN_OK);
  (void)next_events(events);
  EXPECT_EQ(cairn_manager_invalidate(manager_, 0, nullptr, &error_), CAIRN_INVALID_ARGUMENT);
  EXPECT_THAT(error_.message, HasSubstr("weights generation 0 is not above the present one, 0"));
  ASSERT_EQ(cairn_manager_invalidate(manager_, 2, nullptr, &error_), CAIRN_OK) << error_.message;
  EXPECT_THAT(next_events(events), HasSubstr(R"("tier":"G2","data":{"invalidated":{"weights_generation":2}},)"));
  cairn_events_destroy(events);
  std::size_t found = 0;
  ASSERT_EQ(cairn_manager_locate(manager_, names.data(), 3, nullptr, &found, &error_), CAIRN_OK);
  EXPECT_EQ(found, 0U);
  // A copy that began before the fence may still read three of the four device blocks.
  ASSERT_EQ(cairn_manager_drain(manager_, 10'000, &error_), CAIRN_OK) << error_.message;
  cache(names);
  ASSERT_EQ(cairn_manager_locate(manager_, names.data(), 3, nullptr, &found, &error_), CAIRN_OK);
  EXPECT_EQ(found, 3U);
}

// What an offload filter is asked; keeps the first block of each sequence.
struct FilterLog {
  std::vector<std::string> requests;
  std::vector<std::uint32_t> positions;
  std::uint32_t from = 9;
  std::uint32_t to = 9;
};
void keep_first_blocks(void* context, const cairn_filter_run* run, std::uint8_t* keep) {
  auto& log = *static_cast<FilterLog*>(context);
  log.from = run->from;
  log.to = run->to;
  log.requests.emplace_back(run->request == nullptr ? "none" : run->request);
  for (std::size_t i = 0; i < run->block_count; ++i) {
    const auto* block = CAIRN_AT(cairn_filter_block, run->blocks, run->block_stride, i);
    EXPECT_EQ(keep[i], 1);
    EXPECT_GE(block->uses, 1U);
    log.positions.push_back(block->position);
    keep[i] = block->position == 0 ? 1 : 0;
  }
}

TEST_F(CapiTest, AFilterDecidesWhatIsCopiedDown) {
  cairn_manager_destroy(manager_);
  FilterLog log;
  auto options = sized<cairn_manager_options>();
  options.config = kConfig.c_str();
  options.offload_filter = keep_first_blocks;
  options.offload_filter_context = &log;
  options.offload_filter_limit_us = 1'000'000;
  ASSERT_EQ(cairn_manager_create(&options, &manager_, &error_), CAIRN_OK) << error_.message;
  const auto names = keys(1, 3);
  cache(names);
  ASSERT_EQ(cairn_manager_drain(manager_, 10'000, &error_), CAIRN_OK) << error_.message;
  cairn_blocks* found = nullptr;
  ASSERT_EQ(cairn_manager_match(manager_, CAIRN_G2, names.data(), names.size(), &found, &error_), CAIRN_OK);
  EXPECT_EQ(cairn_blocks_count(found), 1U);
  cairn_blocks_release(found);
  EXPECT_EQ(log.positions, (std::vector<std::uint32_t>{0, 1, 2}));
  EXPECT_EQ(log.requests, std::vector<std::string>{"none"});
  EXPECT_EQ(log.from, CAIRN_G1);
  EXPECT_EQ(log.to, CAIRN_G2);
}

TEST_F(CapiTest, KeysThatAreNoneAreRefused) {
  const cairn_key none{~std::uint64_t{0}, ~std::uint64_t{0}};
  std::size_t found = 7;
  EXPECT_NE(cairn_manager_locate(manager_, &none, 1, nullptr, &found, &error_), CAIRN_OK);
  EXPECT_EQ(found, 7U);
  EXPECT_EQ(cairn_manager_locate(manager_, nullptr, 1, nullptr, &found, &error_), CAIRN_INVALID_ARGUMENT);
  EXPECT_EQ(cairn_manager_locate(manager_, nullptr, 0, nullptr, &found, &error_), CAIRN_OK);
  EXPECT_EQ(found, 0U);
}

TEST_F(CapiTest, AddressesAreThoseOfTheTierOrNone) {
  void* first = nullptr;
  void* second = nullptr;
  ASSERT_EQ(cairn_manager_address(manager_, CAIRN_G1, 0, 0, 0, 0, 0, &first, &error_), CAIRN_OK);
  ASSERT_EQ(cairn_manager_address(manager_, CAIRN_G1, 0, 0, 0, 1, 0, &second, &error_), CAIRN_OK);
  EXPECT_EQ(static_cast<char*>(second) - static_cast<char*>(first), 16);
  EXPECT_EQ(cairn_manager_address(manager_, CAIRN_G1, 4, 0, 0, 0, 0, &first, &error_), CAIRN_OUT_OF_RANGE);
  EXPECT_EQ(cairn_manager_address(manager_, CAIRN_G3, 0, 0, 0, 0, 0, &first, &error_), CAIRN_NOT_FOUND);
}

TEST_F(CapiTest, TextsAreCutOffWhereTheyDoNotFit) {
  std::size_t needed = 0;
  EXPECT_EQ(cairn_manager_status(manager_, nullptr, 0, &needed), 0U);
  std::string whole(needed, '\0');
  EXPECT_EQ(cairn_manager_status(manager_, whole.data(), 5, &needed), 4U);
  EXPECT_STREQ(whole.c_str(), "{\"wo");
  std::string metrics(1 << 16, '\0');
  (void)cairn_manager_metrics(manager_, metrics.data(), metrics.size(), nullptr);
  EXPECT_THAT(metrics, HasSubstr("# TYPE cairn_"));
}

TEST_F(CapiTest, EventsBeginWithASnapshotAndContinue) {
  cache(keys(1, 1));
  ASSERT_EQ(cairn_manager_drain(manager_, 5000, &error_), CAIRN_OK) << error_.message;
  cairn_events* events = nullptr;
  ASSERT_EQ(cairn_events_create(manager_, &events, &error_), CAIRN_OK);
  const std::string snapshot = next_events(events);
  EXPECT_THAT(snapshot, HasSubstr(R"("tier":"G1","data":"cleared","worker_id":)"));
  EXPECT_THAT(snapshot, HasSubstr(R"("tier":"G2","data":{"stored":)"));
  EXPECT_EQ(next_events(events), "");
  cache(keys(100, 1));
  // A text that does not fit stays.
  EXPECT_EQ(next_events(events, 10).size(), 9U);
  const std::string stored = next_events(events);
  EXPECT_THAT(stored, StartsWith("{\"event_id\":"));
  EXPECT_THAT(stored, HasSubstr(R"("tier":"G1","data":{"stored":)"));
  cairn_events_destroy(events);
}

// Three blocks that are in host memory and no longer on the device.
class FutureTest : public CapiTest {
 protected:
  void SetUp() override {
    CapiTest::SetUp();
    names_ = keys(1, 3);
    cache(names_);
    ASSERT_EQ(cairn_manager_drain(manager_, 10'000, &error_), CAIRN_OK) << error_.message;
    ASSERT_EQ(cairn_manager_reset(manager_, CAIRN_G1, nullptr, &error_), CAIRN_OK) << error_.message;
  }
  // Waits for the outcome of future_.
  cairn_future_outcome outcome() {
    auto outcome = sized<cairn_future_outcome>();
    EXPECT_EQ(cairn_future_wait(future_, 10'000, &outcome, &error_), CAIRN_OK) << error_.message;
    return outcome;
  }
  void TearDown() override {
    cairn_future_destroy(future_);
    CapiTest::TearDown();
  }

  std::vector<cairn_key> names_;
  cairn_future* future_ = nullptr;
};

TEST_F(FutureTest, ALoadBringsItsBlocksWhileTheCallerGoesOn) {
  auto options = sized<cairn_load_options>();
  options.keys = names_.data();
  options.key_count = names_.size();
  options.max_blocks = 2;
  ASSERT_EQ(cairn_manager_start_load(manager_, &options, &future_, &error_), CAIRN_OK) << error_.message;
  const cairn_future_outcome loaded = outcome();
  EXPECT_EQ(loaded.blocks, 2U);
  EXPECT_EQ(loaded.from_host, 2U);
  EXPECT_EQ(loaded.from_device + loaded.from_disk, 0U);
  EXPECT_EQ(outcome().blocks, 2U) << "may be asked again";
  cairn_blocks* const blocks = cairn_future_take_blocks(future_);
  EXPECT_EQ(cairn_blocks_count(blocks), 2U);
  EXPECT_EQ(cairn_future_take_blocks(future_), nullptr) << "taken";
  EXPECT_EQ(cairn_future_is_below(future_, nullptr, 0), 0U) << "of an offload only";
  cairn_blocks_release(blocks);
  cairn_future_cancel(future_);  // has ended: no effect
}

TEST_F(FutureTest, BlocksOfHostMemoryAreCopiedIntoGivenBlocks) {
  cairn_blocks* held = nullptr;
  ASSERT_EQ(cairn_manager_match(manager_, CAIRN_G2, names_.data(), 3, &held, &error_), CAIRN_OK);
  cairn_blocks* targets = nullptr;
  ASSERT_EQ(cairn_manager_allocate(manager_, CAIRN_G1, 2, &targets, &error_), CAIRN_OK) << error_.message;
  EXPECT_EQ(cairn_manager_start_onboard(manager_, held, targets, &future_, &error_), CAIRN_INVALID_ARGUMENT);
  EXPECT_THAT(error_.message, HasSubstr("3 blocks for 2 targets"));
  EXPECT_EQ(cairn_blocks_count(targets), 2U) << "a refused call leaves them to the caller";
  EXPECT_EQ(cairn_manager_start_onboard(manager_, targets, nullptr, &future_, &error_), CAIRN_FAILED_PRECONDITION);
  cairn_blocks_release(targets);
  ASSERT_EQ(cairn_manager_allocate(manager_, CAIRN_G1, 3, &targets, &error_), CAIRN_OK) << error_.message;
  std::vector<std::uint32_t> ids(3);
  ASSERT_EQ(cairn_blocks_ids(targets, ids.data(), 3), 3U);
  ASSERT_EQ(cairn_manager_start_onboard(manager_, held, targets, &future_, &error_), CAIRN_OK) << error_.message;
  cairn_blocks_release(targets);
  cairn_blocks_release(held);
  EXPECT_EQ(outcome().blocks, 3U);
  cairn_blocks* const blocks = cairn_future_take_blocks(future_);
  std::vector<std::uint32_t> brought(3);
  ASSERT_EQ(cairn_blocks_ids(blocks, brought.data(), 3), 3U);
  EXPECT_EQ(brought, ids) << "into the targets";
  cairn_blocks_release(blocks);
}

TEST_F(FutureTest, NewBlocksAreAllocatedIfNoneAreGiven) {
  cairn_blocks* held = nullptr;
  ASSERT_EQ(cairn_manager_match(manager_, CAIRN_G2, names_.data(), 3, &held, &error_), CAIRN_OK);
  ASSERT_EQ(cairn_manager_start_onboard(manager_, held, nullptr, &future_, &error_), CAIRN_OK) << error_.message;
  EXPECT_EQ(outcome().blocks, 3U);
  cairn_blocks_release(held);
}

TEST_F(FutureTest, AnOffloadSaysWhichBlocksAreBelow) {
  const std::vector<cairn_key> both = {keys(1, 1)[0], keys(700, 1)[0]};
  auto options = sized<cairn_offload_options>();
  options.keys = both.data();
  options.key_count = both.size();
  options.priority = 101;
  EXPECT_EQ(cairn_manager_start_offload(manager_, CAIRN_G2, &options, &future_, &error_), CAIRN_INVALID_ARGUMENT);
  options.priority = 90;
  EXPECT_EQ(cairn_manager_start_offload(manager_, CAIRN_G3, &options, &future_, &error_), CAIRN_NOT_FOUND);
  ASSERT_EQ(cairn_manager_start_offload(manager_, CAIRN_G2, &options, &future_, &error_), CAIRN_OK) << error_.message;
  EXPECT_EQ(outcome().blocks, 1U);
  std::uint8_t is_below[2] = {7, 7};
  EXPECT_EQ(cairn_future_is_below(future_, is_below, 2), 2U);
  EXPECT_EQ(is_below[0], 1U);
  EXPECT_EQ(is_below[1], 0U) << "nobody has it";
  EXPECT_EQ(cairn_future_take_blocks(future_), nullptr);
}

TEST_F(FutureTest, APrefetchWithoutADiskBringsNothing) {
  ASSERT_EQ(cairn_manager_start_prefetch(manager_, names_.data(), 3, &future_, &error_), CAIRN_OK) << error_.message;
  EXPECT_EQ(outcome().blocks, 0U);
}

TEST_F(FutureTest, AFutureMayBeDestroyedBeforeItsOutcome) {
  auto options = sized<cairn_load_options>();
  options.keys = names_.data();
  options.key_count = names_.size();
  cairn_future* dropped = nullptr;
  ASSERT_EQ(cairn_manager_start_load(manager_, &options, &dropped, &error_), CAIRN_OK) << error_.message;
  cairn_future_destroy(dropped);
  ASSERT_EQ(cairn_manager_drain(manager_, 10'000, &error_), CAIRN_OK) << error_.message;
  cairn_future_destroy(nullptr);
}

TEST_F(FutureTest, ScatteredKeysAreMatchedWhereverTheyAre) {
  const std::vector<cairn_key> some = {names_[2], keys(900, 1)[0], names_[0]};
  std::uint32_t positions[3] = {7, 7, 7};
  cairn_blocks* blocks = nullptr;
  ASSERT_EQ(cairn_manager_match_scattered(manager_, CAIRN_G2, some.data(), 3, positions, &blocks, &error_), CAIRN_OK);
  EXPECT_EQ(cairn_blocks_count(blocks), 2U);
  EXPECT_EQ(positions[0], 0U);
  EXPECT_EQ(positions[1], CAIRN_NO_POSITION);
  EXPECT_EQ(positions[2], 1U);
  cairn_blocks_release(blocks);
  ASSERT_EQ(cairn_manager_match_scattered(manager_, CAIRN_G1, some.data(), 3, nullptr, &blocks, &error_), CAIRN_OK);
  EXPECT_EQ(blocks, nullptr);
  std::uint32_t worth = 0;
  ASSERT_EQ(cairn_manager_worth_loading(manager_, names_.data(), 3, 0, &worth, &error_), CAIRN_OK);
  EXPECT_LE(worth, 3U);
}

TEST_F(FutureTest, ResetsOfKeysAndOfTiersAreTold) {
  cairn_resets* resets = nullptr;
  ASSERT_EQ(cairn_resets_create(manager_, &resets, &error_), CAIRN_OK);
  std::uint64_t missed = 7;
  EXPECT_EQ(cairn_resets_next(resets, &missed), -1);
  EXPECT_EQ(missed, 0U);
  cairn_blocks* held = nullptr;
  ASSERT_EQ(cairn_manager_match(manager_, CAIRN_G2, names_.data(), 1, &held, &error_), CAIRN_OK);
  const std::vector<cairn_key> some = {names_[0], names_[2], keys(900, 1)[0]};
  auto dropped = sized<cairn_keys_reset>();
  ASSERT_EQ(cairn_manager_reset_keys(manager_, CAIRN_G2, some.data(), 3, &dropped, &error_), CAIRN_OK);
  EXPECT_EQ(dropped.reset, 1U);
  EXPECT_EQ(dropped.in_use, 1U);
  EXPECT_EQ(dropped.not_found, 1U);
  EXPECT_EQ(cairn_manager_reset_keys(manager_, CAIRN_G3, some.data(), 3, nullptr, &error_), CAIRN_NOT_FOUND);
  cairn_blocks_release(held);
  ASSERT_EQ(cairn_manager_reset(manager_, CAIRN_G2, nullptr, &error_), CAIRN_OK);
  EXPECT_EQ(cairn_resets_next(resets, nullptr), CAIRN_G2);
  EXPECT_EQ(cairn_resets_next(resets, nullptr), -1);
  cairn_resets_destroy(resets);
}

TEST_F(FutureTest, RetentionAndHintsNeedTheirSetting) {
  cairn_blocks* blocks = nullptr;
  const auto names = keys(50, 1);
  ASSERT_EQ(cairn_manager_allocate(manager_, CAIRN_G1, 1, &blocks, &error_), CAIRN_OK);
  auto retention = sized<cairn_retention>();
  retention.priority = 101;
  EXPECT_EQ(cairn_blocks_register(blocks, names.data(), 1, &retention, &error_), CAIRN_INVALID_ARGUMENT);
  retention.priority = 80;
  retention.time_to_live_ms = 1000;
  EXPECT_NE(cairn_blocks_register(blocks, names.data(), 1, &retention, &error_), CAIRN_OK) << "no requests.retention";
  EXPECT_EQ(cairn_blocks_count(blocks), 1U) << "as they were";
  retention.time_to_live_ms = 0;
  EXPECT_EQ(cairn_blocks_register(blocks, names.data(), 1, &retention, &error_), CAIRN_OK) << error_.message;
  cairn_blocks_release(blocks);
  std::uint32_t found = 7;
  EXPECT_EQ(cairn_manager_hint(manager_, names.data(), 1, CAIRN_HINT_SYSTEM_PROMPT, 0, &found, &error_),
            CAIRN_FAILED_PRECONDITION);
  EXPECT_EQ(cairn_manager_hint(manager_, names.data(), 1, 99, 0, &found, &error_), CAIRN_INVALID_ARGUMENT);

  auto options = sized<cairn_manager_options>();
  const std::string config = kConfig + "[requests]\nretention = true\n";
  options.config = config.c_str();
  cairn_manager* keeps = nullptr;
  ASSERT_EQ(cairn_manager_create(&options, &keeps, &error_), CAIRN_OK) << error_.message;
  const auto kept = cairn_c_test::keys_of(keeps, 50, 1);
  ASSERT_EQ(cairn_manager_allocate(keeps, CAIRN_G1, 1, &blocks, &error_), CAIRN_OK);
  retention.time_to_live_ms = 1'000'000;
  EXPECT_EQ(cairn_blocks_register(blocks, kept.data(), 1, &retention, &error_), CAIRN_OK) << error_.message;
  cairn_blocks_release(blocks);
  EXPECT_EQ(cairn_manager_hint(keeps, kept.data(), 1, CAIRN_HINT_RETURNS, 5000, &found, &error_), CAIRN_OK);
  EXPECT_GE(found, 1U);
  cairn_manager_destroy(keeps);
}

TEST_F(CapiTest, AnEventLogThatIsOffCannotBeFollowed) {
  auto options = sized<cairn_manager_options>();
  const std::string config = "event_log = 0\n" + kConfig;
  options.config = config.c_str();
  cairn_manager* quiet = nullptr;
  ASSERT_EQ(cairn_manager_create(&options, &quiet, &error_), CAIRN_OK) << error_.message;
  cairn_events* events = nullptr;
  EXPECT_EQ(cairn_events_create(quiet, &events, &error_), CAIRN_FAILED_PRECONDITION);
  cairn_manager_destroy(quiet);
}

TEST_F(CapiTest, ControlsLinksAndSizes) {
  EXPECT_EQ(cairn_manager_pause(manager_, CAIRN_G1, CAIRN_G2, 1, &error_), CAIRN_OK);
  EXPECT_EQ(cairn_manager_pause(manager_, CAIRN_G1, CAIRN_G2, 0, &error_), CAIRN_OK);
  EXPECT_EQ(cairn_manager_pause(manager_, CAIRN_G2, CAIRN_G3, 1, &error_), CAIRN_NOT_FOUND);
  EXPECT_EQ(cairn_manager_resize_host(manager_, 4, &error_), CAIRN_OK);
  EXPECT_EQ(cairn_manager_resize_host(manager_, 0, &error_), CAIRN_OUT_OF_RANGE);
  EXPECT_EQ(cairn_manager_block_size(manager_), 4U);
}

// Blocks of a prompt of 12 tokens, of which 4 to 7 stand for an image.
std::vector<cairn_key> keys_with_image(const cairn_manager* manager, std::uint64_t image,
                                       std::uint32_t item_offset = 0) {
  const std::vector<std::uint32_t> tokens = {1, 2, 3, 4, 9, 9, 9, 9, 5, 6, 7, 8};
  auto run = sized<cairn_mm_run>();
  run.item_hash = image;
  run.offset = 4;
  run.length = 4;
  run.item_offset = item_offset;
  auto prompt = sized<cairn_prompt>();
  prompt.tokens = tokens.data();
  prompt.token_count = tokens.size();
  prompt.mm_runs = &run;
  prompt.mm_run_count = image == 0 ? 0 : 1;
  std::vector<cairn_key> made(3);
  std::size_t count = 0;
  EXPECT_EQ(cairn_manager_hash_prompt(manager, &prompt, made.data(), made.size(), &count, nullptr), CAIRN_OK);
  EXPECT_EQ(count, 3U);
  return made;
}

bool same(const cairn_key& one, const cairn_key& other) { return one.high == other.high && one.low == other.low; }

TEST_F(CapiTest, TwoImagesBehindTheSamePlaceholdersHaveOtherKeys) {
  const std::vector<cairn_key> cat = keys_with_image(manager_, 1);
  const std::vector<cairn_key> dog = keys_with_image(manager_, 2);
  EXPECT_TRUE(same(cat[0], dog[0])) << "before the image";
  EXPECT_FALSE(same(cat[1], dog[1]));
  EXPECT_FALSE(same(cat[2], dog[2])) << "and the blocks after it";
  EXPECT_FALSE(same(cat[1], keys_with_image(manager_, 0)[1])) << "without an image the key differs again";
  EXPECT_FALSE(same(cat[1], keys_with_image(manager_, 1, 4)[1])) << "and with another part of the image";
  EXPECT_TRUE(same(cat[2], keys_with_image(manager_, 1)[2]));
  cache(cat);
  std::size_t found = 0;
  ASSERT_EQ(cairn_manager_locate(manager_, dog.data(), dog.size(), nullptr, &found, &error_), CAIRN_OK);
  EXPECT_EQ(found, 1U);
  ASSERT_EQ(cairn_manager_locate(manager_, cat.data(), cat.size(), nullptr, &found, &error_), CAIRN_OK);
  EXPECT_EQ(found, 3U);
}

TEST_F(CapiTest, CallersArraysAreNotOverrun) {
  const std::vector<std::uint32_t> tokens(11, 1);  // two full blocks
  auto prompt = sized<cairn_prompt>();
  prompt.tokens = tokens.data();
  prompt.token_count = tokens.size();
  std::vector<cairn_key> made(2, cairn_key{7, 7});
  std::size_t count = 0;
  EXPECT_EQ(cairn_manager_hash_prompt(manager_, &prompt, nullptr, 0, &count, &error_), CAIRN_OUT_OF_RANGE);
  EXPECT_EQ(count, 2U) << "the capacity that is needed";
  EXPECT_EQ(cairn_manager_hash_prompt(manager_, &prompt, made.data(), 1, &count, &error_), CAIRN_OUT_OF_RANGE);
  EXPECT_THAT(error_.message, HasSubstr("2 full blocks, but keys has room for 1"));
  EXPECT_EQ(made[0].high, 7U) << "nothing is written";
  EXPECT_EQ(cairn_manager_hash_prompt(manager_, &prompt, nullptr, 2, &count, &error_), CAIRN_INVALID_ARGUMENT);
  EXPECT_EQ(cairn_manager_hash_prompt(manager_, &prompt, made.data(), 2, nullptr, &error_), CAIRN_INVALID_ARGUMENT);
  EXPECT_EQ(cairn_manager_hash_prompt(manager_, &prompt, made.data(), 2, &count, &error_), CAIRN_OK);

  cairn_blocks* blocks = nullptr;
  ASSERT_EQ(cairn_manager_allocate(manager_, CAIRN_G1, 3, &blocks, &error_), CAIRN_OK) << error_.message;
  std::vector<std::uint32_t> block_ids(3, 77);
  EXPECT_EQ(cairn_blocks_ids(blocks, block_ids.data(), 2), 3U);
  EXPECT_NE(block_ids[1], 77U);
  EXPECT_EQ(block_ids[2], 77U) << "beyond the capacity";
  EXPECT_EQ(cairn_blocks_ids(blocks, nullptr, 0), 3U);
  EXPECT_EQ(cairn_blocks_ids(nullptr, block_ids.data(), 3), 0U);
  cairn_blocks_release(blocks);
}

TEST_F(CapiTest, RunsOfAPromptAreChecked) {
  const std::vector<std::uint32_t> tokens(8, 1);
  auto run = sized<cairn_mm_run>();
  run.offset = 2;
  run.length = 2;
  std::vector<cairn_mm_run> runs = {run, run};
  auto prompt = sized<cairn_prompt>();
  prompt.tokens = tokens.data();
  prompt.token_count = tokens.size();
  prompt.mm_runs = runs.data();
  prompt.mm_run_count = 2;
  std::vector<cairn_key> made(2);
  std::size_t count = 0;
  EXPECT_EQ(cairn_manager_hash_prompt(manager_, &prompt, made.data(), made.size(), &count, &error_),
            CAIRN_INVALID_ARGUMENT);
  EXPECT_THAT(error_.message, HasSubstr("multimodal run 1"));
  runs[0].offset = UINT64_MAX;
  EXPECT_EQ(cairn_manager_hash_prompt(manager_, &prompt, made.data(), made.size(), &count, &error_),
            CAIRN_INVALID_ARGUMENT);
  runs[0] = cairn_mm_run{};
  EXPECT_EQ(cairn_manager_hash_prompt(manager_, &prompt, made.data(), made.size(), &count, &error_),
            CAIRN_INVALID_ARGUMENT);
  EXPECT_THAT(error_.message, HasSubstr("CAIRN_INIT"));
  prompt.mm_runs = nullptr;
  EXPECT_EQ(cairn_manager_hash_prompt(manager_, &prompt, made.data(), made.size(), &count, &error_),
            CAIRN_INVALID_ARGUMENT);
}

TEST_F(CapiTest, EventsOfADestroyedManagerSaySo) {
  cairn_events* events = nullptr;
  ASSERT_EQ(cairn_events_create(manager_, &events, &error_), CAIRN_OK);
  cache(keys(1, 2));
  cairn_manager_destroy(manager_);
  manager_ = nullptr;
  char text[64];
  std::size_t needed = 0;
  EXPECT_EQ(cairn_events_next(events, 64, text, sizeof text, &needed, &error_), CAIRN_UNAVAILABLE);
  EXPECT_THAT(error_.message, HasSubstr("was destroyed"));
  EXPECT_EQ(cairn_events_next(events, 64, text, sizeof text, &needed, &error_), CAIRN_UNAVAILABLE);
  cairn_events_destroy(events);
}

TEST_F(CapiTest, AManagerIsDestroyedWhileItsEventsAreRead) {
  cairn_events* events = nullptr;
  ASSERT_EQ(cairn_events_create(manager_, &events, &error_), CAIRN_OK);
  std::thread reader([events] {
    std::string text(1 << 16, '\0');
    auto error = sized<cairn_error>();
    std::size_t needed = 0;
    int32_t code = CAIRN_OK;
    while (code == CAIRN_OK) {
      code = cairn_events_next(events, 64, text.data(), text.size(), &needed, &error);
    }
    EXPECT_EQ(code, CAIRN_UNAVAILABLE);
  });
  cache(keys(1, 2));
  cairn_manager_destroy(manager_);
  manager_ = nullptr;
  reader.join();
  cairn_events_destroy(events);
}

TEST_F(CapiTest, AWorkerHasOneLeader) {
  auto options = sized<cairn_worker_options>();
  cairn_worker* worker = nullptr;
  EXPECT_EQ(cairn_worker_create(&options, &worker, &error_), CAIRN_INVALID_ARGUMENT);
  EXPECT_THAT(error_.message, HasSubstr("give either leader"));
  options.leader = "carrier pigeon";
  EXPECT_EQ(cairn_worker_create(&options, &worker, &error_), CAIRN_INVALID_ARGUMENT);
  EXPECT_EQ(worker, nullptr);
}

// The C interface makes the keys that the manager's scheme and secret say.
TEST(CapiKeysTest, SchemeSaltAndSecretSelectTheKeys) {
  const std::vector<std::uint32_t> tokens = {1, 2, 3, 4};
  auto error = sized<cairn_error>();
  const auto key_with = [&](const std::string& model, const char* salt, const char* lora) {
    const std::string config = "block_size = 4\n[model]\nlayers = 1\nheads = 1\nhead_size = 4\n" + model +
                               "\n[device]\nblocks = 4\nmemory = \"system\"\n";
    auto options = sized<cairn_manager_options>();
    options.config = config.c_str();
    cairn_manager* manager = nullptr;
    EXPECT_EQ(cairn_manager_create(&options, &manager, &error), CAIRN_OK) << error.message;
    cairn_key key = {};
    std::size_t count = 0;
    auto prompt = sized<cairn_prompt>();
    prompt.tokens = tokens.data();
    prompt.token_count = tokens.size();
    prompt.salt = salt;
    prompt.lora_name = lora;
    const std::int32_t code = cairn_manager_hash_prompt(manager, &prompt, &key, 1, &count, &error);
    cairn_manager_destroy(manager);
    return std::pair(code, std::pair(key.high, key.low));
  };
  const std::string secret = "secret = \"" + std::string(64, '7') + "\"";
  const auto native = key_with(secret, nullptr, nullptr);
  EXPECT_EQ(native.first, CAIRN_OK);
  EXPECT_EQ(key_with(secret, "", ""), native);
  EXPECT_NE(key_with(secret, "a", nullptr), native);
  EXPECT_NE(key_with(secret, "a", nullptr), key_with(secret, nullptr, "a"));
  EXPECT_NE(key_with("", nullptr, nullptr), native) << "a random secret";
  EXPECT_NE(key_with(secret + "\ntenant = \"t\"", nullptr, nullptr), native);
  constexpr std::uint64_t kRecorded = 14643705804678351452U;  // the hash of tokens 1 to 4 without a salt
  EXPECT_EQ(key_with("scheme = \"dynamo\"", nullptr, nullptr),
            std::pair(static_cast<int32_t>(CAIRN_OK), std::pair(kRecorded >> 10, kRecorded << 54)));
  EXPECT_EQ(key_with("scheme = \"vllm\"", nullptr, nullptr).first, CAIRN_FAILED_PRECONDITION);
  EXPECT_NE(std::string(error.message).find("scheme vllm"), std::string::npos);
}

TEST(CapiGridTest, RanksAreAGrid) {
  auto options = sized<cairn_scheduler_options>();
  options.config = "block_size = 4\n[model]\nlayers = 3\nheads = 1\nhead_size = 4\n[host]\nblocks = 8\n";
  options.device_blocks = 16;
  options.ranks = 3;
  options.pipeline = 2;
  auto error = sized<cairn_error>();
  cairn_scheduler* scheduler = nullptr;
  EXPECT_EQ(cairn_scheduler_create(&options, &scheduler, &error), CAIRN_INVALID_ARGUMENT);
  EXPECT_NE(std::string(error.message).find("each stage needs the same number of ranks"), std::string::npos);
  options.ranks = 4;
  ASSERT_EQ(cairn_scheduler_create(&options, &scheduler, &error), CAIRN_OK) << error.message;
  EXPECT_EQ(cairn_scheduler_wait_for_ranks(scheduler, 1, &error), CAIRN_EXPIRED);
  EXPECT_NE(std::string(error.message).find("not all 4 ranks (2 tensor x 2 pipeline) are ready"), std::string::npos)
      << error.message;
  cairn_scheduler_destroy(scheduler);
}

TEST_F(CapiTest, IterationsThatAreReportedAreLearnedFrom) {
  const auto status = [this] {
    std::string text(1 << 16, '\0');
    text.resize(cairn_manager_status(manager_, text.data(), text.size(), nullptr));
    return text;
  };
  EXPECT_THAT(status(), HasSubstr(R"("prefill":{"source":"unknown")"));
  auto iteration = sized<cairn_engine_iteration>();
  iteration.prefill_tokens = 1000;
  iteration.prefill_context = 1000 * 999 / 2;
  iteration.duration_ns = 50'000'000;
  for (int i = 0; i < 8; ++i) {
    ASSERT_EQ(cairn_manager_report_iteration(manager_, &iteration, &error_), CAIRN_OK) << error_.message;
  }
  EXPECT_THAT(status(), HasSubstr(R"("prefill":{"source":"learned","iterations":8)"));
  EXPECT_EQ(cairn_manager_report_iteration(manager_, nullptr, &error_), CAIRN_INVALID_ARGUMENT);
}

class CapiSchedulerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto options = sized<cairn_scheduler_options>();
    options.config =
        "block_size = 4\n[model]\nlayers = 1\nheads = 1\nhead_size = 4\n[host]\nblocks = 8\n"
        "[onboard]\nweigh = false\n";
    options.device_blocks = 16;
    ASSERT_EQ(cairn_scheduler_create(&options, &scheduler_, &error_), CAIRN_OK) << error_.message;
  }
  void TearDown() override { cairn_scheduler_destroy(scheduler_); }

  cairn_request add(const char* id, std::size_t tokens = 6) {
    const std::vector<std::uint32_t> prompt(tokens, 7);
    cairn_request request = 0;
    EXPECT_EQ(add_tokens(id, prompt, &request), CAIRN_OK) << error_.message;
    return request;
  }
  std::int32_t add_tokens(const char* id, const std::vector<std::uint32_t>& tokens, cairn_request* request) {
    auto prompt = sized<cairn_prompt>();
    prompt.tokens = tokens.data();
    prompt.token_count = tokens.size();
    auto given = sized<cairn_new_request>();
    given.id = id;
    given.prompt = &prompt;
    return cairn_scheduler_add(scheduler_, &given, request, &error_);
  }

  cairn_scheduler* scheduler_ = nullptr;
  cairn_error error_ = sized<cairn_error>();
};

TEST_F(CapiSchedulerTest, RequestsAreKnownByHandleAndById) {
  const cairn_request request = add("a");
  EXPECT_NE(request, 0U);
  EXPECT_EQ(cairn_scheduler_find(scheduler_, "a"), request);
  EXPECT_EQ(cairn_scheduler_find(scheduler_, "b"), 0U);
  cairn_request again = 0;
  EXPECT_EQ(add_tokens("a", {1}, &again), CAIRN_ALREADY_EXISTS);
  EXPECT_EQ(add_tokens(nullptr, {1}, &again), CAIRN_INVALID_ARGUMENT);
  EXPECT_EQ(add_tokens("b", {1}, nullptr), CAIRN_INVALID_ARGUMENT);
  EXPECT_EQ(add_tokens("b", {}, &again), CAIRN_INVALID_ARGUMENT);
  std::uint32_t held = 9;
  EXPECT_EQ(cairn_scheduler_finish_as(scheduler_, request, CAIRN_NOT_SAID, 9, &held, &error_), CAIRN_INVALID_ARGUMENT);
  EXPECT_THAT(error_.message, HasSubstr("unknown ending 9"));
  EXPECT_EQ(cairn_scheduler_finish_as(scheduler_, request, CAIRN_NOT_SAID, CAIRN_ENDING_TOOL_CALL, &held, &error_),
            CAIRN_OK);
  EXPECT_EQ(held, 0U);
  EXPECT_EQ(cairn_scheduler_finish(scheduler_, request, CAIRN_NOT_SAID, &held, &error_), CAIRN_NOT_FOUND);
}

TEST_F(CapiSchedulerTest, ARequestSaysHowItsBlocksAreKept) {
  const std::uint32_t tokens[] = {1, 2, 3, 4, 5};
  auto prompt = sized<cairn_prompt>();
  prompt.tokens = tokens;
  prompt.token_count = 5;
  auto given = sized<cairn_new_request>();
  given.id = "a";
  given.prompt = &prompt;
  cairn_request request = 0;
  const auto add_now = [&] { return cairn_scheduler_add(scheduler_, &given, &request, &error_); };
  given.priority = 101;
  EXPECT_EQ(add_now(), CAIRN_INVALID_ARGUMENT);
  given.priority = 80;
  given.time_to_live_ms = 1000;
  EXPECT_EQ(add_now(), CAIRN_FAILED_PRECONDITION);
  EXPECT_THAT(error_.message, HasSubstr("requests.retention"));
  given.time_to_live_ms = 0;
  given.hint = 4;
  EXPECT_EQ(add_now(), CAIRN_INVALID_ARGUMENT);
  given.hint = CAIRN_HINT_RETURNS;
  EXPECT_EQ(add_now(), CAIRN_FAILED_PRECONDITION);
  given.hint = CAIRN_HINT_NONE;
  given.tenant = "nobody";
  EXPECT_EQ(add_now(), CAIRN_NOT_FOUND);
  given.tenant = nullptr;
  const std::uint8_t digest[32] = {};
  given.block_digests = digest;
  given.block_digest_count = 1;
  EXPECT_EQ(add_now(), CAIRN_INVALID_ARGUMENT) << "the size is missing";
  given.digest_size = 32;
  EXPECT_EQ(add_now(), CAIRN_FAILED_PRECONDITION) << "keys are made from tokens here";
  given.block_digest_count = 0;
  given.digest_size = 0;
  const std::uint32_t dp_ranks[] = {1, 0};
  given.dp_rank = &dp_ranks[0];
  EXPECT_EQ(add_now(), CAIRN_INVALID_ARGUMENT) << "of another data parallel rank";
  given.dp_rank = &dp_ranks[1];
  EXPECT_EQ(add_now(), CAIRN_OK) << error_.message;
}

TEST_F(CapiSchedulerTest, WhatIsWrongWithOneRequestIsItsOwn) {
  const cairn_request good = add("good");
  const cairn_request bad = add("bad");
  const std::uint32_t blocks[] = {0, 1};
  ASSERT_EQ(cairn_scheduler_allocated(scheduler_, good, blocks, 2, 0, 0, &error_), CAIRN_OK) << error_.message;
  cairn_scheduled scheduled[2] = {sized<cairn_scheduled>(), sized<cairn_scheduled>()};
  scheduled[0].request = bad;
  scheduled[0].computed_tokens = 100;  // it has six
  scheduled[1].request = good;
  auto iteration = sized<cairn_iteration>();
  iteration.number = 1;
  iteration.scheduled = scheduled;
  iteration.scheduled_count = 2;
  const std::uint8_t* metadata = nullptr;
  std::size_t size = 0;
  ASSERT_EQ(cairn_scheduler_build(scheduler_, &iteration, &metadata, &size, &error_), CAIRN_OK) << error_.message;
  EXPECT_GT(size, 0U);
  auto refusals = sized<cairn_refusals>();
  ASSERT_EQ(cairn_scheduler_get_refusals(scheduler_, &refusals, &error_), CAIRN_OK);
  ASSERT_EQ(refusals.refused_count, 1U);
  EXPECT_EQ(refusals.refused[0].request, bad);
  EXPECT_NE(refusals.refused[0].code, CAIRN_OK);
}

TEST_F(CapiSchedulerTest, BlocksOfLayerGroupsComeInOneListGroupAfterGroup) {
  const std::uint32_t blocks[] = {0, 1, CAIRN_NO_BLOCK, 2};
  const std::size_t counts[] = {2, 2};
  const cairn_request plain = add("plain");
  EXPECT_EQ(cairn_scheduler_allocated_groups(scheduler_, plain, blocks, counts, 2, 0, 0, &error_),
            CAIRN_FAILED_PRECONDITION);
  cairn_scheduler_destroy(scheduler_);
  scheduler_ = nullptr;
  auto options = sized<cairn_scheduler_options>();
  options.config =
      "block_size = 4\n[model]\nlayers = 1\nheads = 1\nhead_size = 4\ngroups = \"global:full, local:sliding:3\"\n"
      "[host]\nblocks = 8\n";
  options.device_blocks = 16;
  ASSERT_EQ(cairn_scheduler_create(&options, &scheduler_, &error_), CAIRN_OK) << error_.message;
  const cairn_request request = add("a");
  EXPECT_EQ(cairn_scheduler_allocated(scheduler_, request, blocks, 2, 0, 0, &error_), CAIRN_FAILED_PRECONDITION);
  EXPECT_EQ(cairn_scheduler_allocated_groups(scheduler_, request, blocks, nullptr, 2, 0, 0, &error_),
            CAIRN_INVALID_ARGUMENT);
  EXPECT_EQ(cairn_scheduler_allocated_groups(scheduler_, request, blocks, counts, 1, 0, 0, &error_),
            CAIRN_INVALID_ARGUMENT);
  EXPECT_EQ(cairn_scheduler_allocated_groups(scheduler_, request, blocks, counts, 2, 0, 0, &error_), CAIRN_OK)
      << error_.message;
  auto scheduled = sized<cairn_scheduled>();
  scheduled.request = request;
  const std::uint32_t more[] = {3, 4};
  const std::size_t each[] = {1, 1};
  const std::size_t too_many[] = {1, 2};
  scheduled.new_blocks = more;
  scheduled.new_block_count = 2;
  scheduled.group_count = 2;
  auto iteration = sized<cairn_iteration>();
  iteration.number = 1;
  iteration.scheduled = &scheduled;
  iteration.scheduled_count = 1;
  const std::uint8_t* metadata = nullptr;
  std::size_t size = 0;
  scheduled.new_group_block_counts = too_many;
  EXPECT_EQ(cairn_scheduler_build(scheduler_, &iteration, &metadata, &size, &error_), CAIRN_OUT_OF_RANGE);
  scheduled.new_group_block_counts = each;
  ASSERT_EQ(cairn_scheduler_build(scheduler_, &iteration, &metadata, &size, &error_), CAIRN_OK) << error_.message;
  auto refusals = sized<cairn_refusals>();
  ASSERT_EQ(cairn_scheduler_get_refusals(scheduler_, &refusals, &error_), CAIRN_OK);
  EXPECT_EQ(refusals.refused_count, 0U);
}

TEST_F(CapiSchedulerTest, RefusalsAndOutcomesSayHowFarTheirElementsAreApart) {
  const std::uint32_t twice[] = {3, 3};
  const cairn_request request = add("a");
  EXPECT_EQ(cairn_scheduler_allocated(scheduler_, request, twice, 2, 0, 0, &error_), CAIRN_INVALID_ARGUMENT);
  EXPECT_THAT(error_.message, HasSubstr("device block 3 is listed twice"));
  const cairn_request other = add("b");
  cairn_scheduled scheduled[2] = {sized<cairn_scheduled>(), sized<cairn_scheduled>()};
  scheduled[0].request = request;
  scheduled[0].computed_tokens = 4;  // after the iteration instead of before it
  scheduled[1].request = other;
  scheduled[1].computed_tokens = 5;
  auto iteration = sized<cairn_iteration>();
  iteration.number = 1;
  iteration.scheduled = scheduled;
  iteration.scheduled_count = 2;
  const std::uint8_t* metadata = nullptr;
  std::size_t size = 0;
  ASSERT_EQ(cairn_scheduler_build(scheduler_, &iteration, &metadata, &size, &error_), CAIRN_OK) << error_.message;
  auto refusals = sized<cairn_refusals>();
  ASSERT_EQ(cairn_scheduler_get_refusals(scheduler_, &refusals, &error_), CAIRN_OK);
  ASSERT_EQ(refusals.refused_count, 2U);
  const auto* second = CAIRN_AT(cairn_refused, refusals.refused, refusals.refused_stride, 1);
  EXPECT_EQ(second->request, other);
  EXPECT_THAT(second->message, HasSubstr("counts before the iteration, not after it"));
  auto outcomes = sized<cairn_outcomes>();
  ASSERT_EQ(cairn_scheduler_take_outcomes(scheduler_, &outcomes, &error_), CAIRN_OK);
  EXPECT_EQ(outcomes.loaded_stride, sizeof(cairn_loaded));
  // A caller of version 1 has a struct without the stride, and nothing is written behind it.
  auto early = sized<cairn_outcomes>();
  early.struct_size = offsetof(cairn_outcomes, loaded_stride);
  early.loaded_stride = 77;
  ASSERT_EQ(cairn_scheduler_take_outcomes(scheduler_, &early, &error_), CAIRN_OK);
  EXPECT_EQ(early.loaded_stride, 77U);
}

TEST_F(CapiSchedulerTest, CountsAreThoseOfTheConnector) {
  const cairn_request request = add("a");
  std::size_t tokens = 0;
  std::int32_t when = 0;
  ASSERT_EQ(cairn_scheduler_match(scheduler_, request, 0, &tokens, &when, &error_), CAIRN_OK);
  const std::uint32_t blocks[] = {0, 1};
  auto scheduled = sized<cairn_scheduled>();
  scheduled.request = request;
  scheduled.new_blocks = blocks;
  scheduled.new_block_count = 2;
  auto iteration = sized<cairn_iteration>();
  iteration.number = 1;
  iteration.scheduled = &scheduled;
  iteration.scheduled_count = 1;
  const std::uint8_t* metadata = nullptr;
  std::size_t size = 0;
  ASSERT_EQ(cairn_scheduler_build(scheduler_, &iteration, &metadata, &size, &error_), CAIRN_OK) << error_.message;

  auto counts = sized<cairn_token_counts>();
  ASSERT_EQ(cairn_scheduler_get_request_counts(scheduler_, request, &counts, &error_), CAIRN_OK);
  EXPECT_EQ(counts.requests, 1U);
  EXPECT_EQ(counts.asked, 6U);
  EXPECT_EQ(counts.computed, 6U);
  for (const std::uint32_t which : {CAIRN_COUNTS_TOTAL, CAIRN_COUNTS_LAST_REQUESTS, CAIRN_COUNTS_LAST_TIME}) {
    auto all = sized<cairn_token_counts>();
    ASSERT_EQ(cairn_scheduler_get_counts(scheduler_, which, nullptr, &all, &error_), CAIRN_OK);
    EXPECT_EQ(all.asked, 6U);
  }
  EXPECT_EQ(cairn_scheduler_get_counts(scheduler_, CAIRN_COUNTS_TOTAL, "", &counts, &error_), CAIRN_OK);
  EXPECT_EQ(counts.computed, 6U);
  EXPECT_EQ(cairn_scheduler_get_counts(scheduler_, CAIRN_COUNTS_TOTAL, "nobody", &counts, &error_), CAIRN_NOT_FOUND);
  EXPECT_EQ(cairn_scheduler_get_counts(scheduler_, CAIRN_COUNTS_LAST_TIME, "", &counts, &error_),
            CAIRN_INVALID_ARGUMENT);
  EXPECT_EQ(cairn_scheduler_get_counts(scheduler_, 3, nullptr, &counts, &error_), CAIRN_INVALID_ARGUMENT);

  std::uint32_t held = 9;
  ASSERT_EQ(cairn_scheduler_finish(scheduler_, request, CAIRN_NOT_SAID, &held, &error_), CAIRN_OK);
  ASSERT_EQ(held, 0U);
  EXPECT_EQ(cairn_scheduler_get_request_counts(scheduler_, request, &counts, &error_), CAIRN_NOT_FOUND);
  auto outcomes = sized<cairn_outcomes>();
  ASSERT_EQ(cairn_scheduler_take_outcomes(scheduler_, &outcomes, &error_), CAIRN_OK);
  ASSERT_EQ(outcomes.ended_count, 1U);
  const cairn_ended* const ended = CAIRN_AT(cairn_ended, outcomes.ended, outcomes.ended_stride, 0);
  EXPECT_EQ(ended->request, request);
  EXPECT_EQ(ended->counts.asked, 6U);
  ASSERT_EQ(cairn_scheduler_take_outcomes(scheduler_, &outcomes, &error_), CAIRN_OK);
  EXPECT_EQ(outcomes.ended_count, 0U) << "told once";
}

TEST_F(CapiSchedulerTest, ResetsAndInvalidates) {
  auto report = sized<cairn_reset_report>();
  EXPECT_EQ(cairn_scheduler_reset(scheduler_, &report, &error_), CAIRN_OK) << error_.message;
  EXPECT_EQ(report.reset, 0U);
  EXPECT_EQ(cairn_scheduler_invalidate(scheduler_, 3, nullptr, &error_), CAIRN_OK) << error_.message;
  EXPECT_EQ(cairn_scheduler_invalidate(scheduler_, 3, &report, &error_), CAIRN_INVALID_ARGUMENT);
}

TEST_F(CapiSchedulerTest, SaysWhatBecameOfSaves) {
  auto status = sized<cairn_save_status>();
  status.asked = 7;
  ASSERT_EQ(cairn_scheduler_saves(scheduler_, &status, &error_), CAIRN_OK);
  EXPECT_EQ(status.asked, 0U);
  EXPECT_EQ(status.no_parent, 0U);
  EXPECT_EQ(cairn_scheduler_saves(scheduler_, nullptr, &error_), CAIRN_INVALID_ARGUMENT);
}

TEST_F(CapiSchedulerTest, ItsManagerIsBorrowed) {
  cairn_manager* const manager = cairn_scheduler_manager(scheduler_);
  EXPECT_EQ(cairn_manager_block_size(manager), 4U);
  char address[8];
  EXPECT_EQ(cairn_scheduler_address(scheduler_, address, sizeof address, nullptr),
            0U);  // all ranks are of this process
  EXPECT_EQ(cairn_scheduler_wait_for_ranks(scheduler_, 1, &error_), CAIRN_EXPIRED);
}

}  // namespace
