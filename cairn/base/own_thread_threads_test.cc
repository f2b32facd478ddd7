#include "cairn/base/own_thread.h"

#include <gtest/gtest.h>

#include <new>

namespace cairn {
namespace {

TEST(OwnThreadTest, KnowsItself) {
  EXPECT_FALSE(is_own_thread());
  bool is_own = false;
  start_own_thread("cairn-test", [&is_own] { is_own = is_own_thread(); }).join();
  EXPECT_TRUE(is_own);
  EXPECT_FALSE(is_own_thread());
}

TEST(OwnThreadDeathTest, AnExceptionEndsTheProcessWithTheNameOfTheThread) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(start_own_thread("cairn-test", [] { throw std::bad_alloc(); }).join(),
               "thread cairn-test was ended by an exception: std::bad_alloc");
}

}  // namespace
}  // namespace cairn
