#include "cairn/leader/leader_members.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "cairn/base/str_cat.h"
#include "cairn/wire/rank_proof.h"

namespace cairn {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// What follows, a line each.
std::string line(const MemberSend& event) {
  constexpr const char* kNames[] = {"challenge", "hello",   "welcome", "ready",     "refusal", "transfer",
                                    "cancel",    "outcome", "settled", "broadcast", "ping",    "pong"};
  const auto* refusal = std::get_if<RankRefusal>(&event.message);
  return str_cat("send ", kNames[event.message.index()], " to ", static_cast<std::uint64_t>(event.connection),
                 refusal != nullptr ? str_cat(": ", refusal->reason) : "");
}
std::string line(const MemberHangUp& event) {
  return str_cat("hang up ", static_cast<std::uint64_t>(event.connection));
}
std::string line(const MemberReady& event) { return str_cat("rank ", event.rank, ".", event.generation, " ready"); }
std::string line(const MemberGone& event) {
  return str_cat("rank ", event.rank, ".", event.generation, " gone: ", event.reason);
}
std::string line(const MemberSettled& event) { return str_cat("rank ", event.rank, ".", event.generation, " over"); }
std::string line(const MemberForget& event) { return str_cat("forget ", static_cast<std::uint64_t>(event.connection)); }

class LeaderMembersTest : public ::testing::Test {
 protected:
  static constexpr RankNonce kNonce = {std::byte{7}};

  std::vector<std::string> events() {
    std::vector<std::string> lines;
    for (const MemberEvent& event : members_.take_events()) {
      lines.push_back(std::visit([](const auto& each) { return line(each); }, event));
    }
    return lines;
  }
  static RankHello hello(std::uint32_t rank, const std::string& secret = "secret", std::uint32_t ranks = 2) {
    RankHello message{.rank = rank, .ranks = ranks};
    message.proof = proof_of(message, kNonce, secret);
    return message;
  }
  void say(std::uint64_t connection, std::uint32_t generation, const RankMessage& message) {
    EXPECT_FALSE(members_.received(ConnectionId{connection}, generation, message, now_).has_value());
  }
  void connect(std::uint64_t connection, std::uint64_t process) {
    members_.accepted(ConnectionId{connection}, {.process = process}, kNonce, now_);
  }
  // Up to ready; its events are dropped.
  void make_ready(std::uint64_t connection, std::uint32_t rank, std::uint64_t process, std::uint32_t generation = 1) {
    connect(connection, process);
    say(connection, 0, hello(rank));
    say(connection, generation, RankReady{});
    ASSERT_THAT(events(), ::testing::Contains(str_cat("rank ", rank, ".", generation, " ready")));
  }

  TimePoint now_{milliseconds(1000)};
  LeaderMembers members_{
      {.ranks = 2, .secret = "secret", .heartbeat = milliseconds(500), .silence = milliseconds(2000)}};
};

class OpenLeaderMembersTest : public LeaderMembersTest {
 protected:
  OpenLeaderMembersTest() { members_.open("config", now_); }
};

TEST_F(LeaderMembersTest, AStrangerIsChallengedAndWelcomedWhenThereIsAConfiguration) {
  connect(1, 100);
  EXPECT_THAT(events(), ElementsAre("send challenge to 1"));
  say(1, 0, hello(1));
  EXPECT_THAT(events(), IsEmpty());
  EXPECT_EQ(members_.presence()[1].reason, "it is not ready yet");
  members_.open("config", now_);
  const std::vector<MemberEvent> welcome = members_.take_events();
  ASSERT_EQ(welcome.size(), 1U);
  const auto& message = std::get<RankWelcome>(std::get<MemberSend>(welcome[0]).message);
  EXPECT_EQ(message.config, "config");
  EXPECT_EQ(message.generation, 1U);
  EXPECT_TRUE(is_proven(message, hello(1), kNonce, "secret"));
  say(1, 1, RankReady{.block_bytes = 77});
  EXPECT_THAT(events(), ElementsAre("rank 1.1 ready"));
  EXPECT_EQ(members_.block_bytes(1), 77U);
  EXPECT_EQ(members_.peer_of(1).process, 100U);
  EXPECT_TRUE(members_.presence()[1].is_there);
  EXPECT_FALSE(members_.all_ready());
}

TEST_F(OpenLeaderMembersTest, RefusesWhoDoesNotBelong) {
  connect(1, 100);
  connect(2, 101);
  connect(3, 102);
  connect(4, 103);
  (void)events();
  say(1, 0, hello(0, "guess"));
  EXPECT_THAT(events(),
              ElementsAre("send refusal to 1: it does not know the leader's secret", "hang up 1", "forget 1"));
  say(2, 0, hello(2));
  EXPECT_THAT(events()[0], HasSubstr("there are 2 ranks, 0 to 1, and no rank 2"));
  say(3, 0, hello(0, "secret", 4));
  EXPECT_THAT(events()[0], HasSubstr("it is one of 4 ranks and the leader has 2"));
  say(4, 0, RankReady{});
  EXPECT_THAT(events()[0], HasSubstr("not its turn"));
  EXPECT_FALSE(members_.next_time().has_value());
}

TEST_F(OpenLeaderMembersTest, ARankThatTalksOutOfTurnIsGone) {
  make_ready(1, 0, 100);
  say(1, 1, RankTransfer{});
  EXPECT_THAT(events(), ElementsAre("send refusal to 1: it sent a message that is not its turn", "hang up 1",
                                    "rank 0.1 gone: it sent a message that is not its turn"));
}

TEST_F(OpenLeaderMembersTest, OnlyThePresentGenerationIsHeard) {
  make_ready(1, 0, 100);
  EXPECT_FALSE(members_.received(ConnectionId{1}, 2, RankSettled{}, now_).has_value());
  EXPECT_FALSE(members_.received(ConnectionId{9}, 1, RankSettled{}, now_).has_value());
  const auto from = members_.received(ConnectionId{1}, 1, RankSettled{}, now_);
  ASSERT_TRUE(from.has_value());
  EXPECT_EQ(from->rank, 0U);
  EXPECT_EQ(from->generation, 1U);
  EXPECT_THAT(events(), IsEmpty());
}

TEST_F(OpenLeaderMembersTest, OneThatIsHeardKeepsItsPlace) {
  make_ready(1, 0, 100);
  connect(2, 200);
  say(2, 0, hello(0));
  EXPECT_THAT(events(), ElementsAre("send challenge to 2",
                                    "send refusal to 2: rank 0 is there already, in process 100; end that process, or "
                                    "wait until the leader gives it up",
                                    "hang up 2", "forget 2"));
  EXPECT_TRUE(members_.presence()[0].is_there);
}

TEST_F(OpenLeaderMembersTest, AProcessThatConnectsAgainReplacesItself) {
  make_ready(1, 0, 100);
  connect(2, 100);
  say(2, 0, hello(0));
  EXPECT_THAT(events(), ElementsAre("send challenge to 2", "hang up 1", "rank 0.1 gone: its process connected again",
                                    "send welcome to 2"));
  say(2, 2, RankReady{});
  EXPECT_THAT(events(), ElementsAre("rank 0.1 over", "forget 1", "rank 0.2 ready"));
}

TEST_F(OpenLeaderMembersTest, AnotherProcessProvesNothingOfTheFirst) {
  make_ready(1, 0, 100);
  members_.closed(ConnectionId{1}, "the peer closed the connection");
  EXPECT_THAT(events(), ElementsAre("hang up 1", "rank 0.1 gone: the peer closed the connection"));
  EXPECT_EQ(members_.presence()[0].reason, "the peer closed the connection");
  make_ready(2, 0, 200, 2);
  members_.ended(ConnectionId{1});
  EXPECT_THAT(events(), ElementsAre("rank 0.1 over", "forget 1"));
  EXPECT_TRUE(members_.presence()[0].is_there);
}

TEST_F(OpenLeaderMembersTest, WhereProcessesAreNotKnownReadyAgainIsProof) {
  make_ready(1, 0, 0);
  connect(2, 0);
  say(2, 0, hello(0));
  EXPECT_THAT(events()[1], HasSubstr("rank 0 is there already"));
  members_.closed(ConnectionId{1}, "lost");
  (void)events();
  connect(3, 0);
  say(3, 0, hello(0));
  say(3, 2, RankReady{});
  EXPECT_THAT(events(),
              ElementsAre("send challenge to 3", "send welcome to 3", "rank 0.1 over", "forget 1", "rank 0.2 ready"));
}

TEST_F(OpenLeaderMembersTest, ADeadProcessIsGoneAndOver) {
  make_ready(1, 1, 100);
  members_.ended(ConnectionId{1});
  EXPECT_THAT(events(), ElementsAre("hang up 1", "rank 1.1 gone: its process has ended", "rank 1.1 over", "forget 1"));
}

TEST_F(OpenLeaderMembersTest, OneThatWasNeverReadyHasNothingInHand) {
  connect(1, 100);
  say(1, 0, hello(1));
  (void)events();
  members_.closed(ConnectionId{1}, "lost");
  EXPECT_THAT(events(), ElementsAre("hang up 1", "forget 1"));
  EXPECT_EQ(members_.presence()[1].reason, "lost");
  members_.closed(ConnectionId{1}, "again");
  members_.refuse(ConnectionId{1}, "again");
  EXPECT_THAT(events(), IsEmpty());
}

TEST_F(OpenLeaderMembersTest, WhoDoesNotSayWhoItIsIsDropped) {
  connect(1, 100);
  (void)events();
  EXPECT_EQ(members_.next_time(), now_ + milliseconds(2000));
  now_ += milliseconds(1999);
  members_.tick(now_);
  EXPECT_THAT(events(), IsEmpty());
  now_ += milliseconds(1);
  members_.tick(now_);
  EXPECT_THAT(events(), ElementsAre("send refusal to 1: no hello within 2000 ms", "hang up 1", "forget 1"));
}

TEST_F(OpenLeaderMembersTest, StrangersAreBounded) {
  for (std::uint64_t connection = 1; connection <= LeaderMembers::kMaxStrangers; ++connection) {
    connect(connection, connection);
  }
  (void)events();
  say(2, 0, hello(0));
  (void)events();
  connect(99, 99);
  EXPECT_THAT(events(), ElementsAre("send challenge to 99")) << "who has said hello is no stranger any more";
  connect(100, 100);
  EXPECT_THAT(events(), ElementsAre(HasSubstr("send refusal to 1: 64 connections have sent no hello"), "hang up 1",
                                    "forget 1", "send challenge to 100"));
  // However many come, a rank that answers its challenge gets its place, and one that has it keeps it.
  for (std::uint64_t connection = 101; connection < 1000; ++connection) {
    connect(connection, connection);
  }
  EXPECT_TRUE(members_.is_proven(ConnectionId{2}));
  connect(1000, 1000);
  EXPECT_FALSE(members_.is_proven(ConnectionId{1000}));
  say(1000, 0, hello(1));
  EXPECT_TRUE(members_.is_proven(ConnectionId{1000}));
  EXPECT_FALSE(members_.is_proven(ConnectionId{101})) << "pushed out";
}

// Each has a short time from its first moment on, whatever it says meanwhile.
TEST_F(OpenLeaderMembersTest, AStrangerHasAShortDeadline) {
  LeaderMembers patient({.ranks = 1, .heartbeat = milliseconds(500), .silence = std::chrono::hours(1)});
  patient.accepted(ConnectionId{1}, {}, kNonce, now_);
  EXPECT_EQ(patient.next_time(), now_ + LeaderMembers::kHelloLimit);
  patient.tick(now_ + LeaderMembers::kHelloLimit);
  EXPECT_EQ(patient.next_time(), std::nullopt) << "it is gone";
}

TEST_F(OpenLeaderMembersTest, MakingMemoryHasALimitOfItsOwn) {
  connect(1, 100);
  say(1, 0, hello(0));
  (void)events();
  now_ += LeaderMembers::kReadyLimit - milliseconds(1);
  members_.tick(now_);
  EXPECT_THAT(events(), IsEmpty());
  now_ += milliseconds(1);
  members_.tick(now_);
  EXPECT_THAT(events()[0], HasSubstr("it was not ready within 600000 ms"));
}

TEST_F(OpenLeaderMembersTest, ARankIsPingedAndGoneWhenItDoesNotAnswer) {
  make_ready(1, 0, 100);
  now_ += milliseconds(500);
  members_.tick(now_);
  EXPECT_THAT(events(), ElementsAre("send ping to 1"));
  say(1, 1, RankPong{1});
  for (int beat = 0; beat < 4; ++beat) {
    EXPECT_EQ(members_.next_time(), now_ + milliseconds(500));
    now_ += milliseconds(500);
    members_.tick(now_);
    EXPECT_THAT(events(), ElementsAre("send ping to 1"));
  }
  now_ += milliseconds(500);
  members_.tick(now_);
  EXPECT_THAT(events(), ElementsAre("send refusal to 1: it said nothing for 2000 ms", "hang up 1",
                                    "rank 0.1 gone: it said nothing for 2000 ms"));
}

TEST_F(OpenLeaderMembersTest, ALeaderThatSleptDoesNotBlameItsRanks) {
  make_ready(1, 0, 100);
  now_ += std::chrono::hours(1);
  members_.tick(now_);
  EXPECT_THAT(events(), ElementsAre("send ping to 1"));
  now_ += milliseconds(1999);
  (void)members_.received(ConnectionId{1}, 1, RankSettled{}, now_);  // any word will do
  now_ += milliseconds(1);
  members_.tick(now_);
  EXPECT_THAT(events(), ElementsAre("send ping to 1"));
}

TEST_F(OpenLeaderMembersTest, ARankThatRefusesIsGone) {
  make_ready(1, 0, 100);
  say(1, 1, RankRefusal{"it ends"});
  EXPECT_THAT(events(), ElementsAre("hang up 1", "rank 0.1 gone: it refused: it ends"));
}

}  // namespace
}  // namespace cairn
