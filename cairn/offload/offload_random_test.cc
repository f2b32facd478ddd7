// Seeded runs of an offloader with all kinds of faults; invariants are checked at every step and at the end.
#include <gtest/gtest.h>

#include <cstdint>
#include <deque>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "cairn/offload/offload_testing.h"

namespace cairn::testing {
namespace {

constexpr std::uint32_t kMostInBatch = 6;
constexpr std::uint32_t kMostInFlight = 4;

class RandomRun {
 public:
  explicit RandomRun(std::uint64_t seed) : random_(seed), world_(options()) {}

  void run() {
    for (int step = 0; step < 400; ++step) {
      act();
      check();
    }
    world_.offloader->resume();
    world_.link->pause(false);
    held_below_.reset();
    in_use_.clear();
    world_.executor->release();
    world_.drain();
    check_bytes();
    world_.expect_accounts_add_up();
    world_.finish();
    EXPECT_EQ(world_.above().counts().active, 0U) << "no claim is left";
    EXPECT_EQ(world_.above().counts().pinned, 0U);
    EXPECT_EQ(world_.below().stats().deduplicated, 0U) << "nothing is copied twice";
    EXPECT_EQ(world_.below().stats().registered, copied());
    EXPECT_EQ(world_.below().counts().active, 0U);
    EXPECT_EQ(world_.below().counts().quarantined, 0U);
    for (const Outcome& outcome : outcomes_) {
      EXPECT_EQ(outcome.times, 1);
      const bool all = std::ranges::find(outcome.is_below, false) == outcome.is_below.end();
      EXPECT_EQ(outcome.error.empty(), all);
    }
    check();
  }
  [[nodiscard]] std::uint64_t copied() const { return world_.offloader->status().copied; }

 private:
  std::uint32_t below(std::uint32_t count) { return static_cast<std::uint32_t>(random_() % count); }
  bool chance(std::uint32_t percent) { return below(100) < percent; }

  WorldOptions options() {
    constexpr OffloadMode kModes[] = {OffloadMode::kAhead, OffloadMode::kAhead, OffloadMode::kOnRegistration,
                                      OffloadMode::kOff};
    WorldOptions options{
        .upper = 16 + below(32),
        .lower = 8 + below(64),
        .low_water = 1 + below(8),
        .leaves_first = chance(50),
        .offload = {.mode = kModes[below(4)],
                    .batch = 1 + below(kMostInBatch),
                    .in_flight = 1 + below(kMostInFlight),
                    .queue = 2 + below(40),
                    .deadline = milliseconds(5 + below(20)),
                    .least_uses = 1 + below(2)},
        .link = {.bytes_per_second = 1e5, .latency = microseconds(below(2'000)), .limit = 1 + below(8)},
        .health = {.failures = 2 + below(4), .first_wait = milliseconds(5)}};
    if (chance(70)) {
      options.faults = {.rules = {{.fault = Fault::kFail, .chance = 0.05},
                                  {.fault = Fault::kShort, .chance = 0.03},
                                  {.fault = Fault::kDelay, .chance = 0.05},
                                  {.fault = Fault::kHang, .chance = 0.02},
                                  {.fault = Fault::kLose, .chance = 0.01}},
                        .seed = random_(),
                        .delay = milliseconds(3)};
    }
    return options;
  }

  Keys some_keys() {
    Keys keys = chain(below(40), 1 + below(6));
    keys.erase(keys.begin(), keys.begin() + below(static_cast<std::uint32_t>(keys.size())));
    return keys;
  }

  void act() {
    switch (below(12)) {
      case 0:
      case 1:
      case 2:
        if (const Keys keys = chain(below(40), 1 + below(6)); world_.above().counts().available() >= keys.size()) {
          ImmutableBlocks blocks = world_.fill(keys, {.priority = below(100)});
          if (chance(20)) {
            in_use_.push_back(std::move(blocks));
          }
        }
        break;
      case 3:
        (void)world_.above().match_prefix(chain(below(40), 6));
        break;
      case 4:
      case 5:
        outcomes_.emplace_back();
        if (const auto id = world_.offloader->offload(
                {.keys = some_keys(),
                 .priority = below(100),
                 .deadline = chance(30) ? world_.clock.now() + milliseconds(below(20)) : TimePoint::max(),
                 .done = outcomes_.back().hear()})) {
          requests_.push_back(*id);
        } else {
          outcomes_.pop_back();
        }
        break;
      case 6:
        if (!requests_.empty()) {
          world_.offloader->cancel(requests_[below(static_cast<std::uint32_t>(requests_.size()))]);
        }
        break;
      case 7:
        chance(30) ? world_.offloader->pause() : world_.offloader->resume();
        world_.link->pause(chance(10));
        break;
      case 8:
        if (chance(50)) {
          (void)world_.above().reset(some_keys());
        } else {
          (void)world_.below().reset(some_keys());
        }
        break;
      case 9:
        if (chance(50)) {
          held_below_.reset();
          if (Result<MutableBlocks> blocks = world_.below().allocate(below(world_.below().capacity()))) {
            held_below_.emplace(*std::move(blocks));
          }
        } else {
          in_use_.clear();
          world_.executor->release();
        }
        break;
      default:
        world_.run_for(microseconds(below(8'000)));
        break;
    }
  }

  void check() {
    for (const BlockPool* pool : {&world_.above(), &world_.below()}) {
      pool->check_invariants();
      const PoolCounts counts = pool->counts();
      ASSERT_EQ(counts.free + counts.inactive + counts.active + counts.quarantined, counts.total);
    }
    world_.expect_accounts_add_up();
    const OffloadStatus status = world_.offloader->status();
    ASSERT_LE(status.in_flight, kMostInFlight * kMostInBatch);
  }

  void check_bytes() {
    for (const BlockKey& key : resident_keys(world_.below())) {
      ASSERT_TRUE(world_.is_whole_below(key)) << key.to_string();
    }
  }

  std::mt19937_64 random_;
  World world_;
  std::deque<Outcome> outcomes_;  // a deque keeps their addresses
  std::vector<OffloadRequestId> requests_;
  std::vector<ImmutableBlocks> in_use_;
  std::optional<MutableBlocks> held_below_;
};

TEST(OffloadRandomTest, HoldsWhateverHappens) {
  std::uint64_t copied = 0;
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    RandomRun run(seed);
    run.run();
    copied += run.copied();
    if (HasFailure()) {
      return;
    }
  }
  EXPECT_GT(copied, 5'000U);
}

}  // namespace
}  // namespace cairn::testing
