// The C interface as its callers see it: codes, messages, structs of other sizes, buffers that are too small. What it does
// beyond that is the library's; examples/c and examples/python run it end to end.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include <cairn/cairn_c.h>

namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr char kConfig[] = R"(
block_size = 4
[model]
name = "test"
layers = 1
heads = 1
head_size = 4
element_type = "f32"
[device]
memory = "system"
blocks = 4
[host]
blocks = 8
[offload.host]
mode = "write-through"
)";

template <typename T>
T sized() {
  T made{};
  made.struct_size = sizeof(T);
  return made;
}

class CapiTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto options = sized<cairn_manager_options>();
    options.config = kConfig;
    ASSERT_EQ(cairn_manager_create(&options, &manager_, &error_), CAIRN_OK) << error_.message;
  }
  void TearDown() override { cairn_manager_destroy(manager_); }

  std::vector<cairn_key> keys(std::uint32_t first_token, std::size_t blocks) {
    std::vector<std::uint32_t> tokens(blocks * 4);
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      tokens[i] = first_token + static_cast<std::uint32_t>(i);
    }
    std::vector<cairn_key> made(blocks);
    std::size_t count = 0;
    auto prompt = sized<cairn_prompt>();
    prompt.tokens = tokens.data();
    prompt.token_count = tokens.size();
    prompt.salt = "";
    EXPECT_EQ(cairn_manager_hash_prompt(manager_, &prompt, made.data(), made.size(), &count, nullptr), CAIRN_OK);
    EXPECT_EQ(count, blocks);
    return made;
  }
  void cache(const std::vector<cairn_key>& names) {
    cairn_blocks* blocks = nullptr;
    ASSERT_EQ(cairn_manager_allocate(manager_, CAIRN_G1, static_cast<std::uint32_t>(names.size()), &blocks, &error_),
              CAIRN_OK)
        << error_.message;
    ASSERT_EQ(cairn_blocks_register(blocks, names.data(), names.size(), &error_), CAIRN_OK);
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

TEST_F(CapiTest, RefusesWhatIsNotThereAndNamesIt) {
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
  // Nobody has to want to know.
  EXPECT_EQ(cairn_manager_create(&options, &made, nullptr), CAIRN_INVALID_ARGUMENT);
}

TEST_F(CapiTest, CallersOfAnEarlierVersionHaveSmallerStructs) {
  cairn_manager_options early{};
  early.struct_size = offsetof(cairn_manager_options, config_file);
  early.config = kConfig;
  early.config_file = "/nowhere";  // beyond what such a caller has: not looked at
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
  EXPECT_EQ(cairn_blocks_register(blocks, names.data(), 1, &error_), CAIRN_INVALID_ARGUMENT);
  EXPECT_EQ(cairn_blocks_count(blocks), 2U);  // as they were
  EXPECT_EQ(cairn_blocks_register(blocks, names.data(), 2, &error_), CAIRN_OK) << error_.message;
  EXPECT_EQ(cairn_blocks_register(blocks, names.data(), 2, &error_), CAIRN_FAILED_PRECONDITION);
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
  EXPECT_EQ(found, 3U) << "what is refused resets nothing";
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
  EXPECT_THAT(next_events(events), HasSubstr(R"("tier":"G2","data":{"invalidated":{"weights_generation":2}}})"));
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

TEST_F(CapiTest, EventsBeginWithASnapshotAndGoOn) {
  cache(keys(1, 1));
  ASSERT_EQ(cairn_manager_drain(manager_, 5000, &error_), CAIRN_OK) << error_.message;
  cairn_events* events = nullptr;
  ASSERT_EQ(cairn_events_create(manager_, &events, &error_), CAIRN_OK);
  const std::string snapshot = next_events(events);
  EXPECT_THAT(snapshot, HasSubstr(R"("tier":"G1","data":"cleared"})"));
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

TEST_F(CapiTest, AnEventLogThatIsOffCannotBeFollowed) {
  auto options = sized<cairn_manager_options>();
  const std::string config = std::string("event_log = 0\n") + kConfig;
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
  EXPECT_FALSE(same(cat[2], dog[2])) << "what follows them too";
  EXPECT_FALSE(same(cat[1], keys_with_image(manager_, 0)[1])) << "no image is another one again";
  EXPECT_FALSE(same(cat[1], keys_with_image(manager_, 1, 4)[1])) << "and so is another part of the image";
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

class CapiSchedulerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto options = sized<cairn_scheduler_options>();
    options.config = "block_size = 4\n[model]\nlayers = 1\nheads = 1\nhead_size = 4\n[host]\nblocks = 8\n";
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
  EXPECT_EQ(cairn_scheduler_finish(scheduler_, request, CAIRN_NOT_SAID, &held, &error_), CAIRN_OK);
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
  EXPECT_EQ(add_now(), CAIRN_INVALID_ARGUMENT) << "of which size?";
  given.digest_size = 32;
  EXPECT_EQ(add_now(), CAIRN_FAILED_PRECONDITION) << "keys are made from tokens here";
  given.block_digest_count = 0;
  given.digest_size = 0;
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

TEST_F(CapiSchedulerTest, ResetsAndInvalidates) {
  auto report = sized<cairn_reset_report>();
  EXPECT_EQ(cairn_scheduler_reset(scheduler_, &report, &error_), CAIRN_OK) << error_.message;
  EXPECT_EQ(report.reset, 0U);
  EXPECT_EQ(cairn_scheduler_invalidate(scheduler_, 3, nullptr, &error_), CAIRN_OK) << error_.message;
  EXPECT_EQ(cairn_scheduler_invalidate(scheduler_, 3, &report, &error_), CAIRN_INVALID_ARGUMENT);
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
