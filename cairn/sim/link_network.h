// LinkNetwork: the links of a simulation and one time for all of them, so that several workers can share a link.
//
// Does:     tells each user of its arrivals, in the order of time over all links and users; among arrivals at one
//           nanosecond, in the order in which the transfers began. What a user starts when it is told begins at that
//           moment, though time is being moved further: advancing one user's time advances everybody's.
// Owner:    whoever runs the simulation; outlives its users. Workers that share no link need not share a network.
// Threads:  one.
// Costs:    logarithmic in the links for each arrival.
// Fails:    add_link(): as Link::create().
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <queue>
#include <tuple>
#include <vector>

#include "cairn/base/clock.h"
#include "cairn/base/result.h"
#include "cairn/sim/link.h"

namespace cairn::sim {

enum class LinkId : std::uint32_t {};

class LinkNetwork {
 public:
  LinkNetwork() = default;
  LinkNetwork(const LinkNetwork&) = delete;
  LinkNetwork& operator=(const LinkNetwork&) = delete;
  ~LinkNetwork() = default;

  [[nodiscard]] Result<LinkId> add_link(const LinkOptions& options);
  [[nodiscard]] bool has(LinkId link) const { return static_cast<std::size_t>(link) < links_.size(); }

  // Begins a transfer now. Requires: has(link); bytes <= Link::kMaxTransferBytes; the user leaves before it goes.
  TransferId start(LinkId link, std::uint64_t bytes, LinkUser& user);
  // The user is told of nothing any more. Its transfers take their share of the links to their end.
  void leave(const LinkUser& user);

  [[nodiscard]] TimePoint now() const { return now_; }
  // Moves time, and tells of all that arrives until then, that moment included. An earlier time changes nothing.
  void advance_to(TimePoint now);
  // When somebody's next transfer arrives; or, on one link, this user's. Exact, if nothing else begins before.
  [[nodiscard]] std::optional<TimePoint> next_arrival() const;
  [[nodiscard]] std::optional<TimePoint> next_arrival_of(LinkId link, const LinkUser& user) const;

  [[nodiscard]] const LinkStats& stats(LinkId link) const {
    return links_[static_cast<std::size_t>(link)].link->stats();
  }
  // Transfers that have begun and not arrived.
  [[nodiscard]] std::size_t under_way() const { return under_way_; }

 private:
  struct Entry {
    std::unique_ptr<Link> link;
    std::uint64_t version = 0;  // rises with everything that can change its next arrival
  };
  // What arrives next on a link; stale once the link has another version.
  struct Next {
    TimePoint at;
    TransferId transfer;
    std::uint32_t link;
    std::uint64_t version;
    friend bool operator<(const Next& a, const Next& b) {  // the first one on top of the queue
      return std::tie(a.at, a.transfer) > std::tie(b.at, b.transfer);
    }
  };

  void changed(std::uint32_t link);

  std::vector<Entry> links_;
  std::priority_queue<Next> next_;  // its top is never stale
  std::uint64_t started_ = 0;
  std::size_t under_way_ = 0;
  TimePoint now_{0};
};

}  // namespace cairn::sim
