#include "cairn/sim/virtual_site.h"

#include <algorithm>

namespace cairn::sim {

std::size_t VirtualSite::join(SiteMember& member) {
  members_.push_back({.member = &member});
  return members_.size() - 1;
}

void VirtualSite::wake(std::size_t member) {
  if (!members_[member].is_awake) {
    members_[member].is_awake = true;
    awake_.push_back(member);
  }
}

void VirtualSite::settle(std::size_t member) {
  Entry& entry = members_[member];
  const std::optional<TimePoint> next = entry.member->settle();
  if (entry.due) {
    due_.erase({*entry.due, member});
  }
  entry.due = next ? std::optional(std::max(*next, clock_.now() + Duration(1))) : std::nullopt;
  if (entry.due) {
    due_.emplace(*entry.due, member);
  }
}

std::optional<TimePoint> VirtualSite::next_time() const {
  const std::optional<TimePoint> arrival = network_.next_arrival();
  if (due_.empty()) {
    return arrival;
  }
  return arrival ? std::min(*arrival, due_.begin()->first) : due_.begin()->first;
}

void VirtualSite::advance_to(TimePoint now) {
  for (std::optional<TimePoint> next = next_time(); next && *next <= now; next = next_time()) {
    clock_.advance(std::max(*next - clock_.now(), Duration(0)));
    network_.advance_to(clock_.now());
    while (!due_.empty() && due_.begin()->first <= clock_.now()) {
      const std::size_t member = due_.begin()->second;
      members_[member].due.reset();
      due_.erase(due_.begin());
      wake(member);
    }
    std::ranges::sort(awake_);
    for (const std::size_t member : std::exchange(awake_, {})) {
      members_[member].is_awake = false;
      settle(member);
    }
  }
  clock_.advance(std::max(now - clock_.now(), Duration(0)));
  network_.advance_to(clock_.now());
}

}  // namespace cairn::sim
