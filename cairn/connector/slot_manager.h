// SlotManager: the slots of an engine's requests, by request id.
//
// Does:     makes, finds and removes slots. An id names one request at a time; it can be used again once its slot is
//           removed, and nothing told of the old request's copies is taken for the new one's.
// Fails:    as slot_error.h says; nothing changes.
// Owner:    whoever connects the engine; it owns the slots. A slot stays where it is until it is removed.
// Threads:  one at a time, the scheduler's, as for the slots.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>

#include "cairn/base/result.h"
#include "cairn/connector/externally_managed_device_slot.h"
#include "cairn/connector/request_id.h"
#include "cairn/connector/slot_error.h"
#include "cairn/tokens/hashes.h"
#include "cairn/tokens/key_hasher.h"
#include "cairn/tokens/mm_run.h"

namespace cairn {

class SlotManager {
 public:
  // `hasher` makes the keys of all requests. Fails: a block size of 0.
  [[nodiscard]] static Result<SlotManager> make(std::uint32_t block_size, const KeyHasher& hasher);

  [[nodiscard]] std::size_t size() const { return slots_.size(); }
  [[nodiscard]] bool has_slot(const RequestId& request) const { return slots_.contains(request); }
  // InvalidOperation: the id has a slot (kAlreadyExists), there are no tokens, or they make no sequence, as under a scheme
  // whose keys are not made from tokens.
  [[nodiscard]] SlotResult<ExternallyManagedDeviceSlot*> create_slot(const RequestId& request,
                                                                     std::span<const Token> tokens,
                                                                     const RequestSalt& salt = {},
                                                                     std::span<const MmRun> runs = {});
  [[nodiscard]] SlotResult<ExternallyManagedDeviceSlot*> get_slot(const RequestId& request);
  // InvalidOperation: it is not Finished.
  [[nodiscard]] SlotStatus remove_slot(const RequestId& request);

 private:
  SlotManager(std::uint32_t block_size, const KeyHasher& hasher) : block_size_(block_size), hasher_(hasher) {}

  std::uint32_t block_size_;
  KeyHasher hasher_;  // of requests without a salt
  std::uint64_t next_serial_ = 1;
  std::unordered_map<RequestId, ExternallyManagedDeviceSlot> slots_;
};

}  // namespace cairn
