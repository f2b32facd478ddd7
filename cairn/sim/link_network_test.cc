#include "cairn/sim/link_network.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <random>
#include <vector>

namespace cairn::sim {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using ::testing::ElementsAre;

constexpr std::uint64_t kMegabyte = 1'000'000;
constexpr LinkOptions kOneGigabyte{.bytes_per_second = 1'000'000'000};

struct Arrival {
  int user;
  std::uint64_t transfer;
  TimePoint at;
  friend bool operator==(const Arrival&, const Arrival&) = default;
};

// Records arrivals, and may start further transfers.
class TestUser final : public LinkUser {
 public:
  TestUser(LinkNetwork& network, int number, std::vector<Arrival>& arrivals)
      : network_(&network), number_(number), arrivals_(&arrivals) {}
  void on_arrived(TransferId transfer) override {
    arrivals_->push_back({number_, static_cast<std::uint64_t>(transfer), network_->now()});
    if (then) {
      then();
    }
  }

  std::function<void()> then;

 private:
  LinkNetwork* network_;
  int number_;
  std::vector<Arrival>* arrivals_;
};

class LinkNetworkTest : public ::testing::Test {
 protected:
  LinkNetwork network;
  std::vector<Arrival> arrivals;
  TestUser a{network, 0, arrivals};
  TestUser b{network, 1, arrivals};
};

TEST_F(LinkNetworkTest, TwoWorkersShareALink) {
  const LinkId link = *network.add_link(kOneGigabyte);
  network.start(link, kMegabyte, a);
  EXPECT_EQ(network.next_arrival(), milliseconds(1));
  network.advance_to(microseconds(500));
  network.start(link, kMegabyte, b);
  EXPECT_EQ(network.next_arrival_of(link, a), microseconds(1500));
  EXPECT_EQ(network.next_arrival_of(link, b), milliseconds(2));
  EXPECT_EQ(network.in_flight(), 2U);
  network.advance_to(milliseconds(2));
  EXPECT_THAT(arrivals, ElementsAre(Arrival{0, 0, microseconds(1500)}, Arrival{1, 1, milliseconds(2)}));
  EXPECT_EQ(network.in_flight(), 0U);
  EXPECT_EQ(network.next_arrival(), std::nullopt);
  EXPECT_EQ(network.stats(link).bytes, 2 * kMegabyte);
}

TEST_F(LinkNetworkTest, ATransferStartedOnArrivalBeginsAtThatMoment) {
  const LinkId first = *network.add_link(kOneGigabyte);
  const LinkId second = *network.add_link(kOneGigabyte);
  a.then = [&] {
    a.then = nullptr;
    network.start(second, kMegabyte, a);
  };
  network.start(first, kMegabyte, a);
  network.start(second, 3 * kMegabyte, b);
  network.advance_to(milliseconds(100));  // far beyond both hops
  // The second hop shares its link from 1 ms on; then 2 MB of b's transfer are left.
  EXPECT_THAT(arrivals, ElementsAre(Arrival{0, 0, milliseconds(1)}, Arrival{0, 2, milliseconds(3)},
                                    Arrival{1, 1, milliseconds(4)}));
  EXPECT_EQ(network.now(), milliseconds(100));
}

TEST_F(LinkNetworkTest, SimultaneousArrivalsComeInTheOrderOfTheirStarts) {
  const LinkId first = *network.add_link(kOneGigabyte);
  const LinkId second = *network.add_link({.bytes_per_second = 1'000'000'000, .discipline = LinkDiscipline::kInOrder});
  network.start(second, kMegabyte, b);
  network.start(first, kMegabyte, a);
  network.start(*network.add_link({.latency = milliseconds(1)}), kMegabyte, b);
  network.advance_to(milliseconds(1));
  EXPECT_THAT(arrivals, ElementsAre(Arrival{1, 0, milliseconds(1)}, Arrival{0, 1, milliseconds(1)},
                                    Arrival{1, 2, milliseconds(1)}));
}

TEST_F(LinkNetworkTest, TimeDoesNotGoBack) {
  const LinkId link = *network.add_link(kOneGigabyte);
  network.advance_to(milliseconds(5));
  network.advance_to(milliseconds(3));
  EXPECT_EQ(network.now(), milliseconds(5));
  network.start(link, kMegabyte, a);
  EXPECT_EQ(network.next_arrival(), milliseconds(6));
}

TEST_F(LinkNetworkTest, AUserThatLeftIsNotNotifiedAndItsBytesStillTakeTheirShare) {
  const LinkId link = *network.add_link(kOneGigabyte);
  network.start(link, kMegabyte, a);
  network.start(link, kMegabyte, b);
  network.leave(a);
  network.advance_to(milliseconds(10));
  EXPECT_THAT(arrivals, ElementsAre(Arrival{1, 1, milliseconds(2)}));
  EXPECT_EQ(network.stats(link).bytes, 2 * kMegabyte);
}

TEST_F(LinkNetworkTest, TheSizeOfTimeStepsMakesNoDifference) {
  const auto run = [](std::uint64_t steps) {
    std::vector<Arrival> seen;
    LinkNetwork many;
    TestUser user(many, 0, seen);
    std::mt19937_64 random(42);
    std::vector<LinkId> links;
    for (int i = 0; i < 5; ++i) {
      links.push_back(*many.add_link({.bytes_per_second = 1'000'000 + random() % 1'000'000'000,
                                      .discipline = i % 2 == 0 ? LinkDiscipline::kShared : LinkDiscipline::kInOrder,
                                      .latency = Duration(random() % 1000)}));
    }
    std::size_t left = 500;
    user.then = [&] {
      if (left > 0) {
        --left;
        many.start(links[left % links.size()], 1 + left * 7919 % 100'000, user);
      }
    };
    for (const LinkId link : links) {
      many.start(link, 1000, user);
      many.start(link, 1000, user);
    }
    for (std::uint64_t i = 1; i <= steps; ++i) {
      many.advance_to(TimePoint(static_cast<TimePoint::rep>(100'000'000'000 / steps * i)));
    }
    EXPECT_EQ(many.in_flight(), 0U);
    return seen;
  };
  const std::vector<Arrival> at_once = run(1);
  EXPECT_EQ(at_once.size(), 510U);
  EXPECT_EQ(run(1000), at_once);
  EXPECT_EQ(run(100'000), at_once);
}

}  // namespace
}  // namespace cairn::sim
