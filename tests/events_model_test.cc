// A subscriber that applies a snapshot and then the events always knows exactly what the pools hold: random work on
// real pools, with subscribers that join late, lag behind a tiny log, and resume.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bitset>
#include <chrono>
#include <memory>
#include <optional>
#include <random>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "cairn/base/clock.h"
#include "cairn/events/event_log.h"
#include "cairn/events/residency_view.h"
#include "cairn/pool/block_pool.h"

namespace cairn {
namespace {

constexpr std::uint32_t kBlockSize = 4;
constexpr std::uint32_t kSequences = 8;
constexpr std::uint32_t kLength = 6;  // blocks per sequence

// Pairs of sequences share their first two blocks.
SequenceHash hash_at(std::uint32_t sequence, std::uint32_t position) {
  const std::uint64_t branch = position < 2 ? sequence / 2 : 100 + sequence;
  return SequenceHash{(branch << 56) | (branch << 8) | position};
}
BlockKey key_at(std::uint32_t sequence, std::uint32_t position) {
  const SequenceHash parent = position == 0 ? SequenceHash{0} : hash_at(sequence, position - 1);
  return BlockKey::make_checked(position, hash_at(sequence, position), parent);
}
BlockHash tokens_hash_at(std::uint32_t sequence, std::uint32_t position) {
  return BlockHash{value_of(hash_at(sequence, position)) ^ 0x5555};
}

struct Setup {
  PolicyKind policy = PolicyKind::kLru;
  Duplicates duplicates = Duplicates::kReject;
  bool time_to_live = false;
  std::uint32_t pools = 1;
  std::uint32_t capacity = 8;
  std::uint32_t log_blocks = 8;
  std::uint32_t log_tokens = 0;
};

// The pools, the handles that are held, and the operations on them, which accept any numbers.
class World {
 public:
  explicit World(const Setup& setup)
      : log(*EventLog::create({.blocks = setup.log_blocks, .token_ids = setup.log_tokens})) {
    for (std::uint32_t i = 0; i < setup.pools; ++i) {
      BlockPoolOptions options{.capacity = setup.capacity + i,
                               .block_size = kBlockSize,
                               .tier = static_cast<CacheLevel>(i),
                               .policy = setup.policy,
                               .duplicates = setup.duplicates};
      options.time_to_live = setup.time_to_live;
      if (setup.time_to_live) {
        options.retention.time_to_live = std::chrono::seconds(10);
      }
      options.clock = &clock;
      options.observers = {log.get()};
      owned_.push_back(*BlockPool::create(options));
      pools.push_back(owned_.back().get());
    }
  }

  BlockPool& pool(std::uint32_t i) const { return *owned_[i % owned_.size()]; }

  // Registers and holds a run of one sequence, or every second block of it.
  void store(std::uint32_t i, std::uint32_t sequence, std::uint32_t first, std::uint32_t count, bool scattered) {
    std::vector<BlockKey> keys;
    std::vector<BlockHash> hashes;
    for (std::uint32_t position = first; position < std::min(first + count, kLength); position += scattered ? 2 : 1) {
      keys.push_back(key_at(sequence, position));
      hashes.push_back(tokens_hash_at(sequence, position));
    }
    if (scattered) {  // and one of another sequence
      keys.push_back(key_at(sequence ^ 2, 3));
      hashes.push_back(tokens_hash_at(sequence ^ 2, 3));
    }
    const auto size = static_cast<std::uint32_t>(keys.size());
    Result<MutableBlocks> blocks = pool(i).allocate(size);
    if (!blocks) {
      return;
    }
    BlockNames names{.keys = keys};
    if (count % 2 == 0) {
      names.tokens_hashes = hashes;
    }
    if (first > 0) {
      names.parent = hash_at(sequence, first - 1);
    }
    auto complete = std::move(*blocks).complete(names);
    ASSERT_TRUE(complete) << complete.error().error.to_string();
    if (count == 5) {
      return;  // never registered
    }
    const std::vector<Token> tokens(count % 3 == 0 ? std::size_t{size} * kBlockSize : 0, sequence);
    auto registered = std::move(*complete).register_blocks(tokens);
    ASSERT_TRUE(registered) << registered.error().error.to_string();
    held_.push_back(*std::move(registered));
  }

  void match(std::uint32_t i, std::uint32_t sequence, std::uint32_t count) {
    held_.push_back(pool(i).match_prefix(keys_of(sequence, 0, count)));
  }
  void drop(std::uint32_t i, bool reset) {
    if (held_.empty()) {
      return;
    }
    std::swap(held_[i % held_.size()], held_.back());
    if (reset) {
      held_.back().reset_on_release(true);
    }
    held_.pop_back();
  }
  void drop_all() { held_.clear(); }
  void reset(std::uint32_t i, std::uint32_t sequence, std::uint32_t first, std::uint32_t count) {
    pool(i).reset(keys_of(sequence, first, count));
  }

  // Also recorded here, so that the log is not checked against itself.
  void set_suspended(std::uint32_t i, bool suspended) {
    const CacheLevel tier = pool(i).tier();
    suspended_[index_of(tier)] = suspended;
    if (suspended) {
      log->suspend(tier);
    } else {
      log->resume(tier);
    }
  }
  [[nodiscard]] bool is_suspended(CacheLevel tier) const { return suspended_[index_of(tier)]; }

  static std::vector<BlockKey> keys_of(std::uint32_t sequence, std::uint32_t first, std::uint32_t count) {
    std::vector<BlockKey> keys;
    for (std::uint32_t position = first; position < std::min(first + count, kLength); ++position) {
      keys.push_back(key_at(sequence, position));
    }
    return keys;
  }

  // The resident blocks. Blocks that are due expire in this call, with their events.
  [[nodiscard]] std::vector<std::vector<ResidentBlock>> residents() const {
    std::vector<std::vector<ResidentBlock>> all;
    for (const ResidentSource* p : pools) {
      std::vector<ResidentBlock>& blocks = all.emplace_back();
      EXPECT_EQ(p->list_resident(0, p->capacity(), blocks), p->capacity());
      for (ResidentBlock& block : blocks) {
        block.parent = block.key.position() == 0 ? SequenceHash{0} : block.parent;
      }
      std::ranges::sort(blocks, {}, &ResidentBlock::key);
    }
    return all;
  }

  ManualClock clock;
  const std::unique_ptr<EventLog> log;
  std::vector<const ResidentSource*> pools;

 private:
  std::vector<std::unique_ptr<BlockPool>> owned_;
  std::vector<ImmutableBlocks> held_;
  std::bitset<kCacheLevels> suspended_;
};

// A consumer of events: a subscriber and a view.
class Follower {
 public:
  explicit Follower(const World& world) : world_(&world), subscriber_(EventSubscriber::joining(*world.log)) {}

  // Applies one batch, or a snapshot if one is needed. False if there was nothing new.
  bool step(std::size_t max_blocks) {
    const EventBatch batch = subscriber_.poll(max_blocks);
    if (const auto* events = std::get_if<std::vector<Event>>(&batch)) {
      for (const Event& event : *events) {
        const Status applied = view_.apply(event);
        EXPECT_TRUE(applied) << applied.error().to_string();
      }
      return !events->empty();
    }
    const Result<Snapshot> snapshot = take_snapshot(*world_->log, world_->pools);
    if (snapshot) {
      EXPECT_TRUE(view_.apply(*snapshot));
      EXPECT_TRUE(subscriber_.resume_at(snapshot->sequence + 1));
    } else {
      EXPECT_EQ(snapshot.error().code, ErrorCode::kExhausted);  // the pools kept changing; the next step tries again
    }
    return true;
  }

  // Resumes after the last event that this consumer has seen.
  void reconnect() {
    if (!subscriber_.needs_snapshot()) {
      subscriber_ = *EventSubscriber::resuming(*world_->log, view_.sequence() + 1);
    }
  }

  void catch_up_and_check() {
    const auto residents = world_->residents();
    while (step(3)) {
    }
    EXPECT_EQ(view_.sequence(), world_->log->last_sequence());
    for (std::uint32_t i = 0; i < residents.size(); ++i) {
      const auto tier = static_cast<CacheLevel>(i);
      ASSERT_EQ(view_.sorted_blocks(tier), residents[i]);
      ASSERT_EQ(view_.is_suspended(tier), world_->is_suspended(tier));
      ASSERT_EQ(world_->log->is_suspended(tier), world_->is_suspended(tier));
      for (std::uint32_t sequence = 0; sequence < kSequences; ++sequence) {
        for (std::uint32_t position = 0; position < kLength; ++position) {
          const BlockKey key = key_at(sequence, position);
          const bool available = !world_->is_suspended(tier) && world_->pool(i).contains(key);
          ASSERT_EQ(view_.contains(tier, key), available);
          ASSERT_EQ(view_.tiers_holding(key)[i], available);
        }
      }
    }
  }

 private:
  const World* world_;
  EventSubscriber subscriber_;
  ResidencyView view_;
};

// One step of work: the operation and its numbers.
using Step = std::array<std::uint32_t, 5>;

void work(World& world, const Step& step) {
  const auto [what, a, b, c, d] = step;
  switch (what % 11) {
    case 0:
    case 1:
    case 2:
      return world.store(a, b % kSequences, c % kLength, 1 + d % kLength, false);
    case 3:
      return world.store(a, b % kSequences, c % kLength, 1 + d % kLength, true);
    case 4:
      return world.match(a, b % kSequences, 1 + c % kLength);
    case 5:
    case 6:
      return world.drop(a, b % 4 == 0);
    case 7:
      return world.reset(a, b % kSequences, c % kLength, 1 + d % kLength);
    case 8:
      if (a % 3 == 0) {
        world.drop_all();
      }
      static_cast<void>(world.pool(b).reset_inactive());
      return;
    case 9:
      return world.set_suspended(a, b % 2 == 0);
    default:
      return world.clock.advance(std::chrono::seconds(a % 8));
  }
}

RC_GTEST_PROP(EventsModelTest, EveryFollowerEqualsThePools, ()) {
  Setup setup;
  setup.policy = *rc::gen::elementOf(std::vector<PolicyKind>(std::begin(kAllPolicies), std::end(kAllPolicies)));
  setup.duplicates = *rc::gen::element(Duplicates::kReject, Duplicates::kAllow);
  setup.time_to_live = *rc::gen::arbitrary<bool>();
  setup.pools = *rc::gen::inRange(1U, 3U);
  setup.capacity = *rc::gen::inRange(1U, 20U);
  setup.log_blocks = *rc::gen::element(1U, 2U, 7U, 30U, 1000U);
  setup.log_tokens = *rc::gen::element(0U, 3U, 20U, 1000U);
  const auto numbers = rc::gen::inRange(0U, 1000U);
  const auto steps = *rc::gen::resize(400, rc::gen::container<std::vector<Step>>(rc::gen::container<Step>(numbers)));

  World world(setup);
  Follower prompt(world);
  std::vector<Follower> followers;
  for (const Step& step : steps) {
    work(world, step);
    prompt.catch_up_and_check();
    switch (step[4] % 8) {
      case 0:
        followers.emplace_back(world);
        break;
      case 1:
      case 2:
        if (!followers.empty()) {
          followers[step[3] % followers.size()].step(1 + step[2] % 10);
        }
        break;
      case 3:
        if (!followers.empty()) {
          followers[step[3] % followers.size()].reconnect();
        }
        break;
      case 4:
        if (!followers.empty()) {
          followers[step[3] % followers.size()].catch_up_and_check();
        }
        break;
      default:
        break;
    }
    RC_ASSERT(!::testing::Test::HasFailure());
  }
  for (Follower& follower : followers) {
    follower.catch_up_and_check();
  }
  RC_ASSERT(!::testing::Test::HasFailure());
}

// The same with threads: one works on the pools while others follow.
void follow_while_working(std::uint32_t log_blocks) {
  World world({.policy = PolicyKind::kLineageTick,
               .duplicates = Duplicates::kAllow,
               .pools = 2,
               .capacity = 24,
               .log_blocks = log_blocks});
  std::vector<Follower> followers(2, Follower(world));
  std::atomic<bool> done{false};
  std::vector<std::thread> readers;
  for (Follower& follower : followers) {
    readers.emplace_back([&] {
      for (std::uint32_t i = 0; !done.load(std::memory_order_acquire); ++i) {
        if (!follower.step(1 + i % 50)) {
          std::this_thread::yield();
        }
        if (i % 64 == 0) {
          follower = Follower(world);
        }
      }
    });
  }
  std::mt19937 random(7);
  for (int i = 0; i < 50'000; ++i) {
    Step step;
    std::ranges::generate(step, [&] { return static_cast<std::uint32_t>(random() % 1000); });
    work(world, step);
  }
  done.store(true, std::memory_order_release);
  for (std::thread& reader : readers) {
    reader.join();
  }
  for (Follower& follower : followers) {
    follower.catch_up_and_check();
  }
}

TEST(EventsModelThreadsTest, LargeLog) { follow_while_working(10'000); }
TEST(EventsModelThreadsTest, TinyLog) { follow_while_working(16); }

// Snapshots of a pool that is too large for one step of the walk, while it evicts. If a snapshot were inexact, the view
// would reject a later event.
TEST(EventsModelThreadsTest, SnapshotsOfALargePoolWhileItEvicts) {
  constexpr std::uint32_t kChain = 64;
  World world({.policy = PolicyKind::kLru, .pools = 2, .capacity = 40'000, .log_blocks = 64 * 1024});
  std::atomic<bool> done{false};
  std::thread worker([&] {
    for (std::uint32_t chains = 0; chains < 4'000; ++chains) {
      BlockPool& pool = world.pool(chains);
      std::vector<BlockKey> keys;
      SequenceHash parent{0};
      for (std::uint32_t i = 0; i < kChain; ++i) {
        // Every chain comes again in a while, before or after it was evicted.
        const SequenceHash hash{(std::uint64_t{chains / 2 * 7919 % 1000} << 32) + i + 1};
        keys.push_back(BlockKey::make_checked(i, hash, std::exchange(parent, hash)));
      }
      auto complete = pool.allocate(kChain)->take_front(kChain).complete({.keys = keys});
      const auto registered = std::move(*complete).register_blocks();
      EXPECT_TRUE(registered);
    }
    done.store(true, std::memory_order_release);
  });
  Follower follower(world);
  int joined = 0;
  for (; !done.load(std::memory_order_acquire); ++joined) {
    follower = Follower(world);
    for (int i = 0; i < 20; ++i) {
      follower.step(1000);
    }
  }
  worker.join();
  EXPECT_GT(joined, 0);
  follower.catch_up_and_check();
}

TEST(EventsModelTest, TwoPoolsOfOneTierAreRejected) {
  const auto log = *EventLog::create({.blocks = 8});
  const auto a = *BlockPool::create({.capacity = 2, .block_size = kBlockSize});
  const auto b = *BlockPool::create({.capacity = 2, .block_size = kBlockSize});
  const std::array<const ResidentSource*, 2> pools = {a.get(), b.get()};
  const auto snapshot = take_snapshot(*log, pools);
  ASSERT_FALSE(snapshot);
  EXPECT_EQ(snapshot.error().code, ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace cairn
