// Records the calls of a small engine in virtual time, and replays them.
#include "cairn/cli/call_replay.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include <sys/stat.h>

#include "cairn/connector/scheduler_connector.h"
#include "cairn/memory/memory_testing.h"

namespace cairn::cli {
namespace {

using ::testing::HasSubstr;

constexpr std::uint32_t kBlockSize = 16;

// Serves one request after the other, computes each prompt in one iteration, and generates one token.
class RecordedEngine {
 public:
  static SchedulerConnector::Options default_options(const std::string& path, bool tokens) {
    SchedulerConnector::Options options;
    options.manager.model = {.name = "recorded", .layers = 8, .heads = 8, .head_size = 128, .element_type = "bf16"};
    options.manager.block_size = kBlockSize;
    options.manager.device.blocks = 256;
    options.manager.host.blocks = 256;
    options.manager.record = {.path = path, .tokens = tokens};
    options.manager.model.secret = std::string(64, 'a');
    return options;
  }
  explicit RecordedEngine(const std::string& path, bool tokens = false)
      : RecordedEngine(default_options(path, tokens)) {}
  explicit RecordedEngine(SchedulerConnector::Options options) {
    options.parts.clock = &clock_;
    options.parts.own_thread = false;
    options.parts.elsewhere = [this] {
      auto links = std::make_unique<VirtualLinks>(clock_, VirtualLinks::Speeds{.host = 50e9});
      links_ = links.get();
      return links;
    };
    connector_ = *SchedulerConnector::make(std::move(options));
  }

  // A prompt of this many blocks, which begins with the first tokens of `family`. Returns the tokens that were loaded.
  std::size_t serve(std::uint32_t family, std::uint32_t blocks, std::uint32_t first_block) {
    std::vector<Token> prompt(blocks * kBlockSize + 3);
    for (std::size_t i = 0; i < prompt.size(); ++i) {
      prompt[i] = family * 100'000 + static_cast<Token>(i);
    }
    SchedulerConnector::NewRequest given = beside_tokens;
    given.tokens = prompt;
    const RequestHandle request = *connector_->add(++requests_, given);
    const SchedulerConnector::Match match = *connector_->match(request, 0);
    std::vector<BlockId> table;
    for (std::uint32_t i = 0; i <= blocks; ++i) {
      table.push_back(BlockId{first_block + i});
    }
    EXPECT_TRUE(connector_->allocated(request, table, 0, match.tokens).has_value());
    std::size_t have = 0;
    if (match.tokens > 0) {
      build({});
      for (bool is_loaded = false; !is_loaded;) {
        pass(std::chrono::milliseconds(1));
        for (const auto& loaded : connector_->take_outcomes().loaded) {
          have = loaded.tokens;
          is_loaded = true;
        }
        build({});
      }
    }
    const SchedulerConnector::Scheduled prefill{
        .request = request, .computed_tokens = have, .scheduled_tokens = prompt.size() - have};
    build({&prefill, 1});
    pass(std::chrono::milliseconds(20));
    const Token token = 7;
    const SchedulerConnector::Scheduled decode{
        .request = request, .computed_tokens = prompt.size(), .new_tokens = {&token, 1}, .scheduled_tokens = 1};
    build({&decode, 1});
    pass(std::chrono::milliseconds(5));
    EXPECT_TRUE(connector_->finish(request, prompt.size() + 1, ending).has_value());
    while (connector_->has_work()) {
      build({});
      pass(std::chrono::milliseconds(5));
      (void)connector_->take_outcomes();
    }
    return have;
  }
  SchedulerConnector& connector() { return *connector_; }
  // From now on the engine says that each iteration took 12 ms.
  void measure_iterations() { measures_ = true; }

  SchedulerConnector::NewRequest beside_tokens = {};  // of every request
  RequestEnding ending = RequestEnding::kUnknown;     // of every request

 private:
  void build(std::span<const SchedulerConnector::Scheduled> scheduled) {
    SchedulerConnector::Iteration iteration{.number = ++number_, .scheduled = scheduled};
    if (measures_ && number_ > 1) {
      iteration.duration = std::chrono::milliseconds(12);
      iteration.duration_of = number_ - 1;
    }
    EXPECT_TRUE(connector_->build(iteration, metadata_).has_value());
    EXPECT_TRUE(connector_->refused().empty());
  }
  void pass(Duration time) {
    const TimePoint end = clock_.now() + time;
    settle();
    while (clock_.now() < end) {
      const TimePoint next = std::min(connector_->manager().next_time().value_or(end), links_->next_time());
      clock_.advance(std::max(std::min(next, end) - clock_.now(), Duration(1)));
      settle();
    }
  }
  void settle() {
    for (bool more = true; more;) {
      more = connector_->manager().pump();
      more |= links_->run();
    }
  }

  ManualClock clock_;
  VirtualLinks* links_ = nullptr;
  std::unique_ptr<SchedulerConnector> connector_;
  std::uint64_t requests_ = 0;
  std::uint64_t number_ = 0;
  bool measures_ = false;
  std::vector<std::byte> metadata_;
};

std::string read(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

class CallReplayTest : public ::testing::Test {
 protected:
  // Three requests of one family and one of another.
  std::size_t record(bool tokens = false) {
    RecordedEngine engine(path_, tokens);
    std::size_t loaded = engine.serve(1, 8, 0);
    loaded += engine.serve(2, 4, 20);
    loaded += engine.serve(1, 8, 40);
    loaded += engine.serve(1, 12, 60);
    return loaded;
  }

  TestFolder folder_;
  const std::string path_ = folder_.in("calls.jsonl");
};

TEST_F(CallReplayTest, TheSameConfigurationFindsAndLoadsTheSame) {
  const std::size_t loaded = record();
  ASSERT_GT(loaded, 0U);
  const Result<CallReplayReport> report = replay_calls({.path = path_});
  ASSERT_TRUE(report.has_value()) << report.error().message;
  EXPECT_EQ(report->problem_count, 0U) << to_text(*report);
  EXPECT_EQ(report->requests, 4U);
  EXPECT_EQ(report->recorded.loaded, loaded);
  EXPECT_EQ(report->replayed, report->recorded);
  EXPECT_GT(report->saved_blocks, 0U);
}

TEST_F(CallReplayTest, WithoutATierNothingIsLoadedAndEverythingStillRuns) {
  ASSERT_GT(record(), 0U);
  const Result<CallReplayReport> report = replay_calls({.path = path_, .settings = {"host.blocks=0"}});
  ASSERT_TRUE(report.has_value()) << report.error().message;
  EXPECT_EQ(report->problem_count, 0U) << to_text(*report);
  EXPECT_EQ(report->replayed.loaded, 0U);
  EXPECT_EQ(report->saved_blocks, 0U);
}

TEST_F(CallReplayTest, ASlowLinkDelaysRequestsAndBreaksNothing) {
  ASSERT_GT(record(), 0U);
  const Result<CallReplayReport> report = replay_calls({.path = path_, .links = {.host = 20e6}});
  ASSERT_TRUE(report.has_value()) << report.error().message;
  EXPECT_EQ(report->problem_count, 0U) << to_text(*report);
}

TEST_F(CallReplayTest, HowRequestsEndedIsRecordedAndReplayed) {
  {
    RecordedEngine engine(path_);
    engine.ending = RequestEnding::kToolCall;
    engine.serve(1, 4, 0);
    engine.ending = RequestEnding::kUnknown;
    engine.serve(2, 4, 20);
  }
  const std::string text = read(path_);
  const std::size_t first = text.find("\"ending\":\"tool_call\"");
  ASSERT_NE(first, std::string::npos);
  EXPECT_EQ(text.find("\"ending\"", first + 1), std::string::npos) << "nothing is said of the other";
  const Result<CallReplayReport> report = replay_calls({.path = path_});
  ASSERT_TRUE(report.has_value()) << report.error().message;
  EXPECT_EQ(report->problem_count, 0U) << to_text(*report);
}

TEST_F(CallReplayTest, TokensAndSecretsAreNotInTheFileUnlessRequested) {
  record();
  const std::string text = read(path_);
  EXPECT_EQ(text.find("100016"), std::string::npos) << "a token";
  EXPECT_EQ(text.find("aaaaaaaa"), std::string::npos) << "the secret";
  EXPECT_THAT(text, HasSubstr("\"keys\":\""));
  const std::string with_tokens = folder_.in("tokens.jsonl");
  RecordedEngine(with_tokens, true).serve(1, 2, 0);
  EXPECT_THAT(read(with_tokens), HasSubstr("100016"));
}

TEST_F(CallReplayTest, AFileThatExistsIsNotOverwritten) {
  std::ofstream(path_) << "mine";
  RecordedEngine(path_).serve(1, 2, 0);
  EXPECT_EQ(read(path_), "mine");
  EXPECT_THAT(read(path_ + ".2"), HasSubstr("\"call\":\"finish\""));
}

TEST_F(CallReplayTest, AFolderThatIsNotThereIsAnError) {
  SchedulerConnector::Options options;
  options.manager.model = {.name = "recorded", .layers = 1, .heads = 1, .head_size = 8, .element_type = "bf16"};
  options.manager.device.blocks = 4;
  options.manager.record.path = folder_.in("nowhere/calls");
  const auto made = SchedulerConnector::make(std::move(options));
  ASSERT_FALSE(made.has_value());
  EXPECT_THAT(made.error().message, HasSubstr("record.path"));
}

TEST_F(CallReplayTest, ARecordingOfAProcessThatDiedIsReplayedToItsLastWholeLine) {
  record();
  std::string text = read(path_);
  text.resize(text.size() - 20);
  std::ofstream(path_, std::ios::trunc) << text;
  const Result<CallReplayReport> report = replay_calls({.path = path_});
  ASSERT_TRUE(report.has_value()) << report.error().message;
  EXPECT_EQ(report->problem_count, 0U) << to_text(*report);
}

TEST_F(CallReplayTest, WhatIsNoRecordingIsRefused) {
  EXPECT_FALSE(replay_calls({.path = folder_.in("none")}).has_value());
  std::ofstream(path_) << "{\"timestamp\":0}\n";
  const Result<CallReplayReport> other = replay_calls({.path = path_});
  ASSERT_FALSE(other.has_value());
  EXPECT_THAT(other.error().message, HasSubstr("record.path"));
  std::ofstream(path_, std::ios::trunc) << "{\"cairn_calls\":9}\n";
  EXPECT_THAT(replay_calls({.path = path_}).error().message, HasSubstr("version 9"));
  record();  // to path_.2
  std::ofstream(path_ + ".2", std::ios::app) << "no JSON\n{}\n";
  const Result<CallReplayReport> damaged = replay_calls({.path = path_ + ".2"});
  ASSERT_FALSE(damaged.has_value());
  EXPECT_THAT(damaged.error().message, HasSubstr("line "));
}

// What a replay needs beside the requests: without it the same calls are weighed by other speeds, in tiers of another size.
TEST_F(CallReplayTest, DurationsRanksAndItemsAreRecorded) {
  {
    SchedulerConnector::Options options = RecordedEngine::default_options(path_, false);
    options.manager.dp_rank = 3;
    options.manager.model.heads = 1;
    options.manager.model.head_size = 8;
    options.manager.host.blocks = 0;
    options.manager.host.size = std::uint64_t{8} << 20;
    options.ranks.ranks = {2, 2};
    options.in_step_save_blocks = 5;
    RecordedEngine engine(std::move(options));
    engine.measure_iterations();
    engine.beside_tokens.dp_rank = 3;
    const MmRun image{.offset = 4, .length = 6, .mm_hash = 987654321};
    engine.beside_tokens.mm_runs = {&image, 1};
    for (std::uint32_t family = 1; family < 8; ++family) {
      engine.serve(family, 8, 0);
    }
    EXPECT_EQ(engine.connector().manager().status().prefill.source, PrefillStatus::Source::kLearned);
  }
  const std::string text = read(path_);
  for (const char* member :
       {"\"duration_ns\":12000000", "\"duration_of\":", "\"dp_rank\":3", "\"in_step_save_blocks\":5",
        "\"tensor_ranks\":2", "\"pipeline_ranks\":2", "\"mm_runs\":[{\"offset\":4,\"length\":6,\"item_offset\":0}]"}) {
    EXPECT_THAT(text, HasSubstr(member));
  }
  EXPECT_EQ(text.find("987654321"), std::string::npos) << "as the tokens";
  const Result<CallReplayReport> report = replay_calls({.path = path_});
  ASSERT_TRUE(report.has_value()) << report.error().message;
  EXPECT_EQ(report->problem_count, 0U) << to_text(*report);
  EXPECT_EQ(report->requests, 7U);
  // Each stage has 2 KiB of a block, which take 4 KiB.
  EXPECT_EQ(report->host_blocks, 1024U);
  EXPECT_EQ(report->prefill.source, PrefillStatus::Source::kLearned);
}

TEST_F(CallReplayTest, OnlyTheUserOfTheEngineCanReadTheFile) {
  RecordedEngine(path_).serve(1, 2, 0);
  struct stat facts{};
  ASSERT_EQ(::stat(path_.c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 0777U, 0600U);
}

TEST_F(CallReplayTest, ALineWithAnotherMemberOrTypeIsRefused) {
  record();
  const std::string text = read(path_);
  const std::string head = text.substr(0, text.find('\n') + 1);
  for (const char* wrong :
       {R"({"ns":0})", R"({"ns":0,"call":7})", R"({"ns":"0","call":"add"})", R"({"ns":0.5,"call":"add"})",
        R"({"ns":0,"call":"build","colour":1})", R"({"ns":0,"call":"build","scheduled":{}})",
        R"({"ns":0,"call":"build","scheduled":[1]})", R"({"ns":0,"call":"build","scheduled":[{"computed":"x"}]})",
        R"({"ns":0,"call":"build","preempted":[1,"x"]})", R"({"ns":0,"call":"add","keys":"0123"})",
        R"({"ns":0,"call":"build","scheduled":[{"scheduled":[{"scheduled":[{}]}]}]})"}) {
    std::ofstream(path_, std::ios::trunc) << head << wrong << "\n{}\n";
    const Result<CallReplayReport> report = replay_calls({.path = path_});
    ASSERT_FALSE(report.has_value()) << wrong;
    EXPECT_THAT(report.error().message, HasSubstr("line 2")) << wrong;
  }
}

TEST_F(CallReplayTest, TheReportIsReadByPeopleAndPrograms) {
  record();
  const Result<CallReplayReport> report = replay_calls({.path = path_});
  ASSERT_TRUE(report.has_value());
  EXPECT_THAT(to_text(*report), HasSubstr("4 requests"));
  const auto json = nlohmann::json::parse(to_json(*report), nullptr, false);
  EXPECT_EQ(json["requests"], 4);
  EXPECT_EQ(json["recorded"], json["replayed"]);
}

}  // namespace
}  // namespace cairn::cli
