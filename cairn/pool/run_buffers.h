// RunBuffers: recycles the memory of runs' block ids, so that taking and releasing runs allocates nothing in the long
// run.
//
// Thread safety: none; the lock of the pool guards it.
// Complexity: O(1) a call. Keeps memory for at most as many block ids as the pool has blocks, and 4,096 more.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "cairn/base/ids.h"

namespace cairn {

class RunBuffers {
 public:
  explicit RunBuffers(std::uint32_t pool_capacity);
  RunBuffers(const RunBuffers&) = delete;
  RunBuffers& operator=(const RunBuffers&) = delete;
  ~RunBuffers();

  struct Buffer {
    BlockId* block_ids;
    std::uint32_t capacity;  // at least `count`
  };
  [[nodiscard]] Buffer take(std::uint32_t count);
  // Requires: `buffer` came from take().
  void put_back(Buffer buffer);

  [[nodiscard]] std::size_t bytes() const { return kept_block_ids_ * sizeof(BlockId); }

 private:
  static constexpr std::uint32_t kSizes = 33;  // powers of two

  std::array<BlockId*, kSizes> kept_{};  // each buffer begins with the address of the next
  std::size_t kept_block_ids_ = 0;
  const std::size_t most_kept_;
};

}  // namespace cairn
