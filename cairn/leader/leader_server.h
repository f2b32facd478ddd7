// LeaderServer: the thread that serves a leader's connections: a poll loop over the listener, the sockets of ranks and the
// ends of their processes.
//
// It lets its user work when it was woken or a time has come, and reports what happens on connections. Messages that a
// process sent before it died are reported before its death.
//
// Thread safety: any thread may call wake(); everything else runs on the server's thread, the calls to its user included.
// Errors:        make(): the address cannot be listened on, or no descriptor is free.
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
#include "cairn/leader/leader_members.h"
#include "cairn/wire/owned_fd.h"
#include "cairn/wire/rank_address.h"
#include "cairn/wire/rank_message.h"
#include "cairn/wire/rank_socket.h"

struct pollfd;  // NOLINT(readability-identifier-naming): the system's

namespace cairn {

class LeaderServer {
 public:
  // Called on the server's thread, with no lock held.
  class User {
   public:
    User() = default;
    User(const User&) = delete;
    User& operator=(const User&) = delete;
    virtual ~User() = default;
    // Does what is due. Returns when it has to be called again even if nothing happens.
    virtual std::optional<TimePoint> work() = 0;
    // A peer connected; returns the id of the connection. `user`: the owner of the peer's process, if known.
    virtual ConnectionId accepted(const RankPeer& peer, std::optional<std::uint32_t> user) = 0;
    // Returns whether the peer has proven that it knows the secret. Until then payloads are limited to kMaxHelloPayload.
    virtual bool received(ConnectionId id, const RankDecoder::Received& message) = 0;
    // Nothing more comes from this connection; the user has to hang up.
    virtual void broken(ConnectionId id, const Error& error) = 0;
    // The process of the peer has ended.
    virtual void ended(ConnectionId id) = 0;
  };

  // Without an address it accepts no connections.
  [[nodiscard]] static Result<std::unique_ptr<LeaderServer>> make(const Clock& clock,
                                                                  const std::optional<RankAddress>& address);
  LeaderServer(const LeaderServer&) = delete;
  LeaderServer& operator=(const LeaderServer&) = delete;
  ~LeaderServer();

  void start(User& user);
  // Returns when the thread has ended; the user is not called any more.
  void stop();
  void wake();
  [[nodiscard]] bool is_own_thread() const { return std::this_thread::get_id() == thread_.get_id(); }
  [[nodiscard]] std::optional<RankAddress> address() const;

  // Does nothing if the connection has ended.
  void send(ConnectionId id, std::uint32_t generation, const RankMessage& message);
  // Closes the connection; bytes that are still queued are lost.
  void hang_up(ConnectionId id) { connections_.erase(id); }
  // The end of its process is not reported any more.
  void forget(ConnectionId id) { processes_.erase(id); }

 private:
  struct Connection {
    explicit Connection(RankSocket&& accepted) : socket(std::move(accepted)) {}
    RankSocket socket;
    bool has_more = false;             // messages have arrived that were not reported yet
    bool is_over = false;              // nothing more comes from the peer
    std::optional<Error> failed = {};  // of sending; reported after everything that has arrived
  };

  LeaderServer(const Clock& clock, OwnedFd wake_fd, std::optional<RankListener> listener);
  void serve();
  [[nodiscard]] int timeout_until(std::optional<TimePoint> time) const;
  [[nodiscard]] std::vector<pollfd> poll_list();
  void serve_connection(ConnectionId id, short happened);
  void take_messages(ConnectionId id, std::size_t most);
  void serve_process(ConnectionId id);
  void accept_some();

  const Clock& clock_;
  const OwnedFd wake_fd_;
  std::optional<RankListener> listener_;
  User* user_ = nullptr;
  bool listener_rests_ = false;  // no descriptor was free for a peer that waits
  std::map<ConnectionId, Connection> connections_;
  std::map<ConnectionId, OwnedFd> processes_;
  std::vector<ConnectionId> polled_;  // in the order of their descriptors in the poll list: connections, then processes
  std::size_t polled_connections_ = 0;
  std::atomic<bool> is_stopping_{false};
  std::thread thread_;
};

}  // namespace cairn
