// RankServer: the thread that a leader's connections are served on.
//
// Does:     lets its user work whenever it was woken or the time has come, and tells it what happens on links.
// Owner:    the leader. Threads: wake() from any; the rest on its own thread.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <thread>

#include "cairn/base/clock.h"
#include "cairn/base/result.h"

namespace cairn {

class RankServer {
 public:
  // Who is served: called on the server's thread, with no lock held.
  class User {
   public:
    User() = default;
    User(const User&) = delete;
    User& operator=(const User&) = delete;
    virtual ~User() = default;
    // Does what there is to do; when it wants to be called again by itself.
    virtual std::optional<TimePoint> work() = 0;
  };

  [[nodiscard]] static Result<std::unique_ptr<RankServer>> make(const Clock& clock);
  RankServer(const RankServer&) = delete;
  RankServer& operator=(const RankServer&) = delete;
  ~RankServer();

  void start(User& user);
  // Returns when the thread has ended; nothing is called any more.
  void stop();
  void wake();
  [[nodiscard]] bool is_own_thread() const { return std::this_thread::get_id() == thread_.get_id(); }

 private:
  RankServer(const Clock& clock, int wake_fd) : clock_(clock), wake_fd_(wake_fd) {}
  void serve(User& user);
  [[nodiscard]] int timeout_until(std::optional<TimePoint> time) const;

  const Clock& clock_;
  const int wake_fd_;
  std::atomic<bool> is_stopping_{false};
  std::thread thread_;
};

}  // namespace cairn
