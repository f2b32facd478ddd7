// GpuPlan: a CopyPlan as the kernel and the copy engines of a GPU take it.
//
// Does:     turns boxes into the kernel's (block_copy.h), all of one size, with absolute addresses; and finds whether
//           each block is one dense piece of host memory: then blocks can be gathered inside the GPU in the order in
//           which the host has them, and moved by a copy engine in large pieces.
// Owner:    a value, made for as long as the CopyPlan lives.
// Threads:  pure.
// Fails:    blocks that are too large for the kernel's numbers.
#pragma once

#include <cstdint>
#include <vector>

#include "cairn/base/result.h"
#include "cairn/transfer/block_copy.h"
#include "cairn/transfer/copy_plan.h"

namespace cairn::gpu {

enum class Direction : std::uint8_t { kFromDevice, kToDevice };

// A table of boxes with what they have in common.
struct BoxTable {
  Shape shape;
  std::vector<Box> boxes;
};

struct GpuPlan {
  // Both sides by their addresses: the kernel reads one and writes the other.
  BoxTable direct;
  // The host's side by its offset in a staging area where the blocks of a piece lie one after the other; no boxes where
  // the host's blocks are not dense.
  BoxTable staged;
  std::uint64_t host_address = 0;  // of block 0
  std::uint64_t host_block_step = 0;
  std::uint64_t block_bytes = 0;
  // The smallest run that is contiguous on both sides.
  std::uint64_t run_bytes = 0;

  [[nodiscard]] bool can_stage() const { return !staged.boxes.empty(); }
};

[[nodiscard]] Result<GpuPlan> make_gpu_plan(const CopyPlan& plan, Direction direction);

}  // namespace cairn::gpu
