// A single link: the figures of the original, comparison with a simple model of processor sharing, and invariants.
#include "cairn/sim/link.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

namespace cairn::sim {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::uint64_t kMegabyte = 1'000'000;

struct Started {
  TimePoint at;
  std::uint64_t bytes;
};
// Transfer id and arrival.
using Arrivals = std::vector<std::pair<std::uint64_t, TimePoint>>;

std::unique_ptr<Link> make(double gigabytes_per_second, LinkDiscipline discipline = LinkDiscipline::kShared,
                           Duration latency = Duration(0)) {
  return *Link::create({.bytes_per_second = from_gigabytes_per_second(gigabytes_per_second),
                        .discipline = discipline,
                        .latency = latency});
}

// Starts the transfers, which are in order of time, and waits for the last one.
Arrivals run(Link& link, const std::vector<Started>& transfers) {
  Arrivals arrivals;
  const auto take_until = [&](TimePoint until) {
    for (auto next = link.next_arrival(); next && next->at <= until; next = link.next_arrival()) {
      const Link::Arrival taken = link.take_arrival();
      EXPECT_EQ(taken.at, next->at);
      arrivals.emplace_back(static_cast<std::uint64_t>(taken.transfer.id), taken.at);
    }
  };
  std::uint64_t id = 0;
  for (const Started& transfer : transfers) {
    take_until(transfer.at);
    link.start(transfer.at, {.id = TransferId{id++}, .bytes = transfer.bytes});
  }
  take_until(TimePoint::max());
  return arrivals;
}

TEST(LinkTest, SharesItsRateAmongTransfersInFlight) {
  EXPECT_THAT(run(*make(1), {{TimePoint(0), kMegabyte}}), ElementsAre(std::pair(0U, milliseconds(1))));
  EXPECT_THAT(run(*make(1), {{TimePoint(0), kMegabyte}, {TimePoint(0), kMegabyte}}),
              ElementsAre(std::pair(0U, milliseconds(2)), std::pair(1U, milliseconds(2))));
  EXPECT_THAT(run(*make(1), {{TimePoint(0), kMegabyte}, {microseconds(500), kMegabyte}}),
              ElementsAre(std::pair(0U, microseconds(1500)), std::pair(1U, milliseconds(2))));
  const Arrivals ten = run(*make(1), std::vector<Started>(10, {TimePoint(0), kMegabyte}));
  for (std::uint64_t i = 0; i < 10; ++i) {
    EXPECT_EQ(ten[i], std::pair(i, TimePoint(milliseconds(10))));
  }
}

TEST(LinkTest, ASmallTransferOvertakesALargeOneOnASharedLink) {
  const std::vector<Started> transfers{{TimePoint(0), 3 * kMegabyte}, {milliseconds(1), kMegabyte}};
  EXPECT_THAT(run(*make(1), transfers), ElementsAre(std::pair(1U, milliseconds(3)), std::pair(0U, milliseconds(4))));
  EXPECT_THAT(run(*make(1, LinkDiscipline::kInOrder), transfers),
              ElementsAre(std::pair(0U, milliseconds(3)), std::pair(1U, milliseconds(4))));
}

TEST(LinkTest, EndsInOneNanosecondArriveInTheOrderOfTheirStarts) {
  // At 3 bytes a nanosecond the second is sent at 1998.33 ns, the first at 1998.67.
  EXPECT_THAT(run(*make(3), {{TimePoint(0), 3000}, {TimePoint(1), 2996}}),
              ElementsAre(std::pair(0U, nanoseconds(1999)), std::pair(1U, nanoseconds(1999))));
}

TEST(LinkTest, WithoutALimitEverythingArrivesAtOnce) {
  for (const LinkDiscipline discipline : {LinkDiscipline::kShared, LinkDiscipline::kInOrder}) {
    EXPECT_THAT(run(*make(0, discipline), {{microseconds(7), kMegabyte}, {microseconds(7), 5}}),
                ElementsAre(std::pair(0U, microseconds(7)), std::pair(1U, microseconds(7))));
    EXPECT_THAT(run(*make(1, discipline), {{TimePoint(0), kMegabyte}, {microseconds(7), 0}}),
                ElementsAre(std::pair(1U, microseconds(7)), std::pair(0U, milliseconds(1))));
  }
}

TEST(LinkTest, InOrderTheNextBeginsWhenTheLastIsSent) {
  EXPECT_THAT(
      run(*make(2, LinkDiscipline::kInOrder),
          {{TimePoint(0), kMegabyte}, {TimePoint(0), kMegabyte}, {milliseconds(5), kMegabyte}}),
      ElementsAre(std::pair(0U, microseconds(500)), std::pair(1U, milliseconds(1)), std::pair(2U, microseconds(5500))));
}

TEST(LinkTest, LatencyDelaysWithoutOccupyingTheLink) {
  for (const LinkDiscipline discipline : {LinkDiscipline::kShared, LinkDiscipline::kInOrder}) {
    // The second is sent during the latency of the first.
    EXPECT_THAT(run(*make(1, discipline, milliseconds(10)), {{TimePoint(0), kMegabyte}, {milliseconds(1), kMegabyte}}),
                ElementsAre(std::pair(0U, milliseconds(11)), std::pair(1U, milliseconds(12))));
    EXPECT_THAT(run(*make(0, discipline, milliseconds(10)), {{TimePoint(0), 1}, {TimePoint(3), 1}}),
                ElementsAre(std::pair(0U, milliseconds(10)), std::pair(1U, milliseconds(10) + nanoseconds(3))));
  }
}

TEST(LinkTest, PredictsTheNextArrivalOfEachUser) {
  class Nobody final : public LinkUser {
    void on_arrived(TransferId /*transfer*/) override {}
  };
  Nobody first;
  Nobody second;
  Nobody third;
  for (const LinkDiscipline discipline : {LinkDiscipline::kShared, LinkDiscipline::kInOrder}) {
    const std::unique_ptr<Link> link = make(1, discipline, milliseconds(1));
    link->start(TimePoint(0), {.id = TransferId{0}, .user = &first, .bytes = kMegabyte});
    link->start(TimePoint(0), {.id = TransferId{1}, .user = &second, .bytes = 2 * kMegabyte});
    const TimePoint of_first = discipline == LinkDiscipline::kShared ? milliseconds(3) : milliseconds(2);
    EXPECT_EQ(link->next_arrival_of(first), of_first);
    EXPECT_EQ(link->next_arrival_of(second), milliseconds(4));
    EXPECT_EQ(link->next_arrival_of(third), std::nullopt);
    EXPECT_EQ(link->take_arrival().transfer.user, &first);
    EXPECT_EQ(link->next_arrival_of(first), std::nullopt);
    link->forget(second);
    EXPECT_EQ(link->next_arrival_of(second), std::nullopt);
    const Link::Arrival last = link->take_arrival();
    EXPECT_EQ(last.transfer.user, nullptr);
    EXPECT_EQ(last.at, milliseconds(4));
  }
}

TEST(LinkTest, RejectsBadOptions) {
  EXPECT_THAT(Link::create({.bytes_per_second = Link::kMaxBytesPerSecond + 1}).error().message,
              HasSubstr("too fast; give at most 1125899906842624"));
  EXPECT_THAT(Link::create({.latency = Duration(-1)}).error().message, HasSubstr("latency of a link is -1 ns"));
  EXPECT_EQ(from_gigabytes_per_second(14.0), 14'000'000'000U);
  EXPECT_EQ(from_gigabytes_per_second(0), 0U);
  EXPECT_EQ(from_gigabytes_per_second(-3), 0U);
  EXPECT_EQ(from_gigabytes_per_second(1e-12), 1U);
}

TEST(LinkTest, HandlesTheLargestNumbersItAccepts) {
  for (const LinkDiscipline discipline : {LinkDiscipline::kShared, LinkDiscipline::kInOrder}) {
    const std::unique_ptr<Link> slow = *Link::create({.bytes_per_second = 1 << 20, .discipline = discipline});
    const std::vector<Started> transfers(4, {TimePoint(0), Link::kMaxTransferBytes});
    EXPECT_EQ(run(*slow, transfers).back().second, std::chrono::seconds(4LL << 30));
    const std::unique_ptr<Link> fast =
        *Link::create({.bytes_per_second = Link::kMaxBytesPerSecond, .discipline = discipline});
    EXPECT_EQ(run(*fast, transfers).back().second, std::chrono::seconds(4));
  }
}

// A simple model of processor sharing: from change to change, every transfer gets its share.
std::vector<long double> shared_by_hand(long double bytes_per_ns, const std::vector<Started>& transfers) {
  std::vector<long double> left(transfers.size(), 0);
  std::vector<long double> ends(transfers.size(), -1);
  std::vector<std::size_t> sending;
  long double now = 0;
  std::size_t next = 0;
  while (next < transfers.size() || !sending.empty()) {
    long double step = HUGE_VALL;
    const long double share = sending.empty() ? 0 : bytes_per_ns / static_cast<long double>(sending.size());
    for (const std::size_t i : sending) {
      step = std::min(step, left[i] / share);
    }
    const bool starts = next < transfers.size() && static_cast<long double>(transfers[next].at.count()) <= now + step;
    if (starts) {
      step = static_cast<long double>(transfers[next].at.count()) - now;
    }
    now += step;
    for (const std::size_t i : sending) {
      left[i] -= share * step;
    }
    std::erase_if(sending, [&](std::size_t i) {
      const bool over = left[i] < 1e-6L;
      ends[i] = over ? now : ends[i];
      return over;
    });
    if (starts) {
      left[next] = static_cast<long double>(transfers[next].bytes);
      sending.push_back(next++);
    }
  }
  return ends;
}

TEST(LinkTest, EqualsTheSimpleModel) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const std::uint64_t rate = 1 + random() % 20'000'000'000;
    const std::uint64_t spread = 1 + random() % 1'000'000;
    std::vector<Started> transfers;
    std::uint64_t bytes = 0;
    TimePoint at(0);
    for (std::size_t i = random() % 60 + 1; i > 0; --i) {
      at += Duration(random() % 3 == 0 ? 0 : random() % spread);
      transfers.push_back({at, 1 + random() % 1'000'000});
      bytes += transfers.back().bytes;
    }
    const std::unique_ptr<Link> link = *Link::create({.bytes_per_second = rate});
    const Arrivals arrivals = run(*link, transfers);
    const std::vector<long double> by_hand = shared_by_hand(static_cast<long double>(rate) / 1e9L, transfers);
    ASSERT_EQ(arrivals.size(), transfers.size());
    for (const auto& [id, arrival] : arrivals) {
      const auto exact = by_hand[id];
      // Never before its end, and less than a nanosecond later; the model itself has rounding errors.
      const long double doubt = 0.002L + exact * 1e-12L;
      ASSERT_GE(static_cast<long double>(arrival.count()), exact - doubt) << id;
      ASSERT_LT(static_cast<long double>(arrival.count()), exact + 1 + doubt) << id;
    }
    // All bytes arrive, and the whole rate is used while there are transfers.
    EXPECT_EQ(link->stats().bytes, bytes);
    EXPECT_EQ(link->stats().transfers, transfers.size());
    const auto sent = static_cast<long double>(link->stats().busy.count()) * static_cast<long double>(rate) / 1e9L;
    EXPECT_NEAR(static_cast<double>(sent), static_cast<double>(bytes), static_cast<double>(rate) / 1e9 + 1.0);
  }
}

TEST(LinkTest, InOrderTakesTheSumOfTheTransfersAhead) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const std::uint64_t rate = 1 + random() % 20'000'000'000;
    std::vector<Started> transfers;
    TimePoint at(0);
    for (std::size_t i = random() % 60 + 1; i > 0; --i) {
      at += Duration(random() % 100'000);
      transfers.push_back({at, 1 + random() % 1'000'000});
    }
    const std::unique_ptr<Link> link =
        *Link::create({.bytes_per_second = rate, .discipline = LinkDiscipline::kInOrder, .latency = Duration(77)});
    const Arrivals arrivals = run(*link, transfers);
    long double free_at = 0;
    std::uint64_t bytes = 0;
    for (std::size_t i = 0; i < transfers.size(); ++i) {
      free_at = std::max(free_at, static_cast<long double>(transfers[i].at.count())) +
                static_cast<long double>(transfers[i].bytes) * 1e9L / static_cast<long double>(rate);
      ASSERT_EQ(arrivals[i].first, i);
      ASSERT_NEAR(static_cast<double>(static_cast<long double>(arrivals[i].second.count()) - free_at - 77), 0.5, 0.51);
      bytes += transfers[i].bytes;
    }
    EXPECT_EQ(link->stats().bytes, bytes);
  }
}

}  // namespace
}  // namespace cairn::sim
