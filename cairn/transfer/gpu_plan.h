// GpuPlan: a CopyPlan for the kernel and the copy engines of a GPU. Converts boxes into those of the kernel (block_copy.h), all
// of one size, with absolute addresses. If each block is dense in host memory, blocks can be gathered inside the GPU in the order
// in which the host has them and moved by a copy engine in large parts.
//
// Ownership: a value; valid as long as the CopyPlan.
// Errors: blocks that are too large for the kernel's numbers.
#pragma once

#include <cstdint>
#include <vector>

#include "cairn/base/result.h"
#include "cairn/transfer/block_copy.h"
#include "cairn/transfer/copy_plan.h"

namespace cairn::gpu {

enum class Direction : std::uint8_t { kFromDevice, kToDevice };

// Boxes and what they have in common.
struct BoxTable {
  Shape shape;
  std::vector<Box> boxes;
};

struct GpuPlan {
  // Addresses on both sides: the kernel reads one and writes the other.
  BoxTable direct;
  // For the host's side, offsets in a staging buffer that has the blocks of a part one after the other. No boxes if the host's
  // blocks are not dense.
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
