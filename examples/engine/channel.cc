#include "examples/engine/channel.h"

#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "cairn/base/str_cat.h"

namespace cairn::engine {
namespace {

constexpr std::uint64_t kLongestMessage = std::uint64_t{1} << 30;

struct Header {
  std::uint64_t size = 0;
  MessageKind kind{};
  std::uint32_t unused = 0;
};

Unexpected<Error> socket_error() {
  if (errno == EAGAIN || errno == EWOULDBLOCK) {
    return fail(ErrorCode::kExpired, "the other side is alive, but was silent for too long");
  }
  if (errno == EPIPE || errno == ECONNRESET) {
    return fail(ErrorCode::kUnavailable, "the other side is gone");
  }
  return fail(ErrorCode::kIo, str_cat("the socket failed: ", std::strerror(errno)));
}

Status send_bytes(int socket, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent >= 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(sent));
    } else if (errno != EINTR) {
      return socket_error();
    }
  }
  return {};
}

}  // namespace

Channel::Channel(int socket, std::chrono::seconds silence) : socket_(socket) {
  timeval limit{};
  limit.tv_sec = silence.count();
  ::setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  ::setsockopt(socket_, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
}

Channel::~Channel() {
  if (socket_ >= 0) {
    ::close(socket_);
  }
}

Channel::Channel(Channel&& other) noexcept : socket_(std::exchange(other.socket_, -1)) {}

Status Channel::send(MessageKind kind, std::span<const std::byte> bytes) {
  const Header header{bytes.size(), kind, 0};
  if (Status sent = send_bytes(socket_, std::as_bytes(std::span(&header, 1))); !sent) {
    return sent;
  }
  return send_bytes(socket_, bytes);
}

Status Channel::receive_bytes(std::span<std::byte> into) {
  while (!into.empty()) {
    const ssize_t received = ::recv(socket_, into.data(), into.size(), 0);
    if (received > 0) {
      into = into.subspan(static_cast<std::size_t>(received));
    } else if (received == 0) {
      return fail(ErrorCode::kUnavailable, "the other side is gone");
    } else if (errno != EINTR) {
      return socket_error();
    }
  }
  return {};
}

Result<Message> Channel::receive() {
  Header header;
  if (Status received = receive_bytes(std::as_writable_bytes(std::span(&header, 1))); !received) {
    return Unexpected(received.error());
  }
  if (header.size > kLongestMessage) {
    return fail(ErrorCode::kCorrupt, str_cat("a message of ", header.size, " bytes is none of ours"));
  }
  Message message{header.kind, std::vector<std::byte>(header.size)};
  if (Status received = receive_bytes(message.bytes); !received) {
    return Unexpected(received.error());
  }
  return message;
}

Result<std::vector<std::byte>> Channel::receive(MessageKind kind) {
  Result<Message> message = receive();
  if (!message) {
    return Unexpected(message.error());
  }
  if (message->kind != kind) {
    return fail(ErrorCode::kCorrupt, str_cat("a message of kind ", static_cast<std::uint32_t>(message->kind),
                                             " came where ", static_cast<std::uint32_t>(kind), " was due"));
  }
  return std::move(message->bytes);
}

}  // namespace cairn::engine
