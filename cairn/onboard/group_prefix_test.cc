#include "cairn/onboard/group_prefix.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

namespace cairn {
namespace {

using ::testing::ElementsAre;

CacheGroups groups_of(std::string_view text, std::uint32_t block_size = 4) {
  return *CacheGroups::make(block_size, *parse_groups(text));
}

// Which blocks of each group are there, a text for each: 'x' is there.
std::size_t usable(const CacheGroups& groups, std::vector<std::string> blocks, std::size_t most,
                   std::size_t local = 0) {
  return longest_usable_prefix(groups, local, most, [&](GroupBlock block) {
    return block.block < blocks[block.group].size() && blocks[block.group][block.block] == 'x';
  });
}

TEST(GroupPrefixTest, OneFullGroupIsAPrefix) {
  const CacheGroups groups = groups_of("a:full");
  EXPECT_EQ(usable(groups, {"xxx.xx"}, 6), 3U);
  EXPECT_EQ(usable(groups, {"xxx.xx"}, 2), 2U);
  EXPECT_EQ(usable(groups, {".xxxxx"}, 6), 0U);
  EXPECT_EQ(usable(groups, {"...xxx"}, 6, 3), 6U);
}

TEST(GroupPrefixTest, ASlidingWindowNeedsOnlyTheBlocksBeforeTheBoundary) {
  const CacheGroups groups = groups_of("a:full, b:sliding:9");
  EXPECT_EQ(usable(groups, {"xxxxxxxx", "......xx"}, 8), 8U);
  EXPECT_EQ(usable(groups, {"xxxxxx..", "......xx"}, 8), 0U);
  EXPECT_EQ(usable(groups, {"xxxxxx..", "..xx..xx"}, 8), 4U);
  EXPECT_EQ(usable(groups, {"xxxxxx..", "x.....xx"}, 8), 1U);  // the window is the first block
}

TEST(GroupPrefixTest, AStateNeedsACheckpointAtTheBoundary) {
  const CacheGroups groups = groups_of("a:full, b:state");
  EXPECT_EQ(usable(groups, {"xxxxxxxx", "..x..x.."}, 8), 6U);
  EXPECT_EQ(usable(groups, {"xxxx....", "..x..x.."}, 8), 3U);
  EXPECT_EQ(usable(groups, {"xxxx....", "........"}, 8), 0U);
}

// b shortens a to 6, where c has nothing; c shortens it to 4, where b has nothing any more.
TEST(GroupPrefixTest, GroupsShortenEachOtherUntilAllAgree) {
  const CacheGroups groups = groups_of("a:full, b:sliding:5, c:state");
  EXPECT_EQ(usable(groups, {"xxxxxxxx", ".x...x..", ".x.x...x"}, 8), 2U);
}

TEST(GroupPrefixTest, BoundariesAreAtTheEndsOfBlocksOfAllGroups) {
  const CacheGroups groups = groups_of("a:full@8, b:full@12");
  EXPECT_EQ(groups.alignment(), 6U);
  EXPECT_EQ(usable(groups, {"xxxxxx", "xxxx"}, 11), 6U);
  EXPECT_EQ(usable(groups, {"xxxxx", "xxxx"}, 12), 6U);
  EXPECT_EQ(usable(groups, {"xxxxxx", "xxxx"}, 12), 12U);
}

TEST(GroupPrefixTest, LoadsWhatIsNeededAndNotThere) {
  const CacheGroups groups = groups_of("a:full, b:sliding:9, c:state@8");
  EXPECT_THAT(blocks_to_load(groups, 2, 4),
              ElementsAre(GroupBlock{0, 2}, GroupBlock{1, 2}, GroupBlock{0, 3}, GroupBlock{1, 3}, GroupBlock{2, 1}));
  EXPECT_THAT(blocks_to_load(groups, 4, 4), ElementsAre());
}

TEST(GroupPrefixTest, ALoadThatFellShortVoidsOnlyWhatNeedsTheMissingBlocks) {
  const CacheGroups wide = groups_of("a:full, b:sliding:100");
  EXPECT_EQ(usable_after_load(wide, 0, 4, 8), 4U);
  EXPECT_EQ(usable_after_load(wide, 0, 4, 7), 3U);
  EXPECT_EQ(usable_after_load(wide, 0, 4, 5), 2U);
  const CacheGroups narrow = groups_of("a:full, b:sliding:5");  // the windows of shorter prefixes are not loaded
  EXPECT_EQ(usable_after_load(narrow, 0, 4, 5), 4U);
  EXPECT_EQ(usable_after_load(narrow, 0, 4, 4), 0U);
}

struct Model {
  CacheGroups groups;
  std::size_t blocks;  // common
  std::size_t local;
  std::map<std::pair<std::uint32_t, std::uint32_t>, bool> there;
};

Model random_model() {
  const auto block_size = *rc::gen::inRange<std::uint32_t>(1, 5);
  std::vector<CacheGroup> specs(*rc::gen::inRange<std::size_t>(1, 5));
  for (std::size_t i = 0; i < specs.size(); ++i) {
    specs[i].name = std::string(1, static_cast<char>('a' + i));
    specs[i].kind = *rc::gen::elementOf(std::vector<GroupKind>(std::begin(kAllGroupKinds), std::end(kAllGroupKinds)));
    specs[i].block_size = block_size * *rc::gen::inRange<std::uint32_t>(1, 4);
    if (specs[i].kind == GroupKind::kSliding || specs[i].kind == GroupKind::kChunked) {
      specs[i].window = *rc::gen::inRange<std::uint32_t>(1, 60);
    }
  }
  Model model{*CacheGroups::make(block_size, specs), *rc::gen::inRange<std::size_t>(0, 60), 0, {}};
  model.local = model.groups.boundary_before(*rc::gen::inRange<std::size_t>(0, model.blocks + 1));
  const auto holes = *rc::gen::inRange(0, 40);  // of 100
  for (std::uint32_t group = 0; group < specs.size(); ++group) {
    for (std::uint32_t block = 0; block < model.blocks; ++block) {
      model.there[{group, block}] = *rc::gen::inRange(0, 100) >= holes;
    }
  }
  return model;
}

// Tries every boundary, and every token before it.
std::size_t naive(const Model& model) {
  const CacheGroups& groups = model.groups;
  for (std::size_t boundary = model.blocks; boundary > model.local; --boundary) {
    const std::size_t tokens = boundary * groups.block_size();
    bool is_usable = true;
    for (std::uint32_t group = 0; group < groups.size(); ++group) {
      const CacheGroup& of = groups[group];
      is_usable = is_usable && tokens % of.block_size == 0;
      for (std::size_t token = 0; token < tokens; ++token) {
        const bool is_seen = of.kind == GroupKind::kFull      ? true
                             : of.kind == GroupKind::kSliding ? token + of.window > tokens
                             : of.kind == GroupKind::kChunked ? token / of.window == tokens / of.window
                                                              : token + 1 == tokens;
        const std::size_t block = token / of.block_size;
        const bool is_local = block < model.local * groups.block_size() / of.block_size;
        is_usable = is_usable && (!is_seen || is_local || model.there.at({group, static_cast<std::uint32_t>(block)}));
      }
    }
    if (is_usable) {
      return boundary;
    }
  }
  return model.local;
}

RC_GTEST_PROP(GroupPrefixTest, AgreesWithTryingEveryBoundary, ()) {
  const Model model = random_model();
  std::map<std::pair<std::uint32_t, std::uint32_t>, int> asked;
  const std::size_t found = longest_usable_prefix(model.groups, model.local, model.blocks, [&](GroupBlock block) {
    ++asked[{block.group, block.block}];
    return model.there.at({block.group, block.block});
  });
  RC_ASSERT(found == naive(model));
  for (const auto& [block, times] : asked) {
    RC_ASSERT(times == 1);
  }
  for (const GroupBlock& block : blocks_to_load(model.groups, model.local, found)) {
    RC_ASSERT(model.there.at({block.group, block.block}));
  }
}

RC_GTEST_PROP(GroupPrefixTest, AShortLoadLeavesThePrefixOfWhatItBrought, ()) {
  Model model = random_model();
  const std::size_t boundary = model.groups.boundary_before(model.blocks);
  RC_PRE(boundary >= model.local);
  const std::vector<GroupBlock> wanted = blocks_to_load(model.groups, model.local, boundary);
  const auto loaded = *rc::gen::inRange<std::size_t>(0, wanted.size() + 1);
  for (auto& [block, is_there] : model.there) {
    is_there = false;
  }
  for (const GroupBlock& block : std::span(wanted).first(loaded)) {
    model.there[{block.group, block.block}] = true;
  }
  RC_ASSERT(usable_after_load(model.groups, model.local, boundary, loaded) == naive(model));
}

}  // namespace
}  // namespace cairn
