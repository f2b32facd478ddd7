#include "cairn/sim/prompt.h"

#include <gtest/gtest.h>

#include "cairn/sim/active_sequence.h"
#include "cairn/sim/replay.h"

namespace cairn::sim {
namespace {

std::vector<Token> written_out(const std::vector<TokenRun>& runs) {
  std::vector<Token> tokens;
  for (const TokenRun& run : runs) {
    tokens.insert(tokens.end(), run.count, run.token);
  }
  return tokens;
}

TEST(PromptTest, RunsHaveTheKeysOfTheirTokens) {
  const std::vector<TokenRun> runs = {{7, 512}, {8, 5}, {9, 1}, {9, 130}, {4, 64}, {1, 300}};
  const std::vector<Token> tokens = written_out(runs);
  for (const std::uint32_t block_size : {2U, 16U, 48U, 64U, 100U, 512U, 4096U}) {
    const Prompt prompt = *Prompt::hashed(runs, block_size);
    IdentitySource identities;
    const ActiveSequence sequence = *ActiveSequence::create(tokens, {.block_size = block_size}, identities);
    EXPECT_EQ(prompt.size, tokens.size());
    EXPECT_TRUE(std::ranges::equal(prompt.keys, sequence.keys())) << block_size;
    EXPECT_TRUE(std::ranges::equal(prompt.block_hashes, sequence.block_hashes())) << block_size;
    EXPECT_EQ(prompt.tail.size(), tokens.size() % block_size);
    const ActiveSequence named = *ActiveSequence::create_hashed(prompt, {.block_size = block_size}, identities);
    EXPECT_EQ(named.unique_blocks().size(), sequence.unique_blocks().size());
    EXPECT_EQ(named.size(), sequence.size());
  }
}

TEST(PromptTest, RejectsBadPrompts) {
  const TokenRun run{1, 10};
  EXPECT_FALSE(Prompt::hashed({&run, 1}, 1));
  EXPECT_FALSE(Prompt::hashed({}, 16));
  const TokenRun endless{1, ~std::uint32_t{0}};
  EXPECT_FALSE(Prompt::hashed({&endless, 1}, 2));
  IdentitySource identities;
  EXPECT_FALSE(ActiveSequence::create_hashed(*Prompt::hashed({&run, 1}, 4), {.block_size = 2}, identities));
  EXPECT_FALSE(ActiveSequence::create_hashed(*Prompt::hashed({&run, 1}, 4), {.block_size = 4, .emit_token_ids = true},
                                             identities));
}

TEST(PromptTest, QuietTokensNeedNoMove) {
  IdentitySource identities;
  const TokenRun run{1, 10};
  ActiveSequence sequence = *ActiveSequence::create_hashed(*Prompt::hashed({&run, 1}, 8),
                                                           {.block_size = 8, .max_output_tokens = 12}, identities);
  EXPECT_EQ(sequence.quiet_tokens(), 6U);
  sequence.generate_quietly(6);
  EXPECT_EQ(sequence.size(), 16U);
  EXPECT_EQ(sequence.quiet_tokens(), 0U);
  EXPECT_FALSE(sequence.generate()->empty()) << "the next one begins a block";
  EXPECT_EQ(sequence.quiet_tokens(), 4U) << "the twelfth is the last";
  sequence.generate_quietly(4);
  EXPECT_TRUE(sequence.generate()->release.has_value());
  EXPECT_EQ(sequence.quiet_tokens(), 0U);
}

}  // namespace
}  // namespace cairn::sim
