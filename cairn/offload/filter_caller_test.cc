#include "cairn/offload/filter_caller.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace cairn {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A filter that keeps every block but the second, takes as long as the test says, and may throw.
class FilterCallerTest : public ::testing::Test {
 protected:
  std::array<bool, 3> ask() {
    std::array<bool, 3> keep = {};
    caller_.ask({.blocks = blocks_}, keep);
    return keep;
  }
  OffloadStatus status() const {
    OffloadStatus status;
    caller_.add_to(status);
    return status;
  }
  std::vector<std::string> take_reports() { return std::exchange(reports_, {}); }

  ManualClock clock_;
  Duration takes_ = Duration::zero();
  bool throws_ = false;
  int calls_ = 0;
  std::vector<std::string> reports_;
  const std::vector<FilteredBlock> blocks_ = std::vector<FilteredBlock>(3);
  FilterCaller caller_{{.filter =
                            [this](const FilteredRun& run, std::span<bool> keep) {
                              EXPECT_EQ(run.blocks.size(), keep.size());
                              EXPECT_THAT(keep, Each(true));
                              ++calls_;
                              clock_.advance(takes_);
                              keep[1] = false;
                              if (throws_) {
                                throw std::runtime_error("of the user");
                              }
                            },
                        .report = [this](std::string text) { reports_.push_back(std::move(text)); },
                        .own_thread = false},
                       clock_};
};

TEST_F(FilterCallerTest, PassesTheAnswersOn) {
  takes_ = milliseconds(1);
  EXPECT_THAT(ask(), ElementsAre(true, false, true));
  EXPECT_EQ(status().filter_calls, 1U);
  EXPECT_EQ(status().filter_overruns, 0U);
  EXPECT_THAT(reports_, IsEmpty());
}

TEST_F(FilterCallerTest, AnExceptionIsANoToAll) {
  throws_ = true;
  EXPECT_THAT(ask(), Each(false));
  EXPECT_THAT(ask(), Each(false));
  EXPECT_EQ(status().filter_failures, 2U);
  EXPECT_FALSE(status().is_filter_bypassed);
  EXPECT_THAT(take_reports(), ElementsAre(HasSubstr("threw an exception"))) << "the first in a row";
  throws_ = false;
  EXPECT_THAT(ask(), ElementsAre(true, false, true));
  throws_ = true;
  EXPECT_THAT(ask(), Each(false));
  EXPECT_THAT(take_reports(), ElementsAre(HasSubstr("threw an exception")));
}

TEST_F(FilterCallerTest, ASlowCallIsReportedAndItsAnswerHolds) {
  takes_ = microseconds(1500);
  EXPECT_THAT(ask(), ElementsAre(true, false, true));
  EXPECT_THAT(take_reports(), ElementsAre(AllOf(HasSubstr("1500 us"), HasSubstr("limit is 1000 us"))));
  EXPECT_THAT(ask(), ElementsAre(true, false, true));
  EXPECT_THAT(take_reports(), IsEmpty()) << "the first in a row";
  EXPECT_EQ(status().filter_overruns, 2U);
  EXPECT_FALSE(status().is_filter_bypassed);
}

TEST_F(FilterCallerTest, AFilterThatIsSlowAgainAndAgainIsBypassedForAWhile) {
  takes_ = milliseconds(2);
  for (std::uint32_t i = 0; i < FilterCaller::kOverrunsInARow; ++i) {
    EXPECT_FALSE(status().is_filter_bypassed);
    EXPECT_THAT(ask(), ElementsAre(true, false, true));
  }
  EXPECT_THAT(take_reports(), ElementsAre(HasSubstr("took 2000 us"), HasSubstr("bypassed for 1 s")));
  // Each time it is tried and still slow, the wait doubles, up to a minute.
  int calls = calls_;
  for (const int wait : {1, 2, 4, 8, 16, 32, 60, 60}) {
    EXPECT_TRUE(status().is_filter_bypassed);
    clock_.advance(seconds(wait) - milliseconds(1));
    EXPECT_THAT(ask(), Each(false)) << "it may be there to keep blocks from being stored";
    EXPECT_EQ(calls_, calls);
    clock_.advance(milliseconds(1));
    EXPECT_FALSE(status().is_filter_bypassed);
    EXPECT_THAT(ask(), ElementsAre(true, false, true)) << "the answer holds";
    EXPECT_EQ(calls_, ++calls);
  }
  (void)take_reports();
  clock_.advance(seconds(60));
  takes_ = Duration::zero();
  EXPECT_THAT(ask(), ElementsAre(true, false, true));
  EXPECT_THAT(take_reports(), ElementsAre(HasSubstr("called again")));
  takes_ = milliseconds(2);
  EXPECT_THAT(ask(), ElementsAre(true, false, true));
  EXPECT_FALSE(status().is_filter_bypassed) << "it has eight calls again";
}

}  // namespace
}  // namespace cairn
