#include "cairn/events/zmq_socket.h"

#include <dlfcn.h>
#include <poll.h>
#include <zmq.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <map>
#include <utility>

#include "cairn/base/mutex.h"
#include "cairn/base/str_cat.h"

#ifdef __SANITIZE_THREAD__
// libzmq is not instrumented: the sanitizer does not see how its threads hand over messages.
extern "C" const char* __tsan_default_suppressions() {
  return "called_from_lib:libzmq.so\nrace:libzmq.so\n";
}  // NOLINT
#endif

namespace cairn::internal {

// The functions of libzmq that are used, looked up by name.
struct ZmqLibrary {
  decltype(&::zmq_ctx_new) ctx_new = nullptr;
  decltype(&::zmq_ctx_term) ctx_term = nullptr;
  decltype(&::zmq_socket) socket = nullptr;
  decltype(&::zmq_close) close = nullptr;
  decltype(&::zmq_setsockopt) setsockopt = nullptr;
  decltype(&::zmq_getsockopt) getsockopt = nullptr;
  decltype(&::zmq_bind) bind = nullptr;
  decltype(&::zmq_connect) connect = nullptr;
  decltype(&::zmq_send) send = nullptr;
  decltype(&::zmq_msg_init) msg_init = nullptr;
  decltype(&::zmq_msg_recv) msg_recv = nullptr;
  decltype(&::zmq_msg_data) msg_data = nullptr;
  decltype(&::zmq_msg_size) msg_size = nullptr;
  decltype(&::zmq_msg_more) msg_more = nullptr;
  decltype(&::zmq_msg_close) msg_close = nullptr;
  decltype(&::zmq_poll) poll = nullptr;
  decltype(&::zmq_socket_monitor) socket_monitor = nullptr;
  decltype(&::zmq_errno) error_number = nullptr;
  decltype(&::zmq_strerror) error_text = nullptr;

  [[nodiscard]] std::string last_error() const { return error_text(error_number()); }
};

namespace {

Result<ZmqLibrary> load_zmq(const std::string& name) {
  void* const handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    return fail(
        ErrorCode::kUnavailable,
        str_cat("events cannot be sent or received: ", name,
                " was not found; install libzmq5 (zeromq in Fedora and Arch), or set events.library to its path"));
  }
  ZmqLibrary zmq;
  const std::pair<const char*, void*> functions[] = {
      {"zmq_ctx_new", &zmq.ctx_new},
      {"zmq_ctx_term", &zmq.ctx_term},
      {"zmq_socket", &zmq.socket},
      {"zmq_close", &zmq.close},
      {"zmq_setsockopt", &zmq.setsockopt},
      {"zmq_getsockopt", &zmq.getsockopt},
      {"zmq_bind", &zmq.bind},
      {"zmq_connect", &zmq.connect},
      {"zmq_send", &zmq.send},
      {"zmq_msg_init", &zmq.msg_init},
      {"zmq_msg_recv", &zmq.msg_recv},
      {"zmq_msg_data", &zmq.msg_data},
      {"zmq_msg_size", &zmq.msg_size},
      {"zmq_msg_more", &zmq.msg_more},
      {"zmq_msg_close", &zmq.msg_close},
      {"zmq_poll", &zmq.poll},
      {"zmq_socket_monitor", &zmq.socket_monitor},
      {"zmq_errno", &zmq.error_number},
      {"zmq_strerror", &zmq.error_text},
  };
  for (const auto& [symbol, target] : functions) {
    void* const address = dlsym(handle, symbol);
    if (address == nullptr) {
      return fail(ErrorCode::kUnavailable, str_cat(name, " has no function ", symbol, "; install libzmq 4.2 or later"));
    }
    *static_cast<void**>(target) = address;
  }
  return zmq;
}

// Loaded once for each name, and kept: its threads may outlive a context's end by a moment.
Result<const ZmqLibrary*> library_named(const std::string& name) {
  static Mutex mutex{LockRank::kMetrics};
  static auto* const loaded = new std::map<std::string, ZmqLibrary>;
  const MutexLock lock(mutex);
  if (const auto found = loaded->find(name); found != loaded->end()) {
    return &found->second;
  }
  CAIRN_TRY_ASSIGN(const ZmqLibrary library, load_zmq(name));
  return &loaded->emplace(name, library).first->second;
}

int in_milliseconds(Duration duration) {
  return static_cast<int>(
      std::clamp<std::int64_t>(std::chrono::ceil<std::chrono::milliseconds>(duration).count(), 0, 60'000));
}

}  // namespace

Result<std::unique_ptr<ZmqContext>> ZmqContext::create(const std::string& library) {
  CAIRN_TRY_ASSIGN(const ZmqLibrary* const zmq, library_named(library));
  void* const context = zmq->ctx_new();
  if (context == nullptr) {
    return fail(ErrorCode::kExhausted, str_cat("cannot make a context of libzmq: ", zmq->last_error()));
  }
  return std::unique_ptr<ZmqContext>(new ZmqContext(*zmq, context));
}

ZmqContext::~ZmqContext() {
  while (library_.ctx_term(context_) != 0 && library_.error_number() == EINTR) {
  }
}

Result<ZmqSocket> ZmqSocket::open(ZmqContext& context, const Options& options) {
  constexpr int kTypes[] = {ZMQ_PUB, ZMQ_SUB, ZMQ_ROUTER, ZMQ_DEALER};
  const ZmqLibrary& zmq = context.library_;
  void* const handle = zmq.socket(context.context_, kTypes[static_cast<int>(options.kind)]);
  if (handle == nullptr) {
    return fail(ErrorCode::kExhausted, str_cat("cannot make a socket of libzmq: ", zmq.last_error()));
  }
  ZmqSocket socket(context, handle);
  const int linger = in_milliseconds(options.linger);
  const int yes = 1;
  bool is_set = zmq.setsockopt(handle, ZMQ_SNDHWM, &options.queue, sizeof options.queue) == 0 &&
                zmq.setsockopt(handle, ZMQ_RCVHWM, &options.queue, sizeof options.queue) == 0 &&
                zmq.setsockopt(handle, ZMQ_LINGER, &linger, sizeof linger) == 0 &&
                zmq.setsockopt(handle, ZMQ_MAXMSGSIZE, &options.most_bytes, sizeof options.most_bytes) == 0;
  if (options.kind == ZmqKind::kRouter) {
    // A peer that is gone or does not read is an error of send(), not a message that disappears.
    is_set = is_set && zmq.setsockopt(handle, ZMQ_ROUTER_MANDATORY, &yes, sizeof yes) == 0;
  }
  if (options.only_connected) {
    is_set = is_set && zmq.setsockopt(handle, ZMQ_IMMEDIATE, &yes, sizeof yes) == 0;
  }
  if (!is_set) {
    return fail(ErrorCode::kIo, str_cat("cannot set the options of a socket of libzmq: ", zmq.last_error()));
  }
  return socket;
}

ZmqSocket::ZmqSocket(ZmqSocket&& other) noexcept
    : context_(other.context_),
      socket_(std::exchange(other.socket_, nullptr)),
      monitor_(std::exchange(other.monitor_, nullptr)) {}

ZmqSocket& ZmqSocket::operator=(ZmqSocket&& other) noexcept {
  std::swap(context_, other.context_);
  std::swap(socket_, other.socket_);
  std::swap(monitor_, other.monitor_);
  return *this;
}

ZmqSocket::~ZmqSocket() {
  const ZmqLibrary& zmq = context_->library_;
  if (monitor_ != nullptr) {
    zmq.socket_monitor(socket_, nullptr, 0);
    zmq.close(monitor_);
  }
  if (socket_ != nullptr) {
    zmq.close(socket_);
  }
}

Status ZmqSocket::watch_connection() {
  const ZmqLibrary& zmq = context_->library_;
  constexpr const char* kEndpoint = "inproc://connection";  // a context has one socket that is watched
  const int no_linger = 0;
  monitor_ = zmq.socket(context_->context_, ZMQ_PAIR);
  if (monitor_ == nullptr || zmq.setsockopt(monitor_, ZMQ_LINGER, &no_linger, sizeof no_linger) != 0 ||
      zmq.socket_monitor(socket_, kEndpoint, ZMQ_EVENT_DISCONNECTED) != 0 || zmq.connect(monitor_, kEndpoint) != 0) {
    return fail(ErrorCode::kIo, str_cat("cannot watch a connection of libzmq: ", zmq.last_error()));
  }
  return {};
}

bool ZmqSocket::was_disconnected() {
  bool was = false;
  while (receive_from(monitor_)) {
    was = true;  // no other events are watched for
  }
  return was;
}

// With IPv6 on, a name such as localhost may become an address that an engine does not listen on.
void ZmqSocket::allow_ipv6(const std::string& endpoint) {
  const int yes = endpoint.find('[') != std::string::npos ? 1 : 0;
  (void)context_->library_.setsockopt(socket_, ZMQ_IPV6, &yes, sizeof yes);
}

Status ZmqSocket::bind(const std::string& endpoint) {
  const ZmqLibrary& zmq = context_->library_;
  allow_ipv6(endpoint);
  if (zmq.bind(socket_, endpoint.c_str()) != 0) {
    const bool is_wrong = zmq.error_number() == EINVAL || zmq.error_number() == EPROTONOSUPPORT;
    return fail(
        is_wrong ? ErrorCode::kInvalidArgument : ErrorCode::kIo,
        str_cat("cannot listen on '", endpoint, "': ", zmq.last_error(),
                "; give an endpoint such as tcp://*:5557 or ipc:///run/cairn-events, that no other process uses"));
  }
  return {};
}

Status ZmqSocket::connect(const std::string& endpoint) {
  const ZmqLibrary& zmq = context_->library_;
  allow_ipv6(endpoint);
  if (zmq.connect(socket_, endpoint.c_str()) != 0) {
    return fail(ErrorCode::kInvalidArgument,
                str_cat("cannot connect to '", endpoint, "': ", zmq.last_error(),
                        "; give an endpoint such as tcp://localhost:5557 or ipc:///run/cairn-events"));
  }
  return {};
}

Status ZmqSocket::subscribe(std::string_view topic) {
  const ZmqLibrary& zmq = context_->library_;
  if (zmq.setsockopt(socket_, ZMQ_SUBSCRIBE, topic.data(), topic.size()) != 0) {
    return fail(ErrorCode::kIo, str_cat("cannot subscribe to '", topic, "': ", zmq.last_error()));
  }
  return {};
}

std::string ZmqSocket::last_endpoint() const {
  std::array<char, 512> text{};
  std::size_t size = text.size();
  return context_->library_.getsockopt(socket_, ZMQ_LAST_ENDPOINT, text.data(), &size) == 0 ? text.data()
                                                                                            : std::string();
}

bool ZmqSocket::send(std::initializer_list<std::string_view> frames) {
  const ZmqLibrary& zmq = context_->library_;
  for (const std::string_view& frame : frames) {
    const bool is_last = &frame + 1 == frames.end();
    const int flags = ZMQ_DONTWAIT | (is_last ? 0 : ZMQ_SNDMORE);
    // libzmq sends all frames or none: only the first can be refused.
    while (zmq.send(socket_, frame.data(), frame.size(), flags) < 0) {
      if (zmq.error_number() != EINTR) {
        return false;
      }
    }
  }
  return true;
}

std::optional<std::vector<std::string>> ZmqSocket::receive_from(void* socket) {
  const ZmqLibrary& zmq = context_->library_;
  std::vector<std::string> frames;
  bool has_more = true;
  while (has_more) {
    zmq_msg_t message;
    zmq.msg_init(&message);
    if (zmq.msg_recv(&message, socket, ZMQ_DONTWAIT) < 0) {
      const bool is_interrupted = zmq.error_number() == EINTR;
      zmq.msg_close(&message);
      if (is_interrupted) {
        continue;
      }
      return std::nullopt;
    }
    if (frames.size() < kMostFrames) {
      frames.emplace_back(static_cast<const char*>(zmq.msg_data(&message)), zmq.msg_size(&message));
    }
    has_more = zmq.msg_more(&message) != 0;
    zmq.msg_close(&message);
  }
  return frames;
}

Status zmq_wait(std::span<const ZmqSocket* const> sockets, int fd, Duration longest) {
  std::array<zmq_pollitem_t, 8> items{};
  std::size_t count = 0;
  for (const ZmqSocket* const socket : sockets) {
    items[count++] = {.socket = socket->socket_, .fd = 0, .events = ZMQ_POLLIN, .revents = 0};
  }
  if (fd >= 0) {
    items[count++] = {.socket = nullptr, .fd = fd, .events = ZMQ_POLLIN, .revents = 0};
  }
  if (sockets.empty()) {
    pollfd item{.fd = fd, .events = POLLIN, .revents = 0};
    (void)::poll(&item, 1, in_milliseconds(longest));
    return {};
  }
  const ZmqLibrary& zmq = sockets.front()->context_->library_;
  if (zmq.poll(items.data(), static_cast<int>(count), in_milliseconds(longest)) < 0 && zmq.error_number() != EINTR) {
    return fail(ErrorCode::kIo, str_cat("cannot wait for messages: ", zmq.last_error()));
  }
  return {};
}

std::string endpoint_of_rank(const std::string& endpoint, std::uint32_t rank) {
  if (rank == 0 || endpoint.empty()) {
    return endpoint;
  }
  if (!endpoint.starts_with("tcp://")) {
    return str_cat(endpoint, "_dp", rank);
  }
  const std::size_t colon = endpoint.rfind(':');
  std::uint32_t port = 0;
  const char* const end = endpoint.data() + endpoint.size();
  const auto [at, error] = std::from_chars(endpoint.data() + colon + 1, end, port);
  if (error != std::errc() || at != end || port == 0) {
    return endpoint;
  }
  return str_cat(endpoint.substr(0, colon + 1), port + rank);
}

std::string sequence_frame(std::uint64_t sequence) {
  std::string frame(8, '\0');
  for (std::size_t i = 0; i < 8; ++i) {
    frame[i] = static_cast<char>(sequence >> (56 - 8 * i));
  }
  return frame;
}

std::optional<std::uint64_t> sequence_of(std::string_view frame) {
  if (frame.size() != 8) {
    return std::nullopt;
  }
  std::uint64_t sequence = 0;
  for (const char byte : frame) {
    sequence = (sequence << 8) | static_cast<std::uint8_t>(byte);
  }
  return sequence;
}

}  // namespace cairn::internal
