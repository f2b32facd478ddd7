#include "examples/engine/model.h"

#include <gtest/gtest.h>

#include <bit>
#include <numeric>

#include "examples/engine/random.h"
#include "examples/engine/ranks.h"

namespace cairn::engine {
namespace {

constexpr std::uint32_t kDeviceBlocks = 24;

std::vector<TokenId> prompt(std::size_t count, std::uint64_t seed) {
  Random random(seed);
  std::vector<TokenId> tokens(count);
  for (TokenId& token : tokens) {
    token = random.between(1, 511);
  }
  return tokens;
}

std::vector<DeviceBlock> blocks_from(DeviceBlock first, std::size_t count) {
  std::vector<DeviceBlock> blocks(count);
  std::iota(blocks.begin(), blocks.end(), first);
  return blocks;
}

// Tokens begin to end - 1 of a request, the last of them sampled.
void add_rows(StepInput& step, const std::vector<TokenId>& tokens, std::size_t begin, std::size_t end,
              const std::vector<DeviceBlock>& table) {
  for (std::size_t i = begin; i < end; ++i) {
    step.rows.push_back({tokens[i], static_cast<std::uint32_t>(i), static_cast<std::uint32_t>(step.tables.size())});
  }
  step.tables.push_back(table);
  step.sampled_rows.push_back(static_cast<std::uint32_t>(step.rows.size() - 1));
}

// The next token after these, computed in chunks.
Sample after(LocalRanks& ranks, const std::vector<TokenId>& tokens, std::size_t chunk,
             const std::vector<DeviceBlock>& table) {
  Sample last;
  for (std::size_t begin = 0; begin < tokens.size(); begin += chunk) {
    StepInput step;
    add_rows(step, tokens, begin, std::min(begin + chunk, tokens.size()), table);
    last = ranks.run(step).value().samples.back();
  }
  return last;
}

std::unique_ptr<LocalRanks> make_ranks(RankGrid ranks = 1, const ModelShape& model = {}) {
  return LocalRanks::make({.model = model, .ranks = ranks, .device_blocks = kDeviceBlocks}).value();
}

Sample after(const std::vector<TokenId>& tokens, RankGrid ranks = 1, const ModelShape& model = {}) {
  return after(*make_ranks(ranks, model), tokens, tokens.size(), blocks_from(0, 8));
}

TEST(ModelTest, IsTheSameHoweverAPromptIsCut) {
  const auto tokens = prompt(75, 3);
  const Sample whole = after(tokens);
  for (const std::size_t chunk : {1U, 7U, 16U, 33U, 74U}) {
    const auto ranks = make_ranks();
    EXPECT_EQ(after(*ranks, tokens, chunk, blocks_from(0, 8)), whole) << "in chunks of " << chunk;
  }
}

TEST(ModelTest, IsTheSameInAnyBlocks) {
  const auto tokens = prompt(75, 3);
  const auto ranks = make_ranks();
  EXPECT_EQ(after(*ranks, tokens, 20, {23, 0, 11, 5, 6}), after(tokens));
}

TEST(ModelTest, IsTheSameWhateverElseIsInTheStep) {
  const auto first = prompt(40, 1);
  const auto second = prompt(61, 2);
  const auto ranks = make_ranks();
  StepInput step;
  add_rows(step, first, 0, first.size(), blocks_from(0, 4));
  add_rows(step, second, 0, second.size(), blocks_from(4, 4));
  const auto samples = ranks->run(step).value().samples;
  EXPECT_EQ(samples, (std::vector<Sample>{after(first), after(second)}));
}

TEST(ModelTest, IsTheSameOnAnyNumberOfRanks) {
  const auto tokens = prompt(90, 5);
  EXPECT_EQ(after(tokens, 2), after(tokens));
  EXPECT_EQ(after(tokens, 4), after(tokens));
  for (const ModelShape& model : {ModelShape{}, ModelShape{.kv_heads = 2}, ModelShape{.kv_heads = 1, .kv = 1}}) {
    const Sample one = after(tokens, 1, model);
    for (const RankGrid ranks : {RankGrid(4), RankGrid(1, 3), RankGrid(2, 2), RankGrid(4, 4)}) {
      EXPECT_EQ(after(tokens, ranks, model), one) << model.kv_heads << " KV heads on " << ranks.to_string();
    }
  }
}

TEST(ModelTest, DependsOnTheOrderOfTokens) {
  auto tokens = prompt(40, 7);
  const Sample before = after(tokens);
  std::swap(tokens[3], tokens[20]);
  EXPECT_NE(after(tokens).logit, before.logit);
}

// The digests of whole runs depend on this: every wrong key or value changes the output.
TEST(ModelTest, OneBitOfAnyBlockLayerAndRankShowsInTheLogit) {
  const auto tokens = prompt(49, 9);
  const Sample right = after(tokens);
  const auto ranks = make_ranks(4);
  const auto table = blocks_from(0, 4);
  ASSERT_EQ(after(*ranks, tokens, tokens.size(), table), right);
  StepInput last;
  add_rows(last, tokens, tokens.size() - 1, tokens.size(), table);
  for (std::uint32_t rank = 0; rank < 4; ++rank) {
    for (std::uint32_t layer = 0; layer < 4; ++layer) {
      for (DeviceBlock block = 0; block < 3; ++block) {
        // The lowest bit of the exponent of a value in the block: heads have size 16, each rank one of them.
        float& value = ranks->shard(rank).kv_buffer(layer)[((kDeviceBlocks + block) * kBlockTokens + 4) * 16 + 2];
        const float kept = value;
        value = std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) ^ (1U << 23));
        EXPECT_NE(ranks->run(last).value().samples[0].logit, right.logit)
            << "rank " << rank << " layer " << layer << " block " << block;
        value = kept;
      }
    }
  }
  EXPECT_EQ(ranks->run(last).value().samples[0], right);
}

}  // namespace
}  // namespace cairn::engine
