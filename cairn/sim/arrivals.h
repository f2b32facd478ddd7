// Arrivals: which request of a source comes next, and when.
//
// Does:     in order of time; at the same time, in order of the source. The first request comes at 0. A turn of a
//           session comes when the one before it was answered and its delay is over. With a concurrency, times of the
//           source count only as delays of sessions: so many requests are in flight, and the next one comes when one
//           of them is done; a session keeps its place until no turn of it is known.
//           Reads ahead, so that turns are known before they are due: exact for sources of up to kReadAhead requests,
//           and for longer ones where the turns of a session lie no further apart. A turn that is found too late comes
//           at once.
// Owner:    the source outlives it.
// Threads:  one.
// Costs:    memory for what is read ahead, and some 50 bytes for each session there ever was.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <queue>
#include <vector>

#include "cairn/base/clock.h"
#include "cairn/sim/flat_table.h"
#include "cairn/sim/request_source.h"

namespace cairn::sim {

class Arrivals {
 public:
  static constexpr std::size_t kReadAhead = std::size_t{1} << 16;

  // A concurrency of 0: requests come when the source says.
  Arrivals(RequestSource& source, std::uint32_t concurrency);

  // When the next request comes; none where that takes the completion of another one, or nothing is left.
  [[nodiscard]] std::optional<TimePoint> next_time() const;
  // The next one that has come by now, with the time when it came; false: there is none. One that still has a delay is
  // the first of its session: there is nothing that it could follow.
  [[nodiscard]] bool take(TimePoint now, ReplayRequest& request);
  // Whether no request that was read so far waits for the answer to another one. Then next_time() holds until it is
  // reached, or until a turn of a session is read.
  [[nodiscard]] bool is_open_loop() const { return concurrency_ == 0 && sessions_.size() == 0; }
  // A request of this session (0: of none) was answered, or refused.
  void completed(std::uint64_t session, TimePoint at);

 private:
  using Place = std::uint32_t;  // in pending_
  static constexpr Place kNone = ~Place{0};

  struct Pending {
    ReplayRequest request;
    std::uint64_t order = 0;
    Duration after{0};   // of a later turn: how long after the one before it
    Place next = kNone;  // turn of its session
  };
  struct Due {
    TimePoint time;
    std::uint64_t order;
    Place place;
    friend bool operator>(const Due& a, const Due& b) { return a.time != b.time ? a.time > b.time : a.order > b.order; }
  };
  struct Session {
    TimePoint last_arrival{0};  // of the last turn that was read, as the source says
    TimePoint answered{0};      // the last one
    Place first = kNone;        // turns that were read and are to come
    Place last = kNone;
    bool is_known = false;
    bool is_busy = false;  // a turn of it is due or in flight
    [[nodiscard]] bool vacant() const { return !is_known; }
  };

  void read_ahead();
  void add(Place place);
  void add_turn(Session& session, Place place);
  void begin(Place place);
  void schedule(Place place, TimePoint time);

  RequestSource& source_;
  const std::uint32_t concurrency_;
  std::uint32_t places_taken_ = 0;  // of the concurrency
  bool at_end_ = false;
  TimePoint now_{0};
  std::optional<TimePoint> first_arrival_;
  std::uint64_t count_ = 0;
  std::vector<Pending> pending_;
  std::vector<Place> unused_;
  std::priority_queue<Due, std::vector<Due>, std::greater<>> due_;
  std::deque<Place> ready_;  // with a concurrency: those that wait for a place
  internal::FlatTable<std::uint64_t, Session> sessions_;
};

}  // namespace cairn::sim
