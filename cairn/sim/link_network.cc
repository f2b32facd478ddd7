#include "cairn/sim/link_network.h"

#include <algorithm>
#include <utility>

#include "cairn/base/check.h"

namespace cairn::sim {

Result<LinkId> LinkNetwork::add_link(const LinkOptions& options) {
  CAIRN_TRY_ASSIGN(std::unique_ptr<Link> link, Link::create(options));
  links_.push_back({.link = std::move(link)});
  return LinkId{static_cast<std::uint32_t>(links_.size() - 1)};
}

TransferId LinkNetwork::start(LinkId link, std::uint64_t bytes, LinkUser& user) {
  CAIRN_CHECK(has(link), "the link belongs to this network");
  CAIRN_CHECK(bytes <= Link::kMaxTransferBytes, "the transfer is within Link::kMaxTransferBytes");
  const TransferId id{started_++};
  links_[static_cast<std::size_t>(link)].link->start(now_, {.id = id, .user = &user, .bytes = bytes});
  ++in_flight_;
  changed(static_cast<std::uint32_t>(link));
  return id;
}

void LinkNetwork::leave(const LinkUser& user) {
  for (Entry& entry : links_) {
    entry.link->forget(user);
  }
}

void LinkNetwork::advance_to(TimePoint now) {
  while (!next_.empty() && next_.top().at <= now) {
    const std::uint32_t link = next_.top().link;
    const Link::Arrival arrival = links_[link].link->take_arrival();
    now_ = std::max(now_, arrival.at);
    --in_flight_;
    changed(link);
    if (arrival.transfer.user != nullptr) {
      arrival.transfer.user->on_arrived(arrival.transfer.id);
    }
  }
  now_ = std::max(now_, now);
}

std::optional<TimePoint> LinkNetwork::next_arrival() const {
  return next_.empty() ? std::nullopt : std::optional(next_.top().at);
}

std::optional<TimePoint> LinkNetwork::next_arrival_of(LinkId link, const LinkUser& user) const {
  return links_[static_cast<std::size_t>(link)].link->next_arrival_of(user);
}

void LinkNetwork::changed(std::uint32_t link) {
  Entry& entry = links_[link];
  ++entry.version;
  if (const std::optional<Link::Arrival> next = entry.link->next_arrival()) {
    next_.push({.at = next->at, .transfer = next->transfer.id, .link = link, .version = entry.version});
  }
  while (!next_.empty() && next_.top().version != links_[next_.top().link].version) {
    next_.pop();
  }
}

}  // namespace cairn::sim
