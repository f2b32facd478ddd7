// Fences over tiers, raised at every moment of a copy: nothing that was stored before one is found after it, here or after
// a restart.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
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
using ::testing::Each;
using testing::fence;
using testing::first_of;
using testing::fresh_facts;
using ::testing::HasSubstr;
using testing::Keys;

class TierFenceTest : public testing::ThreeTiers {
 protected:
  std::vector<Tier*> tiers() { return {device_.get(), host_.get(), disk_.get()}; }

  // All tiers as one; `between` is called after each step.
  void fence_all(const std::function<void()>& between = [] {}) {
    std::vector<std::optional<PoolFence>> plans;
    for (Tier* tier : tiers()) {
      plans.push_back(std::move(*tier->plan_fence()));
    }
    std::size_t next = 0;
    for (Tier* tier : tiers()) {
      tier->raise_fence(std::move(plans[next++]));
      between();
    }
    for (Tier* tier : tiers()) {
      EXPECT_TRUE(tier->settle_fence(std::nullopt));
      between();
    }
    for (Tier* tier : tiers()) {
      tier->lower_fence();
      between();
    }
  }
  void expect_nothing_is_there() {
    for (Tier* tier : tiers()) {
      EXPECT_EQ(tier->pool()->counts().registered, 0U) << to_string(tier->level());
      EXPECT_EQ(tier->pool()->hold(keys_).size(), 0U) << to_string(tier->level());
      tier->pool()->check_invariants();
    }
  }

  const Keys keys_ = chain(1, 4);
};

TEST_F(TierFenceTest, ACopyInFlightRegistersNothing) {
  for (const bool into_disk : {false, true}) {
    start();
    Tier& from = into_disk ? *host_ : *device_;
    Tier& to = into_disk ? *disk_ : *host_;
    TierLink& link = into_disk ? *to_disk_ : *to_host_;
    {
      const ImmutableBlocks computed = compute(from, keys_);
    }
    Copied copied;
    ASSERT_TRUE(submit(link, keys_, copied));
    run_for(seconds(2));
    ASSERT_FALSE(copied.outcome);
    fence(to);
    run_for(seconds(5));
    ASSERT_TRUE(copied.outcome);
    EXPECT_THAT(copied.states(), Each(BlockState::kCancelled));
    EXPECT_TRUE(copied.outcome->blocks.empty());
    EXPECT_THAT(copied.outcome->error, HasSubstr("was reset while the transfer was in flight"));
    EXPECT_TRUE(to.is_up(TierUse::kWriting)) << "a fence is not a failure";
    EXPECT_EQ(to.pool()->counts().registered, 0U);
    EXPECT_EQ(to.pool()->counts().free, kTierBlocks);
    EXPECT_EQ(from.pool()->counts().registered, 4U) << "the other tier keeps its own";
    copy(link, keys_);
    expect_holds(to, keys_);
    fence(*device_);
    fence(*host_);
    restart();
    EXPECT_EQ(disk_->recovered().blocks, into_disk ? 4U : 0U);
  }
}

// The copy is begun before the first step of the fence, or between any two of them, and ends at once or after the last.
TEST_F(TierFenceTest, NoCopyGetsPastAFenceOverAllTiersWhereverItBegins) {
  constexpr std::uint32_t kSteps = 10;
  for (std::uint32_t when = 0; when < kSteps; ++when) {
    for (const bool lands_at_once : {false, true}) {
      for (const bool is_held_before : {false, true}) {
        SCOPED_TRACE(::testing::Message() << "step " << when << (lands_at_once ? ", lands at once" : "")
                                          << (is_held_before ? ", held before" : ""));
        restart();
        fence_all();
        std::vector<std::pair<TierLink*, Copied>> copies;
        for (TierLink* link : {to_host_.get(), to_disk_.get(), from_disk_.get(), from_host_.get()}) {
          copies.emplace_back(link, Copied{});
        }
        for (Tier* tier : {device_.get(), host_.get()}) {
          const ImmutableBlocks computed = compute(*tier, keys_);
        }
        copy(*to_disk_, keys_);
        fence(*host_);
        {
          const ImmutableBlocks computed = compute(*host_, keys_);
        }
        std::vector<CopySource> sources;
        if (is_held_before) {
          for (auto& [link, copied] : copies) {
            sources.emplace_back(link->from().pool()->hold(keys_));
          }
        }
        std::uint32_t step = 0;
        const auto act = [&] {
          if (step++ == when) {
            for (std::size_t i = 0; i < copies.size(); ++i) {
              auto& [link, copied] = copies[i];
              CopySource source = is_held_before ? std::move(sources[i]) : CopySource(link->from().pool()->hold(keys_));
              if (source.size() > 0) {
                (void)submit(*link, std::move(source), copied);
              }
            }
            sources.clear();
          }
          if (lands_at_once) {
            run_for(seconds(20));
          }
        };
        act();
        fence_all(act);
        run_for(seconds(20));
        copies.clear();
        expect_nothing_is_there();
        restart();
        EXPECT_EQ(disk_->recovered().blocks, 0U);
        expect_nothing_is_there();
      }
    }
  }
}

TEST_F(TierFenceTest, TargetsAndSourcesOfBeforeAreRefused) {
  start();
  {
    const ImmutableBlocks computed = compute(*host_, keys_);
  }
  Copied copied;
  MutableBlocks targets = *disk_->pool()->allocate(4);
  fence(*disk_);
  auto refused =
      to_disk_->submit({.source = host_->pool()->hold(keys_), .targets = std::move(targets), .done = record(copied)});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().error.code, ErrorCode::kCancelled);
  PinnedBlocks source = host_->pool()->hold(keys_);
  fence(*host_);
  const auto stale = submit(*to_disk_, CopySource(std::move(source)), copied);
  ASSERT_FALSE(stale);
  EXPECT_THAT(stale.error().error.message, HasSubstr("a reset came first"));
}

TEST_F(TierFenceTest, TheEnginesBlocksAreNotFilledFromFencedBlocks) {
  start();
  Tier::Options options = testing::memory_options(CacheLevel::kG1, Arrangement::kLayersBlockHnd, kTierBlocks, clock_);
  options.pool.reset();
  const std::unique_ptr<Tier> engine = testing::make_tier(std::move(options));
  const std::unique_ptr<TierLink> up = link(*host_, *engine);
  {
    const ImmutableBlocks computed = compute(*host_, keys_);
  }
  PinnedBlocks source = host_->pool()->hold(keys_);
  fence(*host_);
  fence(*engine);
  Copied copied;
  const auto refused =
      up->submit({.source = std::move(source),
                  .targets = EngineBlocks{.block_ids = {BlockId{0}, BlockId{1}, BlockId{2}, BlockId{3}}},
                  .done = record(copied)});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().error.code, ErrorCode::kCancelled);
  faults_.reset();  // before the link and its tier
}

// A block with wrong bytes was read before the fence; another block has the key now.
TEST_F(TierFenceTest, WrongBytesOfBeforeDropNothingOfAfter) {
  start();
  {
    const ImmutableBlocks computed = compute(*device_, keys_);
  }
  copy(*to_host_, keys_);
  testing::damage(*host_, block_id_of(*host_, keys_[1]));
  Copied copied;
  ASSERT_TRUE(submit(*to_disk_, keys_, copied));
  fence(*host_);
  {
    const ImmutableBlocks anew = compute(*host_, keys_);
  }
  run_for(seconds(6));
  ASSERT_TRUE(copied.outcome);
  EXPECT_EQ(host_->pool()->counts().registered, 4U);
}

TEST_F(TierFenceTest, BlocksOfNewWeightsHaveOtherTags) {
  start();
  Namespace later = testing::tier_space();
  later.weights_generation = 5;
  const BlockTag before = disk_->tag_of(keys_[0]);
  {
    const ImmutableBlocks computed = compute(*host_, keys_);
  }
  copy(*to_disk_, keys_);
  for (Tier* tier : tiers()) {
    fence(*tier, Tier::NewWeights{.generation = 5, .space = later.id()});
  }
  EXPECT_NE(disk_->tag_of(keys_[0]), before);
  EXPECT_EQ(disk_->tag_of(keys_[0]), block_tag(later.id(), keys_[0]));
  {
    const ImmutableBlocks computed = compute(*host_, first_of(keys_, 2));
  }
  copy(*to_disk_, first_of(keys_, 2));
  fence(*host_);
  copy(*from_disk_, first_of(keys_, 2));
  expect_holds(*host_, first_of(keys_, 2));
}

}  // namespace
}  // namespace cairn
