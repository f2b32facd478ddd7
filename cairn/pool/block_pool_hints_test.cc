// What the pool passes to its policy beyond releases: uses of blocks in use, leaves first, and hints of the engine.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <random>

#include "cairn/pool/pool_testing.h"

namespace cairn::testing {
namespace {

using std::chrono::seconds;
using ::testing::ElementsAre;
using Kind = RetentionHint::Kind;

class CountingPolicyTest : public ::testing::TestWithParam<PolicyKind> {};

TEST_P(CountingPolicyTest, AMatchOfABlockInUseIsAUse) {
  const auto pool = make_pool(3, {.policy = GetParam()});
  const Keys popular = chain(1, 1);
  const Keys other = chain(2, 1);
  {
    const ImmutableBlocks held = store(*pool, popular);
    for (int request = 0; request < 4; ++request) {
      EXPECT_EQ(pool->match_prefix(popular).size(), 1U);
    }
  }
  cache(*pool, other);
  EXPECT_THAT(evicted_for(*pool, 2), ElementsAre(other[0]));
}

TEST_P(CountingPolicyTest, ARegistrationOfABlockInUseIsAUse) {
  const auto pool = make_pool(3, {.policy = GetParam()});
  const Keys popular = chain(1, 1);
  const Keys other = chain(2, 1);
  {
    const ImmutableBlocks held = store(*pool, popular);
    for (int request = 0; request < 4; ++request) {
      cache(*pool, popular);
    }
  }
  cache(*pool, other);
  EXPECT_THAT(evicted_for(*pool, 2), ElementsAre(other[0]));
}

INSTANTIATE_TEST_SUITE_P(Policies, CountingPolicyTest,
                         ::testing::Values(PolicyKind::kLfu, PolicyKind::kSlru, PolicyKind::kArc, PolicyKind::kS3Fifo,
                                           PolicyKind::kMultiLru));

class LeavesFirstTest : public ::testing::TestWithParam<PolicyKind> {};

TEST_P(LeavesFirstTest, NoBlockGoesBeforeThoseBelowIt) {
  const auto pool = make_pool(24, {.policy = GetParam(), .leaves_first = true});
  std::mt19937 random(5);
  std::vector<Keys> sequences;
  for (std::uint64_t name = 0; name < 6; ++name) {
    const Keys trunk = chain(name, 3);
    for (std::uint64_t branch = 0; branch < 3; ++branch) {
      sequences.push_back(joined(trunk, chain(100 + 10 * name + branch, 3, trunk)));
    }
  }
  for (int step = 0; step < 500; ++step) {
    const Keys& whole = sequences[random() % sequences.size()];
    const Keys keys = first_of(whole, 1 + random() % whole.size());
    ImmutableBlocks held = pool->match_prefix(keys);
    const Keys rest(keys.begin() + held.size(), keys.end());
    Keys evicted;
    MutableBlocks blocks = *pool->allocate(static_cast<std::uint32_t>(rest.size()), kDefaultTenant, evicted);
    for (const BlockKey& gone : evicted) {
      for (const BlockKey& resident : resident_keys(*pool)) {
        ASSERT_FALSE(gone.is_parent_of(resident)) << gone.to_string() << " was evicted before a block below it";
      }
    }
    ASSERT_TRUE(held.append(*(*std::move(blocks).complete({.keys = rest}))
                                 .register_blocks({.priority = static_cast<std::uint32_t>(random() % 3)})));
  }
  EXPECT_GT(pool->stats().evicted, 100U);
}

INSTANTIATE_TEST_SUITE_P(Policies, LeavesFirstTest, ::testing::ValuesIn(kAllPolicies));

class HintTest : public ::testing::TestWithParam<PolicyKind> {
 protected:
  std::unique_ptr<BlockPool> make(std::uint32_t capacity, BlockPoolOptions options = {}) {
    options.policy = GetParam();
    options.hints = true;
    options.clock = &clock_;
    return make_pool(capacity, options);
  }
  void say(BlockPool& pool, const Keys& keys, Kind kind, Duration in = {}) {
    EXPECT_EQ(*pool.hint(keys, {.kind = kind, .in = in}), keys.size());
  }

  ManualClock clock_;
  const Keys a_ = chain(1, 1);
  const Keys b_ = chain(2, 1);
  const Keys c_ = chain(3, 1);
  const Keys d_ = chain(4, 1);
};

TEST_P(HintTest, WhatWillNotReturnGoesFirstAndWhatReturnsSoonGoesLast) {
  const auto pool = make(4);
  for (const Keys& keys : {a_, b_, c_, d_}) {
    cache(*pool, keys);
  }
  say(*pool, a_, Kind::kReturns, seconds(1));
  say(*pool, b_, Kind::kSystemPrompt);
  say(*pool, d_, Kind::kWillNotReturn);
  const Keys order = evicted_for(*pool, 4);
  EXPECT_THAT(first_of(order, 2), ElementsAre(d_[0], c_[0]));
}

TEST_P(HintTest, WhatReturnsLaterGoesEarlier) {
  const auto pool = make(4);
  for (const Keys& keys : {a_, b_, c_, d_}) {
    cache(*pool, keys);
  }
  // Around one minute, the assumed time to a hit before anything was observed.
  say(*pool, a_, Kind::kReturns, seconds(20));
  say(*pool, b_, Kind::kReturns, seconds(50));
  say(*pool, c_, Kind::kReturns, seconds(500));
  EXPECT_THAT(evicted_for(*pool, 4), ElementsAre(c_[0], d_[0], b_[0], a_[0]));
}

TEST_P(HintTest, WhatComesNearerRises) {
  const auto pool = make(2);
  cache(*pool, a_);
  cache(*pool, b_);
  say(*pool, a_, Kind::kReturns, seconds(300));
  clock_.advance(seconds(290));
  EXPECT_THAT(evicted_for(*pool, 2), ElementsAre(b_[0], a_[0]));
}

TEST_P(HintTest, IsForgottenWhenItsTimeHasPassed) {
  const auto pool = make(2);
  cache(*pool, a_);
  say(*pool, a_, Kind::kReturns, seconds(8));
  cache(*pool, b_);
  clock_.advance(seconds(10));
  EXPECT_THAT(evicted_for(*pool, 2), ElementsAre(a_[0], b_[0]));
}

TEST_P(HintTest, HoldsForBlocksInUseOnceTheyAreReleased) {
  const auto pool = make(2);
  cache(*pool, a_);
  {
    const ImmutableBlocks held = store(*pool, b_);
    say(*pool, b_, Kind::kWillNotReturn);
  }
  EXPECT_THAT(evicted_for(*pool, 2), ElementsAre(b_[0], a_[0]));
}

TEST_P(HintTest, OneSessionsEndIsNotAnothers) {
  const auto pool = make(2);
  cache(*pool, a_);
  {
    const ImmutableBlocks held = store(*pool, b_);
    const ImmutableBlocks elsewhere = pool->match_prefix(b_);
    say(*pool, b_, Kind::kWillNotReturn);
  }
  EXPECT_EQ(pool->match_prefix(b_).size(), 1U);
  EXPECT_THAT(evicted_for(*pool, 2), ElementsAre(a_[0], b_[0]));
}

TEST_P(HintTest, NeverPins) {
  const auto pool = make(3);
  cache(*pool, a_);
  cache(*pool, b_);
  cache(*pool, c_);
  say(*pool, a_, Kind::kReturns, seconds(1));
  say(*pool, b_, Kind::kSystemPrompt);
  say(*pool, c_, Kind::kReturns, Duration::max());
  EXPECT_EQ(evicted_for(*pool, 3).size(), 3U);
}

TEST_P(HintTest, DoesNotOverrideAPriority) {
  const auto pool = make(2);
  cache(*pool, a_, {.priority = 40});
  cache(*pool, b_, {.priority = 39});
  say(*pool, a_, Kind::kWillNotReturn);
  say(*pool, b_, Kind::kReturns, seconds(1));
  EXPECT_THAT(evicted_for(*pool, 2), ElementsAre(b_[0], a_[0]));
}

TEST_P(HintTest, IsTakenBackByNone) {
  const auto pool = make(2);
  cache(*pool, a_);
  cache(*pool, b_);
  say(*pool, b_, Kind::kWillNotReturn);
  say(*pool, b_, Kind::kNone);
  EXPECT_THAT(evicted_for(*pool, 2), ElementsAre(a_[0], b_[0]));
}

INSTANTIATE_TEST_SUITE_P(Policies, HintTest, ::testing::ValuesIn(kAllPolicies));

TEST(HintsTest, OfUnknownBlocksHaveNoEffect) {
  const auto pool = make_pool(2, {.hints = true});
  cache(*pool, chain(1, 1));
  EXPECT_EQ(*pool->hint(joined(chain(1, 1), chain(2, 3)), {.kind = Kind::kSystemPrompt}), 1U);
}

TEST(HintsTest, ThatCannotBeTakenAreRefused) {
  const auto pool = make_pool(1);
  expect_error(pool->hint(chain(1, 1), {}).error(), ErrorCode::kFailedPrecondition, "create it with hints");
  const auto hinted = make_pool(1, {.hints = true});
  expect_error(hinted->hint(chain(1, 1), {.kind = Kind::kReturns, .in = seconds(-1)}).error(),
               ErrorCode::kInvalidArgument, "1000000000 ns ago");
}

TEST(HintsTest, TakeRoomForTheirLevelsFromTheNumberOfTenants) {
  BlockPoolOptions options{.capacity = 64, .block_size = 1, .policy = PolicyKind::kLru, .hints = true};
  options.tenants.assign(40, {.name = "tenant"});
  EXPECT_TRUE(BlockPool::create(options));
  options.tenants.assign(41, {.name = "tenant"});
  expect_error(BlockPool::create(options).error(), ErrorCode::kInvalidArgument, "41 tenants are more than the 40");
}

// Wrong hints of one tenant are trusted for a while; hints of other tenants keep their effect.
TEST(HintsTest, LiesCostTheirTenantItsBelief) {
  ManualClock clock;
  const auto pool = make_pool(200, {.policy = PolicyKind::kLru,
                                    .hints = true,
                                    .tenants = {{.name = "liar", .reserved = 100, .limit = 100},
                                                {.name = "honest", .reserved = 100, .limit = 100}},
                                    .clock = &clock});
  const TenantId liar{0};
  for (std::uint64_t round = 0; round < 100; ++round) {  // hinted to return, never does
    const Keys keys = chain(1000 + round, 1);
    cache(*pool, keys, {}, liar);
    (void)pool->hint(keys, {.kind = Kind::kReturns, .in = seconds(1)});
    clock.advance(seconds(2));
  }
  pool->reset_inactive();
  const auto order_of = [&](TenantId tenant, const Keys& said, const Keys& plain) {
    cache(*pool, said, {}, tenant);
    (void)pool->hint(said, {.kind = Kind::kReturns, .in = seconds(1)});
    cache(*pool, plain, {}, tenant);
    return evicted_for(*pool, 100, tenant);
  };
  EXPECT_THAT(order_of(liar, chain(1, 1), chain(2, 1)), ElementsAre(chain(1, 1)[0], chain(2, 1)[0]));
  EXPECT_THAT(order_of(TenantId{1}, chain(3, 1), chain(4, 1)), ElementsAre(chain(4, 1)[0], chain(3, 1)[0]));
}

}  // namespace
}  // namespace cairn::testing
