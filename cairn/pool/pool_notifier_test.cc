#include "cairn/pool/pool_notifier.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cairn/pool/pool_testing.h"

namespace cairn::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class PoolNotifierTest : public ::testing::Test {
 protected:
  Mutex mutex_{LockRank::kPool};
  RecordingObserver first_;
  RecordingObserver second_;
  PoolNotifier notifier_{CacheLevel::kG1, {&first_, &second_}, mutex_};
  Keys keys_ = chain(1, 3);
};

TEST_F(PoolNotifierTest, CallsEveryObserverOnceForAllThatWasAdded) {
  notifier_.add_removed(keys_[0]);
  notifier_.add_removed(keys_[1]);
  notifier_.tell_removed();
  EXPECT_THAT(first_.take(), ElementsAre(removed(first_of(keys_, 2))));
  EXPECT_THAT(second_.take(), ElementsAre(removed(first_of(keys_, 2))));
}

TEST_F(PoolNotifierTest, StartsAnewAfterTelling) {
  notifier_.add_removed(keys_[0]);
  notifier_.tell_evicted();
  notifier_.add_registered({.key = keys_[1]});
  EXPECT_EQ(notifier_.registered_count(), 1U);
  notifier_.tell_registered({});
  notifier_.add_matched(keys_[2]);
  notifier_.tell_matched();
  EXPECT_THAT(first_.take(), ElementsAre(removed({keys_[0]}), registered({keys_[1]}), matched({keys_[2]})));
  EXPECT_EQ(notifier_.registered_count(), 0U);
}

TEST_F(PoolNotifierTest, TellsNothingIfNothingWasAdded) {
  notifier_.tell_removed();
  notifier_.tell_evicted();
  notifier_.tell_registered({});
  notifier_.tell_matched();
  notifier_.tell_matched({});
  EXPECT_THAT(first_.take(), IsEmpty());
}

TEST_F(PoolNotifierTest, AClearedPoolReplacesRemovedKeys) {
  notifier_.add_removed(keys_[0]);
  notifier_.tell_cleared();
  notifier_.tell_removed();
  EXPECT_THAT(first_.take(), ElementsAre(cleared()));
}

TEST_F(PoolNotifierTest, WithoutObserversItKeepsNothing) {
  PoolNotifier nobody(CacheLevel::kG1, {}, mutex_);
  nobody.reserve(100);
  nobody.reserve_removed(100);
  nobody.add_removed(keys_[0]);
  nobody.add_matched(keys_[0]);
  nobody.tell_cleared();
  EXPECT_FALSE(nobody.is_watched());
  EXPECT_EQ(nobody.bytes(), 0U);
}

}  // namespace
}  // namespace cairn::testing
