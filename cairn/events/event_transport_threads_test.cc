// Publisher and receiver over real sockets, which have threads of libzmq, against each other and against peers that misbehave.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cairn/base/clock.h"
#include "cairn/events/event_publisher.h"
#include "cairn/events/event_receiver.h"
#include "cairn/events/router_testing.h"
#include "cairn/events/zmq_socket.h"

namespace cairn {
namespace {

using events_testing::TestRouter;
using internal::sequence_frame;
using internal::sequence_of;
using internal::ZmqContext;
using internal::ZmqKind;
using internal::ZmqSocket;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Kind = ReceivedEvents::Kind;

constexpr const char* kAnyPort = "tcp://127.0.0.1:*";
constexpr Duration kStep = std::chrono::milliseconds(5);
constexpr int kMostSteps = 4000;

KvEvent stored(std::uint64_t hash) {
  return {.data = KvStored{.hashes = {hash}, .token_ids = {static_cast<Token>(hash)}, .block_size = 1}};
}
std::string payload_of(std::uint64_t hash) {
  std::string payload;
  append_vllm({.time = 1, .events = {stored(hash)}, .dp_rank = 0}, payload);
  return payload;
}

// What a receiver has handed out.
struct Follower {
  explicit Follower(const EventReceiver::Options& options, const Clock& clock = steady_clock())
      : receiver(*EventReceiver::create(options, clock)) {}

  // Receives until `is_done`; calls `meanwhile` all the time, for peers that have no thread.
  void until(const std::function<bool()>& is_done, const std::function<void()>& meanwhile = [] {}) {
    for (int step = 0; step < kMostSteps && !is_done(); ++step) {
      meanwhile();
      receiver->receive(all);
      if (!is_done()) {
        ASSERT_TRUE(receiver->wait(kStep));
      }
    }
    ASSERT_TRUE(is_done()) << "nothing came for long";
  }
  [[nodiscard]] std::vector<Kind> kinds() const {
    std::vector<Kind> kinds;
    for (const ReceivedEvents& received : all) {
      kinds.push_back(received.kind);
    }
    return kinds;
  }

  std::unique_ptr<EventReceiver> receiver;
  std::vector<ReceivedEvents> all;
};

// --- Cairn's publisher ---

class EventPublisherTest : public ::testing::Test {
 protected:
  std::unique_ptr<EventPublisher> make(std::size_t buffer = 100) {
    return *EventPublisher::create(
        {.endpoint = kAnyPort, .replay_endpoint = kAnyPort, .topic = "kv", .first_sequence = 1000, .buffer = buffer});
  }
  static EventReceiver::Options options_of(const EventPublisher& publisher) {
    return {.endpoint = publisher.status().endpoint,
            .replay_endpoint = publisher.status().replay_endpoint,
            .topic = "kv",
            .replay_limit = std::chrono::seconds(60),
            .check = std::chrono::seconds(60)};
  }
  void publish(EventPublisher& publisher, std::uint64_t hash) {
    std::vector<KvEvent> events{stored(hash)};
    state_.push_back(events[0]);
    publisher.publish(0, events, 1);
  }
  std::function<void()> answering(EventPublisher& publisher) {
    return [this, &publisher] {
      publisher.answer_replays(
          [this] {
            std::vector<KvEvent> events{{.data = KvCleared{}}};
            events.insert(events.end(), state_.begin(), state_.end());
            return std::vector<EventPublisher::RankSnapshot>{{.dp_rank = 0, .events = events}};
          },
          1);
    };
  }

  std::vector<KvEvent> state_;
};

TEST_F(EventPublisherTest, ALateJoinerGetsASnapshotAndThenEverything) {
  const auto publisher = make();
  for (std::uint64_t hash = 1; hash <= 3; ++hash) {
    publish(*publisher, hash);
  }
  Follower follower(options_of(*publisher));
  follower.until([&] { return !follower.all.empty(); }, answering(*publisher));
  EXPECT_EQ(follower.all[0].kind, Kind::kSnapshot);
  EXPECT_EQ(follower.all[0].sequence, 1002U) << "the number of the latest batch";
  EXPECT_EQ(publisher->status().snapshots, 1U);
  // Messages are lost until the subscription has arrived; the receiver asks for them.
  std::uint64_t hash = 3;
  const auto send = answering(*publisher);
  follower.until([&] { return follower.all.size() > 3; },
                 [&] {
                   publish(*publisher, ++hash);
                   send();
                 });
  TestRouter router;
  std::uint64_t next = 1002;
  for (const ReceivedEvents& received : follower.all) {
    EXPECT_EQ(received.sequence, next++);
    router.apply(received.batch.events);
  }
  EXPECT_EQ(router.hashes().size(), next - 1000);
}

TEST_F(EventPublisherTest, TheRanksOfASnapshotReplaceTheStateOnce) {
  const auto publisher = make();
  Follower follower(options_of(*publisher));
  follower.until([&] { return follower.all.size() >= 2; },
                 [&] {
                   publisher->answer_replays(
                       [] {
                         const std::vector<KvEvent> events{{.data = KvCleared{}}, stored(1)};
                         return std::vector<EventPublisher::RankSnapshot>{{.dp_rank = 0, .events = events},
                                                                          {.dp_rank = 1, .events = events}};
                       },
                       1);
                 });
  EXPECT_THAT(follower.kinds(), ElementsAre(Kind::kSnapshot, Kind::kBatch));
  EXPECT_EQ(follower.all[1].batch.dp_rank, 1U);
}

TEST_F(EventPublisherTest, WhoWasAwayTooLongGetsASnapshotWithNumbersThatItHasNotSeen) {
  const auto publisher = make(2);
  for (std::uint64_t hash = 1; hash <= 2000; ++hash) {
    publish(*publisher, hash);
  }
  const auto context = *ZmqContext::create(ZmqContext::kDefaultLibrary);
  ZmqSocket dealer = *ZmqSocket::open(*context, {.kind = ZmqKind::kDealer});
  ASSERT_TRUE(dealer.connect(publisher->status().replay_endpoint));
  const auto replies_to = [&](std::uint64_t from) {
    EXPECT_TRUE(dealer.send({"", sequence_frame(from)}));
    std::vector<std::pair<std::uint64_t, std::size_t>> replies;
    const auto answer = answering(*publisher);
    for (int step = 0; step < kMostSteps; ++step) {
      answer();
      const ZmqSocket* sockets[] = {&dealer};
      EXPECT_TRUE(zmq_wait(sockets, -1, kStep));
      while (const auto frames = dealer.receive()) {
        EXPECT_EQ(frames->size(), 4U);
        const std::uint64_t sequence = *sequence_of((*frames)[2]);
        if (sequence == ~std::uint64_t{0}) {
          EXPECT_EQ((*frames)[1], "");
          EXPECT_EQ((*frames)[3], "");
          return replies;
        }
        EXPECT_EQ((*frames)[1], "kv");
        replies.emplace_back(sequence, decode_kv_events((*frames)[3])->events.size());
      }
    }
    ADD_FAILURE() << "the replay has no end";
    return replies;
  };
  EXPECT_THAT(replies_to(2998), ElementsAre(std::pair(2998, 1), std::pair(2999, 1))) << "from the buffer";
  EXPECT_THAT(replies_to(3000), ElementsAre()) << "nothing is missing";
  EXPECT_THAT(replies_to(2996), ElementsAre(std::pair(2997, 668), std::pair(2998, 668), std::pair(2999, 665)))
      << "larger batches, none with a number below the one that was asked for";
  EXPECT_THAT(replies_to(0),
              ElementsAre(std::pair(2996, 512), std::pair(2997, 512), std::pair(2998, 512), std::pair(2999, 465)));
}

TEST_F(EventPublisherTest, WrongRequestsAreCounted) {
  const auto publisher = make();
  const auto context = *ZmqContext::create(ZmqContext::kDefaultLibrary);
  ZmqSocket dealer = *ZmqSocket::open(*context, {.kind = ZmqKind::kDealer});
  ASSERT_TRUE(dealer.connect(publisher->status().replay_endpoint));
  ASSERT_TRUE(dealer.send({"hello"}));
  ASSERT_TRUE(dealer.send({"", "1234"}));
  ASSERT_TRUE(dealer.send({"", "a", "b", "c", "d", "e", "f", "g", "h", "i"}));
  const auto answer = answering(*publisher);
  for (int step = 0; step < kMostSteps && publisher->status().refused_replays < 3; ++step) {
    answer();
    const ZmqSocket* sockets[] = {publisher->replay_socket()};
    ASSERT_TRUE(zmq_wait(sockets, -1, kStep));
  }
  EXPECT_EQ(publisher->status().refused_replays, 3U);
}

TEST_F(EventPublisherTest, EndpointsThatCannotBeHadAreNamed) {
  const auto publisher = make();
  const auto busy = EventPublisher::create({.endpoint = publisher->status().endpoint});
  ASSERT_FALSE(busy);
  EXPECT_EQ(busy.error().code, ErrorCode::kIo);
  EXPECT_THAT(busy.error().message, HasSubstr("cannot listen on 'tcp://127.0.0.1:"));
  EXPECT_EQ(EventPublisher::create({.endpoint = "nonsense"}).error().code, ErrorCode::kInvalidArgument);
  const auto missing = EventPublisher::create({.library = "libnothing.so.9"});
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, ErrorCode::kUnavailable);
  EXPECT_THAT(missing.error().message, HasSubstr("install libzmq5"));
}

TEST(EndpointTest, PortsOfRanksFollowEachOther) {
  EXPECT_EQ(internal::endpoint_of_rank("tcp://*:5557", 0), "tcp://*:5557");
  EXPECT_EQ(internal::endpoint_of_rank("tcp://*:5557", 3), "tcp://*:5560");
  EXPECT_EQ(internal::endpoint_of_rank("tcp://[::]:5557", 1), "tcp://[::]:5558");
  EXPECT_EQ(internal::endpoint_of_rank("tcp://*:0", 3), "tcp://*:0");
  EXPECT_EQ(internal::endpoint_of_rank("tcp://127.0.0.1:*", 3), "tcp://127.0.0.1:*");
  EXPECT_EQ(internal::endpoint_of_rank("ipc:///run/events", 2), "ipc:///run/events_dp2");
  EXPECT_EQ(internal::endpoint_of_rank("", 2), "");
}

// --- the receiver, with a publisher that does as the test says ---

class EventReceiverTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(pub_.bind(kAnyPort));
    ASSERT_TRUE(router_.bind(kAnyPort));
  }
  EventReceiver::Options options() const {
    return {.endpoint = pub_.last_endpoint(),
            .replay_endpoint = router_.last_endpoint(),
            .replay_limit = std::chrono::seconds(10),
            .check = std::chrono::seconds(60)};
  }
  void send(std::uint64_t sequence) { ASSERT_TRUE(pub_.send({"", sequence_frame(sequence), payload_of(sequence)})); }
  // Answers requests with these batches, and the end.
  std::function<void()> replaying(std::vector<std::uint64_t> sequences, bool has_topic = true) {
    return [this, sequences, has_topic] {
      while (const auto request = router_.receive()) {
        asked_.push_back(*sequence_of(request->at(2)));
        for (const std::uint64_t sequence : sequences) {
          ASSERT_TRUE(has_topic ? router_.send({request->at(0), "", "", sequence_frame(sequence), payload_of(sequence)})
                                : router_.send({request->at(0), "", sequence_frame(sequence), payload_of(sequence)}));
        }
        ASSERT_TRUE(router_.send({request->at(0), "", "", sequence_frame(~std::uint64_t{0}), ""}));
      }
    };
  }
  // Sends batches from 100 on until one arrives: from then on none is lost. Returns the next number.
  std::uint64_t connect(Follower& follower) {
    std::uint64_t next = 100;
    const auto answer = replaying({});
    follower.until([&] { return !follower.all.empty(); },
                   [&] {
                     answer();
                     if (follower.receiver->counts().replays > 0 && !asked_.empty()) {
                       send(next++);
                     }
                   });
    follower.until([&] { return follower.all.back().sequence + 1 == next; }, answer);
    follower.all.clear();
    asked_.clear();
    return next;
  }

  std::unique_ptr<ZmqContext> context_ = *ZmqContext::create(ZmqContext::kDefaultLibrary);
  ZmqSocket pub_ = *ZmqSocket::open(*context_, {.kind = ZmqKind::kPub});
  ZmqSocket router_ = *ZmqSocket::open(*context_, {.kind = ZmqKind::kRouter});
  std::vector<std::uint64_t> asked_;
};

TEST_F(EventReceiverTest, FillsAGapFromTheReplay) {
  for (const bool has_topic : {true, false}) {  // false: before vLLM 0.26
    Follower follower(options());
    const std::uint64_t next = connect(follower);
    send(next);
    send(next + 3);  // two are missing
    send(next + 4);
    follower.until([&] { return follower.all.size() >= 5; },
                   replaying({next, next + 1, next + 2, next + 3}, has_topic));
    EXPECT_THAT(asked_, ElementsAre(next + 1));
    for (std::size_t i = 0; i < 5; ++i) {
      EXPECT_EQ(follower.all[i].kind, Kind::kBatch);
      EXPECT_EQ(follower.all[i].sequence, next + i);
    }
    EXPECT_EQ(follower.all.size(), 5U);
  }
}

TEST_F(EventReceiverTest, WhatNoReplayHasIsLost) {
  Follower follower(options());
  const std::uint64_t next = connect(follower);
  send(next + 2);
  follower.until([&] { return follower.all.size() >= 3; }, replaying({next + 1}));
  EXPECT_THAT(follower.kinds(), ElementsAre(Kind::kLost, Kind::kBatch, Kind::kBatch));
  EXPECT_EQ(follower.all[0].sequence, next);
  EXPECT_EQ(follower.receiver->counts().lost, 1U);
}

TEST_F(EventReceiverTest, AReplayThatNobodyAnswersEnds) {
  ManualClock clock;
  Follower follower(options(), clock);
  const std::uint64_t next = connect(follower);
  const std::uint64_t replays = follower.receiver->counts().replays;
  send(next + 1);
  follower.until([&] { return follower.receiver->counts().replays > replays; });
  EXPECT_TRUE(follower.all.empty()) << "the batch waits";
  clock.advance(std::chrono::seconds(10));
  follower.until([&] { return follower.all.size() >= 2; });
  EXPECT_THAT(follower.kinds(), ElementsAre(Kind::kLost, Kind::kBatch));
}

TEST_F(EventReceiverTest, ALastBatchThatWasLostIsAskedFor) {
  ManualClock clock;
  Follower follower(options(), clock);
  const std::uint64_t next = connect(follower);
  clock.advance(std::chrono::seconds(60));
  follower.until([&] { return !follower.all.empty(); }, replaying({next}));
  EXPECT_THAT(asked_, ElementsAre(next));
  EXPECT_EQ(follower.all[0].sequence, next);
}

TEST_F(EventReceiverTest, APublisherThatCountsAnewIsNoticed) {
  Follower follower(options());
  connect(follower);
  send(0);
  send(1);
  follower.until([&] { return follower.all.size() >= 3; }, replaying({}));
  EXPECT_THAT(follower.kinds(), ElementsAre(Kind::kRestarted, Kind::kBatch, Kind::kBatch));
  EXPECT_EQ(follower.receiver->counts().restarts, 1U);
}

TEST_F(EventReceiverTest, WrongMessagesAreReportedAndTheStreamGoesOn) {
  Follower follower(options());
  const std::uint64_t next = connect(follower);
  ASSERT_TRUE(pub_.send({"", sequence_frame(next), "nonsense"}));
  ASSERT_TRUE(pub_.send({"one frame"}));
  ASSERT_TRUE(pub_.send({"", "short", payload_of(1)}));
  send(next + 1);
  follower.until([&] { return follower.all.size() >= 4; }, replaying({}));
  EXPECT_THAT(follower.kinds(), ElementsAre(Kind::kInvalid, Kind::kInvalid, Kind::kInvalid, Kind::kBatch));
  EXPECT_THAT(follower.all[1].text, HasSubstr("1 frames is not (topic, number, batch)"));
}

}  // namespace
}  // namespace cairn
