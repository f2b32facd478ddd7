#include "cairn/rank/rank_connection.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <utility>

#include "cairn/base/mutex.h"
#include "cairn/base/str_cat.h"
#include "cairn/wire/owned_fd.h"
#include "cairn/wire/rank_proof.h"
#include "cairn/wire/rank_socket.h"

namespace cairn {

namespace {

using Received = RankDecoder::Received;

constexpr Duration kConnectLimit = std::chrono::seconds(5);

class LocalConnection final : public RankConnection {
 public:
  LocalConnection(LocalLeader& leader, const RankClaim& claim) : leader_(leader), claim_(claim) {}
  ~LocalConnection() override { leave(); }

  Status open() override {
    leave();
    CAIRN_TRY_ASSIGN(std::unique_ptr<LocalLeader::Port> port,
                     leader_.join(claim_, [this](std::uint32_t generation, const RankMessage& message) {
                       const MutexLock lock(mutex_);
                       inbox_.push_back({.generation = generation, .message = message});
                       news_.notify_one();
                     }));
    const MutexLock lock(mutex_);
    port_ = std::move(port);
    is_open_ = true;
    return {};
  }

  Result<std::optional<Received>> receive(Duration longest) override {
    const MutexLock lock(mutex_);
    if (inbox_.empty() && !is_woken_) {
      news_.wait_for(mutex_, longest);
    }
    is_woken_ = false;
    std::optional<Received> next;
    if (!inbox_.empty()) {
      next = std::move(inbox_.front());
      inbox_.pop_front();
    }
    return next;
  }

  // The port stays: destroying it tells the leader that no transfer touches any block.
  void close() override {
    const MutexLock lock(mutex_);
    is_open_ = false;
  }

  void send(std::uint32_t generation, const RankMessage& message) override {
    std::shared_ptr<LocalLeader::Port> port;
    {
      const MutexLock lock(mutex_);
      port = is_open_ ? port_ : nullptr;
    }
    if (port != nullptr) {
      port->send(generation, message);
    }
  }

  void wake() override {
    const MutexLock lock(mutex_);
    is_woken_ = true;
    news_.notify_one();
  }

 private:
  void leave() {
    std::shared_ptr<LocalLeader::Port> port;
    {
      const MutexLock lock(mutex_);
      port = std::exchange(port_, nullptr);
    }
    port.reset();  // nothing is delivered any more
    const MutexLock lock(mutex_);
    inbox_.clear();
  }

  LocalLeader& leader_;
  const RankClaim claim_;
  Mutex mutex_{LockRank::kRankConnection};
  std::condition_variable_any news_;
  std::shared_ptr<LocalLeader::Port> port_ CAIRN_GUARDED_BY(mutex_);  // shared with a send() that is running
  std::deque<Received> inbox_ CAIRN_GUARDED_BY(mutex_);
  bool is_open_ CAIRN_GUARDED_BY(mutex_) = false;
  bool is_woken_ CAIRN_GUARDED_BY(mutex_) = false;
};

class SocketConnection final : public RankConnection {
 public:
  SocketConnection(RankAddress leader, const RankClaim& claim, std::string secret, OwnedFd woken)
      : leader_(std::move(leader)), claim_(claim), secret_(std::move(secret)), woken_(std::move(woken)) {}

  Status open() override {
    CAIRN_TRY_ASSIGN(RankSocket socket, RankSocket::connect(leader_, steady_clock().now() + kConnectLimit));
    if (socket.peer() && socket.peer()->user != ::geteuid()) {
      return fail(ErrorCode::kUnavailable,
                  str_cat("the process that listens at ", leader_.to_string(), " belongs to user ", socket.peer()->user,
                          ", not to user ", ::geteuid(), "; run the leader as the same user"));
    }
    socket_.emplace(std::move(socket));
    socket_->set_max_payload(kMaxWelcomePayload);
    challenge_.reset();
    const MutexLock lock(mutex_);
    is_open_ = true;
    return {};
  }

  Result<std::optional<Received>> receive(Duration longest) override {
    Result<std::optional<Received>> next = try_receive(longest);
    if (!next) {
      close();
    }
    return next;
  }

  void close() override {
    if (socket_) {
      static_cast<void>(send_queued());
      socket_.reset();
    }
    const MutexLock lock(mutex_);
    is_open_ = false;
    queue_.clear();
  }

  void send(std::uint32_t generation, const RankMessage& message) override {
    {
      const MutexLock lock(mutex_);
      if (!is_open_) {
        return;
      }
      queue_.push_back({.generation = generation, .message = message});
    }
    wake();
  }

  void wake() override {
    const std::uint64_t one = 1;
    // Fails only if the counter is full, and then the thread is awake.
    [[maybe_unused]] const ssize_t written = ::write(woken_.get(), &one, sizeof one);
  }

 private:
  Result<std::optional<Received>> try_receive(Duration longest) {
    if (!socket_) {
      return fail(ErrorCode::kFailedPrecondition, "the connection to the leader is not open");
    }
    const Status before = send_queued();
    Result<std::optional<Received>> next = take_next();  // if sending failed, the leader may have said why
    if (!before) {
      return next && *next ? std::move(next) : Result<std::optional<Received>>(Unexpected(before.error()));
    }
    if (!next || *next) {
      return next;
    }
    wait(longest);
    CAIRN_TRY(send_queued());
    return take_next();
  }

  Status send_queued() {
    std::deque<Received> queue;
    {
      const MutexLock lock(mutex_);
      queue.swap(queue_);
    }
    for (const Received& each : queue) {
      CAIRN_TRY(socket_->send(each.message, each.generation));
    }
    return socket_->wants_write() ? socket_->flush() : Status();
  }

  void wait(Duration longest) {
    pollfd both[] = {{.fd = socket_->fd(),
                      .events = static_cast<short>(socket_->wants_write() ? POLLIN | POLLOUT : POLLIN),
                      .revents = 0},
                     {.fd = woken_.get(), .events = POLLIN, .revents = 0}};
    const auto limit =
        std::clamp<std::int64_t>(std::chrono::ceil<std::chrono::milliseconds>(longest).count(), 0, 60'000);
    ::poll(both, 2, static_cast<int>(limit));
    std::uint64_t count = 0;
    [[maybe_unused]] const ssize_t read = ::read(woken_.get(), &count, sizeof count);
  }

  // Handles the handshake.
  Result<std::optional<Received>> take_next() {
    for (;;) {
      Result<std::optional<Received>> next = socket_->receive();
      if (!next || !*next) {
        return next;
      }
      const RankMessage& message = (*next)->message;
      if (const auto* challenge = std::get_if<RankChallenge>(&message)) {
        CAIRN_TRY(say_hello(*challenge));
        continue;
      }
      if (const auto* welcome = std::get_if<RankWelcome>(&message)) {
        if (!challenge_ || !is_proven(*welcome, hello_, challenge_->nonce, secret_)) {
          return fail(ErrorCode::kUnavailable, str_cat("the leader at ", leader_.to_string(),
                                                       " does not prove that it knows the secret; give both the same"));
        }
        socket_->set_max_payload(kMaxPayload);
      }
      return next;
    }
  }

  Status say_hello(const RankChallenge& challenge) {
    if (challenge_) {
      return fail(ErrorCode::kCorrupt, "the leader sent a second challenge");
    }
    challenge_ = challenge;
    hello_ = {.claim = claim_, .nonce = make_nonce()};
    hello_.proof = proof_of(hello_, challenge.nonce, secret_);
    return socket_->send(hello_, 0);
  }

  const RankAddress leader_;
  const RankClaim claim_;
  const std::string secret_;
  const OwnedFd woken_;
  std::optional<RankSocket> socket_;
  std::optional<RankChallenge> challenge_;
  RankHello hello_;
  Mutex mutex_{LockRank::kRankConnection};
  bool is_open_ CAIRN_GUARDED_BY(mutex_) = false;
  std::deque<Received> queue_ CAIRN_GUARDED_BY(mutex_);
};

}  // namespace

Result<std::unique_ptr<RankConnection>> make_socket_connection(const RankAddress& leader, const RankClaim& claim,
                                                               std::string secret) {
  OwnedFd woken(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!woken) {
    return fail(ErrorCode::kUnavailable, str_cat("cannot create an eventfd for a rank: ", std::strerror(errno),
                                                 "; raise the limit of open files"));
  }
  return std::unique_ptr<RankConnection>(
      std::make_unique<SocketConnection>(leader, claim, std::move(secret), std::move(woken)));
}

std::unique_ptr<RankConnection> make_local_connection(LocalLeader& leader, const RankClaim& claim) {
  return std::make_unique<LocalConnection>(leader, claim);
}

}  // namespace cairn
