// Which blocks the filters admit: those that an engine saves, and what a filter of the user's says to any.
#include <algorithm>
#include <stdexcept>

#include "cairn/offload/offload_testing.h"

namespace cairn::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;
using enum OffloadRefusal;

WorldOptions engine(const OffloadOptions& options, Offloader::UserFilter filter = {}) {
  return {.has_upper_pool = false, .offload = options, .filter = std::move(filter)};
}

EngineBlocks blocks_of(World& world, const Keys& keys, std::uint32_t priority = 50) {
  EngineBlocks blocks;
  for (std::uint32_t i = 0; i < keys.size(); ++i) {
    const BlockId block_id{keys[i].position()};
    blocks.block_ids.push_back(block_id);
    blocks.facts.push_back({.block = {.key = keys[i]}, .priority = priority});
    write_block(world.upper_memory, block_id, keys[i]);
  }
  return blocks;
}
// The engine saves these blocks of one sequence.
Outcome save(World& world, const Keys& keys, OffloadRequest request = {}, std::uint32_t priority = 50) {
  Outcome outcome;
  request.done = outcome.hear();
  EXPECT_TRUE(world.offloader->offload(blocks_of(world, keys, priority), std::move(request)).has_value());
  world.drain();
  EXPECT_EQ(outcome.times, 1);
  world.expect_accounts_add_up();
  return outcome;
}

TEST(OffloadAdmissionTest, ByDefaultTheEngineSavesEverything) {
  World world(engine({}));
  const Keys keys = chain(1, 6);
  EXPECT_THAT(save(world, first_of(keys, 2)).refused, IsEmpty());
  EXPECT_THAT(save(world, {keys.begin() + 4, keys.end()}, {.parent = keys[3]}).refused, IsEmpty())
      << "even what nobody can load now";
}

TEST(OffloadAdmissionTest, ASaveNeedsUses) {
  World world(engine({.mode = OffloadMode::kOff, .least_uses = 2}));
  const Keys keys = chain(1, 4);
  world.offloader->used_by_engine(keys);
  const Outcome first = save(world, keys);
  EXPECT_THAT(first.refused, UnorderedElementsAre(Pair(kNeverSeenTwice, 1U), Pair(kNoParent, 3U)));
  EXPECT_THAT(first.error, HasSubstr("never seen twice"));
  EXPECT_EQ(world.refused(kNeverSeenTwice), 1U);
  EXPECT_EQ(world.refused(kNoParent), 3U);
  world.offloader->used_by_engine(keys);
  EXPECT_THAT(save(world, keys).is_below, ElementsAre(true, true, true, true));
  EXPECT_TRUE(world.is_whole_below(keys[3]));
}

TEST(OffloadAdmissionTest, ASaveStopsAtTheFirstRejectedBlock) {
  World world(engine({.least_uses = 2}));
  const Keys keys = chain(1, 5);
  world.offloader->used_by_engine(keys);
  world.offloader->used_by_engine(first_of(keys, 2));
  world.offloader->used_by_engine(Keys{keys[3], keys[4]});  // as no request uses them
  const Outcome outcome = save(world, keys);
  EXPECT_THAT(outcome.is_below, ElementsAre(true, true, false, false, false));
  EXPECT_THAT(outcome.refused, UnorderedElementsAre(Pair(kNeverSeenTwice, 1U), Pair(kNoParent, 2U)));
}

TEST(OffloadAdmissionTest, WhatIsBelowAlreadyDoesNotStopASave) {
  World world(engine({.least_priority = 40}));
  const Keys keys = chain(1, 4);
  EXPECT_THAT(save(world, first_of(keys, 2)).refused, IsEmpty());
  const Outcome low = save(world, keys, {}, 39);
  EXPECT_THAT(low.is_below, ElementsAre(true, true, false, false));
  EXPECT_THAT(low.refused, UnorderedElementsAre(Pair(kLowPriority, 1U), Pair(kNoParent, 1U)));
  EXPECT_THAT(save(world, keys).is_below, ElementsAre(true, true, true, true));
}

TEST(OffloadAdmissionTest, ASaveFollowsTheOneBefore) {
  World world(engine({.least_priority = 40}));
  const Keys keys = chain(1, 6);
  const Keys rest(keys.begin() + 2, keys.end());
  EXPECT_THAT(save(world, first_of(keys, 2), {}, 10).refused,
              UnorderedElementsAre(Pair(kLowPriority, 1U), Pair(kNoParent, 1U)));
  EXPECT_THAT(save(world, rest, {.parent = keys[1]}).refused, UnorderedElementsAre(Pair(kNoParent, 4U)));
  // A parent that is pending or in flight is as good as one that is below.
  Outcome before;
  ASSERT_TRUE(world.offloader->offload(blocks_of(world, first_of(keys, 2)), {.done = before.hear()}));
  EXPECT_THAT(save(world, rest, {.parent = keys[1]}).is_below, ElementsAre(true, true, true, true));
  EXPECT_THAT(before.is_below, ElementsAre(true, true));
}

TEST(OffloadAdmissionTest, SequencesOfOneSaveAreJudgedEach) {
  World world(engine({.least_uses = 2}));
  const Keys once = chain(1, 2);
  const Keys twice = chain(2, 2);
  world.offloader->used_by_engine(joined(once, twice));
  world.offloader->used_by_engine(twice);
  EXPECT_THAT(save(world, joined(once, twice)).is_below, ElementsAre(false, false, true, true));
}

TEST(OffloadAdmissionTest, TheLengthOfASequenceIsThatOfItsRequest) {
  World world(engine({.least_blocks = 4}));
  const Keys keys = chain(1, 2);
  EXPECT_THAT(save(world, keys).refused, UnorderedElementsAre(Pair(kTooShort, 1U), Pair(kNoParent, 1U)));
  EXPECT_THAT(save(world, keys, {.sequence_tokens = 4 * kBlockSize - 1}).refused,
              UnorderedElementsAre(Pair(kTooShort, 1U), Pair(kNoParent, 1U)));
  EXPECT_THAT(save(world, keys, {.sequence_tokens = 4 * kBlockSize}).is_below, ElementsAre(true, true));
}

TEST(OffloadAdmissionTest, ASaveStopsAtTheEndOfTheBudget) {
  // An hour's worth is three blocks of 64 bytes.
  World world(engine({.bytes_per_day = 24 * 3 * kTinyBlocks.block_bytes()}));
  const Outcome outcome = save(world, chain(1, 5));
  const auto kept = static_cast<std::uint32_t>(std::ranges::count(outcome.is_below, true));
  EXPECT_GE(kept, 1U);
  EXPECT_LE(kept, 3U);
  EXPECT_THAT(outcome.refused, UnorderedElementsAre(Pair(kOverBudget, 1U), Pair(kNoParent, 4U - kept)));
}

// A filter of the user's: what it is asked, and what it answers.
struct AskedFilter {
  struct Call {
    std::string request;
    std::uint64_t sequence_tokens = 0;
    std::vector<FilteredBlock> blocks;
  };
  std::vector<Call> calls;
  std::vector<std::string> reports;
  World* world = nullptr;  // to be called back
  std::function<bool(const FilteredBlock&)> wants = [](const FilteredBlock&) { return true; };

  Offloader::UserFilter filter() {
    return {
        .filter =
            [this](const FilteredRun& run, std::span<bool> keep) {
              EXPECT_EQ(run.from, CacheLevel::kG2);
              EXPECT_EQ(run.to, CacheLevel::kG3);
              calls.push_back({std::string(run.request), run.sequence_tokens, {run.blocks.begin(), run.blocks.end()}});
              if (world != nullptr) {  // no lock is held
                (void)world->offloader->status();
                (void)world->below().counts();
              }
              for (std::size_t i = 0; i < keep.size(); ++i) {
                keep[i] = wants(run.blocks[i]);
              }
            },
        .report = [this](std::string text) { reports.push_back(std::move(text)); },
        .own_thread = false};
  }
};

TEST(OffloadUserFilterTest, IsAskedOnceForTheBlocksOfASave) {
  AskedFilter asked;
  World world(engine({.mode = OffloadMode::kOff}, asked.filter()));
  asked.world = &world;
  asked.wants = [](const FilteredBlock& block) { return block.key.position() != 2; };
  const Keys keys = chain(1, 4);
  world.offloader->used_by_engine(keys);
  world.offloader->used_by_engine(first_of(keys, 1));
  const Outcome outcome = save(world, keys, {.request = "cmpl-7", .sequence_tokens = 21}, 61);
  EXPECT_THAT(outcome.is_below, ElementsAre(true, true, false, false));
  EXPECT_THAT(outcome.refused, UnorderedElementsAre(Pair(kFiltered, 1U), Pair(kNoParent, 1U)));
  ASSERT_EQ(asked.calls.size(), 1U);
  EXPECT_EQ(asked.calls[0].request, "cmpl-7");
  EXPECT_EQ(asked.calls[0].sequence_tokens, 21U);
  ASSERT_EQ(asked.calls[0].blocks.size(), 4U);
  EXPECT_EQ(asked.calls[0].blocks[0].key, keys[0]);
  EXPECT_EQ(asked.calls[0].blocks[0].priority, 61U);
  EXPECT_EQ(asked.calls[0].blocks[0].uses, 2U);
  EXPECT_EQ(asked.calls[0].blocks[3].uses, 1U);
  EXPECT_THAT(save(world, first_of(keys, 2)).refused, IsEmpty());
  EXPECT_EQ(asked.calls.size(), 1U) << "not about what is below";
  EXPECT_EQ(world.offloader->status().filter_calls, 1U);
}

TEST(OffloadUserFilterTest, IsAskedAboutBlocksThatLeaveAPool) {
  for (const OffloadMode mode : {OffloadMode::kAhead, OffloadMode::kOnRegistration}) {
    AskedFilter asked;
    World world({.offload = {.mode = mode}, .filter = asked.filter()});
    asked.world = &world;
    asked.wants = [](const FilteredBlock& block) { return block.key.position() != 3; };
    const Keys keys = chain(1, 6);
    world.put(keys, {.priority = 33});
    world.drain();
    EXPECT_THAT(world.arrived(), ElementsAre(keys[0], keys[1], keys[2])) << to_string(mode);
    EXPECT_EQ(world.refused(kFiltered), 1U);
    EXPECT_EQ(world.refused(kNoParent), 2U);
    ASSERT_EQ(asked.calls.size(), 1U) << "one call for a run of blocks";
    ASSERT_EQ(asked.calls[0].blocks.size(), 6U);
    EXPECT_EQ(asked.calls[0].blocks[0].key, keys[0]) << "each after its parent";
    EXPECT_EQ(asked.calls[0].blocks[0].priority, 33U);
    EXPECT_EQ(asked.calls[0].request, "");
    world.expect_accounts_add_up();
    asked.world = nullptr;
  }
}

TEST(OffloadUserFilterTest, TheRestOfASequenceIsNotCopiedInLaterBatchesEither) {
  for (const OffloadMode mode : {OffloadMode::kAhead, OffloadMode::kOnRegistration}) {
    AskedFilter asked;
    World world({.offload = {.mode = mode, .batch = 2}, .filter = asked.filter()});
    asked.wants = [](const FilteredBlock& block) { return block.key.position() != 1; };
    const Keys keys = chain(1, 6);
    world.put(first_of(keys, 4));
    world.drain();
    EXPECT_EQ(asked.calls.size(), 2U) << "batches of two";
    EXPECT_THAT(world.arrived(), ElementsAre(keys[0])) << to_string(mode);
    EXPECT_EQ(world.refused(kNoParent), 2U);
    world.put({keys[4], keys[5]});  // the request goes on
    world.drain();
    EXPECT_THAT(world.arrived(), IsEmpty()) << to_string(mode);
    world.expect_accounts_add_up();
  }
}

TEST(OffloadUserFilterTest, IsNotAskedAboutBlocksOfAPoolThatAreRequested) {
  AskedFilter asked;
  World world({.offload = {.mode = OffloadMode::kOff}, .filter = asked.filter()});
  asked.wants = [](const FilteredBlock&) { return false; };
  const Keys keys = chain(1, 3);
  const ImmutableBlocks blocks = world.fill(keys);
  Outcome outcome;
  ASSERT_TRUE(world.offloader->offload({.keys = keys, .done = outcome.hear()}));
  world.drain();
  EXPECT_THAT(outcome.is_below, ElementsAre(true, true, true));
  EXPECT_THAT(asked.calls, IsEmpty());
}

TEST(OffloadUserFilterTest, ARefusedBlockIsCopiedOnlyWhileARequestWantsIt) {
  for (const bool is_cancelled : {false, true}) {
    AskedFilter asked;
    World world({.offload = {.mode = OffloadMode::kOnRegistration, .in_flight = 1}, .filter = asked.filter()});
    const ImmutableBlocks other = world.fill(chain(2, 1));
    (void)world.offloader->pump();  // in flight: what comes now is pending
    const Keys keys = chain(1, 1);
    std::optional<OffloadRequestId> request;
    asked.wants = [&](const FilteredBlock&) {  // the request comes while the filter decides
      request = *world.offloader->offload({.keys = keys});
      return false;
    };
    const ImmutableBlocks blocks = world.fill(keys);
    (void)world.offloader->pump();
    ASSERT_TRUE(request.has_value());
    if (is_cancelled) {
      world.offloader->cancel(*request);
    }
    world.drain();
    EXPECT_EQ(world.is_below(keys[0]), !is_cancelled);
    world.expect_accounts_add_up();
  }
}

TEST(OffloadUserFilterTest, WhatItRefusesCostsNoBudget) {
  AskedFilter asked;
  // An hour's worth is one block.
  World world({.offload = {.mode = OffloadMode::kOnRegistration, .bytes_per_day = 24 * kTinyBlocks.block_bytes()},
               .filter = asked.filter()});
  asked.wants = [](const FilteredBlock& block) { return block.priority > 10; };
  for (const std::uint64_t name : {1, 2, 3}) {
    world.put(chain(name, 1), {.priority = 5});
    world.drain();
  }
  EXPECT_EQ(world.refused(kFiltered), 3U);
  world.put(chain(4, 1));
  world.drain();
  EXPECT_EQ(world.offloader->status().copied, 1U);
}

// An hour's worth is four blocks.
const std::uint64_t kFourBlocks = 24 * 4 * kTinyBlocks.block_bytes();

TEST(OffloadAdmissionTest, ASaveThatIsShedCostsNoBudget) {
  World world(engine({.mode = OffloadMode::kOff, .queue = 1, .bytes_per_day = kFourBlocks}));
  ASSERT_TRUE(world.offloader->offload(blocks_of(world, chain(1, 1)), {.priority = 90}));
  for (std::uint64_t name = 2; name < 12; ++name) {
    const auto shed = world.offloader->offload(blocks_of(world, chain(name, 1)), {.priority = 10});
    ASSERT_FALSE(shed.has_value()) << name;
    EXPECT_EQ(shed.error().code, ErrorCode::kExhausted);
  }
  EXPECT_EQ(world.refused(kOverBudget), 0U);
}

TEST(OffloadAdmissionTest, ABlockOfAPoolThatIsShedCostsNoBudget) {
  World world(
      {.offload = {.mode = OffloadMode::kOnRegistration, .in_flight = 1, .queue = 1, .bytes_per_day = kFourBlocks}});
  for (std::uint64_t name = 1; name < 12; ++name) {  // one is in flight, one pending, the others are shed
    world.put(chain(name, 1));
    (void)world.offloader->pump();
  }
  EXPECT_EQ(world.refused(kShed), 9U);
  EXPECT_EQ(world.refused(kOverBudget), 0U);
}

TEST(OffloadUserFilterTest, AnExceptionDoesNotEscape) {
  AskedFilter asked;
  asked.wants = [](const FilteredBlock&) -> bool { throw std::runtime_error("of the user"); };
  World saving(engine({}, asked.filter()));
  EXPECT_THAT(save(saving, chain(1, 2)).refused, UnorderedElementsAre(Pair(kFiltered, 1U), Pair(kNoParent, 1U)));
  World pooled({.offload = {.mode = OffloadMode::kOnRegistration}, .filter = asked.filter()});
  pooled.put(chain(1, 2));
  pooled.drain();
  EXPECT_EQ(pooled.refused(kFiltered), 2U);
  EXPECT_EQ(pooled.offloader->status().filter_failures, 1U);
  EXPECT_THAT(asked.reports, ElementsAre(HasSubstr("threw"), HasSubstr("threw")));
}

TEST(OffloadUserFilterTest, ABypassedFilterKeepsBlocksFromBeingCopied) {
  AskedFilter asked;
  World world({.offload = {.mode = OffloadMode::kOnRegistration}, .filter = asked.filter()});
  asked.wants = [&world](const FilteredBlock&) {
    world.clock.advance(milliseconds(2));
    return true;
  };
  for (std::uint64_t name = 0; name < 8; ++name) {
    world.put(chain(name, 1));
    world.drain();
  }
  EXPECT_EQ(world.offloader->status().filter_overruns, 8U);
  EXPECT_TRUE(world.offloader->status().is_filter_bypassed);
  world.put(chain(8, 1));
  world.drain();
  EXPECT_EQ(world.refused(kFiltered), 1U);
  EXPECT_EQ(asked.calls.size(), 8U);
  asked.wants = [](const FilteredBlock&) { return true; };
  world.run_for(seconds(2));
  world.put(chain(9, 1));
  world.drain();
  EXPECT_EQ(world.offloader->status().copied, 9U);
  EXPECT_EQ(asked.reports.size(), 3U) << "slow, bypassed, called again";
}

}  // namespace
}  // namespace cairn::testing
