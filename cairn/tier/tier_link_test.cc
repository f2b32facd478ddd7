#include "cairn/tier/tier_link.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cairn/tier/tier_testing.h"

namespace cairn {
namespace {

using std::chrono::seconds;
using testing::bytes_of;
using testing::chain;
using testing::compute;
using testing::Copied;
using testing::damage;
using ::testing::Each;
using ::testing::ElementsAre;
using testing::expect_error;
using testing::fence;
using testing::first_of;
using testing::fresh_facts;
using ::testing::HasSubstr;
using testing::joined;
using testing::Keys;
using testing::kTierShape;
using testing::memory_options;

constexpr BlockState kDone = BlockState::kDone;
constexpr BlockState kFailed = BlockState::kFailed;
constexpr BlockState kMismatch = BlockState::kMismatch;

class TierLinkTest : public testing::ThreeTiers {
 protected:
  static Keys last_of(const Keys& keys, std::size_t count) {
    return {keys.end() - static_cast<std::ptrdiff_t>(count), keys.end()};
  }
  // As an engine holds them in its own tier.
  static EngineBlocks engine_blocks(const Tier& tier, const Keys& keys, std::shared_ptr<void> held) {
    EngineBlocks blocks{.facts = fresh_facts(keys), .held = std::move(held)};
    for (std::uint32_t i = 0; i < keys.size(); ++i) {
      blocks.block_ids.push_back(BlockId{2 * i + 1});
      testing::write_block(*tier.layout(), blocks.block_ids.back(), bytes_of(keys[i]));
    }
    return blocks;
  }
  std::unique_ptr<Tier> make_engine_tier() {
    Tier::Options options = memory_options(CacheLevel::kG1, Arrangement::kLayersBlockHnd, kTierBlocks, clock_);
    options.pool.reset();
    return testing::make_tier(std::move(options));
  }

  const Keys keys_ = chain(1, 4);
};

TEST_F(TierLinkTest, BringsBlocksDownAndUpAgainWithAllThatIsKnownOfThem) {
  start();
  std::vector<BlockFacts> facts;
  {
    const ImmutableBlocks first = compute(*device_, first_of(keys_, 1), 80);
    const ImmutableBlocks rest = compute(*device_, last_of(keys_, 3), 20);
    copy(*to_host_, keys_);
  }
  expect_holds(*host_, keys_);
  facts = host_->pool()->hold(keys_).facts();
  EXPECT_EQ(facts[0].priority, 80U);
  EXPECT_EQ(facts[3].priority, 20U);
  for (std::size_t i = 0; i < keys_.size(); ++i) {
    EXPECT_EQ(facts[i].block.key, keys_[i]);
    EXPECT_EQ(facts[i].block.tokens_hash, fresh_facts(keys_)[i].block.tokens_hash);
    EXPECT_NE(facts[i].checksum, 0U) << "the copy made the checksum";
  }
  copy(*to_disk_, keys_);
  expect_holds(*disk_, keys_);
  EXPECT_EQ(disk_->pool()->hold(keys_).facts(), facts);
  fence(*device_);
  fence(*host_);
  copy(*from_disk_, keys_);
  expect_holds(*host_, keys_);
  EXPECT_EQ(host_->pool()->hold(keys_).facts(), facts);
  copy(*from_host_, keys_);
  expect_holds(*device_, keys_);
  EXPECT_EQ(device_->pool()->hold(keys_).facts(), facts);
  for (const Tier* tier : {device_.get(), host_.get(), disk_.get()}) {
    expect_at_rest(*tier, 4);
  }
  const LinkTotals totals = from_disk_->meter().totals();
  EXPECT_EQ(totals.copies, 1U);
  EXPECT_EQ(totals.blocks, 4U);
  EXPECT_EQ(totals.bytes, 4 * kTierShape.block_bytes());
  EXPECT_EQ(totals.blocks_in_flight, 0U);
  EXPECT_EQ(totals.busy, seconds(4));
  EXPECT_NEAR(from_disk_->meter().bytes_per_second(), static_cast<double>(kTierShape.block_bytes()), 1);
}

TEST_F(TierLinkTest, TheSourceIsReleasedBeforeDoneIfEveryBlockIsDone) {
  start();
  {
    const ImmutableBlocks computed = compute(*host_, keys_);
  }
  std::optional<PoolCounts> at_done;
  const auto record = [&](LinkOutcome&& outcome) {
    EXPECT_THAT(outcome.states, Each(kDone));
    at_done = host_->pool()->counts();
  };
  ASSERT_TRUE(to_disk_->submit({.source = host_->pool()->hold(keys_),
                                .targets = *disk_->pool()->allocate(4),
                                .deadline = clock_.now() + seconds(60),
                                .done = record}));
  EXPECT_EQ(host_->pool()->counts().available(), kTierBlocks - 4);
  run_for(seconds(5));
  ASSERT_TRUE(at_done.has_value());
  EXPECT_EQ(at_done->available(), kTierBlocks) << "room for the next blocks";
}

TEST_F(TierLinkTest, WhatTheFileHoldsComesUpAfterARestart) {
  start();
  {
    const ImmutableBlocks computed = compute(*host_, keys_);
  }
  copy(*to_disk_, keys_);
  restart();
  EXPECT_EQ(disk_->recovered().blocks, 4U);
  copy(*from_disk_, keys_);
  expect_holds(*host_, keys_);
}

TEST_F(TierLinkTest, BlocksWithAndWithoutAChecksumGoTogether) {
  start();
  {
    const ImmutableBlocks computed = compute(*device_, first_of(keys_, 2));
  }
  copy(*to_host_, first_of(keys_, 2));
  {
    const ImmutableBlocks computed = compute(*host_, last_of(keys_, 2));
  }
  const std::vector<BlockFacts> before = host_->pool()->hold(keys_).facts();
  EXPECT_EQ(before[2].checksum, 0U);
  copy(*to_disk_, keys_);
  const std::vector<BlockFacts> after = disk_->pool()->hold(keys_).facts();
  EXPECT_EQ(after[0].checksum, before[0].checksum);
  EXPECT_EQ(after[1].checksum, before[1].checksum);
  EXPECT_NE(after[2].checksum, 0U);
  // From now on all have checksums.
  damage(*disk_, block_id_of(*disk_, keys_[2]));
  fence(*host_);
  Copied up;
  ASSERT_TRUE(submit(*from_disk_, keys_, up));
  run_for(seconds(5));
  EXPECT_THAT(up.states(), ElementsAre(kDone, kDone, kMismatch, kDone));
}

TEST_F(TierLinkTest, BlocksThatWereDamagedInMemoryAreDroppedAndGoNoFurther) {
  start();
  {
    const ImmutableBlocks computed = compute(*device_, keys_);
  }
  copy(*to_host_, keys_);
  damage(*host_, block_id_of(*host_, keys_[1]));
  {
    Copied down;
    ASSERT_TRUE(submit(*to_disk_, keys_, down));
    run_for(seconds(5));
    EXPECT_THAT(down.states(), ElementsAre(kDone, kMismatch, kDone, kDone));
    EXPECT_THAT(down.outcome->error, HasSubstr("of G2 has other bytes than it was stored with"));
    EXPECT_EQ(testing::keys_of(down.outcome->blocks), (Keys{keys_[0], keys_[2], keys_[3]}));
  }
  EXPECT_FALSE(host_->pool()->contains(keys_[1]));
  EXPECT_FALSE(disk_->pool()->contains(keys_[1]));
  EXPECT_TRUE(device_->pool()->contains(keys_[1])) << "no damage is known there";
  expect_at_rest(*host_, 3);
  expect_at_rest(*disk_, 3);
  expect_holds(*disk_, {keys_[0], keys_[2], keys_[3]});
  EXPECT_EQ(to_disk_->meter().totals().mismatched, 1U);
  EXPECT_EQ(to_disk_->meter().totals().blocks, 3U);
}

TEST_F(TierLinkTest, BlocksDamagedInTheFileAreNotFoundAfterARestart) {
  start();
  {
    const ImmutableBlocks computed = compute(*host_, keys_);
  }
  copy(*to_disk_, keys_);
  fence(*host_);
  damage(*disk_, block_id_of(*disk_, keys_[0]));
  damage(*disk_, block_id_of(*disk_, keys_[3]));
  {
    Copied up;
    ASSERT_TRUE(submit(*from_disk_, keys_, up));
    run_for(seconds(5));
    EXPECT_THAT(up.states(), ElementsAre(kMismatch, kDone, kDone, kMismatch));
  }
  EXPECT_TRUE(disk_->is_up(TierUse::kReading)) << "the read itself succeeded";
  expect_at_rest(*disk_, 2);
  expect_at_rest(*host_, 2);
  expect_holds(*host_, {keys_[1], keys_[2]});
  restart();
  EXPECT_THAT(testing::resident_keys(*disk_->pool()), ::testing::UnorderedElementsAre(keys_[1], keys_[2]));
}

TEST_F(TierLinkTest, AFileOfAnotherBlockUnderTheKeyIsAMismatch) {
  start();
  {
    const ImmutableBlocks computed = compute(*host_, keys_);
  }
  copy(*to_disk_, keys_);
  fence(*host_);
  testing::write_block(*disk_->layout(), block_id_of(*disk_, keys_[0]), bytes_of(keys_[1]));
  Copied up;
  ASSERT_TRUE(submit(*from_disk_, first_of(keys_, 2), up));
  run_for(seconds(3));
  EXPECT_THAT(up.states(), ElementsAre(kMismatch, kDone));
}

TEST_F(TierLinkTest, BlocksThatFailOrFallShortRegisterNothing) {
  start({{.fault = Fault::kFail, .at = 2}, {.fault = Fault::kShort, .at = 3}});
  {
    const ImmutableBlocks computed = compute(*host_, keys_);
  }
  {
    Copied down;
    ASSERT_TRUE(submit(*to_disk_, keys_, down));
    run_for(seconds(6));
    EXPECT_THAT(down.states(), ElementsAre(kDone, kFailed, kFailed, kDone));
    EXPECT_THAT(down.outcome->error, HasSubstr("injected: fail"));
    EXPECT_EQ(testing::keys_of(down.outcome->blocks), (Keys{keys_[0], keys_[3]}));
  }
  expect_at_rest(*disk_, 2);
  expect_at_rest(*host_, 4);
  EXPECT_EQ(to_disk_->meter().totals().failed, 2U);
  restart();
  EXPECT_EQ(disk_->recovered().blocks, 2U);
}

TEST_F(TierLinkTest, ABlockThatIsResidentAlreadyIsHeldInstead) {
  start();
  {
    const ImmutableBlocks computed = compute(*host_, keys_);
  }
  copy(*to_disk_, first_of(keys_, 2));
  const BlockId block_id = block_id_of(*disk_, keys_[0]);
  {
    Copied down;
    ASSERT_TRUE(submit(*to_disk_, keys_, down));
    run_for(seconds(5));
    EXPECT_THAT(down.states(), Each(kDone));
    EXPECT_EQ(down.outcome->blocks.block_ids()[0], block_id);
  }
  expect_at_rest(*disk_, 4);
  disk_->reset(keys_);
  restart();
  EXPECT_EQ(disk_->recovered().blocks, 0U) << "and the returned block has no entry";
}

TEST_F(TierLinkTest, OverwritesWhatWasEvictedAndItsEntry) {
  start();
  const Keys many = chain(2, kTierBlocks);
  {
    const ImmutableBlocks computed = compute(*host_, many);
  }
  copy(*to_disk_, many);
  fence(*host_);
  {
    const ImmutableBlocks computed = compute(*host_, keys_);
  }
  copy(*to_disk_, keys_);
  expect_at_rest(*disk_, kTierBlocks);
  restart();
  EXPECT_EQ(disk_->recovered().blocks, kTierBlocks);
  EXPECT_EQ(disk_->recovered().superseded, 0U);
  expect_holds(*disk_, joined(keys_, first_of(many, kTierBlocks - 4)));
}

TEST_F(TierLinkTest, TheEnginesBlocksComeDownAndAreHeldUntilNothingReadsThem) {
  start({{.fault = Fault::kHang, .at = 2}});
  const auto engine = make_engine_tier();
  auto down = link(*engine, *host_);
  auto held = std::make_shared<int>();
  {
    Copied copied;
    ASSERT_TRUE(submit(*down, CopySource(engine_blocks(*engine, first_of(keys_, 3), held)), copied, seconds(5)));
    run_for(seconds(6));
    EXPECT_THAT(copied.states(), ElementsAre(kDone, BlockState::kExpired, kDone));
  }
  EXPECT_EQ(held.use_count(), 2) << "a copy is in flight";
  expect_holds(*host_, {keys_[0], keys_[2]});
  faults_->release();
  run_for(seconds(2));
  EXPECT_EQ(held.use_count(), 1);
  expect_at_rest(*host_, 2);
}

TEST_F(TierLinkTest, FillsTheEnginesBlocksAndHoldsThemUntilNothingWritesThem) {
  start({{.fault = Fault::kHang, .at = 4}});
  const auto engine = make_engine_tier();
  auto up = link(*host_, *engine);
  {
    const ImmutableBlocks computed = compute(*device_, keys_);
  }
  Copied copied;
  ASSERT_TRUE(submit(*to_host_, first_of(keys_, 3), copied));
  run_for(seconds(4));
  damage(*host_, block_id_of(*host_, keys_[1]));
  auto held = std::make_shared<int>();
  Copied filled;
  const std::vector<BlockId> block_ids = {BlockId{7}, BlockId{2}, BlockId{9}};
  ASSERT_TRUE(up->submit({.source = host_->pool()->hold(first_of(keys_, 3)),
                          .targets = EngineBlocks{.block_ids = block_ids, .held = held},
                          .deadline = clock_.now() + seconds(5),
                          .done = record(filled)}));
  run_for(seconds(5));
  EXPECT_THAT(filled.states(), ElementsAre(BlockState::kExpired, kMismatch, kDone));
  EXPECT_TRUE(filled.outcome->blocks.empty());
  EXPECT_TRUE(testing::holds(*engine, BlockId{9}, keys_[2]));
  EXPECT_EQ(held.use_count(), 2);
  EXPECT_EQ(host_->pool()->counts().pinned, 3U);
  EXPECT_FALSE(host_->pool()->contains(keys_[1]));
  faults_->release();
  run_for(seconds(2));
  EXPECT_EQ(held.use_count(), 1);
  EXPECT_EQ(host_->pool()->counts().pinned, 0U);
  EXPECT_TRUE(testing::holds(*engine, BlockId{7}, keys_[0])) << "late, but with the right bytes";
}

TEST_F(TierLinkTest, AFullExecutorHandsTheTransferBack) {
  start({}, 1);
  {
    const ImmutableBlocks computed = compute(*host_, keys_);
  }
  Copied first;
  Copied second;
  ASSERT_TRUE(submit(*to_disk_, first_of(keys_, 1), first));
  auto refused = submit(*to_disk_, last_of(keys_, 3), second, seconds(100));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().error.code, ErrorCode::kExhausted);
  LinkTransfer given_back = std::move(refused).error().blocks;
  EXPECT_EQ(given_back.source.size(), 3U);
  EXPECT_EQ(given_back.source.block_ids().size(), 3U);
  EXPECT_EQ(given_back.targets.size(), 3U);
  EXPECT_EQ(given_back.deadline, seconds(100));
  EXPECT_EQ(to_disk_->meter().totals().copies, 1U);
  EXPECT_EQ(to_disk_->meter().totals().blocks_in_flight, 1U);
  EXPECT_TRUE(disk_->is_up(TierUse::kWriting));
  run_for(seconds(2));
  EXPECT_FALSE(second.outcome);
  ASSERT_TRUE(to_disk_->submit(std::move(given_back)));
  run_for(seconds(4));
  EXPECT_THAT(second.states(), Each(kDone));
  expect_holds(*disk_, keys_);
}

TEST_F(TierLinkTest, RefusesWhatDoesNotFitTogetherAndGivesItBack) {
  start();
  const auto engine = make_engine_tier();
  auto down = link(*engine, *host_);
  auto up = link(*host_, *engine);
  {
    const ImmutableBlocks computed = compute(*host_, keys_);
  }
  const auto expect_refused = [&](EngineBlocks source, std::uint32_t targets, const char* part) {
    const auto refused =
        down->submit({.source = CopySource(std::move(source)), .targets = *host_->pool()->allocate(targets)});
    ASSERT_FALSE(refused);
    expect_error(refused.error().error, ErrorCode::kInvalidArgument, part);
    EXPECT_EQ(refused.error().blocks.targets.size(), targets);
  };
  expect_refused(engine_blocks(*engine, keys_, {}), 3, "4 blocks for 3 targets");
  EngineBlocks few = engine_blocks(*engine, keys_, {});
  few.block_ids.pop_back();
  expect_refused(few, 4, "3 blocks to copy from and facts of 4 blocks");
  expect_refused(engine_blocks(*engine, {keys_[0], keys_[1], keys_[0]}, {}), 3, "is named twice");
  EngineBlocks dear = engine_blocks(*engine, keys_, {});
  dear.facts[2].priority = 101;
  expect_refused(dear, 4, "has priority 101; the highest is 100");
  EngineBlocks beyond = engine_blocks(*engine, keys_, {});
  beyond.block_ids[1] = BlockId{kTierBlocks};
  expect_refused(beyond, 4, "");
  const auto filled =
      up->submit({.source = host_->pool()->hold(keys_), .targets = EngineBlocks{.block_ids = {BlockId{1}}}});
  ASSERT_FALSE(filled);
  expect_error(filled.error().error, ErrorCode::kInvalidArgument, "4 blocks for 1 targets");
  EXPECT_EQ(filled.error().blocks.source.size(), 4U);
  EXPECT_EQ(down->meter().totals().copies, 0U);
}

TEST_F(TierLinkTest, CopiesNothingWhilePaused) {
  start();
  {
    const ImmutableBlocks computed = compute(*host_, keys_);
  }
  Copied before;
  ASSERT_TRUE(submit(*to_disk_, first_of(keys_, 2), before));
  to_disk_->pause(true);
  EXPECT_FALSE(to_disk_->is_up());
  Copied refused;
  const auto result = submit(*to_disk_, keys_, refused);
  ASSERT_FALSE(result);
  expect_error(result.error().error, ErrorCode::kUnavailable, "the link from G2 to G3 is paused");
  run_for(seconds(3));
  EXPECT_THAT(before.states(), Each(kDone)) << "transfers in flight continue";
  to_disk_->pause(false);
  EXPECT_TRUE(to_disk_->is_up());
}

TEST_F(TierLinkTest, RefusesAnExecutorThatDoesNotReachBoth) {
  start();
  const auto device = testing::make_tier(
      {.level = CacheLevel::kG1,
       .layout =
           testing::TestLayout::make({kTierShape, Arrangement::kContiguousNhd, 2, 1}, MemoryKind::kDevice).layout(),
       .clock = &clock_});
  const auto made = TierLink::make(*device, *host_, *faults_, clock_);
  ASSERT_FALSE(made);
  expect_error(made.error(), ErrorCode::kInvalidArgument, "cannot move blocks from G1 to G2");
}

TEST_F(TierLinkTest, ADoneStartsTheNextCopy) {
  start({}, 1);
  {
    const ImmutableBlocks computed = compute(*device_, keys_);
  }
  Copied last;
  ASSERT_TRUE(to_host_->submit({.source = device_->pool()->hold(keys_),
                                .targets = *host_->pool()->allocate(4),
                                .done = [&](LinkOutcome&& outcome) {
                                  EXPECT_EQ(outcome.blocks.size(), 4U);
                                  EXPECT_TRUE(submit(*to_disk_, CopySource(outcome.blocks.pin()), last));
                                }}));
  run_for(seconds(9));
  EXPECT_THAT(last.states(), Each(kDone));
  expect_holds(*disk_, keys_);
}

}  // namespace
}  // namespace cairn
