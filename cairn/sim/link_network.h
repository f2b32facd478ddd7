// LinkNetwork: the links of a simulation and one clock for all of them, so that several workers can share a link.
//
// Users are notified of arrivals in order of time over all links and users; in the same nanosecond, in the order in
// which the transfers began. A transfer that a user starts from on_arrived() begins at that moment, even if time is
// being advanced further. Advancing time for one user advances it for all.
//
// Thread safety: not thread-safe.
// Ownership:  must outlive its users. Workers that share no link need not share a network.
// Errors:     add_link() fails as Link::create() does.
// Complexity: logarithmic in the number of links for each arrival.
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

  // Begins a transfer now. Requires: has(link); bytes <= Link::kMaxTransferBytes; the user calls leave() before it is
  // destroyed.
  TransferId start(LinkId link, std::uint64_t bytes, LinkUser& user);
  // Stops telling the user of arrivals. Its transfers take their share of the links until they end.
  void leave(const LinkUser& user);

  [[nodiscard]] TimePoint now() const { return now_; }
  // Advances time and tells users of all arrivals until `now`, inclusive. An earlier time is ignored.
  void advance_to(TimePoint now);
  // When the next transfer arrives: of all, or of one user on one link. Exact if no other transfer begins before.
  [[nodiscard]] std::optional<TimePoint> next_arrival() const;
  [[nodiscard]] std::optional<TimePoint> next_arrival_of(LinkId link, const LinkUser& user) const;

  [[nodiscard]] const LinkStats& stats(LinkId link) const {
    return links_[static_cast<std::size_t>(link)].link->stats();
  }
  // Transfers that have begun and not arrived.
  [[nodiscard]] std::size_t in_flight() const { return in_flight_; }

 private:
  struct Entry {
    std::unique_ptr<Link> link;
    std::uint64_t version = 0;  // increases with each change of its next arrival
  };
  // The next arrival on a link; stale if the link has another version.
  struct Next {
    TimePoint at;
    TransferId transfer;
    std::uint32_t link;
    std::uint64_t version;
    friend bool operator<(const Next& a, const Next& b) {  // so that the earliest is on top of the queue
      return std::tie(a.at, a.transfer) > std::tie(b.at, b.transfer);
    }
  };

  void changed(std::uint32_t link);

  std::vector<Entry> links_;
  std::priority_queue<Next> next_;  // its top is never stale
  std::uint64_t started_ = 0;
  std::size_t in_flight_ = 0;
  TimePoint now_{0};
};

}  // namespace cairn::sim
