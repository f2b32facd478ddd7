// StressContents: fills the device blocks of `cairn stress`, and verifies them. The bytes of a block are computed from its key
// (layout/block_pattern.h). Blocks of a GPU are copied through pinned memory.
//
// Thread safety: any thread; with a GPU, one call at a time.
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
  // Describes the first block with wrong bytes; std::nullopt if all are right.
  [[nodiscard]] Result<std::optional<std::string>> find_wrong(const ImmutableBlocks& blocks);

 private:
  explicit StressContents(BlockLayoutPtr layout) : layout_(std::move(layout)) {}
  [[nodiscard]] Status make_staging();
  [[nodiscard]] Status copy(const CopyPlanPtr& plan, std::vector<TransferBlock> blocks);

  const BlockLayoutPtr layout_;
  // Only with a GPU.
  BlockLayoutPtr staging_;
  CopyPlanPtr in_;
  CopyPlanPtr out_;
  std::unique_ptr<TransferExecutor> executor_;
  Mutex mutex_{LockRank::kManager};
};

}  // namespace cairn::cli
