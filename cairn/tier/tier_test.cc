#include "cairn/tier/tier.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cairn/tier/disk_format.h"
#include "cairn/tier/tier_testing.h"

namespace cairn {
namespace {

using std::chrono::seconds;
using testing::chain;
using testing::disk_options;
using ::testing::ElementsAre;
using testing::fence;
using testing::first_of;
using testing::joined;
using testing::Keys;
using testing::kTierShape;
using testing::make_tier;
using testing::memory_options;
using testing::resident_keys;
using testing::TestFolder;
using ::testing::UnorderedElementsAreArray;

class TierTest : public ::testing::Test {
 protected:
  static constexpr std::uint32_t kBlocks = 8;

  void open() {
    tier_.reset();
    tier_ = make_tier(disk_options(path_, kBlocks, clock_));
  }
  // As a link does.
  ImmutableBlocks put_and_hold(const Keys& keys) {
    Result<MutableBlocks> blocks = tier_->pool()->allocate(static_cast<std::uint32_t>(keys.size()));
    CAIRN_CHECK(blocks.has_value(), "there is room");
    std::vector<BlockFacts> facts = testing::fresh_facts(keys);
    for (BlockFacts& each : facts) {
      each.checksum = each.block.key.low_word() | 1;
    }
    EXPECT_TRUE(tier_->before_writing(blocks->block_ids()));
    EXPECT_TRUE(tier_->after_writing(blocks->block_ids(), facts, tier_->fence_number()));
    return *(*(*std::move(blocks)).complete_as(facts)).register_blocks();
  }
  void put(const Keys& keys) { const ImmutableBlocks dropped = put_and_hold(keys); }
  [[nodiscard]] Keys there() const { return resident_keys(*tier_->pool()); }

  ManualClock clock_;
  TestFolder folder_;
  const std::string path_ = folder_ / "blocks.cairn";
  const Keys keys_ = chain(1, 4);
  std::unique_ptr<Tier> tier_;
};

TEST_F(TierTest, MemoryHasAPoolOfItsLayoutsSizeThatKeepsChecksums) {
  tier_ = make_tier(memory_options(CacheLevel::kG2, Arrangement::kContiguousHnd, 5, clock_));
  EXPECT_EQ(tier_->pool()->capacity(), 5U);
  EXPECT_EQ(tier_->pool()->tier(), CacheLevel::kG2);
  EXPECT_EQ(tier_->level(), CacheLevel::kG2);
  EXPECT_EQ(tier_->block_bytes(), kTierShape.block_bytes());
  EXPECT_FALSE(tier_->has_file());
  put(keys_);
  EXPECT_EQ(tier_->pool()->hold(keys_).facts()[2].checksum, keys_[2].low_word() | 1);
  EXPECT_EQ(tier_->reset(first_of(keys_, 1)).reset, 1U);
  tier_->drop(std::vector{keys_[1]});
  EXPECT_EQ(tier_->pool()->counts().registered, 2U);
  EXPECT_EQ(fence(*tier_).dropped, 2U);
  EXPECT_TRUE(tier_->sync());
}

TEST_F(TierTest, AnEnginesOwnTierHasALayoutAndNoPool) {
  Tier::Options options = memory_options(CacheLevel::kG1, Arrangement::kLayersKvNhd, 5, clock_);
  options.pool.reset();
  tier_ = make_tier(std::move(options));
  EXPECT_EQ(tier_->pool(), nullptr);
}

TEST_F(TierTest, RefusesAFileOfAnotherSizeThanItsLayout) {
  Tier::Options options = disk_options(path_, kBlocks, clock_);
  options.layout = testing::TestLayout::make({kTierShape, Arrangement::kContiguousNhd, kBlocks + 1, 1}).layout();
  const Result<std::unique_ptr<Tier>> tier = Tier::make(std::move(options));
  ASSERT_FALSE(tier);
  testing::expect_error(tier.error(), ErrorCode::kInvalidArgument, "8 blocks for a layout of 9 blocks");
}

TEST_F(TierTest, ATagIsOfTheKeyAndTheNamespace) {
  Tier::Options options = memory_options(CacheLevel::kG1, Arrangement::kContiguousNhd, 1, clock_);
  const auto memory = make_tier(memory_options(CacheLevel::kG1, Arrangement::kContiguousNhd, 1, clock_));
  options.space = NamespaceId{77};
  const auto strange = make_tier(std::move(options));
  open();
  EXPECT_NE(memory->tag_of(keys_[0]), memory->tag_of(keys_[1]));
  EXPECT_EQ(memory->tag_of(keys_[0]), tier_->tag_of(keys_[0]));
  EXPECT_NE(memory->tag_of(keys_[0]), strange->tag_of(keys_[0]));
}

TEST_F(TierTest, BeginsWithWhatTheFileHolds) {
  open();
  EXPECT_EQ(tier_->recovered().blocks, 0U);
  put(keys_);
  EXPECT_TRUE(tier_->sync());
  const std::vector<BlockFacts> before = tier_->pool()->hold(keys_).facts();
  open();
  EXPECT_EQ(tier_->recovered().blocks, 4U);
  EXPECT_TRUE(tier_->recovered().clean);
  const std::vector<BlockFacts> after = tier_->pool()->hold(keys_).facts();
  ASSERT_EQ(after.size(), 4U);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(after[i].block.key, before[i].block.key);
    EXPECT_EQ(after[i].block.tokens_hash, before[i].block.tokens_hash);
    EXPECT_EQ(after[i].checksum, before[i].checksum);
  }
}

TEST_F(TierTest, WhatWasWrittenFirstGoesFirstAfterARestartAndChildrenBeforeTheirParents) {
  open();
  const Keys other = chain(2, 2);
  put(keys_);
  put(other);
  open();
  EXPECT_EQ(testing::evicted_for(*tier_->pool(), kBlocks), joined(testing::reversed(keys_), testing::reversed(other)));
}

TEST_F(TierTest, ABlockThatIsWrittenAgainIsForgottenBefore) {
  open();
  put(joined(keys_, chain(2, 4)));
  {
    Result<MutableBlocks> blocks = tier_->pool()->allocate(2);
    ASSERT_TRUE(blocks);
    ASSERT_TRUE(tier_->before_writing(blocks->block_ids()));
    // The process ends here.
  }
  open();
  EXPECT_EQ(tier_->recovered().blocks, 6U);
  EXPECT_EQ(there().size(), 6U);
}

TEST_F(TierTest, WhatIsDroppedIsNotFoundHereNorAfterARestart) {
  open();
  std::optional<ImmutableBlocks> held = put_and_hold(keys_);
  tier_->drop(std::vector{keys_[1], chain(9, 1)[0]});
  EXPECT_FALSE(tier_->pool()->contains(keys_[1]));
  EXPECT_EQ(tier_->pool()->counts().active, 4U) << "holders keep it";
  held.reset();
  open();
  EXPECT_THAT(there(), UnorderedElementsAreArray({keys_[0], keys_[2], keys_[3]}));
}

TEST_F(TierTest, WhatIsResetIsNotFoundHereNorAfterARestart) {
  open();
  put(keys_);
  const ResetOutcome outcome = tier_->reset(std::vector{keys_[0], keys_[3], chain(9, 1)[0]});
  EXPECT_EQ(outcome.reset, 2U);
  EXPECT_EQ(outcome.not_found, 1U);
  open();
  EXPECT_THAT(there(), UnorderedElementsAreArray({keys_[1], keys_[2]}));
  EXPECT_EQ(fence(*tier_).dropped, 2U);
  open();
  EXPECT_EQ(tier_->recovered().blocks, 0U);
}

TEST_F(TierTest, ABlockThatWasEvictedAndNotOverwrittenDoesNotComeBackAfterAReset) {
  open();
  put(joined(keys_, chain(2, 4)));
  EXPECT_EQ(testing::evicted_for(*tier_->pool(), 3).size(), 3U);  // without overwriting them
  tier_->drop(std::vector{keys_[3]});
  tier_->reset(std::vector{keys_[2]});
  open();
  EXPECT_THAT(there(), ::testing::Not(::testing::Contains(::testing::AnyOf(keys_[2], keys_[3]))));
  EXPECT_TRUE(tier_->pool()->contains(keys_[1])) << "its bytes are in the file";
  EXPECT_EQ(testing::evicted_for(*tier_->pool(), 4).size(), 2U);
  fence(*tier_);
  open();
  EXPECT_EQ(tier_->recovered().blocks, 0U);
}

TEST_F(TierTest, ABlockThatWasWrittenTwiceDoesNotComeBackAfterItIsDropped) {
  open();
  put(keys_);
  put(keys_);  // the pool keeps those that it had
  EXPECT_EQ(tier_->pool()->counts().free, 4U);
  tier_->drop(first_of(keys_, 1));
  tier_->reset(std::vector{keys_[1]});
  open();
  EXPECT_EQ(tier_->recovered().superseded, 2U);
  EXPECT_THAT(there(), UnorderedElementsAreArray({keys_[2], keys_[3]}));
  // The older entries do not count either, when the later ones are gone.
  fence(*tier_);
  open();
  EXPECT_EQ(tier_->recovered().blocks, 0U);
  EXPECT_EQ(tier_->recovered().superseded, 0U);
}

TEST_F(TierTest, OlderEntriesOfAKeyAreGoneOnceTheFileWasRead) {
  {
    Tier::Options options = disk_options(path_, kBlocks, clock_);
    const auto entry = [&](std::uint32_t block_id) {
      return DiskEntry{.block_id = BlockId{block_id}, .key = keys_[0], .checksum = Checksum{7}};
    };
    ASSERT_TRUE(options.file->put(std::vector{entry(5), entry(2)}));
  }
  open();
  EXPECT_EQ(tier_->recovered().superseded, 1U);
  EXPECT_THAT(tier_->pool()->hold(keys_).block_ids(), ElementsAre(BlockId{2}));
  tier_->drop(first_of(keys_, 1));
  open();
  EXPECT_EQ(tier_->recovered().blocks, 0U);
}

// No block is served unverified: an entry without a checksum is ignored.
TEST_F(TierTest, AnEntryWithoutAChecksumIsDamaged) {
  {
    Tier::Options options = disk_options(path_, kBlocks, clock_);
    ASSERT_TRUE(
        options.file->put(std::vector{DiskEntry{.block_id = BlockId{1}, .key = keys_[0]},
                                      DiskEntry{.block_id = BlockId{2}, .key = keys_[1], .checksum = Checksum{7}}}));
  }
  open();
  EXPECT_EQ(tier_->recovered().damaged, 1U);
  EXPECT_THAT(there(), ElementsAre(keys_[1]));
}

TEST_F(TierTest, DamagedEntriesAreCountedAndTheirBlocksUsedAgain) {
  open();
  put(keys_);
  const BlockId block_id = tier_->pool()->hold(std::vector{keys_[2]}).block_ids()[0];
  tier_.reset();
  const int file = ::open(path_.c_str(), O_WRONLY | O_CLOEXEC);
  ASSERT_EQ(
      pwrite(file, "?", 1, static_cast<off_t>(disk::kEntriesOffset + index_of(block_id) * disk::kEntryBytes + 20)), 1);
  close(file);
  open();
  EXPECT_EQ(tier_->recovered().damaged, 1U);
  EXPECT_EQ(tier_->recovered().blocks, 3U);
  EXPECT_FALSE(tier_->pool()->contains(keys_[2]));
  put(chain(2, 5));
  EXPECT_EQ(tier_->pool()->counts().registered, 8U);
  open();
  EXPECT_EQ(tier_->recovered().damaged, 0U);
  EXPECT_EQ(tier_->recovered().blocks, 8U);
}

TEST_F(TierTest, TellsWhenADirectionIsTakenOutAndWhenItIsBack) {
  std::vector<TierChange> reported;
  Tier::Options options = memory_options(CacheLevel::kG2, Arrangement::kContiguousHnd, 5, clock_);
  options.on_change = [&](const TierChange& change) { reported.push_back(change); };
  tier_ = make_tier(std::move(options));
  for (const char* reason : {"one", "two", "three", "four"}) {
    tier_->failed(TierUse::kWriting, reason);
  }
  ASSERT_EQ(reported.size(), 1U);
  EXPECT_EQ(reported[0].level, CacheLevel::kG2);
  EXPECT_EQ(reported[0].use, TierUse::kWriting);
  EXPECT_FALSE(reported[0].is_up);
  EXPECT_EQ(reported[0].reason, "three");
  EXPECT_FALSE(tier_->may(TierUse::kWriting));
  EXPECT_FALSE(tier_->is_up(TierUse::kWriting));
  EXPECT_TRUE(tier_->may(TierUse::kReading));
  clock_.advance(seconds(61));
  EXPECT_TRUE(tier_->may(TierUse::kWriting));
  EXPECT_FALSE(tier_->may(TierUse::kWriting)) << "one trial at a time";
  tier_->not_tried(TierUse::kWriting);
  EXPECT_TRUE(tier_->may(TierUse::kWriting));
  tier_->succeeded(TierUse::kWriting);
  ASSERT_EQ(reported.size(), 2U);
  EXPECT_TRUE(reported[1].is_up);
  EXPECT_TRUE(tier_->is_up(TierUse::kWriting));
  EXPECT_EQ(tier_->report(TierUse::kWriting).times_out, 1U);
}

}  // namespace
}  // namespace cairn
