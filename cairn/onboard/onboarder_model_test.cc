// With random faults: no wrong bytes are served, every load ends once and in time, and no block leaks.
#include <random>

#include "cairn/onboard/onboarder_testing.h"

namespace cairn {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::chain;
using testing::first_of;
using testing::Keys;
using testing::Loaded;
using testing::Rig;
using testing::RigOptions;
using testing::some_of;

class OnboarderModelTest : public ::testing::TestWithParam<std::uint64_t> {
 protected:
  static RigOptions options(std::uint64_t seed) {
    std::mt19937_64 random(seed);
    RigOptions options{.blocks = {40, 48, 400},
                       .onboard = {.through_host = random() % 4 != 0, .deadline = milliseconds(40), .loads = 24},
                       .ways = {.bytes_per_second = 2e6, .latency = microseconds(300), .limit = 3 + random() % 6},
                       .has_straight = random() % 3 != 0,
                       .seed = seed};
    options.faults[index_of(LoadLink::kHostToDevice)] = {{.fault = Fault::kFail, .chance = 0.01},
                                                         {.fault = Fault::kHang, .chance = 0.005},
                                                         {.fault = Fault::kCorruptInFlight, .chance = 0.01}};
    options.faults[index_of(LoadLink::kDiskToDevice)] = options.faults[0];
    options.faults[index_of(LoadLink::kDiskToHost)] = {{.fault = Fault::kShort, .chance = 0.01},
                                                       {.fault = Fault::kCorrupt, .chance = 0.01},
                                                       {.fault = Fault::kHang, .chance = 0.005},
                                                       {.fault = Fault::kFail, .chance = 0.02}};
    return options;
  }

  std::uint32_t one_of(std::uint32_t choices) { return static_cast<std::uint32_t>(random_() % choices); }
  // A prefix of one of a few sequences, half of which share a beginning.
  Keys some_keys() {
    const std::uint32_t name = one_of(6);
    const Keys trunk = chain(name % 2, 12);
    return first_of(testing::joined(trunk, chain(10 + name, 20, trunk)), 1 + one_of(32));
  }

  void load() {
    const Keys keys = some_keys();
    const TimePoint deadline = rig_.clock().now() + microseconds(200 + one_of(30'000));
    auto loaded = std::make_shared<Loaded>();
    asked_ += keys.size();
    const Result<LoadId> id = rig_.onboarder().load({.keys = keys,
                                                     .deadline = deadline,
                                                     .most = one_of(4) == 0 ? one_of(20) : 0,
                                                     .done = [this, loaded, keys, deadline](LoadOutcome&& result) {
                                                       EXPECT_FALSE(loaded->is_done) << "reported twice";
                                                       EXPECT_LE(rig_.clock().now(), deadline);
                                                       EXPECT_TRUE(rig_.is_right(result, keys)) << "wrong bytes";
                                                       std::uint32_t from = 0;
                                                       for (const std::uint32_t each : result.from) {
                                                         from += each;
                                                       }
                                                       EXPECT_EQ(from, result.prefix);
                                                       loaded->is_done = true;
                                                       served_ += result.prefix;
                                                       if (one_of(4) == 0) {
                                                         loaded->result = std::move(result);
                                                       }
                                                     }});
    if (id) {
      loaded->id = *id;
      loads_.push_back(std::move(loaded));
    } else {
      asked_ -= keys.size();
      EXPECT_EQ(id.error().code, ErrorCode::kExhausted);
    }
  }
  void onboard() {
    (void)rig_.onboarder().onboard({.blocks = rig_.host().pool().match_prefix(some_keys()),
                                    .deadline = rig_.clock().now() + milliseconds(10),
                                    .done = [this](Result<ImmutableBlocks>&& result) {
                                      for (std::uint32_t i = 0; result && i < result->size(); ++i) {
                                        EXPECT_TRUE(rig_.device().holds(result->block_ids()[i], result->key(i)));
                                      }
                                    }});
  }
  void put(testing::MemoryTier& tier) {
    const Keys keys = some_keys();
    if (tier.pool().counts().available() >= keys.size()) {
      (void)tier.put(some_of(keys, one_of(static_cast<std::uint32_t>(keys.size())), keys.size()));
    }
  }
  void act() {
    switch (one_of(20)) {
      case 0:
      case 1:
        return put(rig_.host());
      case 2:
      case 3:
      case 4:
        return put(rig_.disk());
      case 5:
        (void)rig_.device().pool().reset_inactive();
        return;
      case 6:
        (void)rig_.host().pool().reset(some_keys());
        return;
      case 7:
        if (!loads_.empty()) {
          rig_.onboarder().cancel(loads_[one_of(static_cast<std::uint32_t>(loads_.size()))]->id);
        }
        return;
      case 8:
        (void)rig_.onboarder().prefetch({.keys = some_keys(), .deadline = rig_.clock().now() + milliseconds(5)});
        return;
      case 9:
        return onboard();
      case 10:
        return rig_.link(LoadLink{static_cast<std::uint8_t>(is_straight_ ? 1 : 2)}).pause(one_of(4) == 0);
      case 11:
        return rig_.release_hung();
      case 12:
        for (const auto& loaded : loads_) {
          loaded->result = {};
        }
        return;
      case 13:
      case 14:
      case 15:
        return rig_.run_for(microseconds(one_of(3000)));
      default:
        return load();
    }
  }

  std::mt19937_64 random_{GetParam()};
  const RigOptions options_ = options(GetParam());
  const bool is_straight_ = options_.has_straight;
  std::uint64_t asked_ = 0;
  std::uint64_t served_ = 0;
  std::vector<std::shared_ptr<Loaded>> loads_;
  Rig rig_{options_};
};

TEST_P(OnboarderModelTest, NothingWrongIsServedAndNothingIsLost) {
  for (int step = 0; step < 1500; ++step) {
    act();
  }
  rig_.run_for(milliseconds(100));
  for (const auto& loaded : loads_) {
    EXPECT_TRUE(loaded->is_done);
    loaded->result = {};
  }
  rig_.release_hung();
  rig_.run();
  rig_.expect_drained();
  const OnboardStatus status = rig_.onboarder().status();
  EXPECT_GE(status.finished, loads_.size());
  EXPECT_EQ(status.hits[0] + status.hits[1] + status.hits[2] + status.misses, asked_);
  EXPECT_GT(served_, 0U);
  for (const LoadLink link : {LoadLink::kHostToDevice, LoadLink::kDiskToHost}) {
    const LinkTotals totals = rig_.link(link).meter().totals();
    EXPECT_EQ(totals.bytes_in_flight, 0U);
    EXPECT_EQ(totals.quarantined, 0U);
  }
  EXPECT_TRUE(rig_.device().wrong_blocks().empty());
}

INSTANTIATE_TEST_SUITE_P(Seeds, OnboarderModelTest, ::testing::Range<std::uint64_t>(1, 41));

}  // namespace
}  // namespace cairn
