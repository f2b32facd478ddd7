// CudaExecutor on a real GPU: contents, checksums, guards, faults. Skipped without a GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <future>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "cairn/memory/cuda_driver.h"
#include "cairn/memory/device_region.h"
#include "cairn/memory/file_region.h"
#include "cairn/memory/pinned_region.h"
#include "cairn/transfer/bounce_executor.h"
#include "cairn/transfer/checksum.h"
#include "cairn/transfer/cuda_executor.h"
#include "cairn/transfer/file_executor.h"

namespace cairn {
namespace {

using ::testing::HasSubstr;

class GpuTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const Result<const CudaDriver*> driver = CudaDriver::get();
    if (!driver) {
      GTEST_SKIP() << driver.error().message;
    }
    driver_ = *driver;
    context_.emplace(*GpuContext::enter(0));
  }

  const CudaDriver* driver_ = nullptr;
  std::optional<GpuContext> context_;
};

// A layout in one kind of memory, whose bytes the host can read.
class Memory {
 public:
  Memory(MemoryKind kind, const BlockLayout::Options& options) {
    std::vector<RegionPtr> regions;
    const Result<std::vector<std::uint64_t>> sizes = BlockLayout::region_sizes(options);
    for (const std::uint64_t size : *sizes) {
      Result<RegionPtr> region =
          kind == MemoryKind::kDevice ? device_region({.size = size}) : pinned_region({.size = size, .required = true});
      EXPECT_TRUE(region) << region.error().message;
      regions.push_back(*region);
    }
    layout_ = *BlockLayout::make(options, std::move(regions));
  }

  [[nodiscard]] const BlockLayoutPtr& layout() const { return layout_; }

  [[nodiscard]] std::vector<std::vector<std::byte>> read(const CudaDriver& driver) const {
    std::vector<std::vector<std::byte>> all;
    for (const RegionPtr& region : layout_->regions()) {
      all.emplace_back(region->size());
      copy(driver, all.back().data(), region->base(), region->size());
    }
    return all;
  }
  void write(const CudaDriver& driver, const std::vector<std::vector<std::byte>>& all) const {
    for (std::size_t i = 0; i < all.size(); ++i) {
      copy(driver, layout_->regions()[i]->base(), all[i].data(), all[i].size());
    }
  }
  void fill(const CudaDriver& driver, std::uint64_t seed) const {
    std::mt19937_64 random(seed);
    std::vector<std::vector<std::byte>> all;
    for (const RegionPtr& region : layout_->regions()) {
      all.emplace_back(region->size());
      for (std::byte& byte : all.back()) {
        byte = static_cast<std::byte>(random());
      }
    }
    write(driver, all);
  }

 private:
  static void copy(const CudaDriver& driver, void* to, const void* from, std::size_t bytes) {
    ASSERT_EQ(
        driver.memcpy_async(reinterpret_cast<cuda::Pointer>(to), reinterpret_cast<cuda::Pointer>(from), bytes, nullptr),
        cuda::kSuccess);
    ASSERT_EQ(driver.stream_synchronize(nullptr), cuda::kSuccess);
  }

  BlockLayoutPtr layout_;
};

TransferOutcome run(TransferExecutor& executor, const CopyPlanPtr& plan, std::vector<TransferBlock> blocks,
                    Verify verify) {
  std::promise<TransferOutcome> promise;
  Result<TransferId> id = executor.submit(
      {.plan = plan, .blocks = std::move(blocks), .verify = verify, .done = [&](TransferOutcome&& outcome) {
         promise.set_value(std::move(outcome));
       }});
  EXPECT_TRUE(id) << id.error().message;
  return promise.get_future().get();
}

// The bytes that `to` must have after a transfer of these blocks from `from`, including the guards.
std::vector<std::vector<std::byte>> expected_after(const BlockLayout& from,
                                                   const std::vector<std::vector<std::byte>>& in, const BlockLayout& to,
                                                   std::vector<std::vector<std::byte>> out,
                                                   const std::vector<TransferBlock>& blocks) {
  const KvShape& shape = from.shape();
  for (const TransferBlock& block : blocks) {
    for (std::uint32_t layer = 0; layer < shape.layers; ++layer) {
      for (std::uint32_t kv = 0; kv < shape.kv; ++kv) {
        for (std::uint32_t token = 0; token < shape.page_size; ++token) {
          for (std::uint32_t head = 0; head < shape.heads; ++head) {
            const BlockLayout::Address a = from.address(block.pair.source, layer, kv, token, head);
            const BlockLayout::Address b = to.address(block.pair.destination, layer, kv, token, head);
            std::memcpy(out[b.region].data() + b.offset, in[a.region].data() + a.offset, shape.row_bytes());
          }
        }
      }
    }
  }
  return out;
}

// The checksum as the CPU computes it from the rows.
Checksum checksum_of(const BlockLayout& layout, const std::vector<std::vector<std::byte>>& bytes, std::uint32_t block,
                     const BlockTag& tag) {
  const KvShape& shape = layout.shape();
  const std::uint64_t words = (shape.row_bytes() + 7) / 8;
  BlockSums sums;
  for (std::uint32_t layer = 0; layer < shape.layers; ++layer) {
    for (std::uint32_t kv = 0; kv < shape.kv; ++kv) {
      for (std::uint32_t token = 0; token < shape.page_size; ++token) {
        for (std::uint32_t head = 0; head < shape.heads; ++head) {
          const BlockLayout::Address a = layout.address(block, layer, kv, token, head);
          sums += sum_words(std::span(bytes[a.region]).subspan(a.offset, shape.row_bytes()),
                            shape.row(layer, kv, token, head) * words);
        }
      }
    }
  }
  return finish(sums, shape.block_bytes(), tag);
}

std::vector<TransferBlock> random_pairs(std::uint32_t count, std::uint32_t from, std::uint32_t to,
                                        std::mt19937_64& random) {
  std::vector<std::uint32_t> sources(from);
  std::vector<std::uint32_t> destinations(to);
  std::iota(sources.begin(), sources.end(), 0U);
  std::iota(destinations.begin(), destinations.end(), 0U);
  std::shuffle(sources.begin(), sources.end(), random);
  std::shuffle(destinations.begin(), destinations.end(), random);
  std::vector<TransferBlock> blocks(count);
  for (std::uint32_t i = 0; i < count; ++i) {
    blocks[i].pair = {sources[i], destinations[i]};
    blocks[i].tag = {random(), random()};
  }
  return blocks;
}

// Every way of copying: staging, the kernel alone, the copy engines alone.
std::vector<CudaTuning> tunings() {
  CudaTuning staged;
  staged.stage_from_bytes = 0;
  staged.engines_from_bytes = ~std::uint64_t{0};
  staged.piece_bytes = 64 * 1024;
  CudaTuning direct = staged;
  direct.stage_from_bytes = ~std::uint64_t{0};
  CudaTuning engines = staged;
  engines.engines_from_bytes = 0;
  return {staged, direct, engines, CudaTuning()};
}

TEST_F(GpuTest, CopiesRandomPlansWithTheChecksumsOfTheCpu) {
  std::mt19937_64 random(11);
  for (const CudaTuning& tuning : tunings()) {
    const std::unique_ptr<CudaExecutor> executor = *CudaExecutor::create({.tuning = tuning});
    for (int round = 0; round < 40; ++round) {
      const KvShape shape{.layers = 1 + static_cast<std::uint32_t>(random() % 4),
                          .kv = 1 + static_cast<std::uint32_t>(random() % 2),
                          .page_size = 1 + static_cast<std::uint32_t>(random() % 9),
                          .heads = 1 + static_cast<std::uint32_t>(random() % 5),
                          .head_size = round % 4 == 0 ? 1 + static_cast<std::uint32_t>(random() % 40)
                                                      : 8 * (1 + static_cast<std::uint32_t>(random() % 16)),
                          .element_bits = round % 3 == 0 ? 8U : 16U};
      const auto pick = [&] { return kAllArrangements[random() % std::size(kAllArrangements)]; };
      const bool out = random() % 2 == 0;
      const bool within = random() % 4 == 0;
      const Memory from(out || within ? MemoryKind::kDevice : MemoryKind::kPinned,
                        {.shape = shape, .arrangement = pick(), .blocks = 40, .alignment = 64});
      const Memory to(!out || within ? MemoryKind::kDevice : MemoryKind::kPinned,
                      {.shape = shape, .arrangement = pick(), .blocks = 50});
      from.fill(*driver_, random());
      to.fill(*driver_, random());
      const auto before = to.read(*driver_);
      const auto source = from.read(*driver_);
      const CopyPlanPtr plan = *CopyPlan::make(from.layout(), to.layout());
      std::vector<TransferBlock> blocks = random_pairs(30, 40, 50, random);
      const Verify verify = round % 5 == 4 ? Verify::kOff : Verify::kMake;
      const TransferOutcome made = run(*executor, plan, blocks, verify);
      ASSERT_TRUE(made.all_done()) << made.error;
      ASSERT_EQ(to.read(*driver_), expected_after(*from.layout(), source, *to.layout(), before, blocks))
          << tuning.to_string() << " round " << round;
      if (verify == Verify::kOff) {
        continue;
      }
      for (std::size_t i = 0; i < blocks.size(); ++i) {
        ASSERT_EQ(made.blocks[i].checksum, checksum_of(*from.layout(), source, blocks[i].pair.source, blocks[i].tag));
        blocks[i].expected = made.blocks[i].checksum;
      }
      // Again, with checks; one block has a wrong tag, one a wrong checksum.
      blocks[3].tag.low ^= 1;
      blocks[7].expected = Checksum{static_cast<std::uint64_t>(blocks[7].expected) ^ 4};
      const TransferOutcome checked = run(*executor, plan, blocks, Verify::kCheck);
      for (std::size_t i = 0; i < blocks.size(); ++i) {
        EXPECT_EQ(checked.blocks[i].state, i == 3 || i == 7 ? BlockState::kMismatch : BlockState::kDone);
      }
    }
  }
}

TEST_F(GpuTest, DetectsAFlippedBitOnTheWayBack) {
  const KvShape shape{.layers = 4, .kv = 2, .page_size = 16, .heads = 8, .head_size = 128, .element_bits = 16};
  const Memory device(MemoryKind::kDevice, {.shape = shape, .arrangement = Arrangement::kLayersKvNhd, .blocks = 8});
  const Memory host(MemoryKind::kPinned, {.shape = shape, .blocks = 8});
  device.fill(*driver_, 1);
  const std::unique_ptr<CudaExecutor> executor = *CudaExecutor::create({});
  std::vector<TransferBlock> blocks;
  for (std::uint32_t i = 0; i < 8; ++i) {
    blocks.push_back({.pair = {i, i}, .tag = {i, 1}});
  }
  const TransferOutcome out = run(*executor, *CopyPlan::make(device.layout(), host.layout()), blocks, Verify::kMake);
  for (std::uint32_t i = 0; i < 8; ++i) {
    blocks[i].expected = out.blocks[i].checksum;
  }
  std::byte* const base = host.layout()->regions()[0]->base();
  base[5 * shape.block_bytes() + 77'777] ^= std::byte{0x10};
  const TransferOutcome in = run(*executor, *CopyPlan::make(host.layout(), device.layout()), blocks, Verify::kCheck);
  for (std::uint32_t i = 0; i < 8; ++i) {
    EXPECT_EQ(in.blocks[i].state, i == 5 ? BlockState::kMismatch : BlockState::kDone);
  }
  EXPECT_THAT(in.error, HasSubstr("checksum"));
}

TEST_F(GpuTest, ManyTransfersBothWaysAtOnce) {
  const KvShape shape{.layers = 8, .kv = 2, .page_size = 16, .heads = 8, .head_size = 64, .element_bits = 16};
  constexpr std::uint32_t kBlocks = 64;
  const Memory device(MemoryKind::kDevice,
                      {.shape = shape, .arrangement = Arrangement::kLayersBlockHnd, .blocks = kBlocks});
  const Memory host(MemoryKind::kPinned,
                    {.shape = shape, .arrangement = Arrangement::kContiguousHnd, .blocks = kBlocks});
  device.fill(*driver_, 3);
  host.fill(*driver_, 4);
  const auto device_before = device.read(*driver_);
  const auto host_before = host.read(*driver_);
  const std::unique_ptr<CudaExecutor> executor = *CudaExecutor::create({});
  const CopyPlanPtr out = *CopyPlan::make(device.layout(), host.layout());
  const CopyPlanPtr in = *CopyPlan::make(host.layout(), device.layout());
  // The lower halves go out, the upper halves come in, a block at a time.
  std::vector<std::future<TransferOutcome>> futures;
  std::vector<TransferBlock> lower;
  std::vector<TransferBlock> upper;
  for (std::uint32_t i = 0; i < kBlocks / 2; ++i) {
    lower.push_back({.pair = {i, i}});
    upper.push_back({.pair = {kBlocks / 2 + i, kBlocks / 2 + i}});
    for (const bool is_out : {true, false}) {
      auto promise = std::make_shared<std::promise<TransferOutcome>>();
      futures.push_back(promise->get_future());
      ASSERT_TRUE(
          executor->submit({.plan = is_out ? out : in,
                            .blocks = {is_out ? lower.back() : upper.back()},
                            .done = [promise](TransferOutcome&& outcome) { promise->set_value(std::move(outcome)); }}));
    }
  }
  for (std::future<TransferOutcome>& future : futures) {
    EXPECT_TRUE(future.get().all_done());
  }
  EXPECT_EQ(host.read(*driver_), expected_after(*device.layout(), device_before, *host.layout(), host_before, lower));
  EXPECT_EQ(device.read(*driver_), expected_after(*host.layout(), host_before, *device.layout(), device_before, upper));
}

TEST_F(GpuTest, BlocksAreLoadedFromAFile) {
  const KvShape shape{.layers = 8, .kv = 2, .page_size = 16, .heads = 8, .head_size = 64, .element_bits = 16};
  constexpr std::uint32_t kBlocks = 48;
  const Memory device(MemoryKind::kDevice,
                      {.shape = shape, .arrangement = Arrangement::kLayersKvNhd, .blocks = kBlocks});
  const BlockLayout::Options on_disk{.shape = shape, .blocks = kBlocks, .alignment = 4096};
  const Result<std::vector<std::uint64_t>> sizes = BlockLayout::region_sizes(on_disk);
  const Result<RegionPtr> file = file_region(
      {.path = ::testing::TempDir() + "gpu_test.blocks", .size = sizes->front(), .remove_on_release = true});
  ASSERT_TRUE(file) << file.error().message;
  const BlockLayoutPtr disk = *BlockLayout::make(on_disk, {*file});
  const std::unique_ptr<CudaExecutor> gpu = *CudaExecutor::create({});
  const std::unique_ptr<FileExecutor> files = *FileExecutor::make(steady_clock(), {});
  const std::unique_ptr<BounceExecutor> bounce =
      *BounceExecutor::make(steady_clock(), *gpu, *files,
                            {.ring = *pinned_region({.size = 8 * shape.block_bytes(), .required = true}),
                             .block_bytes = shape.block_bytes()});

  device.fill(*driver_, 9);
  const auto before = device.read(*driver_);
  std::vector<TransferBlock> blocks;
  for (std::uint32_t i = 0; i < kBlocks; ++i) {
    blocks.push_back({.pair = {i, (i * 7) % kBlocks}, .tag = {i, 5}});
  }
  const TransferOutcome out = run(*bounce, *CopyPlan::make(device.layout(), disk), blocks, Verify::kMake);
  ASSERT_TRUE(out.all_done()) << out.error;
  device.fill(*driver_, 10);
  for (std::uint32_t i = 0; i < kBlocks; ++i) {
    std::swap(blocks[i].pair.source, blocks[i].pair.destination);
    blocks[i].expected = out.blocks[i].checksum;
  }
  const TransferOutcome in = run(*bounce, *CopyPlan::make(disk, device.layout()), blocks, Verify::kCheck);
  ASSERT_TRUE(in.all_done()) << in.error;
  EXPECT_EQ(device.read(*driver_), before);
}

TEST_F(GpuTest, RejectsMemoryThatItCannotReach) {
  const KvShape shape{.layers = 1, .kv = 1, .page_size = 4, .heads = 1, .head_size = 16, .element_bits = 16};
  const Memory one(MemoryKind::kPinned, {.shape = shape, .blocks = 2});
  const Memory other(MemoryKind::kPinned, {.shape = shape, .blocks = 2});
  const std::unique_ptr<CudaExecutor> executor = *CudaExecutor::create({});
  const CopyPlanPtr plan = *CopyPlan::make(one.layout(), other.layout());
  EXPECT_FALSE(executor->can_move(*plan));
  const Result<TransferId> id = executor->submit({.plan = plan, .blocks = {{.pair = {0, 0}}}, .done = [](auto&&) {}});
  ASSERT_FALSE(id);
  EXPECT_THAT(id.error().message, HasSubstr("from pinned to pinned"));
  EXPECT_FALSE(CudaExecutor::create({.device = 63}));
  EXPECT_FALSE(device_region({.size = std::uint64_t{1} << 45}));
}

}  // namespace
}  // namespace cairn
