// RankServer: the thread that a leader's connections are served on: a poll loop over whoever listens, the sockets of ranks
// and the deaths of their processes.
//
// Does:     lets its user work whenever it was woken or the time has come, and tells it what happens on links. What a
//           process said before it died is told before its death.
// Owner:    the leader. Threads: wake() from any; everything else on its own thread, the user's calls included.
// Fails:    make(): an address that cannot be listened on, no more descriptors.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "cairn/base/clock.h"
#include "cairn/base/result.h"
#include "cairn/ranks/owned_fd.h"
#include "cairn/ranks/rank_address.h"
#include "cairn/ranks/rank_members.h"
#include "cairn/ranks/rank_message.h"
#include "cairn/ranks/rank_socket.h"

struct pollfd;  // NOLINT(readability-identifier-naming): the system's

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
    // Somebody connected; the link names it from now on. `user`: whose process it is, where the socket tells.
    virtual RankLink accepted(const RankPeer& peer, std::optional<std::uint32_t> user) = 0;
    // Returns whether the peer has proven who it is. Until then its frames may have kMaxHelloPayload bytes.
    virtual bool received(RankLink link, const RankDecoder::Received& message) = 0;
    // Nothing more comes from this link: it is to be hung up.
    virtual void broken(RankLink link, const Error& error) = 0;
    // Its process is dead.
    virtual void ended(RankLink link) = 0;
  };

  // Without an address it only works when woken or in time.
  [[nodiscard]] static Result<std::unique_ptr<RankServer>> make(const Clock& clock,
                                                                const std::optional<RankAddress>& address);
  RankServer(const RankServer&) = delete;
  RankServer& operator=(const RankServer&) = delete;
  ~RankServer();

  void start(User& user);
  // Returns when the thread has ended; nothing is called any more.
  void stop();
  void wake();
  [[nodiscard]] bool is_own_thread() const { return std::this_thread::get_id() == thread_.get_id(); }
  [[nodiscard]] std::optional<RankAddress> address() const;

  // A link that is not there (any more) is nobody's.
  void send(RankLink link, std::uint32_t generation, const RankMessage& message);
  // What was sent and has not left by now does not.
  void hang_up(RankLink link) { connections_.erase(link); }
  // Its death is of no interest any more.
  void forget(RankLink link) { processes_.erase(link); }

 private:
  struct Connection {
    explicit Connection(RankSocket&& accepted) : socket(std::move(accepted)) {}
    RankSocket socket;
    bool has_more = false;             // messages that came and were not told: it is another's turn
    bool is_over = false;              // nothing more comes
    std::optional<Error> failed = {};  // to send; told when everything that came is
  };

  RankServer(const Clock& clock, OwnedFd wake_fd, std::optional<RankListener> listener);
  void serve();
  [[nodiscard]] int timeout_until(std::optional<TimePoint> time) const;
  [[nodiscard]] std::vector<pollfd> poll_list();
  void serve_connection(RankLink link, short happened);
  void take_messages(RankLink link, std::size_t most);
  void serve_process(RankLink link);
  void accept_some();

  const Clock& clock_;
  const OwnedFd wake_fd_;
  std::optional<RankListener> listener_;
  User* user_ = nullptr;
  bool listener_rests_ = false;  // it has no descriptors left for those who wait
  std::map<RankLink, Connection> connections_;
  std::map<RankLink, OwnedFd> processes_;
  std::vector<RankLink> polled_;  // whose descriptors stand in the list: connections, then processes
  std::size_t polled_connections_ = 0;
  std::atomic<bool> is_stopping_{false};
  std::thread thread_;
};

}  // namespace cairn
