#include "cairn/evict/admission.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "cairn/evict/counting_new_testing.h"
#include "cairn/evict/fake_blocks_testing.h"

namespace cairn {
namespace {

using std::chrono::hours;
using std::chrono::minutes;
using std::chrono::seconds;

Admission offer(AdmissionFilter& filter, std::uint64_t name, TimePoint now = {}, std::uint32_t sequence = 10) {
  return filter.offer(root_key(name), sequence, now);
}
void use(AdmissionFilter& filter, std::uint64_t name) {
  const BlockKey key = root_key(name);
  filter.used({&key, 1});
}
AdmissionFilter make(const AdmissionOptions& options) { return *AdmissionFilter::create(options, TimePoint{}); }

TEST(WriteBudgetTest, HoldsAnHourAndFillsEvenly) {
  WriteBudget budget(2'400, hours(5));
  EXPECT_DOUBLE_EQ(budget.fullness(hours(5)), 1);
  EXPECT_FALSE(budget.take(101, hours(5)));
  EXPECT_TRUE(budget.take(100, hours(5)));
  EXPECT_FALSE(budget.take(1, hours(5)));
  EXPECT_DOUBLE_EQ(budget.fullness(hours(5) + minutes(15)), 0.25);
  EXPECT_TRUE(budget.take(25, hours(5) + minutes(15)));
  EXPECT_DOUBLE_EQ(budget.fullness(hours(500)), 1) << "a quiet week does not accumulate budget";
}

// Second by second, with whole numbers.
TEST(WriteBudgetTest, AgreesWithABucketThatIsFilledDropByDrop) {
  constexpr std::uint64_t kPerSecond = 7;
  WriteBudget budget(kPerSecond * 86'400, seconds(0));
  std::uint64_t naive = kPerSecond * 3'600;
  std::mt19937 random(3);
  std::uint64_t taken = 0;
  for (int second = 1; second < 20'000; ++second) {
    naive = std::min(naive + kPerSecond, kPerSecond * 3'600);
    const std::uint64_t bytes = 1 + random() % 40;
    if (bytes == naive) {
      continue;  // rounding may decide
    }
    const bool there = bytes < naive;
    ASSERT_EQ(budget.take(bytes, seconds(second)), there) << "second " << second;
    naive -= there ? bytes : 0;
    taken += there ? bytes : 0;
  }
  EXPECT_NEAR(static_cast<double>(taken), kPerSecond * (3'600 + 20'000.0), 0.01 * kPerSecond * 23'600);
}

TEST(AdmissionFilterTest, SaysWhatIsWrongWithItsOptions) {
  const auto error = [](const AdmissionOptions& options) {
    return AdmissionFilter::create(options, {}).error().message;
  };
  EXPECT_NE(error({}).find("the tier has 0 blocks"), std::string::npos);
  EXPECT_NE(error({.capacity = 1, .least_uses = 5}).find("up to 4"), std::string::npos);
  EXPECT_NE(error({.capacity = 1, .least_chance = 1}).find("from 0 to below 1"), std::string::npos);
  EXPECT_NE(error({.capacity = 1, .bytes_per_day = 1}).find("block_bytes is 0"), std::string::npos);
}

TEST(AdmissionFilterTest, EveryVerdictHasANameOfItsOwn) {
  for (const Admission a : kAllAdmissions) {
    EXPECT_NE(to_string(a), "unknown");
    EXPECT_EQ(std::ranges::count(kAllAdmissions, to_string(a), [](Admission b) { return to_string(b); }), 1);
  }
}

TEST(AdmissionFilterTest, RefusesShortSequences) {
  AdmissionFilter filter = make({.capacity = 100, .least_blocks = 3});
  use(filter, 1);
  EXPECT_EQ(offer(filter, 1, {}, 2), Admission::kTooShort);
  EXPECT_EQ(offer(filter, 1, {}, 3), Admission::kAdmitted);
  EXPECT_EQ(filter.count(Admission::kTooShort), 1U);
  EXPECT_EQ(filter.count(Admission::kAdmitted), 1U);
}

TEST(AdmissionFilterTest, RefusesWhatWasNotUsedOftenEnough) {
  AdmissionFilter filter = make({.capacity = 100, .least_uses = 2});
  use(filter, 1);
  EXPECT_EQ(offer(filter, 1), Admission::kNeverSeenTwice);
  use(filter, 1);
  EXPECT_EQ(offer(filter, 1), Admission::kAdmitted);
  EXPECT_EQ(offer(filter, 2), Admission::kNeverSeenTwice) << "unknown block";
}

TEST(AdmissionFilterTest, LearnsWhatIsNeverReadAgain) {
  AdmissionFilter filter = make({.capacity = 1'000, .least_chance = 0.02});
  std::uint64_t name = 1;
  use(filter, name);
  EXPECT_EQ(offer(filter, name), Admission::kAdmitted) << "before anything was learned";
  for (int i = 0; i < 40'000; ++i) {
    use(filter, ++name);
    if (i % 4 == 0) {  // a hot one beside the flood
      use(filter, 1'000'000 + i / 4 % 50);
    }
  }
  EXPECT_EQ(offer(filter, name), Admission::kWouldNotLast);
  EXPECT_EQ(offer(filter, 1'000'000), Admission::kAdmitted);
  EXPECT_LT(filter.chance(1, 100), 0.02);
  EXPECT_GT(filter.chance(4, 100), 0.5);
}

TEST(AdmissionFilterTest, LearnsThatTheTierIsTooSmallToKeepThemThatLong) {
  // All blocks come back, after 12,800 uses. A tier that writes every use keeps a block for at most 1,600 uses; it
  // keeps blocks long enough if it writes one in twenty.
  for (const int written_each : {1, 20}) {
    AdmissionFilter filter = make({.capacity = 1'600, .least_chance = 0.02});
    Admission last = Admission::kAdmitted;
    for (int i = 0; i < 100'000; ++i) {
      use(filter, 1 + i % 12'800);
      if (i % written_each == 0) {
        last = offer(filter, 1 + i % 12'800);
      }
    }
    EXPECT_EQ(last == Admission::kAdmitted, written_each == 20) << written_each;
  }
}

TEST(AdmissionFilterTest, BlocksBeforeAnAdmittedBlockAreAdmitted) {
  AdmissionFilter filter = make({.capacity = 100, .least_uses = 2});
  const BlockKey head = root_key(1);
  const BlockKey middle = child_key(head, 2);
  const BlockKey leaf = child_key(middle, 3);
  filter.used(std::vector{head, middle, leaf, leaf});
  EXPECT_EQ(filter.offer(middle, 3, {}), Admission::kNeverSeenTwice);
  EXPECT_EQ(filter.offer(leaf, 3, {}), Admission::kAdmitted);
  EXPECT_EQ(filter.offer(middle, 3, {}), Admission::kAdmitted);
  EXPECT_EQ(filter.offer(head, 3, {}), Admission::kAdmitted);
  EXPECT_EQ(filter.offer(root_key(9), 3, {}), Admission::kNeverSeenTwice);
}

TEST(AdmissionFilterTest, KeepsToItsBudgetAndPrefersTheLikelyAsItRunsOut) {
  constexpr std::uint64_t kBytes = 1'000;
  AdmissionFilter filter =
      make({.capacity = 1'000, .least_chance = 0, .bytes_per_day = 24 * 100 * kBytes, .block_bytes = kBytes});
  for (int i = 0; i < 20'000; ++i) {  // names below 100 come back again and again, the others never
    use(filter, i % 2 == 0 ? i / 2 % 100 : 1'000 + i);
  }
  std::uint64_t hot = 0;
  std::uint64_t cold = 0;
  for (int i = 0; i < 400; ++i) {
    hot += offer(filter, i % 100, minutes(i)) == Admission::kAdmitted ? 1 : 0;
    for (int j = 0; j < 4; ++j) {
      cold += offer(filter, 19'900 + j, minutes(i)) == Admission::kAdmitted ? 1 : 0;
    }
  }
  EXPECT_LE(hot + cold, 100U + 100 * 400 / 60 + 1);
  EXPECT_GT(hot, 350U);
  EXPECT_EQ(filter.count(Admission::kOverBudget), 5 * 400 - hot - cold);
}

// The probability, counted from a list of all uses.
TEST(AdmissionFilterTest, AgreesWithCountingByHand) {
  constexpr std::uint32_t kCapacity = 256;
  AdmissionFilter filter = make({.capacity = kCapacity, .least_chance = 0});
  std::map<std::uint64_t, std::pair<std::uint64_t, std::uint32_t>> last;  // use and how many
  std::array<double, 4> began{};
  std::array<std::vector<std::uint64_t>, 4> ages;
  std::mt19937 random(11);
  for (std::uint64_t now = 1; now <= 8'000; ++now) {
    const std::uint64_t name = random() % 3 == 0 ? 10'000 + now : random() % 400;
    use(filter, name);
    std::uint32_t uses = 1;
    if (const auto past = last.find(name); past != last.end() && now - past->second.first <= 16 * kCapacity) {
      ages[past->second.second - 1].push_back(now - past->second.first);
      uses = std::min(past->second.second + 1, 4U);
    }
    last[name] = {now, uses};
    began[uses - 1] += 1;
  }
  for (std::uint32_t uses = 1; uses <= 4; ++uses) {
    const double returned = static_cast<double>(ages[uses - 1].size());
    // Nothing was written yet, so the tier seems to keep everything. The prior adds 200 uses, 60 of which return.
    EXPECT_NEAR(filter.chance(uses, 0), (returned + 60) / (began[uses - 1] + 200), 0.01) << uses;
    const double later =
        static_cast<double>(std::ranges::count_if(ages[uses - 1], [](auto age) { return age >= 512; }));
    // The bucket of 512 begins there: a quarter of the 41 buckets of the prior lies below it.
    const double supposed = 60.0 * (41 - 29) / 41;
    EXPECT_NEAR(filter.chance(uses, 512),
                (later + supposed) / (began[uses - 1] + 200 - (returned - later) - (60 - supposed)), 0.01)
        << uses;
  }
}

TEST(AdmissionFilterTest, OnlyTheBudgetRefusesADemand) {
  AdmissionFilter filter = make(
      {.capacity = 100, .least_uses = 2, .least_blocks = 9, .bytes_per_day = 24 * 2 * 1'000, .block_bytes = 1'000});
  EXPECT_EQ(filter.demand(root_key(1), {}), Admission::kAdmitted);
  EXPECT_EQ(filter.demand(root_key(2), {}), Admission::kAdmitted);
  EXPECT_EQ(filter.demand(root_key(3), {}), Admission::kOverBudget);
  EXPECT_EQ(filter.demand(root_key(3), minutes(30)), Admission::kAdmitted);
  EXPECT_EQ(filter.count(Admission::kAdmitted), 3U);
  EXPECT_EQ(filter.count(Admission::kOverBudget), 1U);
}

TEST(AdmissionFilterTest, AllocatesNothingAndIsBounded) {
  AdmissionFilter filter = make({.capacity = 100'000, .bytes_per_day = 1'000'000'000, .block_bytes = 1'000});
  const std::uint64_t before = allocation_count();
  for (std::uint64_t name = 0; name < 10'000; ++name) {
    use(filter, name);
    (void)offer(filter, name / 2, seconds(name));
  }
  EXPECT_EQ(allocation_count(), before);
  EXPECT_LE(filter.bytes(), 20U * 100'000);
}

}  // namespace
}  // namespace cairn
