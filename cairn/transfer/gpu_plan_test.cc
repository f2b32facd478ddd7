// The kernel's arithmetic, carried out on the CPU unit by unit: same copies as the plan, same sums as on the CPU.
#include "cairn/transfer/gpu_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "cairn/layout/layout_testing.h"
#include "cairn/transfer/block_copy.h"

namespace cairn::gpu {
namespace {

using cairn::testing::TestLayout;

BlockSums naive_sums(const TestLayout& memory, std::uint32_t block) {
  const std::uint64_t row_bytes = memory.shape().row_bytes();
  const std::uint64_t words = (row_bytes + 7) / 8;
  const std::vector<std::byte> rows = memory.gather(block);
  BlockSums sums;
  for (std::uint64_t row = 0; row < memory.shape().rows(); ++row) {
    for (std::uint64_t i = 0; i < words; ++i) {
      std::uint64_t word = 0;
      std::memcpy(&word, rows.data() + row * row_bytes + i * 8, std::min<std::uint64_t>(8, row_bytes - i * 8));
      add_word(sums, word, row * words + i);
    }
  }
  return sums;
}

// The effect of a launch, one unit after the other.
BlockSums run_unit_by_unit(const Launch& launch, const std::vector<Box>& boxes, const Pair& pair) {
  BlockSums sums;
  for (std::uint32_t i = 0; i < launch.shape.units; ++i) {
    const Unit unit = locate(launch, boxes.data(), pair, i);
    std::uint64_t words[2] = {};
    std::memcpy(words, reinterpret_cast<const void*>(unit.source), unit.bytes);
    std::memcpy(reinterpret_cast<void*>(unit.destination), words, unit.bytes);
    add_word(sums, words[0], unit.word);
    if (unit.bytes > 8) {
      add_word(sums, words[1], unit.word + 1);
    }
  }
  return sums;
}

TEST(DivisorTest, DividesAsDivisionDoes) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 20'000; ++i) {
    const auto divisor = static_cast<std::uint32_t>((random() >> (random() % 32)) % ((1U << 31) - 1)) + 1;
    const auto number = static_cast<std::uint32_t>(random()) >> 1;
    for (const std::uint32_t n : {number, divisor - 1, divisor, (1U << 31) - 1}) {
      std::uint32_t rest = n;
      ASSERT_EQ(Divisor::by(divisor).split(rest), n / divisor) << n << " by " << divisor;
      ASSERT_EQ(rest, n % divisor);
    }
  }
}

TEST(GpuPlanTest, CopiesAndSumsBetweenAllArrangements) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 60; ++round) {
    const KvShape shape{.layers = 1 + static_cast<std::uint32_t>(random() % 3),
                        .kv = 1 + static_cast<std::uint32_t>(random() % 2),
                        .page_size = 1 + static_cast<std::uint32_t>(random() % 5),
                        .heads = 1 + static_cast<std::uint32_t>(random() % 4),
                        .head_size = 2 * (1 + static_cast<std::uint32_t>(random() % 24)),
                        .element_bits = round % 3 == 0 ? 16U : 8U};
    const auto pick = [&] { return kAllArrangements[random() % std::size(kAllArrangements)]; };
    TestLayout from = TestLayout::make({.shape = shape, .arrangement = pick(), .blocks = 4});
    TestLayout to = TestLayout::make({.shape = shape, .arrangement = pick(), .blocks = 5});
    from.fill(random());
    const Result<CopyPlanPtr> plan = CopyPlan::make(from.layout(), to.layout());
    ASSERT_TRUE(plan) << plan.error().message;
    for (const Direction direction : {Direction::kFromDevice, Direction::kToDevice}) {
      to.fill(random());
      const Result<GpuPlan> made = make_gpu_plan(**plan, direction);
      ASSERT_TRUE(made);
      Launch launch;
      launch.shape = made->direct.shape;
      EXPECT_EQ(run_unit_by_unit(launch, made->direct.boxes, {1, 3}), naive_sums(from, 1));
      EXPECT_TRUE(to.holds(3, from, 1));
      EXPECT_TRUE(to.untouched_but({3}));

      if (!made->can_stage()) {
        continue;
      }
      // Block 2 is the host's: it is copied from or to place 1 of the staging area.
      std::vector<std::byte> staging(2 * made->block_bytes);
      launch.shape = made->staged.shape;
      const auto area = reinterpret_cast<std::uint64_t>(staging.data());
      const auto host = reinterpret_cast<std::byte*>(made->host_address + 2 * made->host_block_step);
      if (direction == Direction::kFromDevice) {
        launch.destination_base = area;
        EXPECT_EQ(run_unit_by_unit(launch, made->staged.boxes, {2, 1}), naive_sums(from, 2));
        std::memcpy(host, staging.data() + made->block_bytes, made->block_bytes);
      } else {
        launch.source_base = area;
        std::memcpy(staging.data() + made->block_bytes, host, made->block_bytes);
        EXPECT_EQ(run_unit_by_unit(launch, made->staged.boxes, {1, 2}), naive_sums(from, 2));
      }
      EXPECT_TRUE(to.holds(2, from, 2));
      EXPECT_TRUE(to.untouched_but({2, 3}));
    }
  }
}

TEST(GpuPlanTest, StagesForDenseHostBlocksOnly) {
  const KvShape shape{.layers = 3, .kv = 2, .page_size = 4, .heads = 2, .head_size = 8, .element_bits = 16};
  const TestLayout device = TestLayout::make({.shape = shape, .arrangement = Arrangement::kLayersKvNhd, .blocks = 4});
  const TestLayout dense = TestLayout::make({.shape = shape, .blocks = 4, .alignment = 1024});
  const GpuPlan staged = *make_gpu_plan(**CopyPlan::make(device.layout(), dense.layout()), Direction::kFromDevice);
  EXPECT_TRUE(staged.can_stage());
  EXPECT_EQ(staged.host_block_step % 1024, 0U);
  EXPECT_EQ(staged.block_bytes, shape.block_bytes());
  EXPECT_EQ(staged.run_bytes, 4U * 2 * 16);
  EXPECT_FALSE(make_gpu_plan(**CopyPlan::make(dense.layout(), device.layout()), Direction::kFromDevice)->can_stage());
  // A part of the layers is a part of each host block, dense too.
  const GpuPlan part = *make_gpu_plan(
      **CopyPlan::make(device.layout(), dense.layout(), {.first_layer = 1, .layers = 1}), Direction::kFromDevice);
  EXPECT_TRUE(part.can_stage());
  EXPECT_EQ(part.block_bytes, shape.block_bytes() / 3);
}

}  // namespace
}  // namespace cairn::gpu
