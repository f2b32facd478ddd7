// Hybrid models: blocks of several layer groups in one set of tiers, against a model that knows the bytes of every block.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "cairn/manager/manager_testing.h"
#include "cairn/onboard/group_prefix.h"
#include "cairn/tokens/token_sequence.h"

namespace cairn::testing {
namespace {

using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ManagerGroupsTest : public ::testing::Test {
 protected:
  [[nodiscard]] ManagerConfig config(std::string_view groups, std::uint32_t device = 64, std::uint32_t host = 256,
                                     std::uint32_t disk = 256) const {
    ManagerConfig config = reference_config(folder_.in("blocks"), device, host, disk);
    config.model.secret = std::string(64, '7');
    EXPECT_TRUE(config.set("model.groups", groups).has_value());
    return config;
  }
  TestFolder folder_;
};

Keys keys_of(const KvBlockManager& manager, std::span<const Token> tokens) {
  const TokenBlockSequence sequence = *TokenBlockSequence::create(tokens, manager.block_size(), manager.hasher());
  return {sequence.keys().begin(), sequence.keys().end()};
}

std::vector<Token> tokens_of(std::size_t blocks, Token first = 0) {
  std::vector<Token> tokens(blocks * kBlockSize);
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

// Computes the blocks of one group and lets them go.
void compute_group(const KvBlockManager& manager, std::uint32_t group, BlockRange blocks, const Keys& keys) {
  Keys own;
  manager.groups().append_keys(group, blocks, keys, own);
  cache_on_device(manager, own);
}

// What the request can use now, with everything that it loads checked byte by byte.
std::size_t use(VirtualManager& manager, const Keys& keys) {
  const GroupLocation location = *manager->locate_groups(keys);
  std::optional<LoadOutcome> loaded;
  EXPECT_TRUE(manager->load(
      {.keys = location.keys, .done = [&loaded](LoadOutcome&& outcome) { loaded.emplace(std::move(outcome)); }}));
  manager.advance(seconds(1));
  EXPECT_TRUE(loaded.has_value());
  if (!loaded) {
    return 0;
  }
  EXPECT_TRUE(hold_their_bytes(*manager, loaded->blocks));
  return usable_after_load(manager->groups(), location.local, location.boundary, loaded->prefix);
}

TEST_F(ManagerGroupsTest, APrefixIsFoundWhereEveryGroupHasWhatItNeeds) {
  VirtualManager manager(config("global:full, local:sliding:9, ssm:state@8"), {.bytes_per_second = 1e7});
  const Keys keys = keys_of(*manager, tokens_of(10));
  compute_group(*manager, 0, {0, 10}, keys);
  manager.advance(seconds(1));
  EXPECT_EQ(manager->locate_groups(keys)->boundary, 0U);
  EXPECT_EQ(manager->locate_groups(keys)->full_boundary, 10U);
  compute_group(*manager, 1, {4, 8}, keys);
  compute_group(*manager, 2, {3, 4}, keys);  // at the end of block 8
  manager.advance(seconds(1));
  ASSERT_TRUE(manager->reset(CacheLevel::kG1));
  const GroupLocation location = *manager->locate_groups(keys);
  EXPECT_EQ(location.boundary, 8U);
  EXPECT_EQ(location.blocks.size(), 11U);  // eight, two in the window, one state
  EXPECT_THAT(location.levels, ::testing::Each(CacheLevel::kG2));
  EXPECT_EQ(use(manager, keys), 8U);
  EXPECT_EQ(manager->locate_groups(keys, 6)->blocks.size(), 5U);
  EXPECT_THAT(manager->locate_groups(keys, 3).error().message, HasSubstr("a multiple of 2 blocks"));
}

// A group's block of the same tokens is another block, in every tier.
TEST_F(ManagerGroupsTest, ABlockOfOneGroupIsNeverServedForAnother) {
  VirtualManager manager(config("a:full, b:full"), {.bytes_per_second = 1e7});
  const Keys keys = keys_of(*manager, tokens_of(4));
  compute_group(*manager, 0, {0, 4}, keys);
  manager.advance(seconds(1));
  EXPECT_EQ(manager->locate_groups(keys)->boundary, 0U);
  EXPECT_EQ(manager->locate(keys).blocks(), 0U);  // the keys of the request are those of no block
  compute_group(*manager, 1, {0, 3}, keys);
  manager.advance(seconds(1));
  ASSERT_TRUE(manager->reset(CacheLevel::kG1));
  EXPECT_EQ(use(manager, keys), 3U);
}

TEST_F(ManagerGroupsTest, AWrongBlockOfOneGroupVoidsWhatNeedsIt) {
  VirtualManager manager(config("global:full, wide:sliding:100, near:chunked:8", 64, 256, 0),
                         {.bytes_per_second = 1e7});
  const Keys keys = keys_of(*manager, tokens_of(8));
  for (std::uint32_t group = 0; group < 3; ++group) {
    compute_group(*manager, group, {0, 8}, keys);
  }
  manager.advance(seconds(1));
  ASSERT_TRUE(manager->reset(CacheLevel::kG1));
  EXPECT_EQ(manager->locate_groups(keys)->boundary, 8U);
  {
    const BlockKey damaged = manager->groups().key({1, 5}, keys);
    const ImmutableBlocks block = manager->host()->match_prefix(Keys{damaged});
    ASSERT_EQ(block.size(), 1U);
    write_pattern(*manager->layout(CacheLevel::kG2), index_of(block.block_ids()[0]), 12345);
  }
  EXPECT_EQ(use(manager, keys), 4U);  // a chunk of two blocks is whole after four: its blocks are not needed there
  EXPECT_EQ(manager->locate_groups(keys)->boundary, 5U);  // and the damaged block is gone
}

TEST_F(ManagerGroupsTest, AllGroupsAreOnDiskAfterARestartAndOtherGroupsAreAnotherModel) {
  const std::string groups = "global:full, local:sliding:9, ssm:state";
  const std::vector<Token> tokens = tokens_of(6);
  {
    VirtualManager manager(config(groups), {.bytes_per_second = 1e7});
    const Keys keys = keys_of(*manager, tokens);
    compute_group(*manager, 0, {0, 6}, keys);
    compute_group(*manager, 1, {4, 6}, keys);
    compute_group(*manager, 2, {5, 6}, keys);
    manager.advance(seconds(1));
  }
  {
    VirtualManager manager(config(groups), {.bytes_per_second = 1e7});
    const Keys keys = keys_of(*manager, tokens);
    EXPECT_THAT(manager->locate_groups(keys)->levels, ::testing::Each(CacheLevel::kG3));
    EXPECT_EQ(use(manager, keys), 6U);
  }
  const Error refused = KvBlockManager::make(config("global:full, local:sliding:13, ssm:state")).error();
  EXPECT_THAT(refused.message, HasSubstr("local:sliding:9"));
}

TEST_F(ManagerGroupsTest, AModelWithoutGroupsHasTheFilesAndKeysOfBefore) {
  EXPECT_EQ(config("").space().id(), reference_config(folder_.in("blocks")).space().id());
  VirtualManager manager(config(""), {.bytes_per_second = 1e7});
  const Keys keys = keys_of(*manager, tokens_of(4));
  EXPECT_TRUE(manager->groups().is_plain());
  cache_on_device(*manager, keys);
  manager.advance(seconds(1));
  EXPECT_EQ(manager->locate_groups(keys)->boundary, 4U);
  EXPECT_EQ(manager->locate_groups(keys)->keys, keys);
}

TEST_F(ManagerGroupsTest, RefusesGroupsThatDoNotFitTheConfiguration) {
  ManagerConfig odd = config("a:full@6");
  EXPECT_THAT(odd.validate().error().message, HasSubstr("model.groups: group 'a' has blocks of 6 tokens"));
  ManagerConfig with_ids = config("a:full, b:state");
  with_ids.event_token_ids = true;
  EXPECT_THAT(with_ids.validate().error().message, HasSubstr("events carry no token ids"));
  ManagerConfig with_length = config("a:full, b:state");
  with_length.offload_to_disk.least_blocks = 2;
  EXPECT_THAT(with_length.validate().error().message, HasSubstr("offload.disk.least_blocks is 2"));
  EXPECT_THAT(ManagerConfig().set("model.groups", "a:round").error().message, HasSubstr("global:full"));
}

// Random models, sequences that branch, small tiers, damage and resets: what is loaded has its bytes, and what was found is
// what trying every boundary finds.
class ManagerGroupsModelTest : public ManagerGroupsTest, public ::testing::WithParamInterface<std::uint32_t> {
 protected:
  std::string random_groups() {
    std::string text;
    const std::size_t count = 1 + random_() % 4;
    for (std::size_t i = 0; i < count; ++i) {
      text += str_cat(i > 0 ? ", " : "", "g", i, ":");
      const std::uint32_t window = 1 + static_cast<std::uint32_t>(random_() % 40);
      const std::string kinds[] = {"full", str_cat("sliding:", window), str_cat("chunked:", window), "state"};
      text += kinds[i == 0 ? 0 : random_() % 4];
      text += random_() % 3 == 0 ? str_cat("@", kBlockSize * 2) : "";
    }
    return text;
  }

  std::mt19937_64 random_{GetParam()};
};

TEST_P(ManagerGroupsModelTest, WhatIsLoadedIsWhatWasComputed) {
  const std::string text = random_groups();
  SCOPED_TRACE(text);
  VirtualManager manager(config(text, 96, 60, 120), {.bytes_per_second = 1e7});
  const CacheGroups& groups = manager->groups();
  std::vector<std::vector<Token>> sequences;
  std::size_t used = 0;
  for (int round = 0; round < 40; ++round) {
    // A new sequence, one that goes on where another ended, or one that branches off in its middle.
    std::vector<Token> tokens = tokens_of(2 + random_() % 14, static_cast<Token>(1000 * round));
    if (!sequences.empty() && random_() % 3 != 0) {
      const std::vector<Token>& other =
          sequences[sequences.size() - 1 - random_() % std::min<std::size_t>(4, sequences.size())];
      const std::size_t shared = random_() % 2 == 0 ? other.size() : other.size() / 2;
      tokens.insert(tokens.begin(), other.begin(), other.begin() + static_cast<std::ptrdiff_t>(shared));
      tokens.resize(std::min<std::size_t>(tokens.size(), 20 * kBlockSize));
    }
    sequences.push_back(tokens);
    const Keys keys = keys_of(*manager, tokens);
    const GroupLocation found = *manager->locate_groups(keys);
    const std::size_t naive = longest_usable_prefix(groups, 0, keys.size(), [&](GroupBlock block) {
      const Keys one = {groups.key(block, keys)};
      return manager->locate(one).blocks() == 1;
    });
    EXPECT_EQ(found.boundary, naive);
    const std::size_t usable = use(manager, keys);
    EXPECT_LE(usable, found.boundary);
    used += usable;
    // The engine computes the rest. Of groups that are not full it keeps what is needed in the middle and at the end.
    for (std::uint32_t group = 0; group < groups.size(); ++group) {
      std::size_t begin = usable / groups.each(group);
      for (const std::size_t boundary :
           {groups.boundary_before(keys.size() / 2), groups.boundary_before(keys.size())}) {
        const BlockRange needed = groups.needed(group, boundary);
        begin = std::max(begin, needed.begin);
        if (begin < needed.end) {
          compute_group(*manager, group, {begin, needed.end}, keys);
          begin = needed.end;
        }
      }
    }
    manager.advance(seconds(1));
    if (random_() % 3 == 0) {
      ASSERT_TRUE(manager->reset(CacheLevel::kG1));
    }
    if (random_() % 10 == 0) {
      ASSERT_TRUE(manager->reset(CacheLevel::kG2));
    }
    if (random_() % 4 == 0) {  // a block of host memory goes bad
      const ImmutableBlocks host = manager->host()->match_prefix(Keys{groups.key({0, 0}, keys)});
      if (!host.empty()) {
        write_pattern(*manager->layout(CacheLevel::kG2), index_of(host.block_ids()[0]), 99);
      }
    }
  }
  EXPECT_GT(used, 0U);
}

INSTANTIATE_TEST_SUITE_P(Seeds, ManagerGroupsModelTest, ::testing::Range(1U, 25U));

}  // namespace
}  // namespace cairn::testing
