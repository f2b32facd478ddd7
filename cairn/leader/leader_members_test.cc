#include "cairn/leader/leader_members.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "cairn/base/str_cat.h"
#include "cairn/wire/rank_proof.h"

namespace cairn {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// The events that follow, one line each.
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
    RankHello message{.claim = {.rank = rank, .ranks = ranks}};
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
  OpenLeaderMembersTest() { members_.open({.config = "config", .layers = 4}, now_); }
};

TEST_F(LeaderMembersTest, AStrangerIsChallengedAndWelcomedWhenThereIsAConfiguration) {
  connect(1, 100);
  EXPECT_THAT(events(), ElementsAre("send challenge to 1"));
  say(1, 0, hello(1));
  EXPECT_THAT(events(), IsEmpty());
  EXPECT_EQ(members_.presence()[1].reason, "it is not ready yet");
  members_.open({.config = "config", .layers = 4}, now_);
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

TEST_F(OpenLeaderMembersTest, RefusesPeersThatDoNotFit) {
  connect(1, 100);
  connect(2, 101);
  connect(3, 102);
  connect(4, 103);
  (void)events();
  say(1, 0, hello(0, "guess"));
  EXPECT_THAT(events(), ElementsAre("send refusal to 1: the rank's proof is wrong; give the rank the leader's secret",
                                    "hang up 1", "forget 1"));
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
  EXPECT_THAT(events(),
              ElementsAre("send challenge to 2",
                          "send refusal to 2: rank 0 is already connected from process 100; stop that process, or "
                          "wait until its connection times out",
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
  EXPECT_THAT(events()[1], HasSubstr("rank 0 is already connected"));
  members_.closed(ConnectionId{1}, "lost");
  (void)events();
  connect(3, 0);
  say(3, 0, hello(0));
  say(3, 2, RankReady{});
  EXPECT_THAT(events(),
              ElementsAre("send challenge to 3", "send welcome to 3", "rank 0.1 over", "forget 1", "rank 0.2 ready"));
}

TEST_F(OpenLeaderMembersTest, ADeadProcessIsGoneAndItsTransfersHaveEnded) {
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

TEST_F(OpenLeaderMembersTest, AConnectionWithoutHelloIsClosed) {
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
  EXPECT_THAT(events(), ElementsAre("send challenge to 99"))
      << "a peer that has sent its hello does not count as a stranger";
  connect(100, 100);
  EXPECT_THAT(events(), ElementsAre(HasSubstr("send refusal to 1: 64 connections have sent no hello"), "hang up 1",
                                    "forget 1", "send challenge to 100"));
  // However many peers connect, a rank that answers its challenge is accepted, and a connected rank stays connected.
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

// The deadline of a stranger counts from its connection, whatever it sends meanwhile.
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
  now_ += kRankReadyLimit - milliseconds(1);
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
  (void)members_.received(ConnectionId{1}, 1, RankSettled{}, now_);  // any message counts
  now_ += milliseconds(1);
  members_.tick(now_);
  EXPECT_THAT(events(), ElementsAre("send ping to 1"));
}

TEST_F(OpenLeaderMembersTest, ARankThatRefusesIsGone) {
  make_ready(1, 0, 100);
  say(1, 1, RankRefusal{"it ends"});
  EXPECT_THAT(events(), ElementsAre("hang up 1", "rank 0.1 gone: it refused: it ends"));
}

// Ranks of a grid: two stages of two tensor ranks, a model of 5 layers.
class GridMembersTest : public ::testing::Test {
 protected:
  GridMembersTest() { members_.open({.config = "config", .layers = 5, .replicas = 2}, now_); }

  // The refusal; empty if the rank was welcomed.
  std::string join(std::uint32_t rank, std::uint32_t layers, std::optional<std::uint32_t> first = {},
                   std::uint32_t groups = 1) {
    const RankClaim claim{
        .rank = rank, .ranks = RankGrid(2, 2), .layers = layers, .first_layer = first, .groups = groups};
    EXPECT_TRUE(members_.join(ConnectionId{++last_}, claim, now_).has_value());
    std::string refusal;
    for (const MemberEvent& event : members_.take_events()) {
      if (const auto* send = std::get_if<MemberSend>(&event)) {
        if (const auto* refused = std::get_if<RankRefusal>(&send->message)) {
          refusal = refused->reason;
        }
      }
    }
    return refusal;
  }

  TimePoint now_{milliseconds(1000)};
  LeaderMembers members_{{.ranks = RankGrid(2, 2), .heartbeat = milliseconds(500), .silence = milliseconds(2000)}};
  std::uint64_t last_ = 0;
};

TEST_F(GridMembersTest, StagesHaveTheLayersThatTheirRanksSay) {
  EXPECT_EQ(join(2, 1, 4), "");
  EXPECT_EQ(join(0, 4), "");
  EXPECT_EQ(join(1, 4), "");
  EXPECT_EQ(join(3, 1, 4), "");
  EXPECT_EQ(members_.layers(1), (LayerRange{0, 4}));
  EXPECT_EQ(members_.layers(3), (LayerRange{4, 1}));
  EXPECT_EQ(members_.presence()[3].replica, 1U);
  EXPECT_EQ(members_.presence()[3].replicas, 2U);
}

TEST_F(GridMembersTest, LayersThatAreDealtEvenlyNeedNotBeSaid) {
  EXPECT_EQ(join(0, 3), "");
  EXPECT_EQ(join(2, 2), "");
  EXPECT_EQ(members_.layers(2), (LayerRange{3, 2}));
  EXPECT_THAT(join(3, 3),
              HasSubstr("rank 3 has 3 layers and does not say which; pipeline stage 1 of 2 would have 2 of 5"));
}

TEST_F(GridMembersTest, RefusesRanksWhoseLayersDoNotFitTheOthers) {
  EXPECT_EQ(join(0, 3), "");
  EXPECT_THAT(join(2, 3, 2), HasSubstr("stage 1 has layers 2 to 4, but stage 0 has layers 0 to 2"));
  EXPECT_THAT(join(2, 1, 4), HasSubstr("no stage has layer 3"));
  EXPECT_THAT(join(2, 3, 3), HasSubstr("the leader's model has 5 layers"));
  EXPECT_THAT(join(1, 2),
              HasSubstr("rank 1 has layers 0 to 1 in 1 groups, but rank 0 of the same pipeline stage 0 has"));
  EXPECT_THAT(join(1, 3, std::nullopt, 2), HasSubstr("in 2 groups, but rank 0"));
  EXPECT_EQ(members_.layers(2), LayerRange{}) << "a rank that was refused has no layers";
  EXPECT_EQ(join(2, 2, 3), "");
}

// The model says nothing of layers of several kinds: whether ranks hold the same is unknown.
TEST_F(GridMembersTest, RanksWithSeveralGroupsAreNoReplicas) {
  EXPECT_EQ(join(2, 2, 3, 2), "");
  EXPECT_EQ(join(3, 2, 3, 2), "");
  EXPECT_EQ(members_.presence()[3].replicas, 1U);
}

// Stages of two tensor ranks, whose layers are of several kinds, with a host tier of 100 blocks.
class SizesOfGroupsTest : public ::testing::Test {
 protected:
  // Joins the first rank of a stage with `groups` kinds of layers. Returns the refusal; empty if the rank was welcomed.
  std::string join(std::uint32_t stage, std::uint64_t block_bytes, std::uint32_t groups = 2) {
    if (!is_open_) {
      is_open_ = true;
      members_.open(model_, now_);
    }
    EXPECT_TRUE(members_
                    .join(ConnectionId{++last_},
                          {.rank = 2 * stage,
                           .ranks = RankGrid(2, 2),
                           .layers = 2,
                           .groups = groups,
                           .block_bytes = block_bytes,
                           .padded_bytes = 4096 * std::uint64_t{groups}},
                          now_)
                    .has_value());
    for (const MemberEvent& event : members_.take_events()) {
      const auto* send = std::get_if<MemberSend>(&event);
      if (const auto* refused = send != nullptr ? std::get_if<RankRefusal>(&send->message) : nullptr) {
        return refused->reason;
      }
    }
    return "";
  }

  TimePoint now_{milliseconds(1000)};
  LeaderMembers::Model model_{.config = "config",
                              .layers = 4,
                              .replicas = 2,
                              .shares = true,
                              .host_blocks = 100,
                              .sizes = {.host = 100'000},
                              .make_memory = &SharedMemory::make};
  LeaderMembers members_{{.ranks = RankGrid(2, 2), .heartbeat = milliseconds(500), .silence = milliseconds(2000)}};
  std::uint64_t last_ = 0;
  bool is_open_ = false;
};

TEST_F(SizesOfGroupsTest, RefusesARankWhoseBlocksTakeMoreThanTheHostSize) {
  EXPECT_EQ(join(0, 510), "") << "102 % of the size for two ranks";
  EXPECT_THAT(join(1, 100),
              HasSubstr("host.size is 100000 bytes for all ranks together, but its blocks take 122000 bytes, "
                        "because the layers are of several kinds; set host.blocks = 81 in the place of"));
  EXPECT_EQ(members_.layers(2), LayerRange{}) << "nothing is left of it";
}

// The layers that are not there yet count like those that are.
TEST_F(SizesOfGroupsTest, RefusesTheFirstRankBeforeThereIsAnyMemory) {
  EXPECT_THAT(join(0, 800), HasSubstr("its blocks take 160000 bytes, because the layers are of several kinds; set "
                                      "host.blocks = 31 in the place of host.size"));
}

TEST_F(SizesOfGroupsTest, CountsPagesIfThereIsADiskTier) {
  model_.disk_blocks = 100;
  EXPECT_THAT(join(0, 100), HasSubstr("its blocks take 1638400 bytes"));
}

TEST_F(SizesOfGroupsTest, CountsTheFilesOfAllGroups) {
  // Of the leader and of two groups on each of two ranks: 5 headers of 2 MiB, and 16 KiB a block.
  model_.sizes = {.disk = 12'000'000};
  model_.disk_blocks = 90;
  EXPECT_EQ(join(0, 100), "");
  EXPECT_THAT(join(1, 100), HasSubstr("disk.size is 12000000 bytes for all ranks together, but its blocks take"));
}

TEST_F(SizesOfGroupsTest, BlocksOfTheirOwnNumberAreNotChecked) {
  model_.sizes = {};
  EXPECT_EQ(join(0, 1'000'000), "");
}

// The number of blocks was made for these, replicas counted once.
TEST_F(SizesOfGroupsTest, RanksWithOneKindOfLayersAreNotChecked) { EXPECT_EQ(join(0, 4096, 1), ""); }

// Two tensor ranks that hold the same.
class ReplicasTest : public ::testing::Test {
 protected:
  ReplicasTest() {
    members_.open({.config = "config",
                   .layers = 5,
                   .replicas = 2,
                   .shares = true,
                   .host_blocks = 10,
                   .make_memory = [this](std::uint64_t size) -> Result<SharedMemoryPtr> {
                     ++made_;
                     return SharedMemory::make(size);
                   }},
                  now_);
  }
  // The welcomes and refusals that were sent, by connection.
  std::map<std::uint64_t, RankMessage> sent() {
    std::map<std::uint64_t, RankMessage> all;
    for (const MemberEvent& event : members_.take_events()) {
      if (const auto* send = std::get_if<MemberSend>(&event)) {
        all[static_cast<std::uint64_t>(send->connection)] = send->message;
      }
    }
    return all;
  }
  void join(std::uint64_t connection, std::uint32_t rank, std::uint64_t padded_bytes = 4096) {
    const RankClaim claim{.rank = rank, .ranks = 2, .layers = 5, .padded_bytes = padded_bytes};
    EXPECT_TRUE(members_.join(ConnectionId{connection}, claim, now_).has_value());
  }
  void ready(std::uint64_t connection, std::uint32_t generation) {
    EXPECT_FALSE(members_.received(ConnectionId{connection}, generation, RankReady{}, now_).has_value());
    members_.tick(now_);
  }

  TimePoint now_{milliseconds(1000)};
  LeaderMembers members_{{.ranks = 2, .heartbeat = milliseconds(500), .silence = milliseconds(2000)}};
  int made_ = 0;
};

TEST_F(ReplicasTest, TheFirstMakesTheFileAndTheOthersWaitForIt) {
  join(1, 1);
  join(2, 0);
  auto messages = sent();
  ASSERT_EQ(messages.size(), 1U);
  const auto first = std::get<RankWelcome>(messages.at(1));
  EXPECT_EQ(first.store, RankStore::kKeeper);
  EXPECT_TRUE(first.has_host_memory);
  EXPECT_EQ(first.host_memory->size(), 40'960U);
  members_.tick(now_);
  EXPECT_TRUE(sent().empty()) << "the keeper is not ready";
  EXPECT_EQ(members_.next_time(), now_ + milliseconds(500));
  for (int i = 0; i < 3; ++i) {
    now_ += milliseconds(500);
    members_.tick(now_);
    messages = sent();
    ASSERT_EQ(messages.size(), 1U) << "it waits, and is told so";
    EXPECT_TRUE(std::holds_alternative<RankPing>(messages.at(2)));
  }
  ready(1, 1);
  messages = sent();
  const auto second = std::get<RankWelcome>(messages.at(2));
  EXPECT_EQ(second.store, RankStore::kGuest);
  EXPECT_EQ(second.host_memory, first.host_memory);
  EXPECT_EQ(made_, 1);
  EXPECT_TRUE(members_.presence()[0].shares);
}

TEST_F(ReplicasTest, AnotherTakesThePlaceOfAKeeperThatIsGone) {
  join(1, 0);
  join(2, 1);
  (void)sent();
  members_.ended(ConnectionId{1});  // before it was ready
  members_.tick(now_);
  EXPECT_EQ(std::get<RankWelcome>(sent().at(2)).store, RankStore::kKeeper);
  ready(2, 1);
  join(3, 0);
  EXPECT_EQ(std::get<RankWelcome>(sent().at(3)).store, RankStore::kGuest);
  ready(3, 2);
  members_.ended(ConnectionId{2});  // the keeper; the guest goes on with what it has
  join(4, 1);
  const auto back = std::get<RankWelcome>(sent().at(4));
  EXPECT_EQ(back.store, RankStore::kKeeper);
  EXPECT_EQ(made_, 1) << "the memory is the leader's, not the keeper's";
}

TEST_F(ReplicasTest, RefusesReplicasOfAnotherSize) {
  join(1, 0);
  ready(1, 1);
  (void)sent();
  join(2, 1, 8192);
  EXPECT_THAT(std::get<RankRefusal>(sent().at(2)).reason, HasSubstr("would have 81920 bytes"));
}

}  // namespace
}  // namespace cairn
