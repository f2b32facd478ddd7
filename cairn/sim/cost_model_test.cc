#include "cairn/sim/engine_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace cairn::sim {
namespace {

using ::testing::HasSubstr;

TEST(CostModelTest, ThePolynomialIsTheOneThatWasFitted) {
  const CostModel model = CostModel::polynomial();
  EXPECT_EQ(model.prefill(0), Duration(0));
  EXPECT_NEAR(static_cast<double>(model.prefill(64).count()), 17.4749e6, 100);
  EXPECT_NEAR(static_cast<double>(model.prefill(8192).count()), 169.1369e6, 100);
  EXPECT_EQ(model.decode({0, 100, 16}), Duration(5'740'000));
  EXPECT_EQ(model.decode({50, 100, 16}), Duration(26'310'000));
  EXPECT_EQ(model.decode({100, 100, 16}), Duration(34'010'000));
}

TEST(CostModelTest, SpeedupDividesPrefillAndDecode) {
  const CostModel fast = *CostModel::polynomial().with_speedup(2);
  EXPECT_EQ(fast.decode({0, 100, 16}), Duration(2'870'000));
  EXPECT_EQ(fast.prefill(64), Duration(8'737'442)) << "half of 17'474'885, to the even side";
  EXPECT_FALSE(CostModel::polynomial().with_speedup(0));
  EXPECT_FALSE(CostModel::polynomial().with_speedup(-1));
}

TEST(CostModelTest, MeasuredPointsAreJoinedByLines) {
  const CostModel model = *CostModel::parse(
      "kind,tokens,ms\n"
      "# of a small model\n"
      "prefill, 1000, 20\r\n"
      "prefill,100,11\n"
      "\n"
      "decode,0,5\n"
      "decode,1000,10\n");
  EXPECT_EQ(model.prefill(100), Duration(11'000'000));
  EXPECT_EQ(model.prefill(550), Duration(15'500'000));
  EXPECT_EQ(model.prefill(2000), Duration(30'000'000)) << "the last line continues";
  EXPECT_EQ(model.prefill(0), Duration(0));
  EXPECT_EQ(model.decode({10, 1000, 16}), Duration(5'800'000));
}

TEST(CostModelTest, NamesTheBadLineAndTheReason) {
  const auto message = [](const char* csv) { return CostModel::parse(csv).error().message; };
  EXPECT_THAT(message(""), HasSubstr("0 prefill points"));
  EXPECT_THAT(message("prefill,1,2\nprefil,2,3\n"), HasSubstr("line 2: 'prefil,2,3' is not a point"));
  EXPECT_THAT(message("prefill,1\n"), HasSubstr("line 1"));
  EXPECT_THAT(message("prefill,1,2,3\n"), HasSubstr("line 1"));
  EXPECT_THAT(message("prefill,-1,2\n"), HasSubstr("line 1"));
  EXPECT_THAT(message("prefill,1,2\nprefill,1,3\n"), HasSubstr("line 2: two prefill points have the same tokens"));
  EXPECT_THAT(message("prefill,1,2\nprefill,2,3\ndecode,1,1\n"), HasSubstr("1 decode points"));
}

}  // namespace
}  // namespace cairn::sim
