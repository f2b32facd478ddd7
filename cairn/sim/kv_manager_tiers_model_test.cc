// Random traffic through tiers: one tier below, step by step against a naive manager; many tiers, links of all kinds
// and several workers, against invariants.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <set>
#include <vector>

#include "cairn/sim/kv_manager.h"
#include "cairn/sim/naive_tiers_testing.h"
#include "cairn/sim/sim_tier_testing.h"

namespace cairn::sim {
namespace {

using std::chrono::milliseconds;
using Ids = std::vector<std::uint64_t>;
using Outcome = SwapInStart::Outcome;

// Distinct numbers below `limit`.
Ids draw(std::mt19937_64& random, std::uint64_t limit, std::size_t count) {
  Ids ids;
  while (ids.size() < std::min<std::size_t>(count, limit)) {
    const std::uint64_t id = random() % limit + 1;
    if (std::ranges::find(ids, id) == ids.end()) {
      ids.push_back(id);
    }
  }
  return ids;
}

// The real and the naive manager, making the same moves.
class Pair {
 public:
  explicit Pair(const NaiveTiers::Options& options)
      : naive_(options),
        real_({.max_capacity = static_cast<std::uint32_t>(options.g1),
               .block_size = 4,
               .eviction = PolicyKind::kLru,
               .profile = Profile::kSeed}) {
    const LinkOptions lane{.bytes_per_second = 1'000'000'000, .discipline = LinkDiscipline::kInOrder};
    OffloadTierOptions g2 = test_tier(network_, CacheLevel::kG2, static_cast<std::uint32_t>(options.g2), lane);
    g2.eviction = PolicyKind::kLru;
    EXPECT_TRUE(real_->attach_offload_engine({.block_bytes = kBlockBytes,
                                              .batch_blocks = static_cast<std::uint32_t>(options.batch),
                                              .max_copies = static_cast<std::uint32_t>(options.max_copies),
                                              .tiers = {g2}},
                                             network_));
  }

  void use(const Ids& ids, const std::vector<PartialId>& partials) {
    std::vector<UniqueBlock> blocks;
    std::vector<BlockKey> keys;
    for (const std::uint64_t id : ids) {
      blocks.push_back(UniqueBlock::full(SequenceHash{id}));
      keys.push_back(plh(id));
    }
    for (const PartialId partial : partials) {
      blocks.push_back(UniqueBlock::partial(partial));
    }
    const std::size_t granted = naive_.use(ids, partials);
    ASSERT_EQ(*real_.process(Use{.blocks = blocks, .keys = keys}), granted);
    held_.insert(held_.end(), ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(std::min(granted, ids.size())));
    for (std::size_t i = ids.size(); i < granted; ++i) {
      partials_.insert(partials[i - ids.size()]);
    }
  }
  void deref_some(std::mt19937_64& random) {
    Ids gone;
    for (std::size_t i = random() % (held_.size() + 1); i > 0; --i) {
      const auto at = held_.begin() + static_cast<std::ptrdiff_t>(random() % held_.size());
      gone.push_back(*at);
      held_.erase(at);
    }
    naive_.deref(gone);
    real_.deref(gone);
    if (!partials_.empty() && random() % 2 == 0) {
      naive_.drop(*partials_.begin());
      ASSERT_TRUE(real_.deref_partial(*partials_.begin()));
      partials_.erase(partials_.begin());
    }
  }
  void swap_in(const Ids& ids) {
    const NaiveTiers::Start expected = naive_.swap_in(ids);
    const SwapInStart started = real_.swap_in(ids);
    ASSERT_EQ(static_cast<int>(started.outcome), static_cast<int>(expected));
    if (started.outcome == Outcome::kScheduled) {
      swap_ins_.emplace_back(started.id, naive_.last_scheduled());
    }
  }
  void advance_to(std::uint64_t now) {
    naive_.advance_to(now);
    real_.advance_to(milliseconds(now));
    for (const LoadId id : real_->take_landed_swap_ins()) {
      const auto found = std::ranges::find(swap_ins_, id, &std::pair<LoadId, std::size_t>::first);
      ASSERT_NE(found, swap_ins_.end());
      ASSERT_FALSE(naive_.landed.empty());
      ASSERT_EQ(naive_.landed.front(), found->second);
      naive_.landed.erase(naive_.landed.begin());
      swap_ins_.erase(found);
    }
    ASSERT_TRUE(naive_.landed.empty());
  }
  void compare() {
    ASSERT_EQ(real_.sink.take(), std::exchange(naive_.events, {}));
    ASSERT_EQ(real_.counts(), naive_.counts());
    const std::optional<std::uint64_t> next = naive_.next_event_time();
    ASSERT_EQ(real_->next_event_time(), next ? std::optional<TimePoint>(milliseconds(*next)) : std::nullopt);
    for (std::uint64_t id = 1; id <= 16; ++id) {
      ASSERT_EQ(real_->is_resident(plh(id)), naive_.in_g1(id)) << id;
      ASSERT_EQ(real_->offload_engine()->tier(0).contains(plh(id)), naive_.in_g2(id)) << id;
    }
  }

 private:
  NaiveTiers naive_;
  LinkNetwork network_;
  TestManager real_;
  Ids held_;  // one for each reference
  std::set<PartialId> partials_;
  std::vector<std::pair<LoadId, std::size_t>> swap_ins_;  // in flight
};

TEST(KvManagerTiersModelTest, EqualsTheNaiveManager) {
  for (std::uint64_t seed = 0; seed < 150; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    Pair pair(
        {.g1 = 2 + random() % 8, .g2 = 1 + random() % 10, .batch = 1 + random() % 4, .max_copies = 1 + random() % 3});
    std::uint64_t now = 0;
    std::uint64_t next_partial = 0;
    for (int step = 0; step < 60; ++step) {
      SCOPED_TRACE(step);
      switch (random() % 7) {
        case 0:
        case 1:
        case 2: {
          std::vector<PartialId> partials;
          for (std::size_t i = random() % 3; i > 1; --i) {
            partials.push_back(PartialId{next_partial++});
          }
          pair.use(draw(random, 16, random() % 5), partials);
          break;
        }
        case 3:
        case 4:
          pair.deref_some(random);
          break;
        case 5:
          pair.swap_in(draw(random, 16, 1 + random() % 4));
          break;
        default:
          now += random() % 6;
          pair.advance_to(now);
      }
      if (::testing::Test::HasFatalFailure()) {
        return;
      }
      pair.compare();
      if (::testing::Test::HasFatalFailure()) {
        return;
      }
    }
  }
}

// A worker with several tiers, and a follower that knows only its events.
class Worker {
 public:
  Worker(const KvManagerOptions& options, const OffloadOptions& offload, LinkNetwork& network)
      : manager_(options, &key_of), known_(offload.tiers.size() + 1), offload_(offload) {
    EXPECT_TRUE(manager_->attach_offload_engine(offload, network));
  }

  // Sequences of six blocks: 1 to 6, 7 to 12 and so on.
  static constexpr std::uint64_t kLength = 6;
  static BlockKey key_of(std::uint64_t id) {
    const std::uint64_t position = (id - 1) % kLength;
    return *BlockKey::make(position, SequenceHash{id}, SequenceHash{position == 0 ? 0 : id - 1});
  }

  void step(std::mt19937_64& random) {
    const std::uint64_t first = random() % 5 * kLength + 1;
    Ids ids;
    for (std::uint64_t i = 0; i < 1 + random() % kLength; ++i) {
      ids.push_back(first + i);
    }
    switch (random() % 5) {
      case 0:
      case 1: {
        const std::size_t granted = manager_.use(ids);
        ids.resize(granted);
        if (granted > 0) {
          held_.push_back(ids);
        }
        break;
      }
      case 2:
      case 3:
        if (!held_.empty()) {
          const auto at = held_.begin() + static_cast<std::ptrdiff_t>(random() % held_.size());
          std::ranges::reverse(*at);
          manager_.deref(*at);
          held_.erase(at);
        }
        break;
      default: {
        follow();
        const SwapInStart started = manager_.swap_in(ids);
        if (started.outcome == Outcome::kScheduled) {
          for (std::size_t i = 0; i < started.plan.blocks(); ++i) {
            const TierIndex tier = started.plan.source[i];
            EXPECT_TRUE(known_[tier + 1].contains(ids[started.cached + i])) << "its Stored came before";
          }
        }
      }
    }
    check();
  }

  void advance_to(TimePoint now) {
    manager_.advance_to(now);
    check();
  }

  // The events say which blocks are in each tier, at every moment.
  void check() {
    follow();
    manager_->check_invariants();
    for (std::uint64_t id = 1; id <= 5 * kLength; ++id) {
      ASSERT_EQ(known_[0].contains(id), manager_->is_resident(key_of(id))) << id;
      for (TierIndex tier = 0; tier < offload_.tiers.size(); ++tier) {
        ASSERT_EQ(known_[tier + 1].contains(id), manager_->offload_engine()->tier(tier).contains(key_of(id))) << id;
      }
    }
  }

  void let_go() {
    for (Ids& ids : held_) {
      std::ranges::reverse(ids);
      manager_.deref(ids);
    }
    held_.clear();
  }

  [[nodiscard]] TestManager& manager() { return manager_; }
  [[nodiscard]] const std::vector<SeenEvent>& log() const { return log_; }

 private:
  void follow() {
    for (SeenEvent& event : manager_.sink.take()) {
      std::set<std::uint64_t>& tier = known_[index_of(event.tier)];
      for (const std::uint64_t id : event.blocks) {
        EXPECT_TRUE(event.is_stored ? tier.insert(id).second : tier.erase(id) == 1)
            << "each block is reported once, in order";
      }
      EXPECT_EQ(event.event_id, log_.size());
      log_.push_back(std::move(event));
    }
  }

  TestManager manager_;
  std::vector<std::set<std::uint64_t>> known_;  // by level
  OffloadOptions offload_;
  std::vector<Ids> held_;
  std::vector<SeenEvent> log_;
};

struct Outcomes {
  std::vector<std::vector<SeenEvent>> logs{};
  std::vector<LinkStats> links{};
  TimePoint end{};
};

// Two workers with up to three tiers each; the lowest tiers share their links.
Outcomes run_workers(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  LinkNetwork network;
  std::vector<LinkId> links;
  const auto add_link = [&] {
    links.push_back(
        *network.add_link({.bytes_per_second = random() % 5 == 0 ? 0 : 1'000'000 + random() % 5'000'000'000,
                           .discipline = random() % 2 == 0 ? LinkDiscipline::kShared : LinkDiscipline::kInOrder,
                           .latency = Duration(random() % 2 == 0 ? 0 : random() % 1'000'000)}));
    return links.back();
  };
  const LinkId shared_down = add_link();
  const LinkId shared_up = add_link();
  const std::size_t tiers = 1 + random() % 3;
  std::vector<std::unique_ptr<Worker>> workers;
  for (int i = 0; i < 2; ++i) {
    OffloadOptions offload{.block_bytes = 1 + random() % 3'000'000,
                           .batch_blocks = 1 + static_cast<std::uint32_t>(random() % 4),
                           .max_copies = 1 + static_cast<std::uint32_t>(random() % 4)};
    for (std::size_t tier = 0; tier < tiers; ++tier) {
      const bool last = tier + 1 == tiers;
      offload.tiers.push_back({.level = static_cast<CacheLevel>(tier + 1),
                               .capacity = 2 + static_cast<std::uint32_t>(random() % 12),
                               .eviction = random() % 2 == 0 ? PolicyKind::kLru : PolicyKind::kLineageTick,
                               .down = last ? shared_down : add_link(),
                               .up = last ? shared_up : add_link()});
    }
    workers.push_back(std::make_unique<Worker>(
        KvManagerOptions{.max_capacity = 6 + static_cast<std::uint32_t>(random() % 8),
                         .block_size = 4,
                         .eviction = random() % 2 == 0 ? PolicyKind::kLru : PolicyKind::kLineageTick,
                         .profile = Profile::kSeed},
        offload, network));
  }
  TimePoint now(0);
  for (int step = 0; step < 150; ++step) {
    Worker& worker = *workers[random() % workers.size()];
    worker.step(random);
    if (random() % 3 == 0) {
      const std::optional<TimePoint> next = worker.manager()->next_event_time();
      now = std::max(now, next && random() % 2 == 0 ? *next : now + Duration(random() % 2'000'000));
      worker.advance_to(now);
    }
  }
  // All copies and loads end, and all blocks are returned.
  Outcomes outcomes;
  for (int round = 0; round < 2; ++round) {
    for (const std::unique_ptr<Worker>& worker : workers) {
      finish_everything(worker->manager());
      worker->let_go();
      worker->check();
    }
  }
  std::uint64_t moved = 0;
  for (const std::unique_ptr<Worker>& worker : workers) {
    const OffloadEngine& engine = *worker->manager()->offload_engine();
    EXPECT_EQ(engine.copies(), 0U);
    EXPECT_EQ(engine.loads(), 0U);
    EXPECT_EQ(worker->manager()->num_active_blocks(), 0U);
    EXPECT_EQ(worker->manager()->num_active_block_refs(), 0U);
    for (TierIndex tier = 0; tier < tiers; ++tier) {
      const PoolCounts counts = engine.tier(tier).counts();
      EXPECT_EQ(counts.available(), counts.total);
      EXPECT_EQ(engine.tier(tier).expected(), 0U);
      EXPECT_EQ(engine.stats(tier).copied, engine.stats(tier).evicted + counts.registered);
      moved += engine.block_bytes() * (engine.stats(tier).copied + engine.stats(tier).loaded * (tier + 1));
    }
    outcomes.logs.push_back(worker->log());
  }
  EXPECT_EQ(network.in_flight(), 0U);
  for (const LinkId link : links) {
    outcomes.links.push_back(network.stats(link));
    moved -= network.stats(link).bytes;
  }
  EXPECT_EQ(moved, 0U) << "every byte of a copy or load crosses each of its links, and no other";
  outcomes.end = network.now();
  return outcomes;
}

TEST(KvManagerTiersModelTest, AnyTiersAnyLinksAnyWorkers) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    SCOPED_TRACE(seed);
    run_workers(seed);
    if (::testing::Test::HasFailure()) {
      return;
    }
  }
}

TEST(KvManagerTiersModelTest, TheSameSeedGivesTheSameRun) {
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    const Outcomes first = run_workers(seed);
    const Outcomes second = run_workers(seed);
    EXPECT_EQ(first.logs, second.logs);
    EXPECT_EQ(first.links, second.links);
    EXPECT_EQ(first.end, second.end);
  }
}

}  // namespace
}  // namespace cairn::sim
