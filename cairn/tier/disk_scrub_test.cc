#include "cairn/tier/disk_scrub.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "cairn/tier/tier_testing.h"

namespace cairn {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;
using testing::chain;
using testing::compute;
using testing::Copied;
using testing::fence;
using testing::first_of;
using testing::joined;
using testing::Keys;
using testing::kTierShape;
using ::testing::UnorderedElementsAreArray;

const std::uint64_t kBlock = kTierShape.block_bytes();

// Eight blocks on a disk tier of twelve, and in no other tier.
class DiskScrubTest : public testing::ThreeTiers {
 protected:
  void SetUp() override {
    disk_.reset();
    Tier::Options options = testing::disk_options(path_, kTierBlocks, clock_);
    options.on_dropped = [this](CacheLevel, std::span<const BlockKey> keys) {
      dropped_.insert(dropped_.end(), keys.begin(), keys.end());
    };
    disk_ = testing::make_tier(std::move(options));
  }
  void start_with_blocks(std::vector<FaultRule> rules = {}) {
    start(std::move(rules));
    for (const Keys& keys : {first_of(keys_, 4), Keys(keys_.begin() + 4, keys_.end())}) {
      const ImmutableBlocks computed = compute(*host_, keys);
      copy(*to_disk_, keys);
    }
    fence(*host_);
  }
  void make_scrub(std::uint64_t blocks_per_second, Duration deadline = seconds(10)) {
    BlockLayoutPtr buffer = *DiskScrub::make_buffer(*disk_, blocks_per_second * kBlock);
    scrub_ =
        *DiskScrub::make(*disk_, std::move(buffer), *faults_, clock_,
                         {.bytes_per_second = blocks_per_second * kBlock, .deadline = deadline}, [this] { ++woken_; });
  }
  void TearDown() override {
    end();
    scrub_.reset();
  }
  void scrub_now() {
    do {
      run_now();
    } while (scrub_->pump());
  }
  void scrub_for(Duration time) {
    scrub_now();
    for (const TimePoint end = clock_.now() + time; clock_.now() < end;) {
      clock_.advance(milliseconds(100));
      scrub_now();
    }
  }
  [[nodiscard]] Keys there() const { return testing::resident_keys(*disk_->pool()); }

  const Keys keys_ = chain(1, 8);
  Keys dropped_;
  int woken_ = 0;
  std::unique_ptr<DiskScrub> scrub_;
};

TEST_F(DiskScrubTest, DropsDamagedBlocksThatAreNotRead) {
  blocks_per_second_ = 1000;
  start_with_blocks();
  testing::damage(*disk_, block_id_of(*disk_, keys_[2]));
  testing::damage(*disk_, block_id_of(*disk_, keys_[7]));
  make_scrub(100);
  scrub_for(seconds(1));
  EXPECT_THAT(dropped_, UnorderedElementsAreArray({keys_[2], keys_[7]}));
  const ScrubStatus status = scrub_->status();
  EXPECT_EQ(status.damaged, 2U);
  EXPECT_EQ(status.blocks, 6U);
  EXPECT_EQ(status.bytes, (8 + 2) * kBlock) << "the two were read twice";
  EXPECT_EQ(status.unreadable, 0U);
  EXPECT_EQ(status.passes, 1U);
  EXPECT_EQ(status.position, 0U);
  EXPECT_GT(woken_, 0);
  expect_at_rest(*disk_, 6);
  EXPECT_TRUE(disk_->is_up(TierUse::kReading));
  // They are not found after a restart either.
  end();
  scrub_.reset();
  disk_ = testing::make_tier(testing::disk_options(path_, kTierBlocks, clock_));
  EXPECT_EQ(there().size(), 6U);
  EXPECT_THAT(there(), ::testing::Not(::testing::Contains(keys_[2])));
}

TEST_F(DiskScrubTest, KeepsToItsRateAndPassesToTheirTime) {
  blocks_per_second_ = 1000;
  start_with_blocks();
  make_scrub(2);  // so that a pass takes four seconds
  scrub_for(milliseconds(900));
  EXPECT_EQ(scrub_->status().bytes, 2 * kBlock);
  EXPECT_EQ(scrub_->status().passes, 0U);
  EXPECT_GT(scrub_->status().position, 0U);
  ASSERT_TRUE(scrub_->next_time());
  EXPECT_GT(*scrub_->next_time(), clock_.now());
  scrub_for(seconds(4));
  EXPECT_EQ(scrub_->status().bytes, 8 * kBlock);
  EXPECT_EQ(scrub_->status().passes, 1U);
  // The next pass begins a minute after the first.
  scrub_for(seconds(50));
  EXPECT_EQ(scrub_->status().bytes, 8 * kBlock);
  scrub_for(seconds(15));
  EXPECT_EQ(scrub_->status().bytes, 16 * kBlock);
  EXPECT_EQ(scrub_->status().passes, 2U);
}

TEST_F(DiskScrubTest, AReadIsNoUse) {
  blocks_per_second_ = 1000;
  start_with_blocks();
  const PoolStats before = disk_->pool()->stats();
  {
    const ImmutableBlocks used = disk_->pool()->match_prefix(first_of(keys_, 3));  // now the last to be evicted
  }
  make_scrub(1000);
  scrub_for(minutes(5));
  ASSERT_GE(scrub_->status().passes, 4U);
  EXPECT_EQ(disk_->pool()->stats().lookups, before.lookups + 3);
  const Keys order = testing::evicted_for(*disk_->pool(), kTierBlocks);
  ASSERT_EQ(order.size(), 8U);
  EXPECT_THAT(Keys(order.begin(), order.begin() + 5), UnorderedElementsAreArray(Keys(keys_.begin() + 3, keys_.end())));
}

TEST_F(DiskScrubTest, ABlockThatIsGivenToAnotherBlockMeanwhileIsNotDropped) {
  blocks_per_second_ = 1;  // a read takes seconds
  start_with_blocks();
  make_scrub(8);
  ASSERT_TRUE(scrub_->pump());
  EXPECT_FALSE(scrub_->pump()) << "one read at a time";
  EXPECT_FALSE(scrub_->next_time());
  // Before the scrub reads them, the blocks are evicted and their block ids reused.
  fence(*disk_);
  const Keys others = chain(2, 8);
  std::vector<BlockId> block_ids;
  Result<MutableBlocks> room = disk_->pool()->allocate(kTierBlocks);
  ASSERT_TRUE(room);
  for (std::uint32_t i = 0; i < kTierBlocks; ++i) {
    testing::write_block(*disk_->layout(), room->block_ids()[i], testing::bytes_of(others[i % 8]));
  }
  scrub_for(seconds(20));
  EXPECT_EQ(scrub_->status().damaged, 0U);
  EXPECT_TRUE(dropped_.empty());
  EXPECT_EQ(disk_->report(TierUse::kReading).failures, 0U);
}

TEST_F(DiskScrubTest, BlocksThatCannotBeReadStay) {
  blocks_per_second_ = 1000;
  start_with_blocks({{.fault = Fault::kFail, .at = 9}, {.fault = Fault::kFail, .at = 11}});
  make_scrub(100);
  scrub_for(seconds(2));
  EXPECT_EQ(scrub_->status().unreadable, 2U);
  EXPECT_EQ(scrub_->status().blocks, 6U);
  EXPECT_EQ(there().size(), 8U);
  EXPECT_TRUE(disk_->is_up(TierUse::kReading));
}

TEST_F(DiskScrubTest, WaitsWhileTheTierIsOut) {
  blocks_per_second_ = 1000;
  start_with_blocks();
  make_scrub(100);
  for (int i = 0; i < 3; ++i) {
    disk_->failed(TierUse::kReading, "gone");
  }
  scrub_for(seconds(30));
  EXPECT_EQ(scrub_->status().bytes, 0U);
  disk_->succeeded(TierUse::kReading);
  scrub_for(seconds(3));
  EXPECT_EQ(scrub_->status().blocks, 8U);
}

TEST_F(DiskScrubTest, GarbageTakesTheTierOut) {
  blocks_per_second_ = 1000;
  start_with_blocks();
  for (const BlockKey& key : keys_) {
    testing::damage(*disk_, block_id_of(*disk_, key));
  }
  make_scrub(1);  // one block a read
  scrub_for(seconds(10));
  EXPECT_FALSE(disk_->is_up(TierUse::kReading));
  EXPECT_EQ(dropped_.size(), 3U) << "then it waits";
}

TEST_F(DiskScrubTest, ALateReadIsWaitedForAndHoldsUpNothing) {
  blocks_per_second_ = 1000;
  start_with_blocks({{.fault = Fault::kHang, .at = 9}});
  make_scrub(100, seconds(2));
  scrub_for(seconds(30));
  EXPECT_EQ(scrub_->status().unreadable, 1U);
  EXPECT_FALSE(scrub_->next_time()) << "its memory may still be written";
  copy(*from_disk_, keys_);
  faults_->release();
  scrub_for(minutes(2));
  EXPECT_GE(scrub_->status().passes, 2U);
  expect_at_rest(*disk_, 8);
}

TEST_F(DiskScrubTest, BeginsNothingAfterItsEnd) {
  blocks_per_second_ = 1000;
  start_with_blocks();
  make_scrub(100);
  scrub_->end();
  EXPECT_FALSE(scrub_->next_time());
  scrub_for(seconds(10));
  EXPECT_EQ(scrub_->status().bytes, 0U);
}

TEST_F(DiskScrubTest, AnEmptyTierCostsNothing) {
  start({});
  make_scrub(100);
  EXPECT_FALSE(scrub_->pump());
  EXPECT_EQ(scrub_->status().passes, 1U);
  EXPECT_EQ(*scrub_->next_time(), clock_.now() + minutes(1));
}

}  // namespace
}  // namespace cairn
