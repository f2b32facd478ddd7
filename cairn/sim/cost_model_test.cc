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
  EXPECT_THAT(message(""), HasSubstr("0 prefill or prompt points"));
  EXPECT_THAT(message("prefill,1,2\nprefil,2,3\n"), HasSubstr("line 2: 'prefil,2,3' is not a point"));
  EXPECT_THAT(message("prefill,1\n"), HasSubstr("line 1"));
  EXPECT_THAT(message("prefill,1,2,3\n"), HasSubstr("line 1"));
  EXPECT_THAT(message("prefill,-1,2\n"), HasSubstr("line 1"));
  EXPECT_THAT(message("prefill,1,2\nprefill,1,3\n"), HasSubstr("line 2: two prefill points have the same tokens"));
  EXPECT_THAT(message("prefill,1,2\nprefill,2,3\ndecode,1,1\n"), HasSubstr("1 decode points"));
}

// A prompt of 100 tokens takes 10 ms, the next 100 another 30 ms; a pass takes 2 ms besides.
TEST(CostModelTest, TokensOfAPromptTakeLongerAfterOthers) {
  const CostModel costs = *CostModel::parse("prompt,0,2\nprompt,100,12\nprompt,200,42\ndecode,0,1\ndecode,1,1\n");
  EXPECT_TRUE(costs.depends_on_context());
  using Part = CostModel::PromptPart;
  const auto ms = [&](const std::vector<Part>& parts) {
    return std::chrono::duration<double, std::milli>(costs.prefill(parts)).count();
  };
  EXPECT_DOUBLE_EQ(ms({}), 0);
  EXPECT_DOUBLE_EQ(ms({{.before = 0, .after = 200}}), 42);
  EXPECT_DOUBLE_EQ(ms({{.before = 100, .after = 200}}), 2 + 30);
  EXPECT_DOUBLE_EQ(ms({{.before = 0, .after = 100}, {.before = 100, .after = 150}}), 2 + 10 + 15);
  EXPECT_EQ(costs.prefill(100), std::chrono::milliseconds(12));
  EXPECT_FALSE(CostModel::polynomial().depends_on_context());
  EXPECT_FALSE(CostModel::parse("prompt,0,2\nprompt,1,3\nprefill,0,1\nprefill,1,2\ndecode,0,1\ndecode,1,1\n"));
}

}  // namespace
}  // namespace cairn::sim
