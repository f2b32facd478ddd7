#include "cairn/sim/arrivals.h"

#include <algorithm>
#include <utility>

#include "cairn/base/check.h"

namespace cairn::sim {

Arrivals::Arrivals(RequestSource& source, std::uint32_t concurrency) : source_(source), concurrency_(concurrency) {
  read_ahead();
}

void Arrivals::read_ahead() {
  while (!at_end_ && pending_.size() - unused_.size() < kReadAhead) {
    if (unused_.empty()) {
      unused_.push_back(static_cast<Place>(pending_.size()));
      pending_.emplace_back();
    }
    const Place place = unused_.back();
    Pending& pending = pending_[place];
    pending.request.session = 0;
    pending.request.delay.reset();
    if (!source_.next(pending.request)) {
      at_end_ = true;
      return;
    }
    unused_.pop_back();
    if (!first_arrival_) {
      first_arrival_ = pending.request.arrival;
    }
    pending.request.arrival = std::max(TimePoint(0), pending.request.arrival - *first_arrival_);
    pending.order = count_++;
    pending.next = kNone;
    add(place);
  }
}

void Arrivals::add(Place place) {
  const ReplayRequest& request = pending_[place].request;
  if (request.session == 0) {
    begin(place);
    return;
  }
  const auto [session, is_new] = sessions_.insert(request.session, {.is_known = true});
  if (is_new) {
    session->last_arrival = request.arrival;
    session->is_busy = true;
    begin(place);
  } else {
    add_turn(*session, place);
  }
}

void Arrivals::add_turn(Session& session, Place place) {
  Pending& turn = pending_[place];
  const TimePoint arrival = turn.request.arrival;
  turn.after = turn.request.delay ? *turn.request.delay : std::max(Duration(0), arrival - session.last_arrival);
  turn.request.delay.reset();
  session.last_arrival = arrival;
  if (session.is_busy) {
    (session.first == kNone ? session.first : pending_[session.last].next) = place;
    session.last = place;
    return;
  }
  session.is_busy = true;
  if (concurrency_ > 0) {
    ++in_flight_;
  }
  schedule(place, session.answered + turn.after);
}

// Begins a request that follows no other one.
void Arrivals::begin(Place place) {
  if (concurrency_ > 0) {
    ready_.push_back(place);
  } else {
    schedule(place, pending_[place].request.arrival);
  }
}

void Arrivals::schedule(Place place, TimePoint time) {
  due_.push({std::max(time, now_), pending_[place].order, place});
}

std::optional<TimePoint> Arrivals::next_time() const {
  if (!ready_.empty() && in_flight_ < concurrency_) {
    return now_;
  }
  return due_.empty() ? std::nullopt : std::optional(due_.top().time);
}

bool Arrivals::take(TimePoint now, ReplayRequest& request) {
  now_ = now;
  Place place = kNone;
  TimePoint arrival = now;
  if (!due_.empty() && due_.top().time <= now) {
    place = due_.top().place;
    arrival = due_.top().time;
    due_.pop();
  } else if (!ready_.empty() && in_flight_ < concurrency_) {
    place = ready_.front();
    ready_.pop_front();
    ++in_flight_;
  } else {
    return false;
  }
  std::swap(request, pending_[place].request);
  request.arrival = arrival;
  unused_.push_back(place);
  read_ahead();
  return true;
}

void Arrivals::completed(std::uint64_t number, TimePoint at) {
  now_ = std::max(now_, at);
  Session* session = number == 0 ? nullptr : sessions_.find(number);
  if (session != nullptr && session->first != kNone) {
    const Place turn = session->first;
    session->first = pending_[turn].next;
    schedule(turn, at + pending_[turn].after);
    return;
  }
  if (session != nullptr) {
    session->is_busy = false;
    session->answered = at;
  }
  if (concurrency_ > 0) {
    CAIRN_CHECK(in_flight_ > 0, "a request that is completed was in flight");
    --in_flight_;
  }
}

}  // namespace cairn::sim
