// For tests of onboarding: three tiers in plain memory with an onboarder over them, faults on every link and virtual
// time. A block's bytes follow from its key, so wrong bytes are detected in any tier.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cairn/base/clock.h"
#include "cairn/onboard/onboard_plan.h"
#include "cairn/onboard/onboarder.h"
#include "cairn/pool/pool_testing.h"
#include "cairn/transfer/fault_executor.h"
#include "cairn/transfer/row_sums.h"
#include "cairn/transfer/simulated_executor_testing.h"
#include "cairn/transfer/transfer_testing.h"

namespace cairn::testing {

inline constexpr TimePoint kNever = TimePoint::max();

inline BlockLayout::Options onboard_layout(std::uint32_t blocks) {
  return {.shape = {.layers = 2, .kv = 2, .page_size = kBlockSize, .heads = 1, .head_size = 8, .element_bits = 16},
          .blocks = blocks};
}

// A tier in memory whose bytes can be read.
class MemoryTier {
 public:
  MemoryTier(CacheLevel level, std::uint32_t blocks, const Clock& clock, BlockRegistry& registry, bool has_pool = true)
      : layout_(TestLayout::make(onboard_layout(blocks))), plan_(plan_between(layout_.layout(), layout_.layout())) {
    Tier::Options options{.level = level, .layout = layout_.layout(), .clock = &clock};
    if (has_pool) {
      options.pool =
          BlockPoolOptions{.block_size = kBlockSize, .policy = PolicyKind::kLru, .observers = {&registry, &observer_}};
    }
    Result<std::unique_ptr<Tier>> tier = Tier::make(std::move(options));
    CAIRN_CHECK(tier.has_value(), tier.has_value() ? "" : tier.error().message);
    tier_ = *std::move(tier);
  }

  [[nodiscard]] Tier& tier() { return *tier_; }
  [[nodiscard]] BlockPool& pool() { return *tier_->pool(); }
  // How often loads have used blocks of the pool since the last call.
  [[nodiscard]] std::size_t take_load_uses() {
    std::size_t uses = 0;
    for (const ObserverCall& call : observer_.take()) {
      uses += call.what == ObserverCall::What::kLoaded ? call.keys.size() : 0;
    }
    return uses;
  }

  // Stores these blocks with the bytes of their keys, and holds them.
  ImmutableBlocks put(std::span<const BlockKey> keys) {
    MutableBlocks blocks = *pool().allocate(static_cast<std::uint32_t>(keys.size()));
    std::vector<BlockFacts> facts;
    for (std::size_t i = 0; i < keys.size(); ++i) {
      const std::uint32_t block_id = index_of(blocks.block_ids()[i]);
      const std::vector<std::byte> bytes = bytes_of(keys[i]);
      write(block_id, bytes);
      const Checksum sum =
          finish(sum_block(*plan_, PlanSide::kSource, block_id), plan_->whole_block_bytes(), tier_->tag_of(keys[i]));
      facts.push_back({.block = {.key = keys[i]},
                       .priority = Retention::kDefaultPriority,
                       .checksum = static_cast<std::uint64_t>(sum)});
    }
    return *(*std::move(blocks).complete_as(facts)).register_blocks();
  }
  // Whether this place holds the bytes of that key.
  [[nodiscard]] bool holds(BlockId block_id, const BlockKey& key) const {
    return layout_.gather(index_of(block_id)) == bytes_of(key);
  }
  // Flips one bit of the block's bytes.
  void corrupt(const BlockKey& key) {
    const PinnedBlocks held = pool().hold({&key, 1});
    layout_.row(index_of(held.block_ids()[0]), 1, 1, 1, 0)[3] ^= std::byte{4};
  }
  // The blocks that can be matched here and do not have the bytes of their key.
  [[nodiscard]] Keys wrong_blocks() {
    std::vector<ResidentBlock> all;
    (void)pool().list_resident(0, pool().capacity(), all);
    Keys wrong;
    for (const ResidentBlock& block : all) {
      const PinnedBlocks held = pool().hold({&block.key, 1});
      if (held.size() == 1 && !holds(held.block_ids()[0], block.key)) {
        wrong.push_back(block.key);
      }
    }
    return wrong;
  }

 private:
  [[nodiscard]] std::vector<std::byte> bytes_of(const BlockKey& key) const {
    std::vector<std::byte> bytes(layout_.shape().block_bytes());
    std::uint64_t state = key.high_word() ^ key.low_word();
    for (std::byte& byte : bytes) {
      state = state * 6364136223846793005U + 1442695040888963407U;
      byte = static_cast<std::byte>(state >> 56U);
    }
    return bytes;
  }
  void write(std::uint32_t block_id, std::span<const std::byte> bytes) const {
    layout_.for_each_row([&](std::uint32_t layer, std::uint32_t k_or_v, std::uint32_t token, std::uint32_t head) {
      const std::span<std::byte> row = layout_.row(block_id, layer, k_or_v, token, head);
      std::copy_n(bytes.begin(), row.size(), row.begin());
      bytes = bytes.subspan(row.size());
    });
  }

  RecordingObserver observer_;
  TestLayout layout_;
  CopyPlanPtr plan_;
  std::unique_ptr<Tier> tier_;
};

struct RigOptions {
  std::array<std::uint32_t, 3> blocks = {64, 64, 256};  // device, host, disk
  OnboardOptions onboard = {};
  std::array<std::vector<FaultRule>, kLoadLinks> faults = {};
  SimulatedExecutor::Options ways = {.latency = std::chrono::milliseconds(1)};
  bool engine_block_ids = false;  // the device is the engine's
  bool has_straight = true;
  std::shared_ptr<const LoadCostModel> cost = {};
  std::uint64_t seed = 1;
};

// The outcome of a load.
struct Loaded {
  bool is_done = false;
  TimePoint at{};
  LoadOutcome result = {};
  LoadId id{};
};

class Rig {
 public:
  explicit Rig(const RigOptions& options = {})
      : device_(CacheLevel::kG1, options.blocks[0], clock_, *registry_, !options.engine_block_ids),
        host_(CacheLevel::kG2, options.blocks[1], clock_, *registry_),
        disk_(CacheLevel::kG3, options.blocks[2], clock_, *registry_) {
    connect(LoadLink::kHostToDevice, host_.tier(), device_.tier(), options);
    if (options.has_straight) {
      connect(LoadLink::kDiskToDevice, disk_.tier(), device_.tier(), options);
    }
    connect(LoadLink::kDiskToHost, disk_.tier(), host_.tier(), options);
    auto made = Onboarder::make({.device = &device_.tier(),
                                 .host = &host_.tier(),
                                 .disk = &disk_.tier(),
                                 .host_to_device = links_[0].get(),
                                 .disk_to_device = links_[1].get(),
                                 .disk_to_host = links_[2].get(),
                                 .registry = registry_.get(),
                                 .cost = options.cost,
                                 .block_size = kBlockSize,
                                 .clock = &clock_,
                                 .wake = [this] { ++wakes_; }},
                                options.onboard);
    CAIRN_CHECK(made.has_value(), made.has_value() ? "" : made.error().message);
    onboarder_ = *std::move(made);
  }
  ~Rig() {
    release_hung();
    onboarder_->end();
    run();
    onboarder_.reset();
    for (const auto& loaded : loads_) {
      loaded->result = {};
    }
    for (auto& executor : executors_) {
      executor.reset();
    }
  }
  Rig(const Rig&) = delete;
  Rig& operator=(const Rig&) = delete;

  // Runs everything that is due by this time, or everything.
  void run(TimePoint until = kNever) {
    while (true) {
      for (bool more = true; more;) {
        more = onboarder_->pump();
        for (std::size_t link = 0; link < kLoadLinks; ++link) {
          if (executors_[link] != nullptr) {
            executors_[link]->check_deadlines();
            const bool inside = inside_[link]->run();
            more = executors_[link]->run_callbacks() || inside || more;
          }
        }
      }
      TimePoint next = until;
      for (const SimulatedExecutor* inside : inside_) {
        next = std::min(next, inside != nullptr ? inside->next_time().value_or(kNever) : kNever);
      }
      next = std::min(next, onboarder_->next_time().value_or(kNever));
      if (next == kNever || next <= clock_.now()) {
        return;
      }
      clock_.advance(next - clock_.now());
    }
  }
  void run_for(Duration by) { run(clock_.now() + by); }
  void release_hung() {
    for (auto& executor : executors_) {
      if (executor != nullptr) {
        executor->release();
      }
    }
  }

  std::shared_ptr<Loaded> load(const Keys& keys, std::optional<TimePoint> deadline = {}, std::uint32_t most = 0,
                               bool weigh = true) {
    auto loaded = std::make_shared<Loaded>();
    const Result<LoadId> id =
        onboarder_->load({.keys = keys, .deadline = deadline, .most = most, .weigh = weigh, .done = note(loaded)});
    EXPECT_TRUE(id.has_value()) << (id.has_value() ? "" : id.error().to_string());
    loaded->id = id.has_value() ? *id : LoadId{};
    return loaded;
  }
  std::function<void(LoadOutcome&&)> note(const std::shared_ptr<Loaded>& loaded) {
    loads_.push_back(loaded);
    return [this, loaded](LoadOutcome&& result) {
      EXPECT_FALSE(loaded->is_done) << "reported twice";
      loaded->is_done = true;
      loaded->at = clock_.now();
      loaded->result = std::move(result);
    };
  }

  // Blocks of a prefix of the keys, all with the right bytes.
  [[nodiscard]] bool is_right(const LoadOutcome& result, const Keys& keys) {
    for (std::uint32_t i = 0; i < result.blocks.size(); ++i) {
      if (result.blocks.key(i) != keys[i] || !device_.holds(result.blocks.block_ids()[i], keys[i])) {
        return false;
      }
    }
    return result.prefix == result.blocks.size();
  }
  // Nothing is held, quarantined or lost anywhere.
  void expect_drained() {
    EXPECT_TRUE(onboarder_->is_idle());
    EXPECT_EQ(onboarder_->next_time(), std::nullopt);
    for (MemoryTier* tier : {&device_, &host_, &disk_}) {
      if (tier->tier().pool() != nullptr) {
        const PoolCounts counts = tier->pool().counts();
        EXPECT_EQ(counts.available(), counts.total) << to_string(tier->tier().level());
        EXPECT_EQ(counts.pinned, 0U);
        tier->pool().check_invariants();
      }
    }
  }

  [[nodiscard]] TierLink& link(LoadLink which) { return *links_[index_of(which)]; }
  [[nodiscard]] FaultExecutor& executor(LoadLink which) { return *executors_[index_of(which)]; }
  [[nodiscard]] std::uint64_t copied(LoadLink which) { return links_[index_of(which)]->meter().totals().blocks; }
  [[nodiscard]] Onboarder& onboarder() { return *onboarder_; }
  [[nodiscard]] BlockRegistry& registry() { return *registry_; }
  [[nodiscard]] MemoryTier& device() { return device_; }
  [[nodiscard]] MemoryTier& host() { return host_; }
  [[nodiscard]] MemoryTier& disk() { return disk_; }
  [[nodiscard]] ManualClock& clock() { return clock_; }
  [[nodiscard]] std::uint32_t wakes() const { return wakes_; }

 private:
  void connect(LoadLink which, Tier& from, Tier& to, const RigOptions& options) {
    const std::size_t i = index_of(which);
    auto inside = std::make_unique<SimulatedExecutor>(clock_, options.ways);
    inside_[i] = inside.get();
    executors_[i] = std::make_unique<FaultExecutor>(
        clock_, std::move(inside),
        FaultOptions{
            .rules = options.faults[i], .seed = options.seed + i, .callbacks = TransferLedger::Callbacks::kOnRequest});
    Result<std::unique_ptr<TierLink>> link = TierLink::make(from, to, *executors_[i], clock_);
    CAIRN_CHECK(link.has_value(), link.has_value() ? "" : link.error().message);
    links_[i] = *std::move(link);
  }

  ManualClock clock_;
  const std::unique_ptr<BlockRegistry> registry_ = *BlockRegistry::create(64);
  MemoryTier device_;
  MemoryTier host_;
  MemoryTier disk_;
  std::array<std::unique_ptr<FaultExecutor>, kLoadLinks> executors_;
  std::array<SimulatedExecutor*, kLoadLinks> inside_ = {};
  std::array<std::unique_ptr<TierLink>, kLoadLinks> links_;
  std::unique_ptr<Onboarder> onboarder_;
  std::vector<std::shared_ptr<Loaded>> loads_;
  std::uint32_t wakes_ = 0;
};

// Keys `from` to `to` - 1 of a list.
inline Keys some_of(const Keys& keys, std::size_t from, std::size_t to) {
  return {keys.begin() + static_cast<std::ptrdiff_t>(from), keys.begin() + static_cast<std::ptrdiff_t>(to)};
}

}  // namespace cairn::testing
