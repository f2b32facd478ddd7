#include "cairn/manager/incident_log.h"

#include <utility>

namespace cairn {

namespace {

constexpr std::size_t kKept = 64;

}  // namespace

void IncidentLog::add(Incident::Kind kind, CacheLevel level, std::string text) {
  const Incident incident{.when = clock_.now(), .kind = kind, .level = level, .text = std::move(text)};
  {
    const MutexLock lock(mutex_);
    last_.push_back(incident);
    ++count_;
    if (last_.size() > kKept) {
      last_.pop_front();
    }
  }
  if (on_incident_ && !is_closed_) {
    on_incident_(incident);
  }
}

void IncidentLog::close(Incident incident) {
  is_closed_ = true;
  if (on_incident_) {
    incident.when = steady_clock().now();
    on_incident_(incident);
  }
}

void IncidentLog::add_to(ManagerStatus& status) const {
  const MutexLock lock(mutex_);
  status.incidents.assign(last_.begin(), last_.end());
  status.incident_count = count_;
}

std::uint64_t IncidentLog::count() const {
  const MutexLock lock(mutex_);
  return count_;
}

}  // namespace cairn
