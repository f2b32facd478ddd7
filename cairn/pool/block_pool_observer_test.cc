// What observers see, and in which order.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "cairn/pool/pool_testing.h"

namespace cairn::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::IsEmpty;

class ObserverTest : public ::testing::TestWithParam<PolicyKind> {
 protected:
  RecordingObserver observer_;
  std::unique_ptr<BlockPool> pool_ = make_pool(4, {.policy = GetParam(), .observers = {&observer_}});
  const Keys keys_ = chain(1, 3);
};

TEST_P(ObserverTest, TheRemovalComesBeforeWhatTookItsPlace) {
  cache(*pool_, keys_);
  const Keys others = chain(2, 3);
  cache(*pool_, others);
  EXPECT_THAT(observer_.take(), ElementsAre(registered(keys_), removed({keys_[2], keys_[1]}), registered(others)));
}

TEST_P(ObserverTest, ObserversDoNotSeeAllocatingNamingDroppingAndReleasing) {
  {
    const MutableBlocks dropped = *pool_->allocate(2);
  }
  {
    const CompleteBlocks dropped = completed(*pool_, keys_);
  }
  cache(*pool_, keys_);
  EXPECT_THAT(observer_.take(), ElementsAre(registered(keys_)));
  EXPECT_FALSE(pool_->allocate(9));
  EXPECT_THAT(observer_.take(), IsEmpty());
}

TEST_P(ObserverTest, ABlockUsedAgainIsReportedAsMatchedAndNotAsStored) {
  cache(*pool_, keys_);
  (void)observer_.take();
  (void)pool_->match_prefix(joined(first_of(keys_, 2), chain(5, 1)));
  (void)pool_->scan(Keys{keys_[2], chain(5, 1)[0], keys_[0]});
  (void)pool_->match_prefix(chain(5, 1));
  EXPECT_THAT(observer_.take(), ElementsAre(matched(first_of(keys_, 2)), matched({keys_[2], keys_[0]})));
}

TEST_P(ObserverTest, ALateCopyIsNotReported) {
  const ImmutableBlocks held = store(*pool_, first_of(keys_, 2));
  (void)observer_.take();
  const ImmutableBlocks again = store(*pool_, first_of(keys_, 2));
  EXPECT_THAT(observer_.take(), IsEmpty());
}

TEST_P(ObserverTest, ResettingTellsTheKeysOrThatAllIsGone) {
  cache(*pool_, keys_);
  (void)observer_.take();
  EXPECT_EQ(pool_->reset(Keys{keys_[1]}).reset, 1U);
  EXPECT_THAT(observer_.take(), ElementsAre(removed({keys_[1]})));
  {
    const ImmutableBlocks held = pool_->match_prefix(first_of(keys_, 1));
    (void)observer_.take();
    EXPECT_EQ(pool_->reset_inactive(), 1U);
    EXPECT_THAT(observer_.take(), ElementsAre(removed({keys_[2]})));
  }
  EXPECT_EQ(pool_->reset_inactive(), 1U);
  EXPECT_THAT(observer_.take(), ElementsAre(cleared()));
  EXPECT_EQ(pool_->reset_inactive(), 0U);
  EXPECT_EQ(pool_->reset(keys_).not_found, 3U);
  EXPECT_THAT(observer_.take(), IsEmpty());  // there was nothing left to clear
}

TEST_P(ObserverTest, ResettingTheLastOnesByNameTellsTheirNames) {
  cache(*pool_, first_of(keys_, 1));
  (void)observer_.take();
  EXPECT_EQ(pool_->reset(keys_).reset, 1U);
  EXPECT_THAT(observer_.take(), ElementsAre(removed(first_of(keys_, 1))));
}

INSTANTIATE_TEST_SUITE_P(Policies, ObserverTest, ::testing::ValuesIn(kAllPolicies));

class StoredTest : public ::testing::Test {
 protected:
  RecordingObserver observer_;
  std::unique_ptr<BlockPool> pool_ = make_pool(8, {.observers = {&observer_}});
  const Keys keys_ = chain(1, 5);
};

TEST_F(StoredTest, CarriesTheTokensHashesAndTheParents) {
  const std::vector<BlockHash> hashes = {BlockHash{11}, BlockHash{12}};
  const Keys branch = chain(2, 2, first_of(keys_, 3));
  const SequenceHash parent = keys_[2].sequence_hash();
  ASSERT_NE(value_of(parent), branch[0].parent_fragment()) << "the key alone has only a part of the hash";
  auto complete =
      (*pool_->allocate(2)).complete({.keys = branch, .tokens_hashes = hashes, .parent = keys_[2].sequence_hash()});
  const ImmutableBlocks held = *(*std::move(complete)).register_blocks();
  const ResidentBlock first{.key = branch[0], .parent = parent, .tokens_hash = hashes[0]};
  const ResidentBlock second{.key = branch[1], .parent = branch[0].sequence_hash(), .tokens_hash = hashes[1]};
  EXPECT_THAT(observer_.blocks(), ElementsAre(first, second));
  std::vector<ResidentBlock> listed;
  EXPECT_EQ(pool_->list_resident(0, 8, listed), 8U);
  EXPECT_THAT(listed, ElementsAre(first, second));
}

TEST_F(StoredTest, CarriesTheParentOfTheKeyIfNoneIsGiven) {
  const Keys branch = chain(2, 1, first_of(keys_, 3));
  cache(*pool_, branch);
  cache(*pool_, {keys_[4], keys_[0]});  // neighbours in a run but not in a sequence
  const auto fragment = [](const BlockKey& key) { return SequenceHash{key.parent_fragment()}; };
  EXPECT_THAT(observer_.blocks(), ElementsAre(ResidentBlock{.key = branch[0], .parent = fragment(branch[0])},
                                              ResidentBlock{.key = keys_[4], .parent = fragment(keys_[4])},
                                              ResidentBlock{.key = keys_[0]}));
}

TEST_F(StoredTest, FindsARegisteredParentIfNoneIsGiven) {
  cache(*pool_, first_of(keys_, 3));
  const Keys branch = chain(2, 1, first_of(keys_, 3));
  cache(*pool_, branch);
  EXPECT_EQ(observer_.blocks().back(), (ResidentBlock{.key = branch[0], .parent = keys_[2].sequence_hash()}));
}

TEST_F(StoredTest, KnowsParentsAtDeepPositionsWhereKeysHoldLess) {
  const SequenceHash above{0xFEDCBA9876543210};
  for (const std::uint32_t position : {255U, 256U, 65'535U, 65'536U, BlockKey::kMaxPosition}) {
    RecordingObserver observer;
    const auto pool = make_pool(1, {.observers = {&observer}});
    const Keys key = {BlockKey::make_checked(position, SequenceHash{0x1234567890ABCDEFU + position}, above)};
    const ImmutableBlocks held = *(*(*pool->allocate(1)).complete({.keys = key, .parent = above})).register_blocks();
    EXPECT_EQ(observer.blocks().at(0).parent, above) << position;
  }
}

TEST_F(StoredTest, CarriesTheTokensOfExactlyTheBlocksThatAreNew) {
  const ImmutableBlocks third = store(*pool_, {keys_[2]});
  (void)observer_.take();
  std::vector<Token> tokens(keys_.size() * kBlockSize);
  std::iota(tokens.begin(), tokens.end(), 100);
  const ImmutableBlocks all = *completed(*pool_, keys_).register_blocks(tokens);
  EXPECT_THAT(observer_.take(), ElementsAre(registered({keys_[0], keys_[1]}), registered({keys_[3], keys_[4]})));
  ASSERT_EQ(observer_.tokens().size(), 3U);
  EXPECT_THAT(observer_.tokens()[1], ElementsAreArray(std::span(tokens).first(8)));
  EXPECT_THAT(observer_.tokens()[2], ElementsAreArray(std::span(tokens).last(8)));
}

TEST_F(StoredTest, CarriesTheTokensWhereTheFirstAndTheLastAreLateCopies) {
  const ImmutableBlocks ends = store(*pool_, {keys_[0], keys_[4]});
  (void)observer_.take();
  std::vector<Token> tokens(keys_.size() * kBlockSize);
  std::iota(tokens.begin(), tokens.end(), 100);
  const ImmutableBlocks all = *completed(*pool_, keys_).register_blocks(tokens);
  EXPECT_THAT(observer_.take(), ElementsAre(registered({keys_[1], keys_[2], keys_[3]})));
  EXPECT_THAT(observer_.tokens().back(), ElementsAreArray(std::span(tokens).subspan(4, 12)));
}

TEST_F(StoredTest, CarriesTheTokensOfRunsLongerThanAChunk) {
  const auto pool = make_pool(80, {.observers = {&observer_}});
  const Keys longer = chain(1, 40);
  const ImmutableBlocks there = store(*pool, {longer[0], longer[15], longer[16], longer[33]});
  const std::size_t before = observer_.tokens().size();
  std::vector<Token> tokens(longer.size() * kBlockSize);
  std::iota(tokens.begin(), tokens.end(), 0);
  const ImmutableBlocks all = *completed(*pool, longer).register_blocks(tokens);
  const auto piece = [&](std::size_t first, std::size_t count) {
    return ElementsAreArray(std::span(tokens).subspan(first * kBlockSize, count * kBlockSize));
  };
  ASSERT_EQ(observer_.tokens().size(), before + 3);
  EXPECT_THAT(observer_.tokens()[before], piece(1, 14));
  EXPECT_THAT(observer_.tokens()[before + 1], piece(17, 16));
  EXPECT_THAT(observer_.tokens()[before + 2], piece(34, 6));
}

TEST_F(StoredTest, HasNoTokensWhereNoneWereGiven) {
  cache(*pool_, keys_);
  EXPECT_THAT(observer_.tokens(), ElementsAre(IsEmpty()));
}

// Several observers are called in order, with the pool's tier.
class OrderedObserver final : public PoolObserver {
 public:
  OrderedObserver(int name, std::vector<int>& calls) : name_(name), calls_(calls) {}
  void on_registered(CacheLevel tier, std::span<const ResidentBlock>, std::span<const Token>) override { note(tier); }
  void on_removed(CacheLevel tier, std::span<const BlockKey>) override { note(tier); }
  void on_cleared(CacheLevel tier) override { note(tier); }
  void on_matched(CacheLevel tier, std::span<const BlockKey>) override { note(tier); }

 private:
  void note(CacheLevel tier) {
    EXPECT_EQ(tier, CacheLevel::kG3);
    calls_.push_back(name_);
  }
  int name_;
  std::vector<int>& calls_;
};

TEST(ObserversTest, AreNotifiedInOrderWithTheTier) {
  std::vector<int> calls;
  OrderedObserver first(1, calls);
  OrderedObserver second(2, calls);
  const auto pool = make_pool(2, {.tier = CacheLevel::kG3, .observers = {&first, &second}});
  cache(*pool, chain(1, 2));
  (void)pool->match_prefix(chain(1, 1));
  (void)evicted_for(*pool, 1);
  (void)pool->reset_inactive();
  EXPECT_THAT(calls, ElementsAre(1, 2, 1, 2, 1, 2, 1, 2));
}

}  // namespace
}  // namespace cairn::testing
