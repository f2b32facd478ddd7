// RunBuffers: storage for the block numbers of runs, kept for the next one when a run ends, so that taking and releasing
// runs allocates nothing in the long run.
//
// Owner:    the block table, whose lock guards every call.
// Costs:    what is kept aside is never more than the pool has blocks (plus a few small ones).
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
    std::uint32_t capacity;  // at least as many as were asked for
  };
  [[nodiscard]] Buffer take(std::uint32_t count);
  // `buffer` came from take().
  void give_back(Buffer buffer);

  [[nodiscard]] std::size_t bytes() const { return kept_block_ids_ * sizeof(BlockId); }

 private:
  static constexpr std::uint32_t kSizes = 33;  // powers of two

  std::array<BlockId*, kSizes> kept_{};  // each buffer begins with the address of the next
  std::size_t kept_block_ids_ = 0;
  const std::size_t most_kept_;
};

}  // namespace cairn
