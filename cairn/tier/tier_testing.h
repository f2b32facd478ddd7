// For tests of tiers: blocks whose bytes follow from their keys, tiers in memory and in files, and a world in virtual
// time in which an executor with faults copies between them.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cairn/base/clock.h"
#include "cairn/layout/layout_testing.h"
#include "cairn/pool/pool_testing.h"
#include "cairn/tier/disk_layout.h"
#include "cairn/tier/tier.h"
#include "cairn/tier/tier_link.h"
#include "cairn/transfer/fault_executor.h"
#include "cairn/transfer/simulated_executor_testing.h"

namespace cairn::testing {

inline constexpr KvShape kTierShape{
    .layers = 2, .kv = 2, .page_size = kBlockSize, .heads = 2, .head_size = 8, .element_bits = 16};

inline Namespace tier_space() {
  return {.tenant = "t", .model = "m", .layout = "contiguous-nhd", .element_type = "bf16", .block_size = kBlockSize};
}

// The bytes of a block of this key, row after row.
inline std::vector<std::byte> bytes_of(const BlockKey& key) {
  std::mt19937_64 random(key.high_word() * 3 + key.low_word());
  std::vector<std::byte> bytes(kTierShape.block_bytes());
  for (std::byte& byte : bytes) {
    byte = static_cast<std::byte>(random());
  }
  return bytes;
}

// Calls visit(region, offset) for the rows of a block in the order of their numbers.
template <typename Visit>
void for_each_row(const BlockLayout& layout, BlockId block_id, Visit visit) {
  const KvShape& shape = layout.shape();
  for (std::uint32_t layer = 0; layer < shape.layers; ++layer) {
    for (std::uint32_t k_or_v = 0; k_or_v < shape.kv; ++k_or_v) {
      for (std::uint32_t token = 0; token < shape.page_size; ++token) {
        for (std::uint32_t head = 0; head < shape.heads; ++head) {
          const BlockLayout::Address at = layout.address(index_of(block_id), layer, k_or_v, token, head);
          visit(*layout.regions()[at.region], at.offset);
        }
      }
    }
  }
}

inline std::vector<std::byte> read_block(const BlockLayout& layout, BlockId block_id) {
  std::vector<std::byte> bytes(layout.shape().block_bytes());
  std::byte* to = bytes.data();
  const std::uint64_t row_bytes = layout.shape().row_bytes();
  for_each_row(layout, block_id, [&](const Region& region, std::uint64_t offset) {
    if (region.is_host()) {
      std::memcpy(to, region.base() + offset, row_bytes);
    } else {
      EXPECT_EQ(pread(region.file(), to, row_bytes, static_cast<off_t>(offset)), static_cast<ssize_t>(row_bytes));
    }
    to += row_bytes;
  });
  return bytes;
}

inline void write_block(const BlockLayout& layout, BlockId block_id, std::span<const std::byte> bytes) {
  const std::byte* from = bytes.data();
  const std::uint64_t row_bytes = layout.shape().row_bytes();
  for_each_row(layout, block_id, [&](const Region& region, std::uint64_t offset) {
    if (region.is_host()) {
      std::memcpy(region.base() + offset, from, row_bytes);
    } else {
      EXPECT_EQ(pwrite(region.file(), from, row_bytes, static_cast<off_t>(offset)), static_cast<ssize_t>(row_bytes));
    }
    from += row_bytes;
  });
}

inline bool holds(const Tier& tier, BlockId block_id, const BlockKey& key) {
  return read_block(*tier.layout(), block_id) == bytes_of(key);
}

// Flips a bit of the block, unnoticed by the tier.
inline void damage(const Tier& tier, BlockId block_id) {
  std::vector<std::byte> bytes = read_block(*tier.layout(), block_id);
  bytes[bytes.size() / 3] ^= std::byte{4};
  write_block(*tier.layout(), block_id, bytes);
}

inline Tier::Options memory_options(CacheLevel level, Arrangement arrangement, std::uint32_t blocks,
                                    const Clock& clock) {
  return {.level = level,
          .layout = TestLayout::make({kTierShape, arrangement, blocks, 1}).layout(),
          .pool = BlockPoolOptions{.block_size = kBlockSize, .policy = PolicyKind::kLru},
          .space = tier_space().id(),
          .clock = &clock};
}

// A folder that is removed with the object.
class TestFolder {
 public:
  TestFolder() : path_(::testing::TempDir() + "cairn_tier_XXXXXX") { EXPECT_NE(mkdtemp(path_.data()), nullptr); }
  TestFolder(const TestFolder&) = delete;
  TestFolder& operator=(const TestFolder&) = delete;
  ~TestFolder() { std::filesystem::remove_all(path_); }
  [[nodiscard]] std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

// Makes the file if there is none.
inline Tier::Options disk_options(const std::string& path, std::uint32_t blocks, const Clock& clock) {
  const DiskGeometry geometry{.space = tier_space(),
                              .block_bytes = kTierShape.block_bytes(),
                              .row_bytes = kTierShape.row_bytes(),
                              .blocks = blocks};
  Result<DiskFile> file =
      std::filesystem::exists(path) ? DiskFile::open(path, geometry) : DiskFile::create(path, geometry);
  CAIRN_CHECK(file.has_value(), file.has_value() ? "" : file.error().message);
  Result<RegionPtr> region = disk_region(*file, false);
  CAIRN_CHECK(region.has_value(), region.has_value() ? "" : region.error().message);
  Result<BlockLayoutPtr> layout = disk_layout(*file, kTierShape, *std::move(region));
  CAIRN_CHECK(layout.has_value(), layout.has_value() ? "" : layout.error().message);
  return {.level = CacheLevel::kG3,
          .layout = *std::move(layout),
          .pool = BlockPoolOptions{.block_size = kBlockSize, .policy = PolicyKind::kLru},
          .space = tier_space().id(),
          .file = *std::move(file),
          .clock = &clock};
}

inline std::unique_ptr<Tier> make_tier(Tier::Options options) {
  Result<std::unique_ptr<Tier>> tier = Tier::make(std::move(options));
  CAIRN_CHECK(tier.has_value(), tier.has_value() ? "" : tier.error().message);
  return *std::move(tier);
}

// All steps of a fence over one tier.
inline PoolFenceOutcome fence(Tier& tier, const std::optional<Tier::NewWeights>& weights = std::nullopt) {
  Result<std::optional<PoolFence>> plan = tier.plan_fence();
  CAIRN_CHECK(plan.has_value(), plan.has_value() ? "" : plan.error().message);
  const PoolFenceOutcome outcome = tier.raise_fence(*std::move(plan));
  EXPECT_TRUE(tier.settle_fence(weights));
  tier.lower_fence();
  return outcome;
}

// The facts of blocks that were just computed: everything but their checksums.
inline std::vector<BlockFacts> fresh_facts(const Keys& keys, std::uint32_t priority = Retention::kDefaultPriority) {
  std::vector<BlockFacts> facts;
  for (const BlockKey& key : keys) {
    facts.push_back({.block = {.key = key, .tokens_hash = BlockHash{key.low_word() * 7 + 1}}, .priority = priority});
  }
  return facts;
}

// As an engine does: writes the bytes, and registers the blocks.
inline ImmutableBlocks compute(Tier& tier, const Keys& keys, std::uint32_t priority = Retention::kDefaultPriority) {
  Result<MutableBlocks> blocks = tier.pool()->allocate(static_cast<std::uint32_t>(keys.size()));
  CAIRN_CHECK(blocks.has_value(), "there is room");
  for (std::size_t i = 0; i < keys.size(); ++i) {
    write_block(*tier.layout(), blocks->block_ids()[i], bytes_of(keys[i]));
  }
  return *(*(*std::move(blocks)).complete_as(fresh_facts(keys, priority)))
              .register_blocks(Retention{.priority = priority});
}

// A copy and its outcome.
struct Copied {
  std::optional<LinkOutcome> outcome;
  std::optional<TimePoint> done_at;

  [[nodiscard]] std::vector<BlockState> states() const { return outcome ? outcome->states : std::vector<BlockState>(); }
};

class TierWorld : public ::testing::Test {
 protected:
  void make_executor(std::vector<FaultRule> rules = {}, std::size_t limit = 16, std::uint64_t seed = 1) {
    auto inside = std::make_unique<SimulatedExecutor>(
        clock_,
        SimulatedExecutor::Options{
            .bytes_per_second = blocks_per_second_ * static_cast<double>(kTierShape.block_bytes()), .limit = limit});
    simulated_ = inside.get();
    faults_ = std::make_unique<FaultExecutor>(clock_, std::move(inside),
                                              FaultOptions{.rules = std::move(rules),
                                                           .seed = seed,
                                                           .delay = std::chrono::seconds(3),
                                                           .callbacks = TransferLedger::Callbacks::kOnRequest});
  }
  std::unique_ptr<TierLink> link(Tier& from, Tier& to) {
    Result<std::unique_ptr<TierLink>> made = TierLink::make(from, to, *faults_, clock_);
    CAIRN_CHECK(made.has_value(), made.has_value() ? "" : made.error().message);
    return *std::move(made);
  }

  // Until nothing is left to do at this time. Copies that end by a deadline are reported before the deadline is
  // checked.
  void run_now() {
    for (bool any = true; any;) {
      simulated_->run();
      faults_->check_deadlines();
      any = simulated_->run();
      any = faults_->run_callbacks() || any;
    }
  }
  void run_for(Duration time) {
    run_now();
    for (const TimePoint end = clock_.now() + time; clock_.now() < end;) {
      clock_.advance(std::chrono::milliseconds(500));
      run_now();
    }
  }

  // Copies those of the keys that are resident to as many new blocks of the other tier.
  Result<TransferId, Rejected<LinkTransfer>> submit(TierLink& link, const Keys& keys, Copied& copied,
                                                    TimePoint deadline = TimePoint::max()) {
    return submit(link, CopySource(link.from().pool()->hold(keys)), copied, deadline);
  }
  Result<TransferId, Rejected<LinkTransfer>> submit(TierLink& link, CopySource source, Copied& copied,
                                                    TimePoint deadline = TimePoint::max()) {
    Result<MutableBlocks> targets = link.to().pool()->allocate(static_cast<std::uint32_t>(source.size()));
    CAIRN_CHECK(targets.has_value(), "there is room");
    return link.submit(
        {.source = std::move(source), .targets = *std::move(targets), .deadline = deadline, .done = record(copied)});
  }
  std::function<void(LinkOutcome&&)> record(Copied& copied) {
    return [this, &copied](LinkOutcome&& outcome) {
      EXPECT_FALSE(copied.outcome) << "reported twice";
      copied.outcome = std::move(outcome);
      copied.done_at = clock_.now();
    };
  }
  // All steps at once.
  void copy(TierLink& link, const Keys& keys) {
    Copied copied;
    ASSERT_TRUE(submit(link, keys, copied));
    run_for(std::chrono::seconds(keys.size() + 1));
    ASSERT_TRUE(copied.outcome);
    EXPECT_EQ(copied.outcome->error, "");
    EXPECT_EQ(copied.outcome->blocks.size(), keys.size());
  }

  ManualClock clock_;
  double blocks_per_second_ = 1;  // so that deadlines can be in the middle of a copy
  SimulatedExecutor* simulated_ = nullptr;
  std::unique_ptr<FaultExecutor> faults_;  // to be destroyed before links and tiers
};

// Three tiers, each in an arrangement of its own, and the four links between them.
class ThreeTiers : public TierWorld {
 protected:
  static constexpr std::uint32_t kTierBlocks = 12;

  void start(std::vector<FaultRule> rules = {}, std::size_t limit = 16, std::uint64_t seed = 1) {
    make_executor(std::move(rules), limit, seed);
    connect();
  }
  void connect() {
    to_host_ = link(*device_, *host_);
    to_disk_ = link(*host_, *disk_);
    from_disk_ = link(*disk_, *host_);
    from_host_ = link(*host_, *device_);
  }
  // A restart: memory is lost, and the file is opened again.
  void restart() {
    end();
    device_ = make_device();
    host_ = make_host();
    disk_ = make_tier(disk_options(path_, kTierBlocks, clock_));
    start();
  }
  void end() {
    faults_.reset();
    to_host_.reset();
    to_disk_.reset();
    from_disk_.reset();
    from_host_.reset();
    disk_.reset();
  }
  void TearDown() override { end(); }

  std::unique_ptr<Tier> make_device() {
    return make_tier(memory_options(CacheLevel::kG1, Arrangement::kLayersKvNhd, kTierBlocks, clock_));
  }
  std::unique_ptr<Tier> make_host() {
    return make_tier(memory_options(CacheLevel::kG2, Arrangement::kContiguousHnd, kTierBlocks, clock_));
  }
  static void expect_holds(Tier& tier, const Keys& keys) {
    const PinnedBlocks held = tier.pool()->hold(keys);
    ASSERT_EQ(held.size(), keys.size());
    for (std::uint32_t i = 0; i < held.size(); ++i) {
      EXPECT_TRUE(holds(tier, held.block_ids()[i], held.key(i))) << "block " << i << " of " << to_string(tier.level());
    }
  }
  static BlockId block_id_of(Tier& tier, const BlockKey& key) {
    return tier.pool()->hold(std::vector{key}).block_ids()[0];
  }
  // No block is in use, and none is quarantined.
  static void expect_at_rest(const Tier& tier, std::uint32_t registered) {
    EXPECT_EQ(
        tier.pool()->counts(),
        (PoolCounts{
            .total = kTierBlocks, .free = kTierBlocks - registered, .inactive = registered, .registered = registered}));
    tier.pool()->check_invariants();
  }

  TestFolder folder_;
  const std::string path_ = folder_ / "blocks.cairn";
  std::unique_ptr<Tier> device_ = make_device();
  std::unique_ptr<Tier> host_ = make_host();
  std::unique_ptr<Tier> disk_ = make_tier(disk_options(path_, kTierBlocks, clock_));
  std::unique_ptr<TierLink> to_host_;
  std::unique_ptr<TierLink> to_disk_;
  std::unique_ptr<TierLink> from_disk_;
  std::unique_ptr<TierLink> from_host_;
};

}  // namespace cairn::testing
