#include "cairn/connector/request_table.h"

#include <utility>

#include "cairn/base/check.h"

namespace cairn {

RequestHandle RequestTable::add(const RequestId& id, ExternallyManagedDeviceSlot& slot) {
  // Nothing that may fail for want of memory comes after what is seen of it.
  if (free_.empty()) {
    CAIRN_CHECK(entries_.size() < std::size_t{1} << kPlaceBits, "more requests at once than handles have places for");
    make_room(free_, entries_.size() + 1);  // as many as may ever be free
    entries_.push_back({.handle = RequestHandle{entries_.size()}});
    free_.push_back(entries_.size() - 1);
  }
  const std::size_t place = free_.back();
  const std::uint64_t before = static_cast<std::uint64_t>(entries_[place].handle);
  const RequestHandle handle{before + (std::uint64_t{1} << kPlaceBits)};
  RequestEntry entry{.handle = handle, .slot = &slot, .id = id};
  CAIRN_CHECK(by_id_.emplace(id, handle).second, "an id names one request at a time");
  free_.pop_back();
  entries_[place] = std::move(entry);
  return handle;
}

std::optional<RequestHandle> RequestTable::find(const RequestId& id) const {
  const auto found = by_id_.find(id);
  return found != by_id_.end() ? std::optional(found->second) : std::nullopt;
}

RequestId RequestTable::remove(RequestHandle handle) {
  RequestEntry* const entry = get(handle);
  CAIRN_CHECK(entry != nullptr, "only a request that is there is removed");
  by_id_.erase(entry->id);
  RequestId id = std::move(entry->id);
  *entry = {.handle = handle};
  free_.push_back(place_of(handle));
  return id;
}

}  // namespace cairn
