// EngineBlocks: blocks of a device tier that the engine manages.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "cairn/base/ids.h"
#include "cairn/pool/blocks.h"
#include "cairn/transfer/step_mark.h"

namespace cairn {

// Blocks that the engine holds in a tier without a pool. It must not change or reuse them until `held` is released.
struct EngineBlocks {
  std::vector<BlockId> block_ids = {};
  std::vector<BlockFacts> facts = {};  // one for each block, as far as they are known; not used for targets
  std::shared_ptr<void> held = {};     // released when nothing touches the blocks any more
  // KvBlockManager::fences() when the engine began to write the blocks. A save of blocks from before a fence is refused.
  // std::nullopt means now.
  std::optional<std::uint64_t> fence = {};
  // Transfers from and to the blocks do not begin before the engine has reached this step.
  StepMark not_before = {};
  TenantId tenant = kDefaultTenant;  // that copies of the blocks are charged to, in the tier that they go to
};

}  // namespace cairn
