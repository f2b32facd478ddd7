#include "cairn/events/consolidator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cairn/events/msgpack.h"
#include "cairn/events/router_testing.h"

namespace cairn {
namespace {

using events_testing::TestRouter;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr CacheLevel kG1 = CacheLevel::kG1;
constexpr CacheLevel kG2 = CacheLevel::kG2;
constexpr std::uint32_t kCairn = 0;
constexpr std::uint32_t kEngine = 1;

// Blocks of two tokens, which follow from their hash.
KvStored blocks(std::vector<std::uint64_t> hashes, std::optional<std::uint64_t> parent = {}) {
  KvStored stored{.hashes = std::move(hashes), .parent = parent, .block_size = 2};
  for (const std::uint64_t hash : stored.hashes) {
    stored.token_ids.push_back(static_cast<Token>(hash));
    stored.token_ids.push_back(static_cast<Token>(hash + 100));
  }
  return stored;
}
KvStored nameless(std::vector<std::uint64_t> hashes) { return {.hashes = std::move(hashes)}; }

class ConsolidatorTest : public ::testing::Test {
 protected:
  std::vector<KvEvent> apply(std::uint32_t source, const KvEvent& event, bool knows_parent = true) {
    std::vector<KvEvent> out;
    consolidator_.apply(source, event, out, knows_parent);
    return out;
  }
  std::vector<KvEvent> store(std::uint32_t source, CacheLevel tier, const KvStored& stored) {
    return apply(source, {.data = stored, .tier = tier});
  }
  std::vector<KvEvent> remove(std::uint32_t source, CacheLevel tier, std::vector<std::uint64_t> hashes) {
    return apply(source, {.data = KvRemoved{std::move(hashes)}, .tier = tier});
  }

  Consolidator consolidator_{EventMode::kDedup};
};

TEST_F(ConsolidatorTest, OneStoreOnFirstResidencyAndOneRemoveOnLast) {
  EXPECT_THAT(store(kEngine, kG1, blocks({1, 2})), ElementsAre(KvEvent{.data = blocks({1, 2})}));
  EXPECT_THAT(store(kCairn, kG2, blocks({1, 2})), IsEmpty());
  EXPECT_THAT(store(kEngine, kG1, blocks({1, 2})), IsEmpty()) << "said twice";
  EXPECT_THAT(remove(kEngine, kG1, {2, 1}), IsEmpty()) << "the host tier has them";
  EXPECT_THAT(remove(kEngine, kG1, {2}), IsEmpty()) << "said twice";
  EXPECT_THAT(remove(kCairn, kG2, {2, 1, 9}), ElementsAre(KvEvent{.data = KvRemoved{{2, 1}}}));
  EXPECT_EQ(consolidator_.counts().blocks, 0U);
}

TEST_F(ConsolidatorTest, ChildrenWaitForTheirParents) {
  EXPECT_THAT(store(kCairn, kG2, blocks({3}, 2)), IsEmpty());
  EXPECT_THAT(store(kCairn, kG2, blocks({2}, 1)), IsEmpty());
  EXPECT_THAT(store(kCairn, kG2, blocks({5}, 2)), IsEmpty());
  EXPECT_THAT(remove(kCairn, kG2, {5}), IsEmpty()) << "it was never announced";
  EXPECT_EQ(consolidator_.counts().waiting, 2U);
  EXPECT_THAT(store(kEngine, kG1, blocks({1})), ElementsAre(KvEvent{.data = blocks({1, 2, 3})}));
  EXPECT_EQ(consolidator_.counts().waiting, 0U);
}

TEST_F(ConsolidatorTest, ABlockIsAnnouncedOnceItsTokensAreKnown) {
  EXPECT_THAT(store(kCairn, kG2, nameless({1})), IsEmpty()) << "a disk tier's after a restart";
  EXPECT_THAT(store(kEngine, kG1, blocks({1})), ElementsAre(KvEvent{.data = blocks({1})}));
  EXPECT_THAT(remove(kEngine, kG1, {1}), IsEmpty());
  EXPECT_THAT(remove(kCairn, kG2, {1}), ElementsAre(KvEvent{.data = KvRemoved{{1}}}));
}

TEST_F(ConsolidatorTest, AParentThatIsUnknownMayBecomeKnown) {
  EXPECT_THAT(apply(kCairn, {.data = blocks({2}), .tier = kG2}, false), IsEmpty());
  EXPECT_THAT(store(kEngine, kG1, blocks({1, 2})), ElementsAre(KvEvent{.data = blocks({1, 2})}));
}

TEST_F(ConsolidatorTest, ClearIsABarrier) {
  store(kEngine, kG1, blocks({1, 2, 3}));
  store(kCairn, kG2, blocks({1}));
  TestRouter router;
  router.apply(KvEvent{.data = blocks({1, 2, 3})});
  router.apply(apply(kEngine, {.data = KvCleared{}}));
  EXPECT_THAT(router.hashes(), ElementsAre(1)) << "which the host tier still has";
  std::vector<KvEvent> out;
  consolidator_.clear(kCairn, kG2, out);
  EXPECT_THAT(out, ElementsAre(KvEvent{.data = KvCleared{}}));
  EXPECT_THAT(apply(kEngine, {.data = KvCleared{}}), IsEmpty()) << "nothing was there";
  EXPECT_THAT(store(kEngine, kG1, blocks({1})), ElementsAre(KvEvent{.data = blocks({1})}));
}

TEST_F(ConsolidatorTest, GroupsSaltsAndItemsStayApart) {
  std::string image;
  internal::MsgpackWriter writer(image);
  writer.array(2);
  writer.array(2);
  writer.text("picture");
  writer.signed_number(0);
  writer.text("salt");
  KvStored first = blocks({1, 2});
  first.extra_keys = {image, "\xc0"};
  EXPECT_EQ(apply(kEngine, {.data = first, .group = 1}).size(), 1U);
  EXPECT_EQ(apply(kEngine, {.data = blocks({1}), .group = 0}).size(), 1U) << "the same hash in another group";
  std::map<std::uint64_t, std::string> of_group_1;
  for (const KvEvent& event : consolidator_.snapshot()) {
    const auto* const stored = std::get_if<KvStored>(&event.data);
    for (std::size_t i = 0; stored != nullptr && event.group == 1U && i < stored->hashes.size(); ++i) {
      of_group_1[stored->hashes[i]] = stored->extra_keys.at(i);
      EXPECT_EQ(stored->cache_salt, "salt") << "for the hashes of routers";
    }
  }
  EXPECT_EQ(of_group_1, (std::map<std::uint64_t, std::string>{{1, image}, {2, "\xc0"}}));
}

TEST_F(ConsolidatorTest, ReplacingASourceSendsTheDifference) {
  store(kCairn, kG2, blocks({1, 2, 3}));
  std::vector<KvEvent> out;
  const KvEvent now[] = {{.data = blocks({1}), .tier = kG2}, {.data = blocks({4}, 1), .tier = kG2}};
  consolidator_.replace(kCairn, kG2, now, {}, out);
  TestRouter router;
  router.apply(KvEvent{.data = blocks({1, 2, 3})});
  router.apply(out);
  EXPECT_THAT(router.hashes(), ElementsAre(1, 4));
}

TEST(ConsolidatorPassthroughTest, EveryTierHasItsEvents) {
  Consolidator consolidator(EventMode::kPassthrough);
  std::vector<KvEvent> out;
  consolidator.apply(kEngine, {.data = blocks({1})}, out);
  consolidator.apply(kCairn, {.data = blocks({1}), .tier = kG2}, out);
  consolidator.apply(kCairn, {.data = nameless({7}), .tier = kG2}, out);
  consolidator.apply(kEngine, {.data = KvRemoved{{1}}}, out);
  EXPECT_THAT(out, ElementsAre(KvEvent{.data = blocks({1})}, KvEvent{.data = blocks({1}), .tier = kG2},
                               KvEvent{.data = nameless({7}), .tier = kG2}, KvEvent{.data = KvRemoved{{1}}}));
}

// --- EngineNames ---

TEST(EngineNamesTest, BlocksGetTheHashesOfCairnsKeys) {
  EngineNames names;
  const KvStored first{.hashes = {901}, .token_ids = {1, 2, 3, 4}, .block_size = 4};
  const KvStored second{.hashes = {902}, .parent = 901, .token_ids = {5, 6, 7, 8}, .block_size = 4};
  const auto renamed = [&](const KvEvent& event) { return std::get<KvStored>(names.rename(event)->data); };
  EXPECT_THAT(renamed({.data = first}).hashes, ElementsAre(14643705804678351452U));
  EXPECT_THAT(renamed({.data = second}).hashes, ElementsAre(4945711292740353085U)) << "as in the recorded vectors";
  EXPECT_EQ(renamed({.data = second}).parent, 14643705804678351452U);
  EXPECT_THAT(renamed({.data = nameless({902}), .tier = kG2}).hashes, ElementsAre(4945711292740353085U));
  EXPECT_EQ(names.rename({.data = KvStored{.hashes = {5}, .parent = 77, .token_ids = {1}, .block_size = 1}}),
            std::nullopt)
      << "after an unknown parent";
  EXPECT_EQ(names.unnamed(), 1U);
  EXPECT_TRUE(names.rename({.data = KvRemoved{{902}}}));
  EXPECT_TRUE(names.rename({.data = KvRemoved{{902}}, .tier = kG2}));
  EXPECT_EQ(names.rename({.data = KvRemoved{{902}}, .tier = kG2}), std::nullopt) << "it is in no tier any more";
}

TEST(EngineNamesTest, SaltsAdaptersAndItemsMakeOtherNames) {
  EngineNames names;
  std::vector<std::uint64_t> hashes;
  std::string image;
  internal::MsgpackWriter writer(image);
  writer.array(1);
  writer.array(2);
  writer.text("picture");
  writer.signed_number(0);
  std::uint64_t next = 1;
  for (const KvStored& extra : {KvStored{}, KvStored{.cache_salt = "a"}, KvStored{.lora_name = "a"},
                                KvStored{.cache_salt = "b"}, KvStored{.extra_keys = {image}}}) {
    KvStored root = extra;
    root.hashes = {next};
    root.token_ids = {1, 2};
    root.block_size = 2;
    hashes.push_back(std::get<KvStored>(names.rename({.data = root})->data).hashes.at(0));
    KvStored child{.hashes = {next + 1}, .parent = next, .token_ids = {3, 4}, .block_size = 2};
    child.lora_name = extra.lora_name;
    hashes.push_back(std::get<KvStored>(names.rename({.data = child})->data).hashes.at(0));
    next += 2;
  }
  const std::set<std::uint64_t> different(hashes.begin(), hashes.end());
  EXPECT_EQ(different.size(), hashes.size());
  EXPECT_EQ(hashes[2], value_of(sequence_hash_of_root(hash_block(std::vector<Token>{1, 2}, salt_hash("a", "")))));
}

}  // namespace
}  // namespace cairn
