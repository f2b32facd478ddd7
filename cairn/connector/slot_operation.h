// What a slot asks for: the operations that take_pending_operations() gives, in the order they are to be begun.
//
// Does:     each holds all that is needed to carry it out; none refers to the slot. Onboard and Offload are told as over
//           exactly once, by onboard_done() and offload_done(), when nothing touches their device blocks any more.
// Threads:  plain values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <variant>
#include <vector>

#include "cairn/base/ids.h"
#include "cairn/tokens/block_key.h"

namespace cairn {

// Names an operation; never used again, also not by a later request of the same id.
struct OperationId {
  std::uint64_t slot = 0;
  std::uint32_t number = 0;

  friend bool operator==(const OperationId&, const OperationId&) = default;
};

// Load keys[i] from whatever tier has it into device block slots[i].
struct OnboardOperation {
  OperationId id;
  std::uint64_t iteration = 0;  // that it was given out in
  std::size_t first_block = 0;  // of the sequence, which keys[0] names
  std::vector<BlockKey> keys;
  std::vector<BlockId> slots;
};

// Save device block slots[i], whose KV is computed through its last token, as keys[i].
struct OffloadOperation {
  OperationId id;
  std::size_t first_block = 0;
  std::vector<BlockKey> keys;
  std::vector<BlockId> slots;
};

// Nobody waits for this load any more: what has not begun of it need not. It is told as over as always. It may be over
// already.
struct CancelOperation {
  OperationId id;
};

// The engine is about to use the device blocks of those saves for something else: the next iteration begins only when
// they are over. Some may be over already.
struct FenceOperation {
  std::vector<OperationId> saves;
};

using SlotOperation = std::variant<OnboardOperation, OffloadOperation, CancelOperation, FenceOperation>;

}  // namespace cairn
