#include "cairn/pool/key_index.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <vector>

namespace cairn {
namespace {

class KeyIndexTest : public ::testing::Test {
 protected:
  explicit KeyIndexTest(std::uint32_t capacity = 100)
      : keys_(capacity), index_(*KeyIndex::create(capacity, Column<BlockKey>(keys_.data(), sizeof(BlockKey)))) {}

  void insert(std::uint32_t block_id, const BlockKey& key) {
    keys_[block_id] = key;
    index_.insert(BlockId{block_id}, index_.place_of(key));
  }
  void erase(std::uint32_t block_id) { index_.erase(BlockId{block_id}); }
  [[nodiscard]] BlockId find(const BlockKey& key) const { return index_.find(key); }

  static BlockKey key(std::uint32_t position, std::uint64_t hash, std::uint64_t parent = 0) {
    return BlockKey::make_checked(position, SequenceHash{hash}, SequenceHash{parent});
  }

  std::vector<BlockKey> keys_;
  KeyIndex index_;
};

TEST_F(KeyIndexTest, FindsWhatWasInsertedUntilItIsErased) {
  EXPECT_EQ(find(key(0, 1)), kNoBlock);
  insert(5, key(0, 1));
  insert(6, key(0, 2));
  EXPECT_EQ(find(key(0, 1)), BlockId{5});
  EXPECT_EQ(find(key(0, 2)), BlockId{6});
  erase(5);
  EXPECT_EQ(find(key(0, 1)), kNoBlock);
  EXPECT_EQ(find(key(0, 2)), BlockId{6});
}

TEST_F(KeyIndexTest, FindsTheDefaultKeyOnlyWhereItIs) {
  EXPECT_EQ(find(BlockKey()), kNoBlock);
  insert(0, BlockKey());
  EXPECT_EQ(find(BlockKey()), BlockId{0});
}

TEST_F(KeyIndexTest, GuessesNothingOrABlockWithTheSameHash) {
  EXPECT_EQ(index_.guess(index_.place_of(key(0, 7))), kNoBlock);
  insert(9, key(0, 7));
  EXPECT_EQ(index_.guess(index_.place_of(key(0, 7))), BlockId{9});
}

TEST_F(KeyIndexTest, FindsTheParentOfAKeyAtEveryDepth) {
  for (const std::uint32_t position : {0U, 1U, 254U, 255U, 256U, 65'534U, 65'535U, 65'536U, 1U << 20}) {
    constexpr std::uint64_t kHash = 0xFEDC'BA98'7654'3210;
    const BlockKey parent = key(position, kHash + position, 99);
    insert(position % 100, parent);
    const BlockKey child = key(position + 1, 5, kHash + position);
    EXPECT_EQ(index_.find_parent(child), BlockId{position % 100}) << position;
    EXPECT_EQ(index_.find_parent(key(position + 2, 5, kHash + position)), kNoBlock) << position;
    EXPECT_EQ(index_.find_parent(key(position + 1, 5, kHash + position + 1)), kNoBlock) << position;
    erase(position % 100);
    EXPECT_EQ(index_.find_parent(child), kNoBlock) << position;
  }
  EXPECT_EQ(index_.find_parent(key(0, 5)), kNoBlock);
}

// Keys that differ only in bits that the hash ignores share one bucket: they fill it and the ones after it. Such keys
// existed when the multiplier was a public constant.
TEST(KeyIndexSeedTest, KeysChosenForOneBucketSpreadOverAll) {
  constexpr std::uint64_t kOldMultiplier = 0x9E3779B97F4A7C15U;
  std::uint64_t inverse = kOldMultiplier;  // modulo 2^64, by Newton's method
  for (int i = 0; i < 6; ++i) {
    inverse *= 2 - kOldMultiplier * inverse;
  }
  constexpr std::uint32_t kKeys = 900;
  std::vector<BlockKey> chosen;
  for (std::uint64_t i = 0; chosen.size() < kKeys; ++i) {
    const std::uint64_t name = ((std::uint64_t{0x12345678} << 32) + (i << 8)) * inverse;  // the product it is to have
    if ((name >> 38 & 3) == 0) {  // what a position and 38 bits of a hash can make
      chosen.push_back(BlockKey::make_checked(static_cast<std::uint32_t>(name >> 40),
                                              SequenceHash{name & ((std::uint64_t{1} << 38) - 1)}, SequenceHash{1}));
    }
  }
  const auto fullest = [&chosen](const KeySeed& seed) {
    std::vector<BlockKey> keys(kKeys);
    const KeyIndex index = *KeyIndex::create(kKeys, Column<BlockKey>(keys.data(), sizeof(BlockKey)), seed);
    std::map<std::uint32_t, std::uint32_t> buckets;
    for (const BlockKey& key : chosen) {
      ++buckets[index.place_of(key).bucket];
    }
    return std::ranges::max_element(buckets, {}, [](const auto& bucket) { return bucket.second; })->second;
  };
  EXPECT_EQ(fullest({.first = 0, .second = kOldMultiplier}), kKeys) << "the attack";
  EXPECT_LT(fullest(KeySeed::of_process()), kKeys / 8);
  EXPECT_LT(fullest(KeySeed::random()), kKeys / 8);
}

TEST_F(KeyIndexTest, HoldsManyKeysOfOneHash) {
  const auto same_hash = [](std::uint32_t i) { return key(3, 77 + (std::uint64_t{i} << 40), i); };
  for (std::uint32_t i = 0; i < 100; ++i) {
    ASSERT_EQ(index_.place_of(same_hash(i)).bucket, index_.place_of(same_hash(0)).bucket);
    insert(i, same_hash(i));
  }
  for (std::uint32_t i = 0; i < 100; i += 2) {
    erase(i);
  }
  for (std::uint32_t i = 0; i < 100; ++i) {
    EXPECT_EQ(find(same_hash(i)), i % 2 == 0 ? kNoBlock : BlockId{i});
  }
  for (std::uint32_t i = 1; i < 100; i += 2) {
    erase(i);
  }
  EXPECT_EQ(index_.guess(index_.place_of(same_hash(0))), kNoBlock);
}

TEST_F(KeyIndexTest, CountsItsEntries) {
  insert(1, key(0, 1));
  insert(2, key(0, 2));
  EXPECT_EQ(index_.size(), 2U);
  KeyIndex empty = *index_.make_empty();
  index_.swap_entries(empty);
  EXPECT_EQ(index_.size(), 0U);
  EXPECT_EQ(empty.size(), 2U);
  index_.swap_entries(empty);
  const std::vector<BlockId> both{BlockId{1}, BlockId{2}};
  index_.erase(both);
  EXPECT_EQ(index_.size(), 0U);
  EXPECT_EQ(find(key(0, 1)), kNoBlock);
}

// Keys in several groups, in an index that fits into the cache and in one that does not.
class KeyLookupTest : public KeyIndexTest, public ::testing::WithParamInterface<std::uint32_t> {
 protected:
  static constexpr std::uint32_t kKeys = 300;
  KeyLookupTest() : KeyIndexTest(GetParam()) {
    for (std::uint32_t i = 0; i < kKeys; ++i) {
      asked_.push_back(key(i, i + 1));
      if (i % 3 != 1) {
        insert(i, asked_[i]);
      }
    }
  }
  std::vector<BlockKey> asked_;
};

TEST_P(KeyLookupTest, VisitsEveryKeyInOrderWithItsBlock) {
  KeyIndex::Lookup lookup(index_, asked_);
  std::size_t visits = 0;
  lookup.for_each([&](std::size_t i, BlockId block_id) {
    EXPECT_EQ(i, visits++);
    EXPECT_EQ(block_id, find(asked_[i]));
    return true;
  });
  EXPECT_EQ(visits, kKeys);
}

TEST_P(KeyLookupTest, StopsOnRequest) {
  KeyIndex::Lookup lookup(index_, asked_);
  std::size_t visits = 0;
  lookup.for_each([&](std::size_t, BlockId) { return ++visits < 150; });
  EXPECT_EQ(visits, 150U);
}

TEST_P(KeyLookupTest, OfNoKeysVisitsNothing) {
  KeyIndex::Lookup lookup(index_, {});
  lookup.for_each([](std::size_t, BlockId) {
    ADD_FAILURE();
    return true;
  });
}

INSTANTIATE_TEST_SUITE_P(Capacities, KeyLookupTest, ::testing::Values(300, 10'000));

class FullKeyIndexTest : public KeyIndexTest, public ::testing::WithParamInterface<std::uint32_t> {
 protected:
  FullKeyIndexTest() : KeyIndexTest(GetParam()) {}
};

TEST_P(FullKeyIndexTest, AgreesWithAMapAtFullLoad) {
  std::mt19937_64 random(GetParam());
  std::map<BlockKey, std::uint32_t> expected;
  const auto any_key = [&] { return key(random() % 3, random() % (GetParam() * 2), random() % 2); };
  for (std::uint32_t block_id = 0; block_id < GetParam(); ++block_id) {
    BlockKey fresh = any_key();
    while (expected.contains(fresh)) {
      fresh = any_key();
    }
    insert(block_id, fresh);
    expected[fresh] = block_id;
  }
  for (int step = 0; step < 3000; ++step) {
    const auto block_id = static_cast<std::uint32_t>(random() % GetParam());
    expected.erase(keys_[block_id]);
    erase(block_id);
    ASSERT_EQ(find(keys_[block_id]), kNoBlock);
    BlockKey fresh = any_key();
    while (expected.contains(fresh)) {
      fresh = any_key();
    }
    insert(block_id, fresh);
    expected[fresh] = block_id;
    const BlockKey asked = any_key();
    const auto found = expected.find(asked);
    ASSERT_EQ(find(asked), found == expected.end() ? kNoBlock : BlockId{found->second});
  }
  for (const auto& [there, block_id] : expected) {
    EXPECT_EQ(find(there), BlockId{block_id});
  }
}

INSTANTIATE_TEST_SUITE_P(Capacities, FullKeyIndexTest, ::testing::Values(1, 2, 7, 8, 9, 64, 500));

}  // namespace
}  // namespace cairn
