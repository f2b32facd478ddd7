// IncidentLog: the last incidents of a manager, and their report to its owner.
//
// Thread safety: any thread may call. The callback runs on the thread that adds the incident, with no lock held.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <string>

#include "cairn/base/clock.h"
#include "cairn/base/mutex.h"
#include "cairn/manager/manager_status.h"

namespace cairn {

class IncidentLog {
 public:
  using Callback = std::function<void(const Incident&)>;
  IncidentLog(const Clock& clock, Callback on_incident) : clock_(clock), on_incident_(std::move(on_incident)) {}

  void add(Incident::Kind kind, CacheLevel level, std::string text) CAIRN_EXCLUDES(mutex_);
  // Reports the last incident: the callback does not run any more after this one. `when` is the system's clock, because the
  // manager's may be gone.
  void close(Incident incident);
  // Copies the incidents and their number.
  void add_to(ManagerStatus& status) const CAIRN_EXCLUDES(mutex_);
  [[nodiscard]] std::uint64_t count() const CAIRN_EXCLUDES(mutex_);

 private:
  const Clock& clock_;
  const Callback on_incident_;
  std::atomic<bool> is_closed_{false};  // orders nothing: an incident that is being reported may still come
  mutable Mutex mutex_{LockRank::kHealth};
  std::deque<Incident> last_ CAIRN_GUARDED_BY(mutex_);
  std::uint64_t count_ CAIRN_GUARDED_BY(mutex_) = 0;
};

}  // namespace cairn
