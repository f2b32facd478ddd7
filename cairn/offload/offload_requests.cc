#include "cairn/offload/offload_requests.h"

#include "cairn/base/check.h"

namespace cairn {

OffloadRequests::Id OffloadRequests::add(OffloadRequest&& request, EngineBlocks&& source) {
  const Id id{next_id_++};
  const std::size_t count = request.keys.size();
  const auto place = open_
                         .emplace(id, Open{.keys = std::move(request.keys),
                                           .is_resolved = std::vector<bool>(count),
                                           .unresolved = count,
                                           .source = std::move(source),
                                           .deadline = request.deadline,
                                           .done = std::move(request.done),
                                           .outcome = {.is_below = std::vector<bool>(count), .error = {}},
                                           .error_index = count})
                         .first;
  deadlines_.emplace(request.deadline, id);
  if (count == 0) {
    end(place);
  }
  return id;
}

OffloadRequests::Open OffloadRequests::forget(Id request) {
  const auto place = open_.find(request);
  CAIRN_CHECK(place != open_.end(), "only an open request is forgotten");
  Open open = std::move(place->second);
  deadlines_.erase({open.deadline, request});
  open_.erase(place);
  return open;
}

const OffloadRequests::Open* OffloadRequests::find(Id request) const {
  const auto place = open_.find(request);
  return place == open_.end() ? nullptr : &place->second;
}

void OffloadRequests::resolve(RequestedKey key, std::optional<OffloadRefusal> refusal, const std::string& error) {
  const auto place = open_.find(key.request);
  if (place == open_.end() || place->second.is_resolved[key.index]) {
    return;
  }
  Open& open = place->second;
  open.is_resolved[key.index] = true;
  open.outcome.is_below[key.index] = !refusal;
  if (refusal) {
    ++open.outcome.refused[static_cast<std::size_t>(*refusal)];
  }
  if (refusal && key.index < open.error_index) {
    open.error_index = key.index;
    open.outcome.error = error;
  }
  if (--open.unresolved == 0) {
    end(place);
  }
}

void OffloadRequests::close(Id request, const std::string& error) {
  const auto place = open_.find(request);
  if (place == open_.end()) {
    return;
  }
  const auto count = static_cast<std::uint32_t>(place->second.keys.size());
  for (std::uint32_t i = 0; i < count; ++i) {
    resolve({request, i}, OffloadRefusal::kCancelled, error);
  }
}

std::vector<OffloadRequests::Id> OffloadRequests::all() const {
  std::vector<Id> ids;
  for (const auto& [id, open] : open_) {
    ids.push_back(id);
  }
  return ids;
}

std::vector<OffloadRequests::Id> OffloadRequests::due(TimePoint now) const {
  std::vector<Id> ids;
  for (const auto& [deadline, id] : deadlines_) {
    if (deadline > now) {
      break;
    }
    ids.push_back(id);
  }
  return ids;
}

std::optional<TimePoint> OffloadRequests::next_deadline() const {
  if (deadlines_.empty() || deadlines_.begin()->first == TimePoint::max()) {
    return std::nullopt;
  }
  return deadlines_.begin()->first;
}

void OffloadRequests::end(std::map<Id, Open>::iterator request) {
  Open& open = request->second;
  deadlines_.erase({open.deadline, request->first});
  ended_.push_back({std::move(open.done), std::move(open.outcome), std::move(open.source.held)});
  open_.erase(request);
}

}  // namespace cairn
