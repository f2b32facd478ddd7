// Operation: one load or save of a request, from the slot that needs it to its outcome.
//
// A slot makes it, the metadata of an iteration names it to the workers, OperationRunner starts it at the manager, and
// OperationInbox brings its outcome back to the slot. Workers know id, request, in_step and block_ids only.
//
// Thread safety: a plain value. What is to be done does not change once the slot has handed the operation out; who may
// touch the rest is said there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "cairn/base/ids.h"
#include "cairn/connector/request_id.h"
#include "cairn/tokens/block_key.h"
#include "cairn/tokens/hashes.h"

namespace cairn {

// Names an operation. Never used again, not even by a later request with the same id.
struct OperationId {
  std::uint64_t slot = 0;  // the RequestHandle of its request
  std::uint32_t number = 0;

  friend bool operator==(const OperationId&, const OperationId&) = default;
};

struct Operation {
  // --- what is to be done ---
  OperationId id = {};
  bool is_load = false;  // load keys[i] into device block block_ids[i]; else save block_ids[i] as keys[i]
  bool in_step = false;  // the request computes in the iteration that loads it: the engine waits layer by layer
  RequestId request = std::uint64_t{0};
  std::size_t first_block = 0;      // index in the sequence of the block that keys[0] names
  std::vector<BlockKey> keys = {};  // OperationRunner moves them to the manager
  std::vector<BlockId> block_ids = {};
  std::vector<BlockHash> token_hashes = {};  // of a save: one for each key
  SequenceHash parent{0};                    // of a save: of the block before the first one
  std::uint64_t fence = 0;                   // of a save: EngineBlocks::fence
  // Of a save: how its blocks are kept (BlockFacts), and whose they are.
  std::uint32_t priority = 0;
  std::uint32_t priority_ms = 0;
  std::uint32_t time_to_live_ms = 0;
  TenantId tenant = kDefaultTenant;

  // --- what became of it ---
  std::uint32_t loaded_blocks = 0;  // blocks from the first on that are on the device, verified; set before it is over
  bool is_fenced = false;           // the scheduler's thread
  // OperationInbox, under its lock.
  bool is_over = false;
  std::optional<std::size_t> place = {};
  // The manager's id of a load, once it is started. OperationRunner's thread.
  std::optional<std::uint64_t> manager_id = {};

  [[nodiscard]] std::size_t end_block() const { return first_block + block_ids.size(); }
};
using OperationPtr = std::shared_ptr<Operation>;

}  // namespace cairn
