#include "cairn/wire/rank_socket.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>

#include "cairn/base/str_cat.h"

namespace cairn {
namespace {

constexpr int kBacklog = 128;
constexpr std::size_t kChunk = std::size_t{64} << 10;  // bytes of one read
constexpr std::size_t kMaxDescriptors = 4;             // that arrived and were not taken
constexpr std::size_t kKept = std::size_t{1} << 20;    // capacity that an empty queue keeps

Unexpected<Error> fail_with(int error, std::string_view what, const RankAddress& address) {
  const bool is_absent = error == ECONNREFUSED || error == ENOENT || error == EHOSTUNREACH || error == ENETUNREACH ||
                         error == EAGAIN || error == ECONNRESET;
  const ErrorCode code = is_absent                            ? ErrorCode::kUnavailable
                         : error == ETIMEDOUT                 ? ErrorCode::kExpired
                         : error == EMFILE || error == ENFILE ? ErrorCode::kExhausted
                         : error == EADDRINUSE                ? ErrorCode::kAlreadyExists
                                                              : ErrorCode::kIo;
  return fail(code, str_cat("cannot ", what, " ", address.to_string(), ": ", std::strerror(error)));
}

OwnedFd make_socket(int family) { return OwnedFd(::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)); }

sockaddr_un unix_name(const std::string& path) {
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  path.copy(name.sun_path, sizeof(name.sun_path) - 1);
  return name;
}

template <typename Name>
const sockaddr* as_name(const Name& name) {
  return reinterpret_cast<const sockaddr*>(&name);
}

struct FreeNames {
  void operator()(addrinfo* names) const { ::freeaddrinfo(names); }
};
using Names = std::unique_ptr<addrinfo, FreeNames>;

Result<Names> look_up(const RankAddress& address, const RankAddress::Tcp& place, int flags) {
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_STREAM;
  wanted.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(place.host.c_str(), std::to_string(place.port).c_str(), &wanted, &found);
  if (error == 0) return Names(found);
  return fail(ErrorCode::kNotFound,
              str_cat("cannot look up the host of ", address.to_string(), ": ", ::gai_strerror(error)));
}

void send_at_once(int fd) {
  const int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));  // fails on Unix sockets, which do not need it
}

// Returns 0, or the error number.
int wait_connected(int fd, TimePoint deadline) {
  for (;;) {
    const Duration left = deadline - steady_clock().now();
    if (left <= Duration::zero()) return ETIMEDOUT;
    constexpr Duration kLongest = std::chrono::hours(1);
    const auto wait = std::chrono::ceil<std::chrono::milliseconds>(std::min(left, kLongest));
    pollfd one{.fd = fd, .events = POLLOUT, .revents = 0};
    const int ready = ::poll(&one, 1, static_cast<int>(wait.count()));
    if (ready < 0 && errno != EINTR) return errno;
    if (ready > 0) break;
  }
  int error = 0;
  socklen_t size = sizeof(error);
  return ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) == 0 ? error : errno;
}

// Returns 0, or the error number.
int connect_to(int fd, const sockaddr* name, socklen_t bytes, TimePoint deadline) {
  if (::connect(fd, name, bytes) == 0) return 0;
  return errno == EINPROGRESS || errno == EINTR ? wait_connected(fd, deadline) : errno;
}

// Whether the file is a socket on which nobody listens: a process that died left it.
bool is_left_over(const std::string& path) {
  struct stat facts{};
  if (::lstat(path.c_str(), &facts) != 0 || !S_ISSOCK(facts.st_mode)) return false;
  const OwnedFd probe = make_socket(AF_UNIX);
  const sockaddr_un name = unix_name(path);
  return probe && ::connect(probe.get(), as_name(name), sizeof(name)) != 0 && errno == ECONNREFUSED;
}

}  // namespace

RankSocket::RankSocket(OwnedFd fd) : fd_(std::move(fd)) {
  send_at_once(fd_.get());
  ucred who{};
  socklen_t size = sizeof(who);
  int family = AF_UNSPEC;
  socklen_t family_size = sizeof(family);
  if (::getsockopt(fd_.get(), SOL_SOCKET, SO_DOMAIN, &family, &family_size) != 0 || family != AF_UNIX ||
      ::getsockopt(fd_.get(), SOL_SOCKET, SO_PEERCRED, &who, &size) != 0) {
    return;
  }
  peer_ = Peer{.user = who.uid, .process = static_cast<std::uint64_t>(std::max<pid_t>(who.pid, 0))};
  // If the process has died and its number belongs to another by now, the other one ends later, which proves as much.
  if (who.pid > 0) process_ = OwnedFd(static_cast<int>(::syscall(SYS_pidfd_open, who.pid, 0)));
}

Result<RankSocket> RankSocket::connect(const RankAddress& address, TimePoint deadline) {
  if (const auto* place = std::get_if<RankAddress::Unix>(&address.place)) {
    OwnedFd fd = make_socket(AF_UNIX);
    if (!fd) return fail_with(errno, "make a socket for", address);
    const sockaddr_un name = unix_name(place->path);
    const int error = connect_to(fd.get(), as_name(name), sizeof(name), deadline);
    if (error != 0) return fail_with(error, "connect to", address);
    RankSocket socket(std::move(fd));
    socket.accepts_descriptors_ = true;
    return socket;
  }
  CAIRN_TRY_ASSIGN(const Names names, look_up(address, *std::get_if<RankAddress::Tcp>(&address.place), 0));
  int error = EHOSTUNREACH;
  for (const addrinfo* name = names.get(); name != nullptr; name = name->ai_next) {
    OwnedFd fd = make_socket(name->ai_family);
    error = fd ? connect_to(fd.get(), name->ai_addr, name->ai_addrlen, deadline) : errno;
    if (error == 0) return RankSocket(std::move(fd));
  }
  return fail_with(error, "connect to", address);
}

Status RankSocket::send(const RankMessage& message, std::uint32_t generation) {
  if (queue_.size() - sent_ >= kMaxQueued) {
    return fail(ErrorCode::kExhausted, str_cat("the peer has not read ", queue_.size() - sent_,
                                               " bytes that wait for it; close the connection"));
  }
  // Bytes that are sent are erased once they are the larger part: each byte is moved at most once.
  if (sent_ > queue_.size() / 2) {
    queue_.erase(queue_.begin(), queue_.begin() + static_cast<std::ptrdiff_t>(sent_));
    for (Attached& each : attached_) each.at -= sent_;
    sent_ = 0;
  }
  if (const auto* welcome = std::get_if<RankWelcome>(&message); welcome != nullptr && welcome->has_host_memory) {
    if (!peer_) return fail(ErrorCode::kInvalidArgument, "memory can only be shared over a Unix socket");
    attached_.push_back({.at = queue_.size(), .memory = welcome->host_memory});
  }
  encode(message, generation, queue_);
  return flush();
}

// A descriptor goes with the first byte of its message; bytes before it are sent apart.
ssize_t RankSocket::send_some() {
  const bool is_due = !attached_.empty() && attached_.front().at == sent_;
  const std::size_t next = is_due ? 1 : 0;
  const std::size_t end = next < attached_.size() ? attached_[next].at : queue_.size();
  if (!is_due) return ::send(fd_.get(), queue_.data() + sent_, end - sent_, MSG_NOSIGNAL);
  iovec bytes{.iov_base = queue_.data() + sent_, .iov_len = end - sent_};
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &bytes;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  cmsghdr* const header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  const int descriptor = attached_.front().memory->descriptor();
  std::memcpy(CMSG_DATA(header), &descriptor, sizeof(descriptor));
  const ssize_t sent = ::sendmsg(fd_.get(), &message, MSG_NOSIGNAL);
  if (sent > 0) attached_.pop_front();
  return sent;
}

Status RankSocket::flush() {
  while (wants_write()) {
    const ssize_t sent = send_some();
    if (sent >= 0) {
      sent_ += static_cast<std::size_t>(sent);
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      return Status();
    } else if (errno != EINTR) {
      if (errno == EPIPE || errno == ECONNRESET) return fail(ErrorCode::kIo, "the peer closed the connection");
      return fail(ErrorCode::kIo, str_cat("cannot send to the peer: ", std::strerror(errno)));
    }
  }
  queue_.clear();
  sent_ = 0;
  if (queue_.capacity() > kKept) queue_ = {};
  return Status();
}

// Descriptors that arrive with the bytes are kept, up to kMaxDescriptors.
ssize_t RankSocket::receive_some() {
  // At most one frame: a peer that may only send small frames costs no more memory than that.
  chunk_.resize(std::min(kChunk, decoder_.room()));
  if (!accepts_descriptors_) return ::recv(fd_.get(), chunk_.data(), chunk_.size(), 0);
  iovec bytes{.iov_base = chunk_.data(), .iov_len = chunk_.size()};
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(kMaxDescriptors * sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &bytes;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const ssize_t count = ::recvmsg(fd_.get(), &message, MSG_CMSG_CLOEXEC);
  if (count < 0) return count;
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr; header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t descriptors = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < descriptors; ++i) {
      int descriptor = -1;
      std::memcpy(&descriptor, CMSG_DATA(header) + i * sizeof(int), sizeof(descriptor));
      OwnedFd owned(descriptor);
      if (received_.size() < kMaxDescriptors) received_.push_back(std::move(owned));
    }
  }
  return count;
}

Status RankSocket::take_memory(RankWelcome& welcome) {
  if (received_.empty()) {
    return fail(ErrorCode::kCorrupt,
                "the welcome announces shared memory but carries no descriptor; the connection is closed");
  }
  CAIRN_TRY_ASSIGN(welcome.host_memory, SharedMemory::adopt(received_.front().release()));
  received_.pop_front();
  return {};
}

Result<std::optional<RankDecoder::Received>> RankSocket::receive() {
  for (;;) {
    Result<std::optional<RankDecoder::Received>> received = decoder_.next();
    if (received && *received) {
      auto* const welcome = std::get_if<RankWelcome>(&(*received)->message);
      if (welcome != nullptr && welcome->has_host_memory) {
        CAIRN_TRY(take_memory(*welcome));
      }
    }
    if (!received || received->has_value()) return received;
    const ssize_t count = receive_some();
    if (count > 0) {
      decoder_.feed(std::span(chunk_).first(static_cast<std::size_t>(count)));
    } else if (count == 0 || errno == ECONNRESET) {
      return fail(ErrorCode::kIo, "the peer closed the connection");
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      return std::optional<RankDecoder::Received>();
    } else if (errno != EINTR) {
      return fail(ErrorCode::kIo, str_cat("cannot receive from the peer: ", std::strerror(errno)));
    }
  }
}

RankListener::SocketFile::SocketFile(std::string path) : path_(std::move(path)) {
  struct stat facts{};
  if (::lstat(path_.c_str(), &facts) == 0) inode_ = facts.st_ino;
}

RankListener::SocketFile& RankListener::SocketFile::operator=(SocketFile&& other) noexcept {
  const SocketFile old(std::move(*this));
  path_ = std::exchange(other.path_, {});
  inode_ = other.inode_;
  return *this;
}

RankListener::SocketFile::~SocketFile() {
  struct stat facts{};
  if (!path_.empty() && ::lstat(path_.c_str(), &facts) == 0 && facts.st_ino == inode_) ::unlink(path_.c_str());
}

Result<RankListener> RankListener::listen(const RankAddress& address) {
  if (const auto* place = std::get_if<RankAddress::Unix>(&address.place)) return listen_unix(address, place->path);
  return listen_tcp(address, *std::get_if<RankAddress::Tcp>(&address.place));
}

Result<RankListener> RankListener::listen_unix(const RankAddress& address, const std::string& path) {
  OwnedFd fd = make_socket(AF_UNIX);
  // The file gets the mode of the socket when it is created, so other users can never open it.
  if (!fd || ::fchmod(fd.get(), S_IRUSR | S_IWUSR) != 0) return fail_with(errno, "make a socket for", address);
  const sockaddr_un name = unix_name(path);
  int bound = ::bind(fd.get(), as_name(name), sizeof(name));
  if (bound != 0 && errno == EADDRINUSE && is_left_over(path)) {
    ::unlink(path.c_str());
    bound = ::bind(fd.get(), as_name(name), sizeof(name));
  }
  if (bound != 0) return fail_with(errno, "listen on", address);
  SocketFile file(path);
  if (::listen(fd.get(), kBacklog) != 0) return fail_with(errno, "listen on", address);
  return RankListener(std::move(fd), address, std::move(file));
}

Result<RankListener> RankListener::listen_tcp(const RankAddress& address, const RankAddress::Tcp& place) {
  CAIRN_TRY_ASSIGN(const Names names, look_up(address, place, AI_PASSIVE));
  int error = EADDRNOTAVAIL;
  for (const addrinfo* name = names.get(); name != nullptr; name = name->ai_next) {
    OwnedFd fd = make_socket(name->ai_family);
    const int on = 1;
    sockaddr_storage bound{};
    socklen_t size = sizeof(bound);
    if (fd && ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) == 0 &&
        ::bind(fd.get(), name->ai_addr, name->ai_addrlen) == 0 && ::listen(fd.get(), kBacklog) == 0 &&
        ::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&bound), &size) == 0) {
      // The port has the same offset in both address families.
      const auto port = ntohs(reinterpret_cast<const sockaddr_in*>(&bound)->sin_port);
      return RankListener(std::move(fd), RankAddress{RankAddress::Tcp{place.host, port}}, SocketFile());
    }
    error = errno;
  }
  return fail_with(error, "listen on", address);
}

Result<std::optional<RankSocket>> RankListener::accept() {
  OwnedFd fd(::accept4(fd_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (fd) return std::optional<RankSocket>(RankSocket(std::move(fd)));
  switch (errno) {
    case EMFILE:
    case ENFILE:
    case ENOBUFS:
    case ENOMEM:
      return fail(ErrorCode::kExhausted, str_cat("cannot accept a rank at ", address_.to_string(), ": ",
                                                 std::strerror(errno), "; raise the limit of open files"));
    case EBADF:
    case EINVAL:
    case ENOTSOCK:
      return fail_with(errno, "accept a rank at", address_);
    default:
      return std::optional<RankSocket>();  // no peer waits, or it closed before it was accepted
  }
}

}  // namespace cairn
