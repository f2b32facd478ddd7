#include "cairn/base/mutex.h"

#include <gtest/gtest.h>

namespace cairn {
namespace {

TEST(MutexTest, CanBeTakenAgainAfterRelease) {
  Mutex mutex(LockRank::kPool);
  for (int i = 0; i < 3; ++i) {
    const MutexLock lock(mutex);
  }
}

TEST(MutexTest, RanksMayBeTakenUpwards) {
  Mutex pool(LockRank::kPool);
  Mutex log(LockRank::kEventLog);
  const MutexLock first(pool);
  const MutexLock second(log);
}

#ifdef CAIRN_CHECK_LOCK_RANKS
TEST(MutexDeathTest, RanksTakenDownwardsAbort) {
  Mutex pool(LockRank::kPool);
  Mutex log(LockRank::kEventLog);
  EXPECT_DEATH(
      {
        const MutexLock first(log);
        const MutexLock second(pool);
      },
      "lock order: rank 30 taken while rank 50 is held");
}

TEST(MutexDeathTest, TwoOfOneRankAbort) {
  Mutex a(LockRank::kPool);
  Mutex b(LockRank::kPool);
  EXPECT_DEATH(
      {
        const MutexLock first(a);
        const MutexLock second(b);
      },
      "lock order: rank 30 taken while rank 30 is held");
}
#endif

}  // namespace
}  // namespace cairn
