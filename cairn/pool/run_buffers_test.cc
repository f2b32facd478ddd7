#include "cairn/pool/run_buffers.h"

#include <gtest/gtest.h>

#include <vector>

namespace cairn {
namespace {

TEST(RunBuffersTest, GivesAtLeastWhatIsRequested) {
  RunBuffers buffers(100);
  for (const std::uint32_t count : {1U, 7U, 8U, 9U, 16U, 17U, 1000U, 100'000U}) {
    const RunBuffers::Buffer buffer = buffers.take(count);
    ASSERT_GE(buffer.capacity, count);
    for (std::uint32_t i = 0; i < buffer.capacity; ++i) {
      buffer.block_ids[i] = BlockId{i};  // all of it can be written
    }
    buffers.put_back(buffer);
  }
}

TEST(RunBuffersTest, GivesOutAgainWhatCameBack) {
  RunBuffers buffers(100);
  const RunBuffers::Buffer first = buffers.take(10);
  const RunBuffers::Buffer second = buffers.take(10);
  EXPECT_NE(first.block_ids, second.block_ids);
  EXPECT_EQ(buffers.bytes(), 0U);
  buffers.put_back(first);
  buffers.put_back(second);
  EXPECT_EQ(buffers.bytes(), 32 * sizeof(BlockId));
  const RunBuffers::Buffer again = buffers.take(16);
  const RunBuffers::Buffer other = buffers.take(9);
  EXPECT_EQ(again.block_ids, second.block_ids);
  EXPECT_EQ(other.block_ids, first.block_ids);
  EXPECT_EQ(buffers.bytes(), 0U);
  buffers.put_back(again);
  buffers.put_back(other);
}

TEST(RunBuffersTest, DoesNotGiveASmallerBufferThanRequested) {
  RunBuffers buffers(100);
  buffers.put_back(buffers.take(8));
  const RunBuffers::Buffer larger = buffers.take(9);
  EXPECT_GE(larger.capacity, 9U);
  buffers.put_back(larger);
}

TEST(RunBuffersTest, KeepsNoMoreThanThePoolHasBlocksAndAFewSmallOnes) {
  constexpr std::uint32_t kCapacity = 10'000;
  RunBuffers buffers(kCapacity);
  std::vector<RunBuffers::Buffer> taken;
  for (int i = 0; i < 100; ++i) {
    taken.push_back(buffers.take(1000));
  }
  taken.push_back(buffers.take(20 * kCapacity));
  for (const RunBuffers::Buffer& buffer : taken) {
    buffers.put_back(buffer);
  }
  EXPECT_GT(buffers.bytes(), kCapacity * sizeof(BlockId));
  EXPECT_LE(buffers.bytes(), (kCapacity + 4096) * sizeof(BlockId));
}

}  // namespace
}  // namespace cairn
