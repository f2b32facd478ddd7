#include "cairn/offload/offload_chooser.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "cairn/base/check.h"
#include "cairn/pool/pool_testing.h"

namespace cairn::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Offered = OffloadChooser::Offered;
using Lookup = OffloadChooser::Lookup;

constexpr TimePoint kNow{};
constexpr OffloadRequestId kRequest{1};

OffloadChooser make_chooser(const OffloadOptions& options, bool is_ahead) {
  Result<AdmissionFilter> filter = AdmissionFilter::create(
      {.capacity = 64, .least_uses = options.least_uses, .least_blocks = options.least_blocks, .least_chance = 0},
      kNow);
  CAIRN_CHECK(filter.has_value(), "the options make sense");
  return {options, *std::move(filter), is_ahead};
}

Offered offer(OffloadChooser& chooser, const BlockKey& key, bool is_urgent = false) {
  return chooser.offer({.key = key, .sequence_blocks = key.position() + 1, .priority = 50, .is_urgent = is_urgent},
                       kNow);
}

std::uint64_t refused(const OffloadChooser& chooser, OffloadRefusal reason) {
  return chooser.status().refused[static_cast<std::size_t>(reason)];
}

// Parents as they are in these chains.
OffloadChooser::ParentOf parents_of(const Keys& keys) {
  return [&keys](const BlockKey& key) -> std::optional<BlockKey> {
    for (std::size_t i = 1; i < keys.size(); ++i) {
      if (keys[i] == key) {
        return keys[i - 1];
      }
    }
    return std::nullopt;
  };
}

constexpr OffloadChooser::Room kMuchRoom{.free_below = 100, .lendable = {.blocks = 100, .unused = 100}};

TEST(OffloadChooserTest, EveryBlockIsCountedOnce) {
  OffloadChooser chooser = make_chooser({.queue = 2, .least_blocks = 2, .least_priority = 20}, false);
  const Keys keys = chain(1, 6);
  EXPECT_EQ(offer(chooser, keys[0]), Offered::kRefused) << "its sequence is too short";
  EXPECT_EQ(chooser.offer({.key = keys[5], .sequence_blocks = 6, .priority = 10}, kNow), Offered::kRefused);
  EXPECT_EQ(offer(chooser, keys[3]), Offered::kPending);
  EXPECT_EQ(offer(chooser, keys[2]), Offered::kPending);
  EXPECT_EQ(offer(chooser, keys[4]), Offered::kShed);
  EXPECT_EQ(offer(chooser, keys[1]), Offered::kPendingAndShed);
  chooser.refuse(OffloadRefusal::kGone, 3);
  chooser.began(std::vector{keys[1]});
  OffloadStatus status = chooser.status();
  EXPECT_EQ(status.offered, 9U);
  EXPECT_EQ(status.pending, 1U);
  EXPECT_EQ(status.in_flight, 1U);
  EXPECT_EQ(refused(chooser, OffloadRefusal::kTooShort), 1U);
  EXPECT_EQ(refused(chooser, OffloadRefusal::kLowPriority), 1U);
  EXPECT_EQ(refused(chooser, OffloadRefusal::kShed), 2U);
  EXPECT_EQ(refused(chooser, OffloadRefusal::kGone), 3U);
  chooser.resolve(keys[1], std::nullopt);
  EXPECT_EQ(chooser.status().copied, 1U);
  EXPECT_TRUE(chooser.contains(keys[2]));
  EXPECT_FALSE(chooser.contains(keys[3])) << "it was the least valuable";
  chooser.drop_all(OffloadRefusal::kCancelled, "the cache was reset");
  EXPECT_TRUE(chooser.empty());
}

TEST(OffloadChooserTest, AheadOfNeedAncestorsGoFirst) {
  const Keys keys = chain(1, 4);
  const Keys other = chain(2, 1);
  for (const bool is_ahead : {false, true}) {
    OffloadChooser chooser = make_chooser({.batch = 3}, is_ahead);
    offer(chooser, keys[1]);
    offer(chooser, keys[2]);
    offer(chooser, other[0]);
    offer(chooser, keys[3], true);
    if (is_ahead) {
      EXPECT_THAT(chooser.next(parents_of(keys)), ElementsAre(keys[1], keys[2], keys[3]));
    } else {
      EXPECT_THAT(chooser.next(parents_of(keys)), ElementsAre(keys[3], other[0], keys[1]));
    }
    chooser.began(std::vector{keys[2]});
    EXPECT_EQ(chooser.next(parents_of(keys)).front(), keys[3])
        << "its parent is in flight, those before are not waited for";
  }
}

TEST(OffloadChooserTest, ChoosesByWhatThePoolsKnow) {
  OffloadChooser chooser = make_chooser({}, true);
  const Keys keys = chain(1, 6);
  for (const BlockKey& key : keys) {
    offer(chooser, key);
  }
  const std::vector<Lookup> lookups = {
      {.is_below = true}, {.is_above = false}, {.is_orphan = true}, {.is_in_use = true}, {}, {}};
  const OffloadChooser::Choice choice =
      chooser.choose(keys, lookups, {.free_below = 2, .lendable = {.blocks = 100, .unused = 100}}, kNow);
  EXPECT_THAT(choice.keys, ElementsAre(keys[3], keys[4]));
  EXPECT_TRUE(choice.lacked_room) << "for the last one";
  EXPECT_EQ(refused(chooser, OffloadRefusal::kAlreadyBelow), 1U);
  EXPECT_EQ(refused(chooser, OffloadRefusal::kGone), 1U);
  EXPECT_EQ(refused(chooser, OffloadRefusal::kNoParent), 1U);
  EXPECT_EQ(refused(chooser, OffloadRefusal::kNoRoom), 1U);
  EXPECT_EQ(chooser.pending(), 2U);
}

TEST(OffloadChooserTest, UrgentAndRequestedBlocksNeedNoFreeBlock) {
  OffloadChooser chooser = make_chooser({}, true);
  const Keys keys = chain(1, 3);
  offer(chooser, keys[0]);
  offer(chooser, keys[1], true);
  EXPECT_TRUE(chooser.request({kRequest, 0}, keys[2], 50, 0));
  const OffloadChooser::Choice choice =
      chooser.choose(keys, std::vector<Lookup>(3), {.free_below = 0, .lendable = kMuchRoom.lendable}, kNow);
  EXPECT_THAT(choice.keys, ElementsAre(keys[1], keys[2]));
}

TEST(OffloadChooserTest, BlocksThatMayNotBeLentStayPending) {
  OffloadChooser chooser = make_chooser({}, true);
  const Keys keys = chain(1, 4);
  for (const BlockKey& key : keys) {
    offer(chooser, key);
  }
  const std::vector<Lookup> lookups = {{}, {}, {.is_in_use = true}, {.is_in_use = true}};
  const OffloadChooser::Choice choice =
      chooser.choose(keys, lookups, {.free_below = 9, .lendable = {.blocks = 2, .unused = 1}}, kNow);
  EXPECT_THAT(choice.keys, ElementsAre(keys[0], keys[2]));
  EXPECT_EQ(chooser.pending(), 4U) << "until they begin";
}

TEST(OffloadChooserTest, MakesABlockUrgentOnce) {
  OffloadChooser chooser = make_chooser({.batch = 1}, true);
  const Keys keys = chain(1, 1);
  const Keys other = chain(2, 1);
  offer(chooser, keys[0]);
  offer(chooser, other[0]);
  EXPECT_TRUE(chooser.make_urgent(other[0]));
  EXPECT_FALSE(chooser.make_urgent(other[0]));
  EXPECT_EQ(chooser.urgent(), 1U);
  EXPECT_THAT(chooser.next(parents_of(keys)), ElementsAre(other[0]));
  chooser.began(std::vector{keys[0]});
  EXPECT_FALSE(chooser.make_urgent(keys[0])) << "it is in flight";
  chooser.resolve(other[0], OffloadRefusal::kFailed);
  EXPECT_EQ(chooser.urgent(), 0U);
}

TEST(OffloadChooserTest, ARequestGetsAnOutcomeForEachKeyOnce) {
  OffloadChooser chooser = make_chooser({.queue = 3}, false);
  const Keys keys = chain(1, 3);
  constexpr OffloadRequestId kOther{2};
  offer(chooser, keys[0]);
  EXPECT_TRUE(chooser.request({kRequest, 0}, keys[0], 50, 0)) << "it joins the block that is pending";
  EXPECT_TRUE(chooser.request({kRequest, 1}, keys[1], 50, 0));
  EXPECT_TRUE(chooser.request({kOther, 0}, keys[1], 50, 0));
  EXPECT_TRUE(chooser.request({kRequest, 2}, keys[2], 50, 0));
  EXPECT_FALSE(chooser.withdraw(kRequest, keys[2]));
  EXPECT_FALSE(chooser.contains(keys[2])) << "no other request needs it";
  EXPECT_FALSE(chooser.withdraw(kRequest, keys[1]));
  EXPECT_TRUE(chooser.contains(keys[1])) << "the other request needs it";
  EXPECT_THAT(chooser.take_resolved(), IsEmpty()) << "a withdrawn request gets no outcome";
  chooser.began(std::vector{keys[0], keys[1]});
  EXPECT_TRUE(chooser.withdraw(kRequest, keys[0])) << "it is in flight";
  chooser.resolve(keys[0], std::nullopt);
  chooser.resolve(keys[1], OffloadRefusal::kFailed, "no disk");
  const std::vector<OffloadChooser::Resolved> resolved = chooser.take_resolved();
  ASSERT_EQ(resolved.size(), 2U);
  EXPECT_EQ(resolved[0].requested.request, kRequest);
  EXPECT_EQ(resolved[0].refusal, std::nullopt);
  EXPECT_EQ(resolved[1].requested.request, kOther);
  EXPECT_EQ(resolved[1].refusal, OffloadRefusal::kFailed);
  EXPECT_THAT(resolved[1].error, HasSubstr("failed; no disk"));
}

TEST(OffloadChooserTest, ARequestThatFindsTheQueueFullChangesNothing) {
  OffloadChooser chooser = make_chooser({.queue = 1}, false);
  const Keys keys = chain(1, 2);
  offer(chooser, keys[0]);
  EXPECT_FALSE(chooser.request({kRequest, 0}, keys[1], 10, 0));
  EXPECT_EQ(chooser.status().offered, 1U);
  EXPECT_TRUE(chooser.request({kRequest, 0}, keys[1], 60, 0)) << "more valuable";
  EXPECT_EQ(refused(chooser, OffloadRefusal::kShed), 1U);
}

TEST(OffloadDemandTest, KeepsAsManyReadyAsWereAllocatedWhileCopiesCaughtUp) {
  OffloadDemand demand;
  EXPECT_EQ(demand.follow(10, 4, 400, true), 10U);
  EXPECT_EQ(demand.follow(40, 30, 400, false), 30U);
  EXPECT_EQ(demand.follow(70, 1, 400, true), 60U) << "the demand was not met in between";
  EXPECT_EQ(demand.follow(71, 1, 400, true), 60U);
  EXPECT_EQ(demand.follow(471, 1, 400, true), 100U) << "a quarter of the pool at most";
  std::uint32_t ready = 0;
  for (std::uint64_t allocated = 472; allocated < 471 + 20 * 400; ++allocated) {
    ready = demand.follow(allocated, 1, 400, true);
  }
  EXPECT_LT(ready, 50U) << "it is forgotten in some turnovers";
  EXPECT_GT(ready, 10U);
}

TEST(OffloadDemandTest, LendsSoThatTheLargestAllocationStillFits) {
  OffloadDemand demand;
  (void)demand.follow(10, 10, 64, true);
  const PoolCounts counts{.total = 64, .free = 10, .inactive = 20};
  OffloadDemand::Lendable lendable = demand.lendable(counts, 0, 64);
  EXPECT_EQ(lendable.blocks, 4U) << "half of an eighth";
  EXPECT_EQ(lendable.unused, 4U);
  lendable = demand.lendable(counts, 6, 64);
  EXPECT_EQ(lendable.blocks, 2U);
  lendable = demand.lendable({.total = 64, .free = 2, .inactive = 6}, 0, 64);
  EXPECT_EQ(lendable.unused, 1U) << "most of the few blocks stay";
}

TEST(OffloadDemandTest, LendsNoMoreThanASlowLinkCopiesSoon) {
  OffloadDemand demand;
  (void)demand.follow(10, 10, 640, true);
  const PoolCounts counts{.total = 640, .free = 10, .inactive = 200};
  OffloadDemand::Lendable lendable = demand.lendable(counts, 0, 6);
  EXPECT_EQ(lendable.blocks, 3U) << "half of what the link copies, so that there are two batches";
  EXPECT_EQ(lendable.unused, 3U);
  lendable = demand.lendable(counts, 3, 6);
  EXPECT_EQ(lendable.blocks, 3U);
  lendable = demand.lendable(counts, 6, 6);
  EXPECT_EQ(lendable.blocks, 0U) << "the next batch waits until one has ended";
}

}  // namespace
}  // namespace cairn::testing
