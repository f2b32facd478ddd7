#include "cairn/ranks/rank_line.h"

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
#include "cairn/ranks/owned_fd.h"
#include "cairn/ranks/rank_proof.h"
#include "cairn/ranks/rank_socket.h"

namespace cairn {

namespace {

using Received = RankDecoder::Received;

constexpr Duration kConnectLimit = std::chrono::seconds(5);

class LocalLine final : public RankLine {
 public:
  LocalLine(RankGroup& leader, std::uint32_t rank) : leader_(leader), rank_(rank) {}
  ~LocalLine() override { leave(); }

  Status open() override {
    leave();
    Result<std::unique_ptr<RankGroup::LocalPort>> port =
        leader_.join(rank_, [this](std::uint32_t generation, const RankMessage& message) {
          const MutexLock lock(mutex_);
          inbox_.push_back({.generation = generation, .message = message});
          news_.notify_one();
        });
    if (!port) {
      return Unexpected(port.error());
    }
    const MutexLock lock(mutex_);
    port_ = *std::move(port);
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

  // The port stays: to destroy it says that nothing is touched any more.
  void close() override {
    const MutexLock lock(mutex_);
    is_open_ = false;
  }

  void send(std::uint32_t generation, const RankMessage& message) override {
    std::shared_ptr<RankGroup::LocalPort> port;
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
    std::shared_ptr<RankGroup::LocalPort> port;
    {
      const MutexLock lock(mutex_);
      port = std::exchange(port_, nullptr);
    }
    port.reset();  // nothing is delivered from here on
    const MutexLock lock(mutex_);
    inbox_.clear();
  }

  RankGroup& leader_;
  const std::uint32_t rank_;
  Mutex mutex_{LockRank::kRankLine};
  std::condition_variable_any news_;
  std::shared_ptr<RankGroup::LocalPort> port_ CAIRN_GUARDED_BY(mutex_);  // shared: a sender may hold it a little longer
  std::deque<Received> inbox_ CAIRN_GUARDED_BY(mutex_);
  bool is_open_ CAIRN_GUARDED_BY(mutex_) = false;
  bool is_woken_ CAIRN_GUARDED_BY(mutex_) = false;
};

class SocketLine final : public RankLine {
 public:
  SocketLine(RankAddress leader, RankLineOptions options, OwnedFd woken)
      : leader_(std::move(leader)), options_(std::move(options)), woken_(std::move(woken)) {}

  Status open() override {
    Result<RankSocket> socket = RankSocket::connect(leader_, steady_clock().now() + kConnectLimit);
    if (!socket) {
      return Unexpected(std::move(socket).error());
    }
    if (socket->peer() && socket->peer()->user != ::geteuid()) {
      return fail(ErrorCode::kUnavailable, str_cat("at ", leader_.to_string(), " listens user ", socket->peer()->user,
                                                   ", who is not ours; no talk with strangers"));
    }
    socket_.emplace(*std::move(socket));
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
    // It fails only when the counter is full, and then the thread is awake.
    [[maybe_unused]] const ssize_t written = ::write(woken_.get(), &one, sizeof one);
  }

 private:
  Result<std::optional<Received>> try_receive(Duration longest) {
    if (!socket_) {
      return fail(ErrorCode::kFailedPrecondition, "the line to the leader is not open");
    }
    const Status before = send_queued();
    Result<std::optional<Received>> next = take_next();  // after a broken send it may have said why
    if (!before) {
      return next && *next ? std::move(next) : Result<std::optional<Received>>(Unexpected(before.error()));
    }
    if (!next || *next) {
      return next;
    }
    wait(longest);
    if (Status sent = send_queued(); !sent) {
      return Unexpected(sent.error());
    }
    return take_next();
  }

  Status send_queued() {
    std::deque<Received> queue;
    {
      const MutexLock lock(mutex_);
      queue.swap(queue_);
    }
    for (const Received& each : queue) {
      if (Status sent = socket_->send(each.message, each.generation); !sent) {
        return sent;
      }
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

  // The talk up to the welcome is held here.
  Result<std::optional<Received>> take_next() {
    for (;;) {
      Result<std::optional<Received>> next = socket_->receive();
      if (!next || !*next) {
        return next;
      }
      const RankMessage& message = (*next)->message;
      if (const auto* challenge = std::get_if<RankChallenge>(&message)) {
        if (Status said = say_hello(*challenge); !said) {
          return Unexpected(said.error());
        }
        continue;
      }
      if (const auto* welcome = std::get_if<RankWelcome>(&message)) {
        if (!challenge_ || !is_proven(*welcome, hello_, challenge_->nonce, options_.secret)) {
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
      return fail(ErrorCode::kCorrupt, "the leader asks twice who this is");
    }
    challenge_ = challenge;
    hello_ = {.rank = options_.rank, .ranks = options_.ranks, .nonce = make_nonce()};
    hello_.proof = proof_of(hello_, challenge.nonce, options_.secret);
    return socket_->send(hello_, 0);
  }

  const RankAddress leader_;
  const RankLineOptions options_;
  const OwnedFd woken_;
  std::optional<RankSocket> socket_;
  std::optional<RankChallenge> challenge_;
  RankHello hello_;
  Mutex mutex_{LockRank::kRankLine};
  bool is_open_ CAIRN_GUARDED_BY(mutex_) = false;
  std::deque<Received> queue_ CAIRN_GUARDED_BY(mutex_);
};

}  // namespace

Result<std::unique_ptr<RankLine>> make_socket_line(const RankAddress& leader, RankLineOptions options) {
  OwnedFd woken(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!woken) {
    return fail(ErrorCode::kUnavailable,
                str_cat("no eventfd for a rank: ", std::strerror(errno), "; raise the limit of open files"));
  }
  return std::unique_ptr<RankLine>(std::make_unique<SocketLine>(leader, std::move(options), std::move(woken)));
}

std::unique_ptr<RankLine> make_local_line(RankGroup& leader, std::uint32_t rank) {
  return std::make_unique<LocalLine>(leader, rank);
}

}  // namespace cairn
