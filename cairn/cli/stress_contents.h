// StressContents: what blocks of a device hold when `cairn stress` fills them, and whether they still do.
//
// Does:     the bytes of a block follow from its key (layout/block_pattern.h). A GPU's blocks are written and read through
//           a few places of pinned memory.
// Owner:    the run; the layouts are held. Threads: any; the GPU's places are taken in turn.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "cairn/base/mutex.h"
#include "cairn/base/result.h"
#include "cairn/layout/block_layout.h"
#include "cairn/pool/blocks.h"
#include "cairn/tokens/block_key.h"
#include "cairn/transfer/copy_plan.h"
#include "cairn/transfer/executor.h"

namespace cairn::cli {

class StressContents {
 public:
  [[nodiscard]] static Result<std::unique_ptr<StressContents>> make(BlockLayoutPtr layout);

  [[nodiscard]] Status write(std::span<const BlockId> block_ids, std::span<const BlockKey> keys);
  // The first block whose bytes are not its key's: which, where, for people. None: all are right.
  [[nodiscard]] Result<std::optional<std::string>> find_wrong(const ImmutableBlocks& blocks);

 private:
  explicit StressContents(BlockLayoutPtr layout) : layout_(std::move(layout)) {}
  [[nodiscard]] Status make_staging();
  [[nodiscard]] Status copy(const CopyPlanPtr& plan, std::vector<TransferBlock> blocks);

  const BlockLayoutPtr layout_;
  // Of a GPU only.
  BlockLayoutPtr staging_;
  CopyPlanPtr in_;
  CopyPlanPtr out_;
  std::unique_ptr<TransferExecutor> executor_;
  Mutex mutex_{LockRank::kManager};
};

}  // namespace cairn::cli
