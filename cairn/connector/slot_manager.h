// SlotManager: the slots of an engine's requests, by request id, for an engine that drives the slots itself. With a
// SchedulerConnector, which does that, it is not needed.
//
// An id names one request at a time and can be used again once its slot is removed; outcomes of the old request's operations
// are not taken for the new one's.
//
// Thread safety: none; the scheduler's thread alone.
// Ownership: owns the slots. A slot stays at its address until it is removed.
// Errors: as in slot.h; a failed call changes nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "cairn/base/result.h"
#include "cairn/connector/request_id.h"
#include "cairn/connector/slot.h"
#include "cairn/tokens/hashes.h"
#include "cairn/tokens/key_hasher.h"

namespace cairn {

class RequestTable;

class SlotManager {
 public:
  // `hasher` makes the keys of all requests. Fails if the block size is 0.
  [[nodiscard]] static Result<SlotManager> make(std::uint32_t block_size, const KeyHasher& hasher);
  SlotManager(SlotManager&&) noexcept;
  SlotManager& operator=(SlotManager&&) noexcept;
  ~SlotManager();

  [[nodiscard]] std::size_t size() const;
  [[nodiscard]] bool has_slot(const RequestId& request) const;
  // kAlreadyExists if the id has a slot; kInvalidArgument without tokens; and what TokenBlockSequence::create() refuses, as
  // tokens under a scheme whose keys are not made from tokens.
  [[nodiscard]] Result<ExternallyManagedDeviceSlot*> create_slot(const RequestId& request,
                                                                 std::span<const Token> tokens,
                                                                 const RequestSalt& salt = {},
                                                                 std::span<const MmRun> runs = {});
  [[nodiscard]] Result<ExternallyManagedDeviceSlot*> get_slot(const RequestId& request);
  // kFailedPrecondition unless the slot is Finished.
  [[nodiscard]] Status remove_slot(const RequestId& request);

 private:
  explicit SlotManager(std::unique_ptr<RequestTable> requests);

  std::unique_ptr<RequestTable> requests_;
};

}  // namespace cairn
