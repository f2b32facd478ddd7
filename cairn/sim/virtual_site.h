// VirtualSite: one clock and the links of workers whose managers run in virtual time. Workers that share a link share a site.
//
// advance_to() goes from one event to the next: a transfer that arrives, or a time at which a member has something to do. At each
// the members concerned are settled, in the order in which they joined, so that every run is the same.
//
// Thread safety: not thread-safe.
// Ownership:     outlives its members.
// Complexity:    logarithmic in the number of members and links for each event.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "cairn/base/clock.h"
#include "cairn/sim/link_network.h"

namespace cairn::sim {

// A worker's manager and its executor.
class SiteMember {
 public:
  virtual ~SiteMember() = default;
  // Does everything that can be done now. Returns when there is something to do even if no transfer arrives.
  [[nodiscard]] virtual std::optional<TimePoint> settle() = 0;
};

class VirtualSite {
 public:
  VirtualSite() = default;
  VirtualSite(const VirtualSite&) = delete;
  VirtualSite& operator=(const VirtualSite&) = delete;
  ~VirtualSite() = default;

  [[nodiscard]] const Clock& clock() const { return clock_; }
  [[nodiscard]] LinkNetwork& network() { return network_; }
  [[nodiscard]] const LinkNetwork& network() const { return network_; }

  // Adds a member; returns its index.
  [[nodiscard]] std::size_t join(SiteMember& member);
  // The member is settled when the arrivals of this moment have all come.
  void wake(std::size_t member);
  // Settles the member now.
  void settle(std::size_t member);
  // When the member has something to do; std::nullopt if nothing.
  [[nodiscard]] std::optional<TimePoint> due(std::size_t member) const { return members_[member].due; }

  // An earlier time is ignored.
  void advance_to(TimePoint now);

 private:
  struct Entry {
    SiteMember* member = nullptr;
    std::optional<TimePoint> due = {};
    bool is_awake = false;
  };

  [[nodiscard]] std::optional<TimePoint> next_time() const;

  ManualClock clock_;
  LinkNetwork network_;
  std::vector<Entry> members_;
  std::set<std::pair<TimePoint, std::size_t>> due_;
  std::vector<std::size_t> awake_;
};

}  // namespace cairn::sim
