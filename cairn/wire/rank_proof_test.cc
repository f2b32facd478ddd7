#include "cairn/wire/rank_proof.h"

#include <gtest/gtest.h>

#include <set>

namespace cairn {
namespace {

constexpr std::string_view kSecret = "a secret";

class RankProofTest : public ::testing::Test {
 protected:
  RankNonce leaders_ = make_nonce();
  RankHello hello_{.claim = {.rank = 1, .ranks = 4, .layers = 3}, .nonce = make_nonce(), .proof = {}};
  RankWelcome welcome_{.generation = 3, .heartbeat = Duration(5), .config = "[model]", .proof = {}};
};

TEST_F(RankProofTest, APeerThatKnowsTheSecretProvesIt) {
  EXPECT_FALSE(is_proven(hello_, leaders_, kSecret));
  hello_.proof = proof_of(hello_, leaders_, kSecret);
  EXPECT_TRUE(is_proven(hello_, leaders_, kSecret));
  welcome_.proof = proof_of(welcome_, hello_, leaders_, kSecret);
  EXPECT_TRUE(is_proven(welcome_, hello_, leaders_, kSecret));
}

TEST_F(RankProofTest, AnotherSecretProvesNothing) {
  for (const char* other : {"", "a secre", "a secret ", "another"}) {
    hello_.proof = proof_of(hello_, leaders_, other);
    EXPECT_FALSE(is_proven(hello_, leaders_, kSecret)) << other;
    welcome_.proof = proof_of(welcome_, hello_, leaders_, other);
    EXPECT_FALSE(is_proven(welcome_, hello_, leaders_, kSecret)) << other;
  }
}

TEST_F(RankProofTest, AHelloIsGoodForOneChallengeAndOneRank) {
  hello_.proof = proof_of(hello_, leaders_, kSecret);
  EXPECT_FALSE(is_proven(hello_, make_nonce(), kSecret)) << "replayed to a leader";
  RankHello changed = hello_;
  changed.claim.rank = 2;
  EXPECT_FALSE(is_proven(changed, leaders_, kSecret));
  changed = hello_;
  changed.claim.ranks = 5;
  EXPECT_FALSE(is_proven(changed, leaders_, kSecret));
  changed = hello_;
  changed.claim.first_layer = 0;
  EXPECT_FALSE(is_proven(changed, leaders_, kSecret));
  changed = hello_;
  changed.nonce[15] ^= std::byte{1};
  EXPECT_FALSE(is_proven(changed, leaders_, kSecret));
}

TEST_F(RankProofTest, AWelcomeIsGoodForOneHello) {
  welcome_.proof = proof_of(welcome_, hello_, leaders_, kSecret);
  RankHello other = hello_;
  other.nonce = make_nonce();
  EXPECT_FALSE(is_proven(welcome_, other, leaders_, kSecret)) << "replayed to a rank";
  other = hello_;
  other.claim.rank = 0;
  EXPECT_FALSE(is_proven(welcome_, other, leaders_, kSecret));
  EXPECT_FALSE(is_proven(welcome_, hello_, make_nonce(), kSecret));
  RankWelcome changed = welcome_;
  changed.generation = 4;
  EXPECT_FALSE(is_proven(changed, hello_, leaders_, kSecret));
  changed = welcome_;
  changed.config += "x";
  EXPECT_FALSE(is_proven(changed, hello_, leaders_, kSecret));
  changed = welcome_;
  changed.heartbeat = Duration(6);
  EXPECT_FALSE(is_proven(changed, hello_, leaders_, kSecret));
  changed = welcome_;
  changed.leader.random ^= 1;
  EXPECT_FALSE(is_proven(changed, hello_, leaders_, kSecret));
}

TEST_F(RankProofTest, NoProofIsTakenForTheOther) {
  welcome_.proof = proof_of(hello_, leaders_, kSecret);
  EXPECT_FALSE(is_proven(welcome_, hello_, leaders_, kSecret)) << "a hello that is sent back";
}

TEST_F(RankProofTest, WithoutASecretTheProofsStillBelongToTheTalk) {
  hello_.proof = proof_of(hello_, leaders_, "");
  EXPECT_TRUE(is_proven(hello_, leaders_, ""));
  EXPECT_FALSE(is_proven(hello_, make_nonce(), ""));
}

TEST(RankNonceTest, IsNewEachTime) {
  std::set<RankNonce> nonces;
  for (int i = 0; i < 100; ++i) nonces.insert(make_nonce());
  EXPECT_EQ(nonces.size(), 100U);
  EXPECT_NE(make_leader_id(), make_leader_id());
}

}  // namespace
}  // namespace cairn
