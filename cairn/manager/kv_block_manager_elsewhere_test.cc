// A manager whose blocks are held by other processes: it tracks, verifies and recovers them as any other.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <utility>

#include "cairn/manager/manager_testing.h"
#include "cairn/transfer/transfer_ledger.h"

namespace cairn::testing {
namespace {

// The contents of the blocks of other processes: a number for each, by the kind of memory.
using Contents = std::map<std::pair<MemoryKind, std::uint32_t>, std::uint64_t>;

// Copies those numbers, at once and without failing.
class FarExecutor final : public TransferExecutor {
 public:
  FarExecutor(const Clock& clock, Contents& contents)
      : contents_(contents), ledger_(clock, 16, TransferLedger::Callbacks::kOnRequest) {}
  ~FarExecutor() override { ledger_.close(); }

  [[nodiscard]] Result<TransferId> submit(Transfer&& transfer) override {
    if (transfer.plan->source().kind() == MemoryKind::kDevice ||
        transfer.plan->destination().kind() == MemoryKind::kDevice) {
      device_copies_.push_back({.not_before = transfer.not_before, .blocks = transfer.blocks.size()});
    }
    return ledger_.accept(std::move(transfer));
  }
  void cancel(TransferId transfer) override { ledger_.cancel(transfer); }
  void check_deadlines() override { ledger_.check_deadlines(); }
  [[nodiscard]] bool can_move(const CopyPlan&) const override { return true; }
  [[nodiscard]] ExecutorLoad load() const override { return ledger_.load(); }
  [[nodiscard]] std::string describe() const override { return "far"; }

  struct DeviceCopy {
    StepMark not_before;
    std::size_t blocks = 0;
    friend bool operator==(const DeviceCopy&, const DeviceCopy&) = default;
  };
  // Copies from and to device blocks, in the order of their submission, since the last call.
  [[nodiscard]] std::vector<DeviceCopy> take_device_copies() { return std::exchange(device_copies_, {}); }

  bool run() {
    while (const std::shared_ptr<ActiveTransfer> active = ledger_.try_take()) {
      const Transfer& transfer = active->transfer();
      for (std::uint32_t i = 0; i < transfer.blocks.size(); ++i) {
        if (!active->begin(i)) {
          continue;
        }
        const BlockPair pair = transfer.blocks[i].pair;
        const std::uint64_t number = contents_[{transfer.plan->source().kind(), pair.source}];
        contents_[{transfer.plan->destination().kind(), pair.destination}] = number;
        active->finish(i, BlockSums{.products = number, .words = number});
      }
    }
    return ledger_.run_callbacks();
  }

 private:
  Contents& contents_;
  TransferLedger ledger_;
  std::vector<DeviceCopy> device_copies_;
};

class KvBlockManagerElsewhereTest : public ::testing::Test {
 protected:
  // An engine with 8 device blocks of its own; 4 host and 16 disk blocks that ranks hold.
  void SetUp() override { start(); }
  void start() {
    ManagerConfig config = reference_config(folder_.in("entries"), 0, 4, 16);
    config.device.engine_layout = *BlockLayout::elsewhere(config.shape(), 8, MemoryKind::kDevice);
    config.device.managed_by_engine = true;
    ManagerParts parts{.clock = &clock_, .own_thread = false};
    parts.elsewhere = [this] {
      auto made = std::make_unique<FarExecutor>(clock_, contents_);
      executor_ = made.get();
      return made;
    };
    manager_.emplace(*KvBlockManager::make(config, parts));
  }
  [[nodiscard]] Result<KvBlockManager> make_scrubbed() const {
    ManagerConfig config = reference_config(folder_.in("others"), 0, 4, 16);
    config.device.engine_layout = *BlockLayout::elsewhere(config.shape(), 8, MemoryKind::kDevice);
    config.device.managed_by_engine = true;
    config.disk.scrub_rate = 1;
    ManagerParts parts{.clock = &clock_, .own_thread = false};
    parts.elsewhere = [this] { return std::make_unique<FarExecutor>(clock_, unused_); };
    return KvBlockManager::make(config, parts);
  }
  void settle() {
    while (manager_->pump() || executor_->run()) {
    }
  }
  // Of device blocks from `first` on.
  void begin_save(const Keys& keys, std::uint32_t first = 0, StepMark not_before = {}) {
    EngineBlocks blocks{.not_before = not_before};
    for (std::uint32_t i = 0; i < keys.size(); ++i) {
      blocks.block_ids.push_back(BlockId{first + i});
      blocks.facts.push_back({.block = {.key = keys[i]}});
      contents_[{MemoryKind::kDevice, first + i}] = seed_of(keys[i]);
    }
    ASSERT_TRUE(manager_->offload(CacheLevel::kG2, std::move(blocks), {.keys = keys}).has_value());
  }
  void save(const Keys& keys) {
    begin_save(keys);
    settle();
  }
  // How many of them are loaded, and their contents.
  std::vector<std::uint64_t> load(const Keys& keys, StepMark not_before = {}) {
    EngineBlocks blocks{.not_before = not_before};
    for (std::uint32_t i = 0; i < keys.size(); ++i) {
      blocks.block_ids.push_back(BlockId{i});
      contents_[{MemoryKind::kDevice, i}] = 0;
    }
    std::optional<LoadOutcome> loaded;
    LoadRequest request{.keys = keys};
    request.done = [&loaded](LoadOutcome&& result) { loaded.emplace(std::move(result)); };
    EXPECT_TRUE(manager_->load_into(std::move(blocks), std::move(request)).has_value());
    settle();
    std::vector<std::uint64_t> held;
    for (std::uint32_t i = 0; loaded && i < loaded->prefix; ++i) {
      held.push_back(contents_[{MemoryKind::kDevice, i}]);
    }
    return held;
  }
  static std::vector<std::uint64_t> seeds(const Keys& keys) {
    std::vector<std::uint64_t> all;
    for (const BlockKey& key : keys) {
      all.push_back(seed_of(key));
    }
    return all;
  }

  TestFolder folder_;
  ManualClock clock_;
  Contents contents_;
  mutable Contents unused_;
  FarExecutor* executor_ = nullptr;
  std::optional<KvBlockManager> manager_;
};

TEST_F(KvBlockManagerElsewhereTest, WhatIsSavedComesBackFromHostAndDisk) {
  const Keys keys = chain(1, 4);
  save(keys);
  EXPECT_EQ(load(keys), seeds(keys));
  save(chain(2, 4));  // the host has room for four blocks
  EXPECT_EQ(manager_->locate(keys).blocks(), 4U);
  EXPECT_EQ(load(keys), seeds(keys));
}

TEST_F(KvBlockManagerElsewhereTest, CopiesOfTheEnginesBlocksCarryTheirStep) {
  const Keys first = chain(1, 2);
  const Keys second = chain(2, 2);
  begin_save(first, 0, StepMark::computed(3));
  begin_save(second, 2, StepMark::computed(4));
  settle();
  using Copy = FarExecutor::DeviceCopy;
  EXPECT_THAT(executor_->take_device_copies(),
              ::testing::UnorderedElementsAre(Copy{StepMark::computed(3), 2}, Copy{StepMark::computed(4), 2}))
      << "no transfer has blocks of two steps";
  EXPECT_EQ(load(first, StepMark::begun(9)), seeds(first));
  EXPECT_THAT(executor_->take_device_copies(), ::testing::ElementsAre(Copy{StepMark::begun(9), 2}));
}

TEST_F(KvBlockManagerElsewhereTest, TheFileHasItsEntriesOnlyAndOutlivesTheManager) {
  const Keys keys = chain(1, 4);
  save(keys);
  ASSERT_EQ(manager_->disk()->counts().registered, 4U);
  manager_.reset();
  EXPECT_LT(std::filesystem::file_size(folder_.in("entries")), std::uint64_t{4} << 20);
  start();
  EXPECT_EQ(load(keys), seeds(keys));
}

TEST_F(KvBlockManagerElsewhereTest, WrongBytesElsewhereAreNotServed) {
  const Keys keys = chain(1, 4);
  save(keys);
  (void)manager_->reset(CacheLevel::kG2);
  for (auto& [where, number] : contents_) {
    if (where.first == MemoryKind::kFile && number == seed_of(keys[2])) {
      ++number;
    }
  }
  EXPECT_EQ(load(keys), seeds({keys[0], keys[1]}));
  EXPECT_EQ(manager_->locate(keys).blocks(), 2U);
}

// Saves and loads of an engine's own blocks: a reset comes before they begin, and while they are in flight.
TEST_F(KvBlockManagerElsewhereTest, SavesAndLoadsOfBeforeAResetComeToNothing) {
  const Keys keys = chain(1, 4);
  const auto blocks_of = [&] {
    EngineBlocks blocks;
    for (std::uint32_t i = 0; i < keys.size(); ++i) {
      blocks.block_ids.push_back(BlockId{i});
      blocks.facts.push_back({.block = {.key = keys[i]}});
    }
    return blocks;
  };
  for (const bool has_begun : {false, true}) {
    std::optional<OffloadOutcome> saved;
    OffloadRequest request{.keys = keys};
    request.done = [&saved](OffloadOutcome&& outcome) { saved.emplace(std::move(outcome)); };
    ASSERT_TRUE(manager_->offload(CacheLevel::kG2, blocks_of(), std::move(request)));
    if (has_begun) {
      (void)manager_->pump();
    }
    EXPECT_EQ(manager_->reset_all()->copies, has_begun ? 4U : 0U);
    settle();
    ASSERT_TRUE(saved.has_value());
    EXPECT_THAT(saved->is_below, ::testing::Each(false));
    EXPECT_THAT(saved->error, ::testing::HasSubstr("reset"));
    EXPECT_EQ(manager_->locate(keys).blocks(), 0U);
  }
  // Requests from before the latest reset are refused, whenever they come.
  EngineBlocks late = blocks_of();
  late.fence = manager_->fences() - 1;
  const Result<OffloadRequestId> refused = manager_->offload(CacheLevel::kG2, std::move(late), {.keys = keys});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kCancelled);
  EngineBlocks now = blocks_of();
  now.fence = manager_->fences();
  ASSERT_TRUE(manager_->offload(CacheLevel::kG2, std::move(now), {.keys = keys}));
  settle();
  EXPECT_EQ(manager_->locate(keys).blocks(), 4U);

  std::optional<LoadOutcome> loaded;
  LoadRequest request{.keys = keys};
  request.done = [&loaded](LoadOutcome&& result) { loaded.emplace(std::move(result)); };
  ASSERT_TRUE(manager_->load_into(blocks_of(), std::move(request)));
  EXPECT_EQ(manager_->invalidate(5)->loads, 1U);
  settle();
  ASSERT_TRUE(loaded.has_value());
  EXPECT_EQ(loaded->prefix, 0U) << "though its bytes may have arrived";
  EXPECT_EQ(load(keys), seeds({}));
}

TEST_F(KvBlockManagerElsewhereTest, SaysWhatIsWorthLoading) {
  const Keys keys = chain(1, 4);
  save(keys);
  EXPECT_EQ(manager_->worth_loading(manager_->locate(keys), {}).blocks, 4U);
  EXPECT_EQ(manager_->worth_loading({}, {}).blocks, 0U);
}

// A leader has no bytes to check.
TEST_F(KvBlockManagerElsewhereTest, RefusesToScrub) {
  const Result<KvBlockManager> refused = make_scrubbed();
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(refused.error().message, ::testing::HasSubstr("disk.scrub_rate"));
}

}  // namespace
}  // namespace cairn::testing
