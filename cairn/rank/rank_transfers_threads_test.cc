#include "cairn/rank/rank_transfers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstring>
#include <deque>
#include <future>
#include <random>

#include "cairn/rank/rank_testing.h"
#include "cairn/transfer/host_executor.h"
#include "cairn/transfer/transfer_testing.h"

namespace cairn {
namespace {

using std::chrono::milliseconds;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::holds;
using testing::in_time;
using testing::k_and_v_apart;
using testing::one_group;
using testing::RankAnswers;
using testing::TestStep;
using testing::two_groups;
using testing::write_block;

constexpr CacheLevel kDevice = CacheLevel::kG1;
constexpr CacheLevel kHost = CacheLevel::kG2;
constexpr CacheLevel kDisk = CacheLevel::kG3;
constexpr LeaderId kLeader{1, 1};
constexpr LeaderId kNextLeader{2, 2};

std::vector<BlockId> block_ids(std::initializer_list<std::uint32_t> blocks) {
  std::vector<BlockId> all;
  for (const std::uint32_t block : blocks) {
    all.push_back(BlockId{block});
  }
  return all;
}

class RankTransfersTest : public ::testing::Test {
 protected:
  void make(LayoutGroups device, const RankRoutes::Around& around = {}) {
    device_.emplace(std::move(device));
    const ManagerConfig config = testing::rank_config(folder_.in("disk"));
    Result<RankMemory> memory = RankMemory::make(config, *device_, {.layers = 3});
    ASSERT_TRUE(memory.has_value()) << memory.error().to_string();
    Result<std::unique_ptr<RankRoutes>> routes =
        RankRoutes::make(config, device_->groups(), *std::move(memory), steady_clock(), around);
    ASSERT_TRUE(routes.has_value()) << routes.error().to_string();
    transfers_.emplace(3, steady_clock(), [this](std::uint32_t generation, const RankMessage& message) {
      EXPECT_EQ(generation, 7U);
      if (on_answer_) {
        on_answer_();
      }
      answers_.add(message);
    });
    host_ = (*routes)->memory().layouts(kHost).front();
    transfers_->use(*std::move(routes));
    transfers_->begin(7, kLeader);
  }
  // Faults for copies between device and host memory.
  void make_faulty(LayoutGroups device, const std::vector<FaultRule>& rules, Duration delay = {}) {
    make(std::move(device), [this, rules, delay](ExecutorKind kind, std::unique_ptr<TransferExecutor> inside) {
      if (kind != ExecutorKind::kHost) {
        return inside;
      }
      auto faulty = std::make_unique<FaultExecutor>(steady_clock(), std::move(inside),
                                                    FaultOptions{.rules = rules, .delay = delay});
      faults_ = faulty.get();
      return std::unique_ptr<TransferExecutor>(std::move(faulty));
    });
  }
  static RankTransfer request(CacheLevel from, CacheLevel to, std::vector<BlockPair> pairs, std::uint64_t id,
                              StepMark not_before = {}) {
    RankTransfer copy{.id = TransferId{id},
                      .from = from,
                      .to = to,
                      .not_before = not_before,
                      .time_left = testing::kRankPatience,
                      .pairs = std::move(pairs),
                      .tags = {}};
    for (std::size_t i = 0; i < copy.pairs.size(); ++i) {
      copy.tags.push_back({.high = 100 + i, .low = 7});
    }
    return copy;
  }
  TransferId ask(CacheLevel from, CacheLevel to, std::vector<BlockPair> pairs, StepMark not_before = {}) {
    const RankTransfer copy = request(from, to, std::move(pairs), ++last_id_, not_before);
    transfers_->submit(copy);
    return copy.id;
  }
  std::vector<BlockSums> move(CacheLevel from, CacheLevel to, const std::vector<BlockPair>& pairs) {
    const RankTransferOutcome done = answers_.done(ask(from, to, pairs));
    EXPECT_THAT(done.states, Each(BlockState::kDone)) << done.error;
    EXPECT_EQ(done.states.size(), pairs.size());
    EXPECT_EQ(done.error, "");
    answers_.wait_settled(done.id);
    return done.sums;
  }
  std::vector<BlockState> states(TransferId id) { return answers_.done(id).states; }

  // Down to the disk and up again over each path, to other blocks; and layer by layer. Bytes and checksums are the
  // same.
  void go_round() {
    for (std::uint32_t i = 0; i < 3; ++i) {
      write_block(*device_, i, 50 + i);
    }
    const std::vector<BlockSums> sums = move(kDevice, kHost, {{0, 8}, {1, 3}, {2, 4}});
    EXPECT_NE(sums[0], sums[1]);
    EXPECT_EQ(move(kHost, kDisk, {{8, 15}, {3, 0}, {4, 1}}), sums);
    EXPECT_EQ(move(kDevice, kDisk, {{0, 5}, {1, 6}, {2, 7}}), sums);
    EXPECT_EQ(move(kDisk, kHost, {{5, 11}, {0, 12}, {7, 13}}), sums);
    EXPECT_EQ(move(kHost, kDevice, {{11, 10}, {12, 11}, {13, 12}}), sums);
    EXPECT_EQ(move(kDisk, kDevice, {{15, 13}, {6, 14}, {1, 15}}), sums);
    transfers_->expect(block_ids({4, 5, 6, 7, 8, 9}));
    EXPECT_EQ(move(kHost, kDevice, {{8, 4}, {3, 5}, {4, 6}}), sums);
    EXPECT_FALSE(transfers_->wait_for_layer(2, steady_clock().now())) << "none of three blocks has arrived";
    EXPECT_EQ(move(kDisk, kDevice, {{5, 7}, {6, 8}, {7, 9}}), sums);
    for (std::uint32_t layer = 0; layer < 3; ++layer) {
      EXPECT_TRUE(transfers_->wait_for_layer(layer, steady_clock().now()).has_value());
    }
    for (std::uint32_t i = 0; i < 3; ++i) {
      for (const std::uint32_t first : {0U, 4U, 7U, 10U, 13U}) {
        EXPECT_TRUE(holds(*device_, first + i, 50 + i)) << "block " << first + i;
      }
    }
    EXPECT_EQ(transfers_->counts().done, 24U);
    EXPECT_EQ(transfers_->counts().failed, 0U);
  }

  TestFolder folder_;
  std::optional<LayoutGroups> device_;
  BlockLayoutPtr host_;
  RankAnswers answers_;
  std::function<void()> on_answer_;
  FaultExecutor* faults_ = nullptr;
  std::uint64_t last_id_ = 0;
  std::optional<RankTransfers> transfers_;  // ends first
};

TEST_F(RankTransfersTest, BytesGoThroughAllTiers) {
  make(one_group());
  go_round();
}

TEST_F(RankTransfersTest, KAndVApart) {
  make(k_and_v_apart());
  go_round();
}

TEST_F(RankTransfersTest, GroupsOfLayersGoTogether) {
  make(two_groups());
  go_round();
}

TEST_F(RankTransfersTest, KAndVApartHaveTheChecksumsOfBothTogether) {
  make(one_group());
  write_block(*device_, 0, 9);
  const std::vector<BlockSums> together = move(kDevice, kHost, {{0, 0}});
  transfers_.reset();
  make(k_and_v_apart());
  write_block(*device_, 0, 9);
  EXPECT_EQ(move(kDevice, kHost, {{0, 0}}), together);
}

TEST_F(RankTransfersTest, AFailedGroupFailsTheBlockAndNoOther) {
  // The first group's blocks are 1 and 2 of the executor, the second's 3 and 4.
  make_faulty(two_groups(), {{.fault = Fault::kFail, .at = 4}});
  const RankTransferOutcome done = answers_.done(ask(kDevice, kHost, {{0, 0}, {1, 1}}));
  EXPECT_THAT(done.states, ElementsAre(BlockState::kDone, BlockState::kFailed));
  EXPECT_NE(done.sums[0], BlockSums{});
  EXPECT_EQ(done.sums[1], BlockSums{});
  EXPECT_NE(done.error, "");
}

TEST_F(RankTransfersTest, WhatTouchesTheDeviceWaitsForItsMark) {
  make(one_group());
  auto step = std::make_shared<TestStep>();
  const TransferId load = ask(kHost, kDevice, {{0, 0}}, StepMark::begun(3));
  const TransferId save = ask(kDevice, kHost, {{1, 1}}, StepMark::computed(2));
  move(kHost, kDisk, {{2, 2}});  // touches no device block, and does not wait
  EXPECT_FALSE(answers_.is_done(save));
  transfers_->reached(StepMark::computed(2), nullptr);
  EXPECT_THAT(states(save), Each(BlockState::kDone));
  transfers_->reached(StepMark::begun(3), step);
  move(kHost, kDisk, {{2, 2}});
  EXPECT_FALSE(answers_.is_done(load));
  step->end();
  EXPECT_THAT(states(load), Each(BlockState::kDone));
}

TEST_F(RankTransfersTest, AnEarlierMarkDoesNotWaitForALaterOne) {
  make(one_group());
  const TransferId late = ask(kHost, kDevice, {{0, 0}}, StepMark::begun(9));
  const TransferId early = ask(kHost, kDevice, {{1, 1}}, StepMark::begun(4));
  transfers_->reached(StepMark::begun(4), nullptr);
  EXPECT_THAT(states(early), Each(BlockState::kDone));
  EXPECT_FALSE(answers_.is_done(late));
}

TEST_F(RankTransfersTest, WhatIsHeldExpires) {
  make(one_group());
  RankTransfer copy = request(kHost, kDevice, {{0, 0}}, ++last_id_, StepMark::begun(1));
  copy.time_left = milliseconds(5);
  transfers_->submit(copy);
  EXPECT_THAT(states(copy.id), Each(BlockState::kExpired));
  answers_.wait_settled(copy.id);
  transfers_->reached(StepMark::begun(1), nullptr);
  move(kHost, kDevice, {{1, 1}});
  EXPECT_EQ(transfers_->counts().failed, 1U);
}

TEST_F(RankTransfersTest, AFenceWaitsForWhatReads) {
  make_faulty(one_group(), {{.fault = Fault::kHang, .at = 1}});
  write_block(*device_, 0, 5);
  const TransferId save = ask(kDevice, kHost, {{0, 0}});
  std::future<bool> fenced =
      std::async(std::launch::async, [&] { return transfers_->fence(block_ids({0}), StepMark::begun(1), in_time()); });
  EXPECT_EQ(fenced.wait_for(milliseconds(20)), std::future_status::timeout);
  faults_->release();
  EXPECT_TRUE(fenced.get());
  EXPECT_THAT(states(save), Each(BlockState::kDone));
  EXPECT_FALSE(find_stranger(*host_, 0, 5));
}

TEST_F(RankTransfersTest, AFenceWaitsForALoadThatHasBegun) {
  make_faulty(one_group(), {{.fault = Fault::kHang, .at = 1}});
  transfers_->reached(StepMark::begun(1), nullptr);
  const TransferId load = ask(kHost, kDevice, {{0, 0}}, StepMark::begun(1));
  EXPECT_FALSE(transfers_->fence(block_ids({0}), StepMark::begun(2), steady_clock().now() + milliseconds(1)));
  EXPECT_TRUE(transfers_->fence(block_ids({1}), StepMark::begun(2), steady_clock().now()))
      << "it writes to another block";
  std::future<bool> fenced =
      std::async(std::launch::async, [&] { return transfers_->fence(block_ids({0}), StepMark::begun(2), in_time()); });
  EXPECT_EQ(fenced.wait_for(milliseconds(20)), std::future_status::timeout);
  faults_->release();
  EXPECT_TRUE(fenced.get());
  answers_.wait_settled(load);
}

// A rank that replaces a dead one does not have the KV that the dead one computed.
TEST_F(RankTransfersTest, WhatWasComputedBeforeItsFirstStepIsNotSaved) {
  make(one_group());
  const TransferId held = ask(kDevice, kHost, {{0, 0}}, StepMark::computed(4));
  transfers_->reached(StepMark::begun(5), nullptr);
  const TransferId late = ask(kDevice, kHost, {{1, 1}}, StepMark::computed(4));
  transfers_->reached(StepMark::computed(5), nullptr);
  const TransferId own = ask(kDevice, kHost, {{2, 2}}, StepMark::computed(5));
  EXPECT_THAT(states(held), Each(BlockState::kFailed));
  EXPECT_THAT(states(late), Each(BlockState::kFailed));
  EXPECT_THAT(answers_.done(late).error, HasSubstr("before this rank took part"));
  EXPECT_THAT(states(own), Each(BlockState::kDone));
}

TEST_F(RankTransfersTest, WhatIsNotOverAtAFenceFailsWhateverItReads) {
  make_faulty(one_group(), {{.fault = Fault::kHang, .at = 1}, {.fault = Fault::kHang, .at = 2}});
  const TransferId save = ask(kDevice, kHost, {{0, 0}, {1, 1}});
  EXPECT_FALSE(transfers_->fence(block_ids({1}), StepMark::begun(1), steady_clock().now() + milliseconds(1)));
  EXPECT_FALSE(answers_.is_done(save)) << "block 0 may still arrive";
  write_block(*device_, 1, 77);  // the engine continues
  faults_->release();
  const RankTransferOutcome done = answers_.done(save);
  EXPECT_THAT(done.states, ElementsAre(BlockState::kDone, BlockState::kFailed));
  EXPECT_THAT(done.error, HasSubstr("device block 1 was given to another"));
  EXPECT_EQ(done.sums[1], BlockSums{});
}

TEST_F(RankTransfersTest, AFencedCopyIsReportedAtOnceAndSettledWhenItHasEnded) {
  make_faulty(one_group(), {{.fault = Fault::kHang, .at = 1}});
  const TransferId save = ask(kDevice, kHost, {{0, 0}});
  EXPECT_FALSE(transfers_->fence(block_ids({0}), StepMark::begun(1), steady_clock().now()));
  EXPECT_THAT(states(save), Each(BlockState::kFailed));
  EXPECT_FALSE(answers_.is_settled(save));
  EXPECT_EQ(transfers_->counts().transfers, 1U);
  faults_->release();
  answers_.wait_settled(save);
  EXPECT_EQ(transfers_->counts().transfers, 0U);
}

TEST_F(RankTransfersTest, AFenceFailsWhatIsHeld) {
  make(one_group());
  const TransferId save = ask(kDevice, kHost, {{0, 0}}, StepMark::computed(4));
  EXPECT_FALSE(transfers_->fence(block_ids({0}), StepMark::begun(5), steady_clock().now()));
  EXPECT_THAT(states(save), Each(BlockState::kFailed));
  transfers_->reached(StepMark::begun(5), nullptr);
  answers_.wait_settled(save);
}

TEST_F(RankTransfersTest, WhatIsOlderThanAFenceIsRefused) {
  make(one_group());
  transfers_->reached(StepMark::begun(1), nullptr);
  EXPECT_TRUE(transfers_->fence(block_ids({0}), StepMark::begun(5), steady_clock().now()));
  transfers_->reached(StepMark::computed(5), nullptr);
  EXPECT_THAT(states(ask(kDevice, kHost, {{0, 0}, {1, 1}}, StepMark::computed(4))),
              ElementsAre(BlockState::kCancelled, BlockState::kDone));
  EXPECT_THAT(states(ask(kHost, kDevice, {{0, 0}}, StepMark::begun(4))), Each(BlockState::kCancelled));
  EXPECT_THAT(states(ask(kDevice, kHost, {{0, 0}}, StepMark::computed(5))), Each(BlockState::kDone));
  // Another leader's marks begin anew.
  transfers_->lose();
  ASSERT_TRUE(transfers_->wait_until_quiet(in_time()));
  transfers_->begin(7, kNextLeader);
  ASSERT_TRUE(transfers_->follow(kNextLeader, steady_clock().now()));
  const TransferId held = ask(kDevice, kHost, {{0, 0}}, StepMark::computed(0));
  move(kHost, kDisk, {{2, 2}});
  EXPECT_FALSE(answers_.is_done(held));
  transfers_->reached(StepMark::computed(0), nullptr);
  EXPECT_THAT(states(held), Each(BlockState::kDone));
}

// The rank joins a new leader before the engine follows it: marks of the engine meanwhile are the old leader's.
TEST_F(RankTransfersTest, CopiesOfALeaderThatTheEngineDoesNotFollowYetAreHeld) {
  make(one_group());
  transfers_->reached(StepMark::computed(1000), nullptr);
  transfers_->lose();
  transfers_->begin(7, kNextLeader);
  const TransferId save = ask(kDevice, kHost, {{0, 0}}, StepMark::computed(3));
  transfers_->reached(StepMark::computed(1001), nullptr);
  transfers_->expect(block_ids({1}));
  EXPECT_EQ(transfers_->wait_for_layer(0, in_time()).error().code, ErrorCode::kUnavailable) << "no copy will bring it";
  move(kHost, kDisk, {{2, 2}});  // touches no device block
  EXPECT_FALSE(answers_.is_done(save));
  ASSERT_TRUE(transfers_->follow(kNextLeader, steady_clock().now()));
  move(kHost, kDisk, {{3, 3}});
  EXPECT_FALSE(answers_.is_done(save)) << "its step has not come";
  write_block(*device_, 0, 12);
  transfers_->reached(StepMark::begun(3), nullptr);
  transfers_->reached(StepMark::computed(3), nullptr);
  EXPECT_THAT(states(save), Each(BlockState::kDone));
}

// The engine follows a new leader before the rank joins it: its marks and fences are kept until the rank joins.
TEST_F(RankTransfersTest, MarksAndFencesOfALeaderThatTheRankHasNotJoinedAreKept) {
  make(one_group());
  transfers_->reached(StepMark::computed(1000), nullptr);
  const TransferId old = ask(kDevice, kHost, {{3, 3}}, StepMark::computed(1001));
  ASSERT_TRUE(transfers_->follow(kNextLeader, steady_clock().now()));
  EXPECT_THAT(states(old), Each(BlockState::kFailed)) << "the engine no longer follows its leader";
  transfers_->reached(StepMark::computed(0), nullptr);
  EXPECT_TRUE(transfers_->fence(block_ids({1}), StepMark::begun(1), steady_clock().now()));
  const TransferId zombie = ask(kDevice, kHost, {{2, 2}}, StepMark::computed(0));
  move(kHost, kDisk, {{2, 2}});
  EXPECT_FALSE(answers_.is_done(zombie)) << "the reached mark is another leader's";
  transfers_->lose();
  ASSERT_TRUE(transfers_->wait_until_quiet(in_time()));
  transfers_->begin(7, kNextLeader);
  EXPECT_THAT(states(ask(kDevice, kHost, {{0, 0}, {1, 1}}, StepMark::computed(0))),
              ElementsAre(BlockState::kDone, BlockState::kCancelled));
  EXPECT_FALSE(answers_.is_done(zombie));
}

TEST_F(RankTransfersTest, ANewLeaderWaitsForWhatTheOldOneHasBegun) {
  make_faulty(one_group(), {{.fault = Fault::kHang, .at = 1}});
  const TransferId load = ask(kHost, kDevice, {{0, 0}});
  EXPECT_FALSE(transfers_->follow(kNextLeader, steady_clock().now() + milliseconds(1)));
  EXPECT_THAT(states(load), Each(BlockState::kFailed)) << "whatever it copied";
  EXPECT_FALSE(transfers_->follow(kNextLeader, steady_clock().now())) << "it still writes";
  EXPECT_FALSE(transfers_->fence(block_ids({0}), StepMark(), steady_clock().now()));
  EXPECT_TRUE(transfers_->fence(block_ids({1}), StepMark(), steady_clock().now())) << "not to this block";
  faults_->release();
  EXPECT_TRUE(transfers_->follow(kNextLeader, in_time()));
}

// What the device holds after an event that failed is unknown: it is neither saved nor overwritten, now or later.
TEST_F(RankTransfersTest, CopiesAfterAFailedEventFail) {
  make(one_group());
  transfers_->reached(StepMark::computed(1), nullptr);
  const auto step = std::make_shared<TestStep>();
  transfers_->reached(StepMark::computed(2), step);
  const TransferId save = ask(kDevice, kHost, {{0, 0}}, StepMark::computed(2));
  transfers_->expect(block_ids({5}));
  const TransferId load = ask(kHost, kDevice, {{1, 5}}, StepMark::begun(3));
  transfers_->reached(StepMark::begun(3), nullptr);
  step->end(StepState::kFailed);
  EXPECT_THAT(states(save), Each(BlockState::kFailed));
  EXPECT_THAT(answers_.done(save).error, HasSubstr("has failed"));
  EXPECT_THAT(states(load), Each(BlockState::kFailed));
  EXPECT_EQ(transfers_->wait_for_layer(0, in_time()).error().code, ErrorCode::kUnavailable);
  transfers_->reached(StepMark::computed(3), nullptr);
  EXPECT_THAT(states(ask(kDevice, kHost, {{0, 0}}, StepMark::computed(3))), Each(BlockState::kFailed));
  EXPECT_THAT(states(ask(kDevice, kHost, {{0, 0}}, StepMark::computed(1))), Each(BlockState::kDone)) << "before it";
  move(kHost, kDisk, {{0, 0}});
}

// An engine that overwrites blocks whose saves are late, behind a fence that does not wait long: a save that is
// reported as done always has the right bytes.
TEST_F(RankTransfersTest, WhatIsTornIsNeverDone) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "a copy that a fence failed reads what the engine writes: an intended race";
#endif
  make_faulty(one_group(), {{.fault = Fault::kDelay, .chance = 0.5}}, std::chrono::microseconds(300));
  std::mt19937_64 random(20);
  struct Save {
    TransferId id{};
    std::uint64_t seed = 0;
  };
  std::array<std::optional<Save>, testing::kRankBlocks> saves;      // by host block
  std::array<std::uint64_t, testing::kRankBlocks> holds_seed = {};  // by device block
  std::array<std::uint64_t, 2> ends = {};                           // done, and not
  std::deque<RankTransfer> late;                                    // that the leader has not sent yet
  const auto take_settled = [&](std::uint32_t host, bool wait) {
    if (!saves[host] || (!wait && !answers_.is_settled(saves[host]->id))) {
      return;
    }
    answers_.wait_settled(saves[host]->id);
    const bool is_done = states(saves[host]->id).front() == BlockState::kDone;
    ++ends[is_done ? 0 : 1];
    if (is_done) {
      EXPECT_FALSE(find_stranger(*host_, host, saves[host]->seed)) << "torn, and reported as done";
    }
    saves[host].reset();
  };
  for (std::uint64_t step = 1; step <= 3000; ++step) {
    // The step writes to a block; saves of what it held before are behind a fence.
    const auto block = static_cast<std::uint32_t>(random() % testing::kRankBlocks);
    static_cast<void>(transfers_->fence(block_ids({block}), StepMark::begun(step),
                                        steady_clock().now() + std::chrono::microseconds(random() % 100)));
    transfers_->reached(StepMark::begun(step), nullptr);
    write_block(*device_, block, holds_seed[block] = step);
    transfers_->reached(StepMark::computed(step), nullptr);
    const auto host = static_cast<std::uint32_t>(random() % testing::kRankBlocks);
    take_settled(host, false);
    if (!saves[host]) {
      late.push_back(request(kDevice, kHost, {{block, host}}, ++last_id_, StepMark::computed(step)));
      saves[host] = Save{.id = late.back().id, .seed = step};
    }
    while (late.size() > random() % 4) {
      transfers_->submit(late.front());
      late.pop_front();
    }
  }
  for (const RankTransfer& copy : late) {
    transfers_->submit(copy);
  }
  for (std::uint32_t host = 0; host < testing::kRankBlocks; ++host) {
    take_settled(host, true);
  }
  EXPECT_GT(ends[0], 100U);
  EXPECT_GT(ends[1], 100U) << "no fence failed a copy: the test shows nothing";
}

TEST_F(RankTransfersTest, ExpectedLayersThatFailAreReported) {
  // Three layers a block: the second layer of the copy's first block.
  make_faulty(one_group(), {{.fault = Fault::kFail, .at = 3}});
  transfers_->expect(block_ids({0, 1}));
  const TransferId load = ask(kHost, kDevice, {{0, 0}, {1, 1}});
  EXPECT_THAT(states(load), ElementsAre(BlockState::kFailed, BlockState::kDone));
  // The third layer was in flight with the second one, and may have arrived before that failed.
  const Status waited = transfers_->wait_for_layer(1, in_time());
  ASSERT_FALSE(waited.has_value());
  EXPECT_EQ(waited.error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(transfers_->lacking(1), block_ids({0})) << "the other block arrived";
  EXPECT_TRUE(transfers_->wait_for_layer(0, in_time()).has_value()) << "of both";
  transfers_->expect(block_ids({0, 1}));
  move(kHost, kDevice, {{0, 0}, {1, 1}});
  EXPECT_TRUE(transfers_->wait_for_layer(2, in_time()).has_value());
}

TEST_F(RankTransfersTest, WhatFailsIsNotWaitedForAndTheRestIs) {
  // The first layer of the first block fails; of the other block the second layer hangs.
  make_faulty(one_group(), {{.fault = Fault::kFail, .at = 1}, {.fault = Fault::kHang, .at = 3}});
  transfers_->expect(block_ids({0, 1, 2}));
  const TransferId load = ask(kHost, kDevice, {{0, 0}, {1, 1}});
  transfers_->pass_over(block_ids({2}));
  EXPECT_EQ(transfers_->wait_for_layer(0, in_time()).error().code, ErrorCode::kUnavailable);
  EXPECT_THAT(transfers_->lacking(0), ::testing::UnorderedElementsAre(BlockId{0}, BlockId{2}));
  EXPECT_EQ(transfers_->wait_for_layer(1, steady_clock().now()).error().code, ErrorCode::kExpired)
      << "it may still arrive";
  faults_->release();
  EXPECT_EQ(transfers_->wait_for_layer(2, in_time()).error().code, ErrorCode::kUnavailable);
  EXPECT_THAT(transfers_->lacking(2), ::testing::UnorderedElementsAre(BlockId{0}, BlockId{2}));
  EXPECT_THAT(states(load), ElementsAre(BlockState::kFailed, BlockState::kDone));
}

TEST_F(RankTransfersTest, WaitingForLayersEnds) {
  make(one_group());
  EXPECT_TRUE(transfers_->wait_for_layer(0, steady_clock().now()).has_value()) << "nothing is expected";
  EXPECT_EQ(transfers_->wait_for_layer(3, in_time()).error().code, ErrorCode::kOutOfRange);
  transfers_->expect(block_ids({0, 1}));
  EXPECT_EQ(transfers_->wait_for_layer(0, steady_clock().now() + milliseconds(1)).error().code, ErrorCode::kExpired);
  transfers_->expect({});
  EXPECT_TRUE(transfers_->wait_for_layer(0, steady_clock().now()).has_value());
  transfers_->lose();
  transfers_->expect(block_ids({0}));
  EXPECT_EQ(transfers_->wait_for_layer(0, in_time()).error().code, ErrorCode::kUnavailable);
}

TEST_F(RankTransfersTest, FirstLayersComeFirst) {
  // Layer 1 of the one block hangs: layer 0 arrives all the same.
  make_faulty(one_group(), {{.fault = Fault::kHang, .at = 2}});
  transfers_->expect(block_ids({0}));
  const TransferId load = ask(kHost, kDevice, {{0, 0}});
  EXPECT_TRUE(transfers_->wait_for_layer(0, in_time()).has_value());
  EXPECT_EQ(transfers_->wait_for_layer(1, steady_clock().now()).error().code, ErrorCode::kExpired);
  EXPECT_FALSE(answers_.is_done(load));
  faults_->release();
  EXPECT_TRUE(transfers_->wait_for_layer(1, in_time()).has_value());
  EXPECT_THAT(states(load), Each(BlockState::kDone));
}

TEST_F(RankTransfersTest, WhatIsCancelledBeforeItBeganIsNotDone) {
  make_faulty(one_group(), {{.fault = Fault::kHang, .at = 1}});
  const TransferId held = ask(kHost, kDevice, {{0, 0}}, StepMark::begun(1));
  transfers_->cancel(held);
  EXPECT_THAT(states(held), Each(BlockState::kCancelled));
  answers_.wait_settled(held);
  const TransferId begun = ask(kHost, kDevice, {{0, 0}});
  transfers_->cancel(begun);
  transfers_->cancel(TransferId{99});
  EXPECT_FALSE(answers_.is_settled(begun));
  faults_->release();
  EXPECT_THAT(states(begun), Each(BlockState::kDone));
  transfers_->reached(StepMark::begun(1), nullptr);
  move(kHost, kDevice, {{1, 1}});
  EXPECT_EQ(transfers_->counts().transfers, 0U);
}

TEST_F(RankTransfersTest, WithoutALeaderNothingIsAnsweredAndWhatHasBegunIsWaitedFor) {
  make_faulty(one_group(), {{.fault = Fault::kHang, .at = 1}});
  const TransferId begun = ask(kDevice, kHost, {{0, 0}});
  const TransferId held = ask(kHost, kDevice, {{0, 1}}, StepMark::begun(1));
  transfers_->lose();
  EXPECT_FALSE(transfers_->wait_until_quiet(steady_clock().now() + milliseconds(1)));
  EXPECT_EQ(transfers_->counts().transfers, 1U);
  ask(kHost, kDisk, {{0, 0}});
  EXPECT_EQ(transfers_->counts().transfers, 1U);
  faults_->release();
  EXPECT_TRUE(transfers_->wait_until_quiet(in_time()));
  transfers_->begin(7, kLeader);
  move(kHost, kDisk, {{0, 0}});
  EXPECT_FALSE(answers_.is_done(begun));
  EXPECT_FALSE(answers_.is_done(held));
}

// The next leader's first generation may have the same number: a late answer would be taken for an answer to the next
// leader.
TEST_F(RankTransfersTest, NoAnswerIsInFlightOnceTheLeaderIsLost) {
  make(one_group());
  std::promise<void> began;
  std::promise<void> may_end;
  on_answer_ = [&, first = true]() mutable {
    if (std::exchange(first, false)) {
      began.set_value();
      may_end.get_future().wait();
    }
  };
  ask(kDevice, kHost, {{0, 0}});
  began.get_future().wait();
  std::future<void> lost = std::async(std::launch::async, [this] { transfers_->lose(); });
  EXPECT_EQ(lost.wait_for(milliseconds(20)), std::future_status::timeout);
  may_end.set_value();
  lost.get();
}

TEST_F(RankTransfersTest, AWaitForQuietCanBeWoken) {
  make_faulty(one_group(), {{.fault = Fault::kHang, .at = 1}});
  ask(kDevice, kHost, {{0, 0}});
  transfers_->lose();
  std::future<bool> quiet =
      std::async(std::launch::async, [&] { return transfers_->wait_until_quiet(TimePoint::max()); });
  transfers_->wake();
  EXPECT_FALSE(quiet.get());
}

TEST_F(RankTransfersTest, AFullExecutorIsTriedAgain) {
  make(one_group(), [](ExecutorKind kind, std::unique_ptr<TransferExecutor> inside) {
    return kind == ExecutorKind::kHost
               ? std::make_unique<HostExecutor>(steady_clock(), HostExecutor::Options{.threads = 1, .limit = 2})
               : std::move(inside);
  });
  transfers_->expect(block_ids({0}));  // by layer: three transfers a copy
  std::vector<TransferId> all;
  for (std::uint32_t i = 0; i < 60; ++i) {
    all.push_back(ask(kHost, kDevice, {{0, i % 2}}));
  }
  for (const TransferId id : all) {
    EXPECT_THAT(states(id), Each(BlockState::kDone));
    answers_.wait_settled(id);
  }
}

TEST_F(RankTransfersTest, InvalidTransfersFail) {
  make(one_group());
  EXPECT_THAT(states(ask(kDevice, CacheLevel::kG4, {{0, 0}})), Each(BlockState::kFailed));
  EXPECT_THAT(answers_.done(TransferId{last_id_}).error, HasSubstr("from G1 to G4"));
  EXPECT_THAT(states(ask(kDevice, kHost, {{0, 0}, {testing::kRankBlocks, 1}})), Each(BlockState::kFailed));
  EXPECT_THAT(states(ask(kDevice, kHost, {{0, 3}, {1, 3}})), Each(BlockState::kFailed));
  RankTransfer copy = request(kDevice, kHost, {{0, 0}}, ++last_id_);
  copy.tags.clear();
  transfers_->submit(copy);
  EXPECT_THAT(states(copy.id), Each(BlockState::kFailed));
  EXPECT_TRUE(states(ask(kDevice, kHost, {})).empty());
  EXPECT_EQ(transfers_->counts().failed, 6U);
}

TEST_F(RankTransfersTest, EndsWithCopiesInFlight) {
  make_faulty(one_group(), {{.fault = Fault::kHang, .at = 1}, {.fault = Fault::kLose, .at = 2}});
  ask(kDevice, kHost, {{0, 0}, {1, 1}});
  ask(kDevice, kHost, {{2, 2}}, StepMark::begun(1));
  transfers_.reset();
}

// --- saves in the step that computes the blocks ---

class InStepSaveTest : public RankTransfersTest {
 protected:
  void make_counted(LayoutGroups device) {
    make(std::move(device), [this](ExecutorKind kind, std::unique_ptr<TransferExecutor> inside) {
      return kind == ExecutorKind::kHost ? std::make_unique<testing::CountingExecutor>(copied_, std::move(inside))
                                         : std::move(inside);
    });
  }
  // Parts of blocks, layers here, that were copied between device and host.
  void wait_copied(std::uint64_t parts) {
    const TimePoint end = in_time();
    while (*copied_ < parts && steady_clock().now() < end) {
      std::this_thread::yield();
    }
    EXPECT_EQ(*copied_, parts);
  }
  // What another transfer takes: time for something that must not happen.
  void pass_time() { move(kHost, kDisk, {{15, 15}}); }
  void reached(StepMark mark, StepEventPtr after = {}) { transfers_->reached(mark, std::move(after)); }
  void reached_layers(std::uint64_t iteration, std::uint32_t layers, StepEventPtr after = {}) {
    transfers_->reached_layers(iteration, layers, std::move(after));
  }

  std::shared_ptr<std::atomic<std::uint64_t>> copied_ = std::make_shared<std::atomic<std::uint64_t>>(0);
};

// Each layer is written right before it is named, and holds something else until then.
TEST_F(InStepSaveTest, ReadsEachLayerOnceItIsComputedAndIsReportedWithItsStep) {
  make_counted(one_group());
  const std::vector<BlockSums> sums = [this] {
    write_block(*device_, 1, 5);
    return move(kDevice, kHost, {{1, 1}});
  }();
  *copied_ = 0;
  const BlockLayout& layout = *device_->layouts().front();
  ASSERT_EQ(layout.regions().size(), 3U) << "a region for each layer";
  std::vector<std::vector<std::byte>> layers;
  for (const RegionPtr& region : layout.regions()) {
    layers.emplace_back(region->base(), region->base() + region->size());
    std::memset(region->base(), 0x77, region->size());
  }
  const TransferId save = ask(kDevice, kHost, {{1, 2}}, in_step_mark(3));
  reached(StepMark::begun(3));
  for (std::uint32_t layer = 0; layer < 3; ++layer) {
    pass_time();
    wait_copied(layer);
    std::memcpy(layout.regions()[layer]->base(), layers[layer].data(), layers[layer].size());
    reached_layers(3, layer + 1);
    wait_copied(layer + 1);
  }
  pass_time();
  EXPECT_FALSE(answers_.is_done(save)) << "all bytes are there, but the step is not over";
  reached(StepMark::computed(3));
  EXPECT_THAT(states(save), Each(BlockState::kDone));
  EXPECT_EQ(answers_.done(save).sums, sums) << "the same as of the whole";
  EXPECT_FALSE(find_stranger(*host_, 2, 5));
  answers_.wait_settled(save);
}

TEST_F(InStepSaveTest, GroupsOfLayersAddUp) {
  make_counted(two_groups());
  write_block(*device_, 0, 9);
  RankTransfer whole = request(kDevice, kHost, {{0, 0}}, ++last_id_);
  transfers_->submit(whole);
  const std::vector<BlockSums> sums = answers_.done(whole.id).sums;
  reached(StepMark::begun(1));
  const TransferId save = ask(kDevice, kHost, {{0, 1}}, in_step_mark(1));
  reached_layers(1, 1);
  reached_layers(1, 2);
  wait_copied(2 + 2);  // two groups before, two layers now
  reached(StepMark::computed(1));
  EXPECT_EQ(answers_.done(save).sums, sums);
}

TEST_F(InStepSaveTest, WaitsForTheEventOfItsLayer) {
  make_counted(one_group());
  reached(StepMark::begun(1));
  const auto first = std::make_shared<TestStep>();
  const auto rest = std::make_shared<TestStep>();
  reached_layers(1, 1, first);
  reached(StepMark::computed(1), rest);
  const TransferId save = ask(kDevice, kHost, {{0, 0}}, in_step_mark(1));
  pass_time();
  wait_copied(0);
  first->end();
  wait_copied(1);
  pass_time();
  wait_copied(1);
  rest->end();
  EXPECT_THAT(states(save), Each(BlockState::kDone));
}

TEST_F(InStepSaveTest, FailsWithADeviceEventOfItsStep) {
  make_counted(one_group());
  reached(StepMark::begun(1));
  const TransferId save = ask(kDevice, kHost, {{0, 0}}, in_step_mark(1));
  reached_layers(1, 2);
  wait_copied(2);
  const auto rest = std::make_shared<TestStep>();
  reached(StepMark::computed(1), rest);
  rest->end(StepState::kFailed);
  EXPECT_THAT(states(save), Each(BlockState::kFailed));
  EXPECT_THAT(answers_.done(save).error, HasSubstr("device event"));
  answers_.wait_settled(save);
}

TEST_F(InStepSaveTest, AFenceCancelsItWhileItsStepIsNotComputed) {
  make_counted(one_group());
  reached(StepMark::begun(1));
  const TransferId save = ask(kDevice, kHost, {{0, 0}, {1, 1}}, in_step_mark(1));
  reached_layers(1, 3);
  wait_copied(6);
  EXPECT_TRUE(transfers_->fence(block_ids({0}), StepMark::begun(2), in_time())) << "it does not wait";
  reached(StepMark::begun(2));
  const RankTransferOutcome outcome = answers_.done(save);
  EXPECT_THAT(outcome.states, ElementsAre(BlockState::kCancelled, BlockState::kDone));
  EXPECT_THAT(states(ask(kDevice, kHost, {{0, 0}}, in_step_mark(1))), Each(BlockState::kCancelled)) << "late";
}

TEST_F(InStepSaveTest, ThatComesAfterItsStepIsCopiedInOneGo) {
  make_counted(one_group());
  reached(StepMark::begun(1));
  reached_layers(1, 1);
  reached(StepMark::computed(1));
  EXPECT_THAT(states(ask(kDevice, kHost, {{0, 0}}, in_step_mark(1))), Each(BlockState::kDone));
  EXPECT_EQ(*copied_, 1U);
}

TEST_F(InStepSaveTest, CanBeCancelledAndExpires) {
  make_counted(one_group());
  reached(StepMark::begun(1));
  const TransferId save = ask(kDevice, kHost, {{0, 0}}, in_step_mark(1));
  reached_layers(1, 3);
  wait_copied(3);
  transfers_->cancel(save);
  EXPECT_THAT(states(save), Each(BlockState::kCancelled));
  answers_.wait_settled(save);
  RankTransfer late = request(kDevice, kHost, {{0, 0}}, ++last_id_, in_step_mark(1));
  late.time_left = milliseconds(20);
  transfers_->submit(late);
  EXPECT_THAT(states(late.id), Each(BlockState::kExpired));
  answers_.wait_settled(late.id);
  EXPECT_EQ(transfers_->counts().transfers, 0U);
}

}  // namespace
}  // namespace cairn
