#include "cairn/events/known_tokens.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cairn/events/events_testing.h"

namespace cairn::internal {
namespace {

using events_testing::block_at;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr CacheLevel kG2 = CacheLevel::kG2;
constexpr CacheLevel kG3 = CacheLevel::kG3;
constexpr Token kFirst[] = {1, 2};
constexpr Token kSecond[] = {3, 4};

const BlockKey kA = block_at(1, 0).key;
const BlockKey kB = block_at(1, 1).key;
const BlockKey kC = block_at(2, 0).key;

TEST(KnownTokensTest, TokensAreKnownWhileATierHasTheBlock) {
  KnownTokens known(4, 2);
  EXPECT_TRUE(known.stored(kG2, kA, kFirst));
  EXPECT_TRUE(known.stored(kG3, kA, {})) << "a copy of it";
  EXPECT_FALSE(known.stored(kG3, kB, {})) << "nobody said";
  known.removed(kG2, kA);
  EXPECT_THAT(known.find(kA), ElementsAre(1, 2));
  known.removed(kG3, kA);
  EXPECT_THAT(known.find(kA), IsEmpty());
  known.removed(kG3, kB);
}

TEST(KnownTokensTest, PinsKeepTokensBeforeABlockIsStored) {
  KnownTokens known(4, 2);
  EXPECT_TRUE(known.pin(kA, kFirst));
  EXPECT_TRUE(known.pin(kA, kFirst));
  known.unpin(kA);
  EXPECT_TRUE(known.stored(kG2, kA, {}));
  known.unpin(kA);
  EXPECT_THAT(known.find(kA), ElementsAre(1, 2));
  known.removed(kG2, kA);
  EXPECT_THAT(known.find(kA), IsEmpty());
  EXPECT_TRUE(known.pin(kB, kSecond));
  known.unpin(kB);
  EXPECT_THAT(known.find(kB), IsEmpty()) << "the save came to nothing";
}

TEST(KnownTokensTest, AClearedTierLeavesWhatOthersHave) {
  KnownTokens known(4, 2);
  known.stored(kG2, kA, kFirst);
  known.stored(kG2, kB, kSecond);
  known.stored(kG3, kB, {});
  EXPECT_TRUE(known.pin(kC, kFirst));
  known.cleared(kG2);
  EXPECT_THAT(known.find(kA), IsEmpty());
  EXPECT_THAT(known.find(kB), ElementsAre(3, 4));
  EXPECT_THAT(known.find(kC), ElementsAre(1, 2));
}

TEST(KnownTokensTest, WithoutRoomTokensAreUnknown) {
  KnownTokens known(2, 2);
  known.stored(kG2, kA, kFirst);
  known.stored(kG2, kB, kSecond);
  EXPECT_FALSE(known.stored(kG2, kC, kFirst));
  EXPECT_FALSE(known.pin(kC, kFirst)) << "nothing is pinned: there will be nothing to unpin";
  known.removed(kG2, kA);
  EXPECT_TRUE(known.stored(kG3, kC, kSecond)) << "there is room again";
  EXPECT_THAT(known.find(kC), ElementsAre(3, 4));
  EXPECT_THAT(known.find(kB), ElementsAre(3, 4));
}

}  // namespace
}  // namespace cairn::internal
