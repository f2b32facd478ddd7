// Arrivals: says which request of a source arrives next, and when.
//
// Requests arrive in order of time; at the same time, in the order of the source. The first one arrives at 0. A turn of
// a session arrives `delay` after the turn before it was answered. With a concurrency, the times of the source count
// only as delays of sessions: that many requests are in flight, and the next one arrives when one of them ends. A
// session counts as in flight until no further turn of it is known.
//
// Reads ahead, so that turns are known before they are due. That is exact for sources of up to kReadAhead requests, and
// for longer ones if the turns of a session are no further apart. A turn that is read too late arrives at once.
//
// Thread safety: not thread-safe.
// Ownership:  the source must outlive the object.
// Complexity: memory for the requests read ahead, and about 50 bytes for each session.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <queue>
#include <vector>

#include "cairn/base/clock.h"
#include "cairn/sim/replay.h"
#include "cairn/sim/sim_table.h"

namespace cairn::sim {

class Arrivals {
 public:
  static constexpr std::size_t kReadAhead = std::size_t{1} << 16;

  // If `concurrency` is 0, requests arrive at the times of the source.
  Arrivals(RequestSource& source, std::uint32_t concurrency);

  // When the next request arrives; std::nullopt if another one must end first, or none is left.
  [[nodiscard]] std::optional<TimePoint> next_time() const;
  // Writes the next request that has arrived by `now`, with the time of its arrival; false if there is none. A request
  // that still has a delay is the first turn of its session, which is an error in the source.
  [[nodiscard]] bool take(TimePoint now, ReplayRequest& request);
  // Whether no request that was read so far waits for the answer to another one. If so, next_time() is final until it
  // is reached or a turn of a session is read.
  [[nodiscard]] bool is_open_loop() const { return concurrency_ == 0 && sessions_.size() == 0; }
  // A request of this session (0: no session) was answered or refused.
  void completed(std::uint64_t session, TimePoint at);

 private:
  using Place = std::uint32_t;  // index in pending_
  static constexpr Place kNone = ~Place{0};

  struct Pending {
    ReplayRequest request;
    std::uint64_t order = 0;
    Duration after{0};   // for a later turn: time since the answer to the turn before
    Place next = kNone;  // next turn of the session
  };
  struct Due {
    TimePoint time;
    std::uint64_t order;
    Place place;
    friend bool operator>(const Due& a, const Due& b) { return a.time != b.time ? a.time > b.time : a.order > b.order; }
  };
  struct Session {
    TimePoint last_arrival{0};  // of the last turn that was read, in the source
    TimePoint answered{0};      // when the last turn was answered
    Place first = kNone;        // turns that were read and have not arrived
    Place last = kNone;
    bool is_known = false;
    bool is_busy = false;  // a turn is due or in flight
    [[nodiscard]] bool vacant() const { return !is_known; }
  };

  void read_ahead();
  void add(Place place);
  void add_turn(Session& session, Place place);
  void begin(Place place);
  void schedule(Place place, TimePoint time);

  RequestSource& source_;
  const std::uint32_t concurrency_;
  std::uint32_t in_flight_ = 0;  // only counted with a concurrency
  bool at_end_ = false;
  TimePoint now_{0};
  std::optional<TimePoint> first_arrival_;
  std::uint64_t count_ = 0;
  std::vector<Pending> pending_;
  std::vector<Place> unused_;
  std::priority_queue<Due, std::vector<Due>, std::greater<>> due_;
  std::deque<Place> ready_;  // with a concurrency: wait until fewer are in flight
  internal::SimTable<std::uint64_t, Session> sessions_;
};

}  // namespace cairn::sim
