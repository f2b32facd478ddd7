// Shared by the tests of an offloader: two tiers in memory, a link in virtual time with faults, and the offloader
// between them.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "cairn/base/clock.h"
#include "cairn/layout/layout_testing.h"
#include "cairn/offload/offloader.h"
#include "cairn/pool/block_registry.h"
#include "cairn/pool/pool_testing.h"
#include "cairn/tier/tier.h"
#include "cairn/tier/tier_link.h"
#include "cairn/transfer/fault_executor.h"
#include "cairn/transfer/simulated_executor_testing.h"

namespace cairn::testing {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

// 64 bytes a block.
inline constexpr KvShape kTinyBlocks{
    .layers = 1, .kv = 2, .page_size = kBlockSize, .heads = 1, .head_size = 4, .element_bits = 16};

inline TestLayout tiny_layout(std::uint32_t blocks) {
  return TestLayout::make({.shape = kTinyBlocks, .blocks = blocks});
}

// The bytes of the block with this key, in any tier.
inline std::vector<std::byte> bytes_of(const BlockKey& key) {
  std::vector<std::byte> bytes(kTinyBlocks.block_bytes());
  std::uint64_t state = key.high_word() ^ (key.low_word() * 3);
  for (std::byte& byte : bytes) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    byte = static_cast<std::byte>(state >> 56U);
  }
  return bytes;
}

inline void write_block(const TestLayout& memory, BlockId block_id, const BlockKey& key) {
  const std::vector<std::byte> bytes = bytes_of(key);
  const std::byte* from = bytes.data();
  memory.for_each_row([&](std::uint32_t layer, std::uint32_t k_or_v, std::uint32_t token, std::uint32_t head) {
    const std::span<std::byte> row = memory.row(index_of(block_id), layer, k_or_v, token, head);
    std::memcpy(row.data(), from, row.size());
    from += row.size();
  });
}

// Notifies the offloader of what the upper pool does, as a manager would.
class EdgeTeller final : public PoolObserver {
 public:
  Offloader* offloader = nullptr;
  Keys removed;  // in order

  void on_registered(CacheLevel /*tier*/, std::span<const ResidentBlock> blocks,
                     std::span<const Token> /*tokens*/) override {
    if (offloader != nullptr) {
      offloader->registered(blocks);
    }
  }
  void on_removed(CacheLevel /*tier*/, std::span<const BlockKey> keys) override {
    removed.insert(removed.end(), keys.begin(), keys.end());
  }
  void on_cleared(CacheLevel /*tier*/) override {}
  void on_loaded(CacheLevel tier, std::span<const BlockKey> keys) override { on_matched(tier, keys); }
  void on_matched(CacheLevel /*tier*/, std::span<const BlockKey> keys) override {
    if (offloader != nullptr) {
      offloader->used(keys);
    }
  }
};

struct WorldOptions {
  std::uint32_t upper = 32;  // blocks
  std::uint32_t lower = 256;
  bool has_upper_pool = true;
  std::uint32_t low_water = 4;
  bool leaves_first = false;
  OffloadOptions offload = {};
  SimulatedExecutor::Options link = {.latency = milliseconds(1)};
  FaultOptions faults = {};
  TierHealthOptions health = {};
  Offloader::UserFilter filter = {};
};

class World {
 public:
  explicit World(const WorldOptions& options)
      : upper_memory(tiny_layout(options.upper)),
        lower_memory(tiny_layout(options.lower)),
        registry(*BlockRegistry::create(options.upper + options.lower)) {
    BlockPoolOptions above{.block_size = kBlockSize,
                           .policy = PolicyKind::kLru,
                           .leaves_first = options.leaves_first,
                           .observers = {registry.get(), &teller},
                           .low_water = options.low_water,
                           .when_low = [this] { ++woken; }};
    upper = *Tier::make({.level = CacheLevel::kG2,
                         .layout = upper_memory.layout(),
                         .pool = options.has_upper_pool ? std::optional(above) : std::nullopt,
                         .health = options.health,
                         .clock = &clock});
    lower = *Tier::make({.level = CacheLevel::kG3,
                         .layout = lower_memory.layout(),
                         .pool = BlockPoolOptions{.block_size = kBlockSize,
                                                  .policy = PolicyKind::kLru,
                                                  .observers = {registry.get(), &arrivals}},
                         .health = options.health,
                         .clock = &clock});
    auto inside = std::make_unique<SimulatedExecutor>(clock, options.link);
    copies = inside.get();
    FaultOptions faults = options.faults;
    faults.callbacks = TransferLedger::Callbacks::kOnRequest;
    executor = std::make_unique<FaultExecutor>(clock, std::move(inside), std::move(faults));
    link = *TierLink::make(*upper, *lower, *executor, clock);
    offloader = *Offloader::make(*link, *registry, options.offload, clock, [this] { ++woken; }, options.filter);
    teller.offloader = offloader.get();
  }
  ~World() { finish(); }
  // Ends the offloader, then its copies: late ones too.
  void finish() {
    if (executor != nullptr) {
      offloader->end();
      drain();
      teller.offloader = nullptr;
      executor.reset();
    }
  }

  BlockPool& above() const { return *upper->pool(); }
  BlockPool& below() const { return *lower->pool(); }

  // Runs everything that is due now; returns whether anything was.
  bool settle() {
    bool did = false;
    for (bool again = true; again;) {
      executor->check_deadlines();
      again = copies->run();
      again = executor->run_callbacks() || again;
      again = offloader->pump() || again;
      did = did || again;
    }
    return did;
  }
  // Lets time pass, event by event.
  void run_for(Duration duration) {
    const TimePoint end = clock.now() + duration;
    settle();
    while (clock.now() < end) {
      TimePoint next = end;
      for (const std::optional<TimePoint> due : {copies->next_time(), offloader->next_time()}) {
        next = std::min(next, due.value_or(end));
      }
      clock.advance(std::max<Duration>(next - clock.now(), std::min<Duration>(microseconds(10), end - clock.now())));
      settle();
    }
  }
  // Until the offloader has nothing to do, within a minute.
  void drain() {
    settle();
    for (int i = 0; i < 60'000 && !offloader->is_idle(); ++i) {
      run_for(milliseconds(1));
    }
    EXPECT_TRUE(offloader->is_idle()) << offloader->status().pending << " wait, " << offloader->status().in_flight
                                      << " are in flight, " << executor->load().transfers << " transfers";
  }

  // Blocks of these keys with their bytes, in the upper pool.
  ImmutableBlocks fill(const Keys& keys, const Retention& retention = {}) {
    MutableBlocks blocks = *above().allocate(static_cast<std::uint32_t>(keys.size()));
    for (std::size_t i = 0; i < keys.size(); ++i) {
      write_block(upper_memory, blocks.block_ids()[i], keys[i]);
    }
    return *(*std::move(blocks).complete({.keys = keys})).register_blocks(retention);
  }
  void put(const Keys& keys, const Retention& retention = {}) { (void)fill(keys, retention); }

  bool is_below(const BlockKey& key) const { return below().contains(key); }
  // In the lower tier, with the right bytes.
  bool is_whole_below(const BlockKey& key) const {
    const PinnedBlocks held = below().hold({{key}});
    return held.size() == 1 && lower_memory.gather(index_of(held.block_ids()[0])) == bytes_of(key);
  }
  // What was registered below since the last call, in order.
  Keys arrived() {
    Keys keys;
    for (const ObserverCall& call : arrivals.take()) {
      if (call.what == ObserverCall::What::kRegistered) {
        keys = joined(keys, call.keys);
      }
    }
    return keys;
  }
  std::uint64_t refused(OffloadRefusal refusal) const {
    return offloader->status().refused[static_cast<std::size_t>(refusal)];
  }
  // Each offered block was copied, was refused, or is in flight.
  void expect_accounts_add_up() const {
    const OffloadStatus status = offloader->status();
    std::uint64_t sum = status.copied + status.pending + status.in_flight;
    for (const std::uint64_t count : status.refused) {
      sum += count;
    }
    EXPECT_EQ(sum, status.offered);
  }

  ManualClock clock;
  int woken = 0;
  TestLayout upper_memory;
  TestLayout lower_memory;
  std::unique_ptr<BlockRegistry> registry;
  EdgeTeller teller;
  RecordingObserver arrivals;  // in the lower pool
  std::unique_ptr<Tier> upper;
  std::unique_ptr<Tier> lower;
  SimulatedExecutor* copies = nullptr;  // inside the executor
  std::unique_ptr<FaultExecutor> executor;
  std::unique_ptr<TierLink> link;
  std::unique_ptr<Offloader> offloader;
};

// The outcome of a request.
struct Outcome {
  int times = 0;
  std::vector<bool> is_below = {};
  std::string error = {};
  std::map<OffloadRefusal, std::uint32_t> refused = {};  // blocks, by reason

  std::function<void(OffloadOutcome&&)> hear() {
    return [this](OffloadOutcome&& outcome) {
      ++times;
      is_below = std::move(outcome.is_below);
      error = std::move(outcome.error);
      for (std::size_t i = 0; i < kOffloadRefusals; ++i) {
        if (outcome.refused[i] > 0) {
          refused[static_cast<OffloadRefusal>(i)] = outcome.refused[i];
        }
      }
    };
  }
};

}  // namespace cairn::testing
