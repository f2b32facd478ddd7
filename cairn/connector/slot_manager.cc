#include "cairn/connector/slot_manager.h"

#include <utility>

#include "cairn/connector/refuse.h"
#include "cairn/connector/request_table.h"

namespace cairn {
namespace {

Unexpected<Error> no_slot(const RequestId& request) {
  return refuse(ErrorCode::kNotFound, "request ", request.to_string(), " has no slot; create one");
}

}  // namespace

Result<SlotManager> SlotManager::make(std::uint32_t block_size, const KeyHasher& hasher) {
  CAIRN_TRY_ASSIGN(RequestTable requests, RequestTable::make(block_size, hasher));
  return SlotManager(std::make_unique<RequestTable>(std::move(requests)));
}

SlotManager::SlotManager(std::unique_ptr<RequestTable> requests) : requests_(std::move(requests)) {}
SlotManager::SlotManager(SlotManager&&) noexcept = default;
SlotManager& SlotManager::operator=(SlotManager&&) noexcept = default;
SlotManager::~SlotManager() = default;

std::size_t SlotManager::size() const { return requests_->size(); }

bool SlotManager::has_slot(const RequestId& request) const { return requests_->contains(request); }

Result<ExternallyManagedDeviceSlot*> SlotManager::create_slot(const RequestId& request, std::span<const Token> tokens,
                                                              const RequestSalt& salt, std::span<const MmRun> runs) {
  CAIRN_TRY_ASSIGN(RequestEntry* const entry, requests_->create(request, tokens, salt, runs, {}));
  return &entry->slot;
}

Result<ExternallyManagedDeviceSlot*> SlotManager::get_slot(const RequestId& request) {
  RequestEntry* const entry = requests_->find(request);
  if (entry == nullptr) {
    return no_slot(request);
  }
  return &entry->slot;
}

Status SlotManager::remove_slot(const RequestId& request) {
  RequestEntry* const entry = requests_->find(request);
  if (entry == nullptr) {
    return no_slot(request);
  }
  if (entry->slot.state() != SlotState::finished()) {
    return refuse(ErrorCode::kFailedPrecondition, "the slot of request ", request.to_string(), " is ",
                  entry->slot.state().to_string(), " with ", entry->slot.operations_in_flight(),
                  " operations in flight; finish the request first");
  }
  (void)requests_->remove(*entry);
  return {};
}

}  // namespace cairn
