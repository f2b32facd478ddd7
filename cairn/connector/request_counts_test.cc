#include "cairn/connector/request_counts.h"

#include <gtest/gtest.h>

namespace cairn {
namespace {

TEST(RequestCountsTest, APromptIsCountedOnceHoweverOftenItIsMatched) {
  RequestCounts request;
  EXPECT_FALSE(request.is_open());
  request.matched({.asked = 100, .host = 64}, false);
  request.matched({.asked = 100, .host = 48, .disk = 16, .too_slow = 16}, false);  // the latest counts
  ASSERT_TRUE(request.is_open());
  const TokenCounts counts = request.count(16, {.wanted = 48, .from_host = 32});
  EXPECT_EQ(counts, (TokenCounts{.requests = 1,
                                 .asked = 100,
                                 .device = 16,
                                 .found_host = 48,
                                 .found_disk = 16,
                                 .loaded_host = 32,
                                 .too_slow = 16,
                                 .failed = 16,
                                 .computed = 52}));
  EXPECT_TRUE(counts.adds_up());
  EXPECT_FALSE(request.is_open());
}

TEST(RequestCountsTest, WhatIsFoundAndNotLoadedIsSkipped) {
  RequestCounts request;
  request.matched({.asked = 100, .host = 64, .too_slow = 16}, false);
  const TokenCounts counts = request.count(0, {});
  EXPECT_EQ(counts.too_slow, 16U);
  EXPECT_EQ(counts.skipped, 48U);
  EXPECT_EQ(counts.computed, 100U);
  EXPECT_TRUE(counts.adds_up());
}

TEST(RequestCountsTest, TheEnginesLastWordOnItsOwnCacheCounts) {
  RequestCounts request;
  request.matched({.asked = 100, .host = 32, .disk = 64}, false);
  const TokenCounts counts = request.count(80, {});
  EXPECT_EQ(counts.device, 80U);
  EXPECT_EQ(counts.found(), 20U) << "of what it found, as much as is not on the device";
  EXPECT_TRUE(counts.adds_up());
}

TEST(RequestCountsTest, APreemptedRequestIsNotAskedForAgain) {
  RequestCounts request;
  request.matched({.asked = 100}, false);
  (void)request.count(0, {});
  request.preempted(120, true);
  ASSERT_TRUE(request.is_open());
  request.matched({.asked = 121, .host = 112}, false);
  const TokenCounts again = request.count(32, {.wanted = 80, .from_disk = 64});
  EXPECT_EQ(again, (TokenCounts{.lost = 120, .kept = 32, .reloaded = 64, .recomputed = 24}));
}

TEST(RequestCountsTest, WhatIsLoadedBeyondTheLostTokensIsLate) {
  RequestCounts request;
  request.matched({.asked = 100}, false);
  (void)request.count(0, {});
  request.preempted(20, true);  // in the middle of its prompt
  request.matched({.asked = 100, .host = 96}, false);
  EXPECT_EQ(request.count(0, {.wanted = 96, .from_host = 96}),
            (TokenCounts{.lost = 20, .reloaded = 20, .loaded_late = 76}));
  request.matched({.asked = 100, .host = 16}, true);  // between two chunks
  EXPECT_EQ(request.count(32, {.wanted = 16, .from_host = 16}), (TokenCounts{.loaded_late = 16}));
}

TEST(RequestCountsTest, PreemptedBeforeItRanNothingIsLost) {
  RequestCounts request;
  request.matched({.asked = 100}, false);
  request.preempted(32, false);  // of the engine's own cache
  EXPECT_FALSE(request.is_open());
  request.matched({.asked = 100}, false);
  EXPECT_EQ(request.count(0, {}).asked, 100U) << "it is asked for now";
}

TEST(RequestCountsTest, LoadedAndPreemptedBeforeItRanTheLoadIsLost) {
  RequestCounts request;
  request.matched({.asked = 100, .host = 96}, false);
  (void)request.count(0, {.wanted = 96, .from_host = 96});
  request.preempted(96, false);
  request.preempted(0, false);
  EXPECT_EQ(request.count(0, {}), (TokenCounts{.lost = 96, .recomputed = 96}));
}

TEST(RequestCountsTest, ComputedAgainIsLostAndRecomputed) {
  RequestCounts request;
  request.computes_again(8);
  ASSERT_TRUE(request.is_open());
  EXPECT_EQ(request.count(24, {}), (TokenCounts{.lost = 8, .recomputed = 8}));
}

TEST(RequestCountsTest, ARequestThatFirstAsksWhenItHasRunIsNotCounted) {
  RequestCounts request;
  request.preempted(40, true);
  request.matched({.asked = 50, .host = 48}, false);
  const TokenCounts counts = request.count(0, {.wanted = 48, .from_host = 48});
  EXPECT_EQ(counts.asked, 0U);
  EXPECT_EQ(counts.reloaded, 40U);
  EXPECT_EQ(counts.loaded_late, 8U);
}

}  // namespace
}  // namespace cairn
