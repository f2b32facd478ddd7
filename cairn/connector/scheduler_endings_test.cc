// How a request ended reaches the tiers: with default settings, in virtual time, of two sessions that ended at the same time the
// one is kept that will return.
#include <gtest/gtest.h>

#include <chrono>
#include <vector>

#include "cairn/connector/virtual_engine_testing.h"
#include "cairn/tokens/token_sequence.h"

namespace cairn::testing {
namespace {

constexpr std::uint32_t kBlocks = 64;  // of a session
constexpr std::uint32_t kTokens = kBlocks * 16;

std::vector<Token> session(std::uint32_t name) {
  std::vector<Token> tokens(kTokens);
  for (std::uint32_t i = 0; i < kTokens; ++i) {
    tokens[i] = 10'000 * name + i;
  }
  return tokens;
}

std::uint32_t resident(SchedulerConnector& connector, std::uint32_t name) {
  const KvBlockManager& manager = connector.manager();
  const TokenBlockSequence sequence = *TokenBlockSequence::create(session(name), 16, manager.hasher());
  return manager.locate(sequence.keys()).blocks();
}

// Sessions return 10 s after a tool call, and not at all after the end of a turn.
TEST(SchedulerEndingsTest, TheHostTierKeepsTheSessionThatAToolCallEnded) {
  std::vector<VirtualRequest> requests;
  std::uint32_t name = 0;
  const auto add = [&requests](Duration at, std::uint32_t of, RequestEnding ending) {
    requests.push_back({.arrival = at, .prompt = session(of), .output = 4, .ending = ending});
  };
  Duration now = std::chrono::seconds(1);
  for (int round = 0; round < 200; ++round) {
    const std::uint32_t tool = ++name;
    add(now, tool, RequestEnding::kToolCall);
    add(now + std::chrono::seconds(1), ++name, RequestEnding::kEndOfTurn);
    add(now + std::chrono::seconds(10), tool, RequestEnding::kEndOfTurn);
    now += std::chrono::seconds(15);
  }
  const std::uint32_t tool = ++name;
  const std::uint32_t turn = ++name;
  add(now, tool, RequestEnding::kToolCall);
  add(now + std::chrono::milliseconds(500), turn, RequestEnding::kEndOfTurn);
  now += std::chrono::seconds(4);
  for (int i = 0; i < 12; ++i) {
    add(now, ++name, RequestEnding::kEndOfTurn);
    now += std::chrono::milliseconds(100);
  }
  VirtualEngine engine({.host_blocks = 8 * kBlocks});
  (void)engine.serve(requests);
  EXPECT_GE(engine.loaded_tokens(), 150 * (kTokens - 16)) << "most sessions were still there when they returned";
  EXPECT_EQ(resident(engine.connector(), tool), kBlocks);
  EXPECT_LT(resident(engine.connector(), turn), kBlocks);
}

}  // namespace
}  // namespace cairn::testing
