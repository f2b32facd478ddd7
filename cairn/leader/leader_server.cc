#include "cairn/leader/leader_server.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <limits>
#include <utility>

#include "cairn/base/check.h"
#include "cairn/base/own_thread.h"
#include "cairn/base/str_cat.h"

namespace cairn {

namespace {

// Messages of one connection before it is another's turn.
constexpr std::size_t kMessagesATurn = 256;
// Connections accepted before the user may close those that they replace.
constexpr int kAcceptedATurn = 16;
// Pause before accept() is retried when no descriptor was free.
constexpr int kRestMilliseconds = 100;

}  // namespace

Result<std::unique_ptr<LeaderServer>> LeaderServer::make(const Clock& clock,
                                                         const std::optional<RankAddress>& address) {
  OwnedFd wake_fd(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!wake_fd) {
    return fail(ErrorCode::kUnavailable, str_cat("cannot create an eventfd for the leader: ", std::strerror(errno),
                                                 "; raise the limit of open files"));
  }
  std::optional<RankListener> listener;
  if (address) {
    CAIRN_TRY_ASSIGN(listener, RankListener::listen(*address));
  }
  return std::unique_ptr<LeaderServer>(new LeaderServer(clock, std::move(wake_fd), std::move(listener)));
}

LeaderServer::LeaderServer(const Clock& clock, OwnedFd wake_fd, std::optional<RankListener> listener)
    : clock_(clock), wake_fd_(std::move(wake_fd)), listener_(std::move(listener)) {}

LeaderServer::~LeaderServer() { stop(); }

std::optional<RankAddress> LeaderServer::address() const {
  return listener_ ? std::optional(listener_->address()) : std::nullopt;
}

void LeaderServer::start(User& user) {
  user_ = &user;
  thread_ = start_own_thread("cairn-leader", [this] { serve(); });
}

void LeaderServer::stop() {
  if (thread_.joinable()) {
    CAIRN_CHECK(!is_own_thread(), "no callback destroys the leader that runs it");
    is_stopping_ = true;
    wake();
    thread_.join();
    connections_.clear();
    processes_.clear();
  }
}

void LeaderServer::wake() {
  const std::uint64_t one = 1;
  // Fails only if the counter is full, and then the thread is awake.
  [[maybe_unused]] const ssize_t written = ::write(wake_fd_.get(), &one, sizeof one);
}

void LeaderServer::send(ConnectionId id, std::uint32_t generation, const RankMessage& message) {
  const auto found = connections_.find(id);
  if (found == connections_.end() || found->second.failed) {
    return;
  }
  if (const Status sent = found->second.socket.send(message, generation); !sent) {
    found->second.failed = sent.error();
  }
}

// With a virtual clock, the caller that advances it calls wake().
int LeaderServer::timeout_until(std::optional<TimePoint> time) const {
  using std::chrono::milliseconds;
  const auto is_pending = [](const auto& each) {
    return !each.second.is_over && (each.second.has_more || each.second.failed);
  };
  if (std::any_of(connections_.begin(), connections_.end(), is_pending)) {
    return 0;
  }
  const int longest = listener_rests_ ? kRestMilliseconds : -1;
  if (!time || &clock_ != &steady_clock()) {
    return longest;
  }
  const auto left = std::chrono::ceil<milliseconds>(*time - clock_.now()).count();
  const auto most = longest < 0 ? std::numeric_limits<int>::max() : longest;
  return static_cast<int>(std::clamp<milliseconds::rep>(left, 0, most));
}

// The eventfd, the listener, connections, processes.
std::vector<pollfd> LeaderServer::poll_list() {
  std::vector<pollfd> list;
  polled_.clear();
  list.push_back({.fd = wake_fd_.get(), .events = POLLIN, .revents = 0});
  const bool listens = listener_ && !std::exchange(listener_rests_, false);
  list.push_back({.fd = listens ? listener_->fd() : -1, .events = POLLIN, .revents = 0});
  for (const auto& [id, connection] : connections_) {
    const auto events = static_cast<short>(connection.socket.wants_write() ? POLLIN | POLLOUT : POLLIN);
    list.push_back({.fd = connection.is_over ? -1 : connection.socket.fd(), .events = events, .revents = 0});
    polled_.push_back(id);
  }
  polled_connections_ = polled_.size();
  for (const auto& [id, process] : processes_) {
    list.push_back({.fd = process.get(), .events = POLLIN, .revents = 0});
    polled_.push_back(id);
  }
  return list;
}

void LeaderServer::serve() {
  while (!is_stopping_) {
    const int timeout = timeout_until(user_->work());
    std::vector<pollfd> list = poll_list();
    if (::poll(list.data(), list.size(), timeout) < 0) {
      CAIRN_CHECK(errno == EINTR || errno == ENOMEM, "poll() accepts the leader's own descriptors");
      continue;
    }
    std::uint64_t count = 0;
    [[maybe_unused]] const ssize_t read = ::read(wake_fd_.get(), &count, sizeof count);
    for (std::size_t i = 0; i < polled_.size(); ++i) {
      const short happened = list[i + 2].revents;
      if (i < polled_connections_) {
        serve_connection(polled_[i], happened);
      } else if (happened != 0) {
        serve_process(polled_[i]);
      }
    }
    if (list[1].revents != 0) {
      accept_some();
    }
  }
}

void LeaderServer::serve_connection(ConnectionId id, short happened) {
  const auto found = connections_.find(id);
  if (found == connections_.end()) {
    return;
  }
  Connection& connection = found->second;
  if ((happened & POLLOUT) != 0 && !connection.failed) {
    if (const Status sent = connection.socket.flush(); !sent) {
      connection.failed = sent.error();
    }
  }
  if (connection.failed) {
    take_messages(id, std::numeric_limits<std::size_t>::max());
  } else if (connection.has_more || (happened & ~POLLOUT) != 0) {
    take_messages(id, kMessagesATurn);
  }
}

// Reports what has arrived, and why nothing more comes. The user changes connections only in work().
void LeaderServer::take_messages(ConnectionId id, std::size_t most) {
  const auto found = connections_.find(id);
  if (found == connections_.end()) {
    return;
  }
  Connection& connection = found->second;
  connection.has_more = false;
  for (std::size_t i = 0; i < most && !connection.is_over; ++i) {
    const Result<std::optional<RankDecoder::Received>> next = connection.socket.receive();
    if (next && *next) {
      if (user_->received(id, **next)) {
        connection.socket.set_max_payload(kMaxPayload);
      }
      continue;
    }
    if (!next || connection.failed) {
      connection.is_over = true;
      user_->broken(id, connection.failed ? *connection.failed : next.error());
    }
    return;
  }
  connection.has_more = !connection.is_over;
}

void LeaderServer::serve_process(ConnectionId id) {
  take_messages(id, std::numeric_limits<std::size_t>::max());
  processes_.erase(id);
  user_->ended(id);
}

void LeaderServer::accept_some() {
  for (int i = 0; i < kAcceptedATurn; ++i) {
    Result<std::optional<RankSocket>> next = listener_->accept();
    if (!next) {
      listener_rests_ = true;
      return;
    }
    if (!*next) {
      return;
    }
    RankSocket socket = **std::move(next);
    socket.set_max_payload(kMaxHelloPayload);
    RankPeer peer;
    std::optional<std::uint32_t> user;
    OwnedFd process = socket.take_process();
    if (socket.peer()) {
      user = socket.peer()->user;
      peer.process = process ? socket.peer()->process : 0;  // only useful if its end can be seen
    }
    const ConnectionId id = user_->accepted(peer, user);
    connections_.emplace(id, std::move(socket));
    if (process) {
      processes_.emplace(id, std::move(process));
    }
  }
}

}  // namespace cairn
