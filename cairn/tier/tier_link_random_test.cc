// Random copies between three tiers, with faults, damage, resets and restarts, from seeds: a registered block always
// has the bytes of its key, or a read through a link reports a mismatch.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>
#include <utility>
#include <vector>

#include "cairn/tier/tier_link.h"
#include "cairn/tier/tier_testing.h"

namespace cairn {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::chain;
using testing::Keys;

class TierLinkRandomTest : public testing::ThreeTiers, public ::testing::WithParamInterface<std::uint64_t> {
 protected:
  static constexpr std::uint32_t kSequences = 9;
  static constexpr int kSteps = 500;

  // Submitted transfers and their outcomes, by link.
  struct Tally {
    std::uint64_t submitted = 0;
    std::uint64_t heard = 0;
  };

  std::uint64_t below(std::uint64_t bound) { return random_() % bound; }
  std::array<Tier*, 3> tiers() { return {device_.get(), host_.get(), disk_.get()}; }
  std::array<TierLink*, 4> links() { return {to_host_.get(), to_disk_.get(), from_disk_.get(), from_host_.get()}; }

  void start_with_faults() {
    blocks_per_second_ = 6;
    start({{.fault = Fault::kFail, .chance = 0.03},
           {.fault = Fault::kShort, .chance = 0.03},
           {.fault = Fault::kDelay, .chance = 0.05},
           {.fault = Fault::kCorrupt, .chance = 0.04},
           {.fault = Fault::kCorruptInFlight, .chance = 0.03},
           {.fault = Fault::kHang, .chance = 0.02},
           {.fault = Fault::kLose, .chance = 0.001}},
          24, random_());
  }
  Keys some_keys() {
    const Keys all = chain(below(kSequences), 6);
    const auto first = static_cast<std::ptrdiff_t>(below(3));
    return {all.begin() + first, all.begin() + first + 1 + static_cast<std::ptrdiff_t>(below(3))};
  }

  void compute_some() {
    Tier& tier = below(2) == 0 ? *device_ : *host_;
    const Keys keys = some_keys();
    if (tier.pool()->counts().available() >= keys.size()) {
      const ImmutableBlocks dropped = testing::compute(tier, keys);
    }
  }
  void bring_some() {
    TierLink& link = *links()[below(4)];
    PinnedBlocks source = link.from().pool()->hold(some_keys());
    Result<MutableBlocks> targets = link.to().pool()->allocate(source.size());
    if (!targets) {
      return;
    }
    const std::uint32_t blocks = source.size();
    Tally& tally = tally_[&link];
    const auto id =
        link.submit({.source = std::move(source),
                     .targets = *std::move(targets),
                     .deadline = below(3) == 0 ? TimePoint::max() : clock_.now() + milliseconds(100 + below(3000)),
                     .done = [&tally, blocks](LinkOutcome&& outcome) {
                       tally.heard += blocks;
                       ASSERT_EQ(outcome.states.size(), blocks);
                       const auto done = std::count(outcome.states.begin(), outcome.states.end(), BlockState::kDone);
                       EXPECT_EQ(outcome.blocks.size(), done);
                       EXPECT_EQ(outcome.error.empty(), done == blocks);
                     }});
    if (id) {
      tally.submitted += blocks;
      copies_.emplace_back(&link, *id);
    } else {
      EXPECT_THAT(id.error().error.code, ::testing::AnyOf(ErrorCode::kUnavailable, ErrorCode::kExhausted));
    }
  }
  void damage_some() {
    Tier& tier = *tiers()[below(3)];
    const PinnedBlocks blocks = tier.pool()->hold(some_keys());
    for (std::uint32_t i = 0; i < blocks.size(); ++i) {
      if (blocks.facts()[i].checksum != 0) {  // without a checksum damage cannot be found
        testing::damage(tier, blocks.block_ids()[i]);
      }
    }
  }
  void cancel_one() {
    if (!copies_.empty()) {
      const auto& [link, id] = copies_[below(copies_.size())];
      link->cancel(id);
    }
  }
  void step() {
    switch (below(16)) {
      case 0:
        return damage_some();
      case 1:
        return cancel_one();
      case 2:
        return faults_->release();
      case 3:
        tiers()[below(3)]->reset(some_keys());
        return;
      case 4:
      case 5:
      case 6:
        return compute_some();
      case 7:
      case 8:
      case 9:
        return run_for(milliseconds(500) * static_cast<int>(1 + below(8)));
      default:
        return bring_some();
    }
  }

  // Ends all copies, and checks what they left.
  void settle() {
    faults_.reset();
    for (TierLink* each : links()) {
      const LinkTotals totals = each->meter().totals();
      EXPECT_EQ(tally_[each].heard, tally_[each].submitted);
      EXPECT_EQ(totals.blocks + totals.failed + totals.mismatched + totals.expired + totals.cancelled,
                tally_[each].submitted);
      EXPECT_EQ(totals.blocks_in_flight, 0U);
      EXPECT_EQ(totals.quarantined, 0U);
      mismatches_ += totals.mismatched;
      arrived_ += totals.blocks;
    }
    tally_.clear();
    copies_.clear();
    for (Tier* tier : tiers()) {
      tier->pool()->check_invariants();
      EXPECT_EQ(tier->pool()->counts().active, 0U);
      EXPECT_EQ(tier->pool()->counts().quarantined, 0U);
      EXPECT_EQ(tier->pool()->counts().pinned, 0U);
    }
  }
  // Reads every block of every tier through a link.
  void read_everything() {
    make_executor();
    Tier::Options options = testing::memory_options(CacheLevel::kG1, Arrangement::kLayersKvHnd, 1, clock_);
    options.pool.reset();
    const auto engine = testing::make_tier(std::move(options));
    for (Tier* tier : tiers()) {
      const auto reader = link(*tier, *engine);
      for (const BlockKey& key : testing::resident_keys(*tier->pool())) {
        PinnedBlocks block = tier->pool()->hold(std::vector{key});
        const bool sound = testing::holds(*tier, block.block_ids()[0], key);
        testing::Copied read;
        if (!reader->submit({.source = std::move(block),
                             .targets = EngineBlocks{.block_ids = {BlockId{0}}},
                             .done = record(read)})) {
          continue;  // the tier is suspended
        }
        run_for(seconds(1));
        EXPECT_THAT(read.states(), ::testing::ElementsAre(sound ? BlockState::kDone : BlockState::kMismatch))
            << key.to_string() << " of " << to_string(tier->level());
        EXPECT_EQ(tier->pool()->contains(key), sound);
        EXPECT_TRUE(!sound || testing::holds(*engine, BlockId{0}, key));
        ++(sound ? sound_ : unsound_);
      }
      faults_->check_deadlines();
    }
    faults_.reset();
  }

  std::mt19937_64 random_{GetParam()};
  std::map<TierLink*, Tally> tally_;
  std::vector<std::pair<TierLink*, TransferId>> copies_;
  std::uint64_t arrived_ = 0;
  std::uint64_t mismatches_ = 0;
  std::uint64_t sound_ = 0;
  std::uint64_t unsound_ = 0;
};

TEST_P(TierLinkRandomTest, WhatIsRegisteredHasItsBytesOrIsCaught) {
  for (int life = 0; life < 3 && !HasFailure(); ++life) {
    start_with_faults();
    for (int i = 0; i < kSteps; ++i) {
      step();
    }
    settle();
    if (life == 1) {
      read_everything();
    }
    // After the restart only the file is left.
    end();
    device_ = make_device();
    host_ = make_host();
    disk_ = testing::make_tier(testing::disk_options(path_, kTierBlocks, clock_));
  }
  EXPECT_EQ(disk_->recovered().damaged, 0U);
  start();
  read_everything();
  // Otherwise nothing was tested.
  EXPECT_GT(sound_, 5U);
  EXPECT_GT(arrived_, 100U);
  EXPECT_GT(unsound_ + mismatches_, 0U);
}

INSTANTIATE_TEST_SUITE_P(Seeds, TierLinkRandomTest, ::testing::Range<std::uint64_t>(1, 25));

}  // namespace
}  // namespace cairn
