#include "cairn/tokens/cache_groups.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <numeric>
#include <set>
#include <vector>

namespace cairn {
namespace {

using ::testing::HasSubstr;

std::vector<BlockKey> keys_of(std::size_t blocks, Token seed = 0, std::uint32_t block_size = 4) {
  std::vector<Token> tokens(blocks * block_size);
  std::iota(tokens.begin(), tokens.end(), seed);
  const TokenBlockSequence sequence = *TokenBlockSequence::create(tokens, block_size);
  return {sequence.keys().begin(), sequence.keys().end()};
}

CacheGroups groups_of(std::string_view text, std::uint32_t block_size = 4) {
  return *CacheGroups::make(block_size, *parse_groups(text));
}

TEST(CacheGroupsTest, AModelWithoutGroupsHasTheKeysOfItsRequests) {
  const std::vector<BlockKey> keys = keys_of(5);
  for (const char* const text : {"", "all:full", "all:full@4"}) {
    const CacheGroups groups = groups_of(text);
    EXPECT_TRUE(groups.is_plain()) << text;
    for (std::uint32_t block = 0; block < keys.size(); ++block) {
      EXPECT_EQ(groups.key({0, block}, keys), keys[block]);
    }
  }
  for (const char* const text : {"a:state", "a:full@8", "a:full, b:full"}) {
    EXPECT_FALSE(groups_of(text).is_plain()) << text;
  }
}

TEST(CacheGroupsTest, EveryBlockOfEveryGroupHasAKeyOfItsOwn) {
  const CacheGroups groups = groups_of("a:full, b:full@8, c:sliding:12, d:chunked:8@16, e:state");
  std::set<BlockKey> seen;
  std::size_t made = 0;
  for (const Token seed : {0U, 1000U}) {
    const std::vector<BlockKey> keys = keys_of(400, seed);
    for (std::uint32_t group = 0; group < groups.size(); ++group) {
      for (std::uint32_t block = 0; block < keys.size() / groups.each(group); ++block, ++made) {
        const BlockKey key = groups.key({group, block}, keys);
        seen.insert(key);
        EXPECT_EQ(BlockKey::from_bytes(key.to_bytes()).value(), key);
        EXPECT_EQ(BlockKey::parse(key.to_string()).value(), key);
        for (std::uint32_t other = 0; other < groups.size(); ++other) {
          EXPECT_EQ(groups.may_be_of(other, key), other == group);
        }
      }
    }
  }
  EXPECT_EQ(seen.size(), made);
}

TEST(CacheGroupsTest, BlocksOfAFullGroupContinueEachOtherAndOthersStandAlone) {
  const CacheGroups groups = groups_of("a:full@8, b:sliding:12, c:state");
  const std::vector<BlockKey> keys = keys_of(600);
  std::vector<BlockKey> full;
  groups.append_keys(0, {0, 300}, keys, full);
  for (std::uint32_t block = 0; block < 300; ++block) {
    EXPECT_EQ(full[block].position(), block);
    EXPECT_TRUE(block == 0 || full[block - 1].is_parent_of(full[block]));
  }
  for (std::uint32_t group = 1; group < groups.size(); ++group) {
    for (std::uint32_t block = 0; block < keys.size(); ++block) {
      EXPECT_EQ(groups.key({group, block}, keys).position(), 0U);
    }
  }
}

TEST(CacheGroupsTest, AKeyDependsOnAllTokensBeforeItsEndAndOnNoneAfterIt) {
  const CacheGroups groups = groups_of("a:full@8, b:sliding:12@8, c:state@8");
  std::vector<Token> tokens(64);
  std::iota(tokens.begin(), tokens.end(), 0);
  const auto keys_now = [&tokens] {
    const TokenBlockSequence sequence = *TokenBlockSequence::create(tokens, 4);
    return std::vector<BlockKey>(sequence.keys().begin(), sequence.keys().end());
  };
  const std::vector<BlockKey> before = keys_now();
  tokens[20] = 999;  // in block 2 of each group
  const std::vector<BlockKey> after = keys_now();
  for (std::uint32_t group = 0; group < groups.size(); ++group) {
    for (std::uint32_t block = 0; block < 8; ++block) {
      EXPECT_EQ(groups.key({group, block}, before) == groups.key({group, block}, after), block < 2);
    }
  }
}

TEST(CacheGroupsTest, SaysWhichBlocksABoundaryNeeds) {
  const CacheGroups groups = groups_of("a:full, b:sliding:9, c:chunked:12, d:state, e:full@8");
  EXPECT_EQ(groups.alignment(), 2U);
  EXPECT_EQ(groups.boundary_before(7), 6U);
  EXPECT_EQ(groups.needed(0, 6), (BlockRange{0, 6}));
  EXPECT_EQ(groups.needed(1, 6), (BlockRange{4, 6}));  // tokens 16 to 23
  EXPECT_EQ(groups.needed(2, 6), (BlockRange{6, 6}));  // a chunk begins with token 24
  EXPECT_EQ(groups.needed(2, 8), (BlockRange{6, 8}));
  EXPECT_EQ(groups.needed(3, 6), (BlockRange{5, 6}));
  EXPECT_EQ(groups.needed(4, 6), (BlockRange{0, 3}));
  for (std::uint32_t group = 0; group < groups.size(); ++group) {
    EXPECT_EQ(groups.needed(group, 0), (BlockRange{0, 0}));
  }
  EXPECT_EQ(groups_of("a:sliding:1").needed(0, 6), (BlockRange{6, 6}));  // a token sees itself only
}

// As vLLM counts for an external hit of 384 tokens with a window of 64: ten null blocks, then two.
TEST(CacheGroupsTest, ASlidingWindowNeedsWhatVllmAllocates) {
  EXPECT_EQ(groups_of("local:sliding:64", 32).needed(0, 12), (BlockRange{10, 12}));
}

RC_GTEST_PROP(CacheGroupsTest, NeedsExactlyTheBlocksOfTheTokensThatAreSeen, ()) {
  const auto block_size = *rc::gen::inRange<std::uint32_t>(1, 6);
  CacheGroup group{.name = "g",
                   .kind = *rc::gen::elementOf(std::vector{GroupKind::kFull, GroupKind::kSliding, GroupKind::kChunked}),
                   .block_size = block_size * *rc::gen::inRange<std::uint32_t>(1, 4)};
  group.window = group.kind == GroupKind::kFull ? 0 : *rc::gen::inRange<std::uint32_t>(1, 40);
  const CacheGroups groups = *CacheGroups::make(block_size, {group});
  const auto tokens = *rc::gen::inRange<std::size_t>(0, 100);
  std::size_t first = tokens / group.block_size;
  for (std::size_t token = 0; token < tokens; ++token) {  // is it seen by the token after them?
    const bool is_seen = group.kind == GroupKind::kFull ||
                         (group.kind == GroupKind::kSliding ? token + group.window > tokens
                                                            : token / group.window == tokens / group.window);
    if (is_seen) {
      first = std::min(first, token / group.block_size);
    }
  }
  RC_ASSERT(groups.first_needed(0, tokens) == first);
}

TEST(CacheGroupsTest, TextIsReadAndPrinted) {
  const std::string text = "global:full, local:sliding:1024@32, near:chunked:8192, ssm:state@64";
  const auto groups = parse_groups(text);
  ASSERT_TRUE(groups);
  EXPECT_EQ((*groups)[1], (CacheGroup{.name = "local", .kind = GroupKind::kSliding, .window = 1024, .block_size = 32}));
  EXPECT_EQ(print_groups(*groups), text);
  EXPECT_TRUE(parse_groups("")->empty());
  for (const char* const bad : {"a", "a:", ":full", "a:full:3", "a:sliding", "a:sliding:", "a:sliding:0", "a:state@0",
                                "a:state@x", "a b:full", "a:odd", "a:full,,b:full"}) {
    EXPECT_FALSE(parse_groups(bad)) << bad;
  }
}

TEST(CacheGroupsTest, RefusesGroupsThatDoNotFit) {
  const auto error = [](std::uint32_t block_size, std::vector<CacheGroup> groups) {
    return CacheGroups::make(block_size, std::move(groups)).error().message;
  };
  EXPECT_THAT(error(0, {}), HasSubstr("block size is 0"));
  EXPECT_THAT(error(16, std::vector<CacheGroup>(9)), HasSubstr("9 groups"));
  EXPECT_THAT(error(16, {{.name = ""}}), HasSubstr("give a name"));
  EXPECT_THAT(error(16, {{.name = "a"}, {.name = "a"}}), HasSubstr("two groups are called 'a'"));
  EXPECT_THAT(error(16, {{.name = "a", .block_size = 24}}), HasSubstr("multiple of block_size, which is 16"));
  EXPECT_THAT(error(16, {{.name = "a", .kind = GroupKind::kSliding}}), HasSubstr("a window of 0"));
  EXPECT_THAT(error(16, {{.name = "a", .window = 5}}), HasSubstr("a window of 5"));
  EXPECT_THAT(error(1, {{.name = "a", .block_size = 65521}, {.name = "b", .block_size = 65519}}),
              HasSubstr("least common multiple"));
}

}  // namespace
}  // namespace cairn
