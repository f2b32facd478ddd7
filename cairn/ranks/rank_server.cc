#include "cairn/ranks/rank_server.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <limits>

#include "cairn/base/check.h"
#include "cairn/base/str_cat.h"

namespace cairn {

Result<std::unique_ptr<RankServer>> RankServer::make(const Clock& clock) {
  const int wake_fd = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (wake_fd < 0) {
    return fail(ErrorCode::kUnavailable, str_cat("no eventfd for the leader of ranks: ", std::strerror(errno),
                                                 "; raise the limit of open files"));
  }
  return std::unique_ptr<RankServer>(new RankServer(clock, wake_fd));
}

RankServer::~RankServer() {
  stop();
  ::close(wake_fd_);
}

void RankServer::start(User& user) {
  thread_ = std::thread([this, &user] { serve(user); });
}

void RankServer::stop() {
  if (thread_.joinable()) {
    CAIRN_CHECK(!is_own_thread(), "no callback destroys the group that runs it");
    is_stopping_ = true;
    wake();
    thread_.join();
  }
}

void RankServer::wake() {
  const std::uint64_t one = 1;
  // It fails only when the counter is full, and then the thread is awake.
  [[maybe_unused]] const ssize_t written = ::write(wake_fd_, &one, sizeof one);
}

// A clock that is moved by hand says when it was: by wake().
int RankServer::timeout_until(std::optional<TimePoint> time) const {
  if (!time || &clock_ != &steady_clock()) {
    return -1;
  }
  using std::chrono::milliseconds;
  const auto left = std::chrono::ceil<milliseconds>(*time - clock_.now()).count();
  return static_cast<int>(std::clamp<milliseconds::rep>(left, 0, std::numeric_limits<int>::max()));
}

void RankServer::serve(User& user) {
  while (!is_stopping_) {
    pollfd woken{.fd = wake_fd_, .events = POLLIN, .revents = 0};
    ::poll(&woken, 1, timeout_until(user.work()));
    std::uint64_t count = 0;
    [[maybe_unused]] const ssize_t read = ::read(wake_fd_, &count, sizeof count);
  }
}

}  // namespace cairn
