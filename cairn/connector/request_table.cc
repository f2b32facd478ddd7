#include "cairn/connector/request_table.h"

#include "cairn/base/check.h"

namespace cairn {

RequestHandle RequestTable::add(const RequestId& id, ExternallyManagedDeviceSlot& slot) {
  if (free_.empty()) {
    CAIRN_CHECK(entries_.size() < std::size_t{1} << kPlaceBits, "more requests at once than handles have places for");
    free_.push_back(entries_.size());
    entries_.push_back({.handle = RequestHandle{entries_.size()}});
  }
  const std::size_t place = free_.back();
  free_.pop_back();
  const std::uint64_t before = static_cast<std::uint64_t>(entries_[place].handle);
  const RequestHandle handle{before + (std::uint64_t{1} << kPlaceBits)};
  entries_[place] = {.handle = handle, .slot = &slot, .id = id};
  CAIRN_CHECK(by_id_.emplace(id, handle).second, "an id names one request at a time");
  return handle;
}

std::optional<RequestHandle> RequestTable::find(const RequestId& id) const {
  const auto found = by_id_.find(id);
  return found != by_id_.end() ? std::optional(found->second) : std::nullopt;
}

void RequestTable::remove(RequestHandle handle) {
  RequestEntry* const entry = get(handle);
  CAIRN_CHECK(entry != nullptr, "only a request that is there is removed");
  by_id_.erase(entry->id);
  *entry = {.handle = handle};
  free_.push_back(place_of(handle));
}

}  // namespace cairn
