// How requests ended: ImmutableBlocks::release() with an ending, and BlockPool::end_request().
#include <chrono>

#include "cairn/base/clock.h"
#include "cairn/pool/pool_testing.h"

namespace cairn {
namespace {

using testing::cache;
using testing::chain;
using testing::evicted_for;
using testing::joined;
using testing::Keys;
using testing::make_pool;
using testing::store;

TEST(BlockPoolEndingsTest, AReleaseWithAnEndingIsARelease) {
  for (const PolicyKind policy : kAllPolicies) {
    const auto pool = make_pool(8, {.policy = policy, .duplicates = Duplicates::kAllow});
    const Keys keys = chain(1, 4);
    ImmutableBlocks first = store(*pool, keys);
    ImmutableBlocks second = store(*pool, keys);  // duplicates
    std::move(first).release(RequestEnding::kToolCall);
    EXPECT_EQ(pool->counts().active, 8U) << to_string(policy);
    EXPECT_EQ(pool->discard({&keys[3], 1}), 1U);
    std::move(second).release(RequestEnding::kEndOfTurn);
    EXPECT_EQ(pool->counts().free, 5U) << to_string(policy);
    EXPECT_EQ(pool->counts().inactive, 3U) << to_string(policy);
    EXPECT_EQ(pool->count_prefix(keys), 3U);
    ImmutableBlocks().release(RequestEnding::kAbort);
    pool->check_invariants();
  }
}

TEST(BlockPoolEndingsTest, SayingHowARequestEndedFindsItsBlocksAndIsNoUse) {
  for (const PolicyKind policy : kAllPolicies) {
    const auto pool = make_pool(8, {.policy = policy, .leaves_first = true});
    const Keys old = chain(1, 4);
    const Keys young = chain(2, 4);
    cache(*pool, old);
    const ImmutableBlocks held = store(*pool, young);
    const PoolStats before = pool->stats();
    EXPECT_EQ(pool->end_request(joined(old, young), RequestEnding::kEndOfTurn), 8U) << "in use or not";
    EXPECT_EQ(pool->end_request(chain(3, 4), RequestEnding::kToolCall), 0U);
    EXPECT_EQ(pool->end_request({}, RequestEnding::kToolCall), 0U);
    EXPECT_EQ(pool->stats().lookups, before.lookups);
    EXPECT_EQ(pool->counts().inactive, 4U);
    pool->check_invariants();
    EXPECT_EQ(evicted_for(*pool, 4), testing::reversed(old)) << to_string(policy);
  }
}

// Sessions return 10 s after a tool call, and not at all after the end of a turn. What was released last would be kept by
// its age alone.
class LearnedEndingsTest : public ::testing::Test {
 protected:
  static constexpr std::uint32_t kSession = 8;
  static constexpr int kRounds = 200;

  // Stores sessions and ends them until the policy knows what follows which ending.
  template <typename End>
  void learn(End end) {
    for (int round = 0; round < kRounds; ++round) {
      const Keys tool = chain(++name_, kSession);
      const Keys turn = chain(++name_, kSession);
      end(tool, RequestEnding::kToolCall);
      end(turn, RequestEnding::kEndOfTurn);
      clock_.advance(std::chrono::seconds(10));
      ImmutableBlocks returned = pool_->match_prefix(tool);
      EXPECT_EQ(returned.size(), kSession) << "round " << round;
      std::move(returned).release(RequestEnding::kEndOfTurn);
      clock_.advance(std::chrono::seconds(5));
    }
  }
  // Two sessions end at once. Returns how many blocks of each are left when others have taken the room of one.
  template <typename End>
  std::pair<std::uint32_t, std::uint32_t> left_after_both(End end) {
    const Keys tool = chain(++name_, kSession);
    const Keys turn = chain(++name_, kSession);
    end(tool, RequestEnding::kToolCall);
    end(turn, RequestEnding::kEndOfTurn);
    clock_.advance(std::chrono::seconds(5));
    const auto both_are_whole = [&] {
      return pool_->count_prefix(tool) == kSession && pool_->count_prefix(turn) == kSession;
    };
    for (int i = 0; i < 100 && both_are_whole(); ++i) {
      cache(*pool_, chain(++name_, kSession));
    }
    return {pool_->count_prefix(tool), pool_->count_prefix(turn)};
  }

  ManualClock clock_;
  // With default settings but the clock, and a seed so that a failure repeats.
  std::unique_ptr<BlockPool> pool_ = make_pool(8 * kSession, {.clock = &clock_, .seed = KeySeed::from(7)});
  std::uint64_t name_ = 0;
};

TEST_F(LearnedEndingsTest, KeepsTheSessionThatReturnsWhenHandlesSayHowItEnded) {
  const auto end = [this](const Keys& keys, RequestEnding ending) { store(*pool_, keys).release(ending); };
  learn(end);
  const auto [tool, turn] = left_after_both(end);
  EXPECT_EQ(tool, kSession);
  EXPECT_LT(turn, kSession);
}

TEST_F(LearnedEndingsTest, KeepsTheSessionThatReturnsWhenItsEndingIsToldLater) {
  const auto end = [this](const Keys& keys, RequestEnding ending) {
    cache(*pool_, keys);
    clock_.advance(std::chrono::milliseconds(5));
    EXPECT_EQ(pool_->end_request(keys, ending), kSession);
  };
  learn(end);
  const auto [tool, turn] = left_after_both(end);
  EXPECT_EQ(tool, kSession);
  EXPECT_LT(turn, kSession);
}

}  // namespace
}  // namespace cairn
