#include "cairn/offload/offload_requests.h"

#include "cairn/base/check.h"

namespace cairn {

OffloadRequests::Id OffloadRequests::add(OffloadEdge::Request&& request, EngineBlocks&& source) {
  const Id id{next_id_++};
  const std::size_t count = request.keys.size();
  const auto place = open_
                         .emplace(id, Open{.keys = std::move(request.keys),
                                           .is_answered = std::vector<bool>(count),
                                           .unanswered = count,
                                           .source = std::move(source),
                                           .deadline = request.deadline,
                                           .done = std::move(request.done),
                                           .outcome = {.is_below = std::vector<bool>(count), .error = {}},
                                           .error_of = count})
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

void OffloadRequests::answer(Asker asker, bool is_below, const std::string& why) {
  const auto place = open_.find(asker.request);
  if (place == open_.end() || place->second.is_answered[asker.index]) {
    return;
  }
  Open& open = place->second;
  open.is_answered[asker.index] = true;
  open.outcome.is_below[asker.index] = is_below;
  if (!is_below && asker.index < open.error_of) {
    open.error_of = asker.index;
    open.outcome.error = why;
  }
  if (--open.unanswered == 0) {
    end(place);
  }
}

void OffloadRequests::close(Id request, const std::string& why) {
  const auto place = open_.find(request);
  if (place == open_.end()) {
    return;
  }
  const auto count = static_cast<std::uint32_t>(place->second.keys.size());
  for (std::uint32_t i = 0; i < count; ++i) {
    answer({request, i}, false, why);  // nothing, once the last is answered
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
  answers_.push_back({std::move(open.done), std::move(open.outcome), std::move(open.source.held)});
  open_.erase(request);
}

}  // namespace cairn
